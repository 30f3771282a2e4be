"""Reasons in Triton's errors, which hide them behind lines of the kernel and behind each other."""

from __future__ import annotations

from triton.compiler.errors import CompilationError

from fastmma.host.errors import FastmmaError


def list_causes(error: BaseException | None) -> list[BaseException]:
    """List an error and those that led to it, the last one first."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__
    return found


def find_our_error(error: BaseException) -> FastmmaError | None:
    """Return the error of fastmma that Triton wrapped into its own."""
    return next((one for one in list_causes(error) if isinstance(one, FastmmaError)), None)


def explain(error: BaseException) -> str:
    """Return what went wrong, in one line.

    Examples
    --------
    >>> explain(ValueError("no such layout\\nand more lines"))
    'ValueError: no such layout'
    """
    for one in reversed(list_causes(error)):
        text = one.error_message if isinstance(one, CompilationError) else str(one)
        lines = [line.strip() for line in str(text or "").splitlines() if line.strip()]
        if lines:
            line = f", line {one.node.lineno} of the kernel" if isinstance(one, CompilationError) and one.node is not None else ""
            return f"{type(one).__name__}: {lines[0]}{line}"
    return type(error).__name__
