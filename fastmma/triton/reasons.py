"""Reasons in Triton's errors, which hide them behind lines of the kernel and behind each other."""

from __future__ import annotations

import linecache
import re
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from triton.compiler.errors import CompilationError
from triton.runtime.errors import InterpreterError
from triton.runtime.jit import JITFunction

from fastmma.host.errors import FastmmaError, NotEmulatedError
from fastmma.triton.advice import advise
from fastmma.triton.places import find_innermost

_PTXAS = re.compile(r"^ptxas .*; error\s*:\s*(.*)$")
_PLACE = re.compile(r":\d+\)")  # a file and its line
_UNSUPPORTED = "Unsupported function referenced"  # of a function that is no kernel's
_PIPELINE = "PassManager::run failed"  # of the compiler's passes, which print what they do not take


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
        lines = [found[1] for line in lines if (found := _PTXAS.search(line))] or lines
        if lines:
            line = f", line {one.node.lineno} of the kernel" if isinstance(one, CompilationError) and one.node is not None else ""
            return f"{type(one).__name__}: {lines[0]}{line}"
    return type(error).__name__


def refuses(error: BaseException) -> bool:
    """Tell whether Triton's compiler refuses what a kernel says, as it does on a machine with a GPU."""
    return isinstance(error, CompilationError) or str(error).startswith((_UNSUPPORTED, _PIPELINE))


def refusal(kernel: JITFunction[Any], functions: Sequence[JITFunction[Any]], error: BaseException, *, is_gluon: bool = False) -> str:
    """Say why Triton's compiler refuses a kernel, at which line, and what to do.

    Parameters
    ----------
    kernel, functions : triton.JITFunction, sequence of triton.JITFunction
        The kernel, and all that it reaches.
    error : BaseException
        The compiler's.
    is_gluon : bool
        Whether the kernel is one of Gluon, which no rules interpret.
    """
    nodes = [one for one in list_causes(error) if isinstance(one, CompilationError) and hasattr(one.node, "lineno")]
    lines = [(one.file_name, one.def_file_line_number + each.node.lineno - 1) for each in nodes for one in functions if one.src == each.src]
    place = find_innermost(lines) or (kernel.file_name, kernel.def_file_line_number)
    why = explain(error)
    said = why.partition(", line ")[0] if lines else why
    where = f"({_show(place)}), says Triton's compiler, so that no GPU runs it"
    rest = "" if is_gluon else '; lowering="rules" interprets it as it stands'
    return f"{kernel.__name__}: {said} {where}{advise(why)}{rest}"


def _show(place: tuple[str, int]) -> str:
    return f"{place[0]}:{place[1]}: {linecache.getline(*place).strip()}"


def _find_place(error: BaseException) -> str:
    """Return the line of a kernel at which an error arose, and its text; empty where there is none."""
    for one in reversed(list_causes(error)):
        frames: list[tuple[str, int]] = []
        trace: TracebackType | None = one.__traceback__
        while trace is not None:
            frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
            trace = trace.tb_next
        place = find_innermost(frames)
        if place is not None:
            return _show(place)
    return ""


def locate(error: BaseException, name: str, compiled: str) -> Exception | None:
    """Return an error of fastmma or of the interpreter with the kernel's line; None for any other error.

    Parameters
    ----------
    error : BaseException
    name : str
        The kernel's.
    compiled : str
        Why the compiler does not take the kernel; empty where it does.
    """
    ours: FastmmaError | None = find_our_error(error)
    if isinstance(ours, NotEmulatedError) and not _PLACE.search(str(ours)) and isinstance(error, InterpreterError):
        return NotEmulatedError(f"{ours} ({_find_place(error)})")
    if ours is None and compiled and isinstance(error, ValueError | NameError | TypeError | SyntaxError):  # before the first line ran
        unread: Exception = InterpreterError(
            f"{name}: {compiled}, says Triton's compiler; its interpreter says {explain(error)}{advise(compiled)}"
        )
        return unread
    if ours is not None or not isinstance(error, InterpreterError):
        return ours
    why = explain(error.__cause__ or error)
    also = f"; Triton's compiler says {compiled}" if compiled and compiled != why else ""
    located: Exception = InterpreterError(f"{name}: {why} ({_find_place(error)}){also}{advise(why) or advise(also)}")
    return located
