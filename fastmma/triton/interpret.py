"""`with fastmma.triton.interpret("H100")`: kernels run on a CPU with the bits of a GPU's tensor cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any
from unittest.mock import patch

import numpy as np
import triton
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from fastmma.host.errors import FastmmaError, OperandError
from fastmma.isa.gpus import TargetName, target_named
from fastmma.triton.driver import Driver
from fastmma.triton.emulation import Emulation, Source
from fastmma.triton.patches import check_triton, patched, warmed_up
from fastmma.triton.report import Other, Report
from fastmma.triton.twins import all_of_kind

_LOCK = threading.RLock()  # the interpreter has one grid position for all threads: one kernel runs at a time
_OPEN: list[Emulation] = []
_OWN: ContextVar[tuple[Emulation, ...]] = ContextVar("fastmma.triton", default=())
_INTERPRET = InterpretedFunction.run
_STACK = ExitStack()  # what is put back when the last one ends


def _current() -> Emulation:
    own = _OWN.get()
    return own[-1] if own else _OPEN[-1]


def _our_error(error: BaseException | None) -> FastmmaError | None:
    """The error of fastmma that the interpreter wrapped into its own."""
    while error is not None and not isinstance(error, FastmmaError):
        error = error.__cause__
    return error


def _run(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
    if warmup:
        return warmed_up(kernel)
    with _LOCK, np.errstate(all="ignore"):
        run = _current()
        run.begin(kernel, arguments, options)
        with all_of_kind(kernel, InterpretedFunction) as function, patched(run):
            try:
                return _INTERPRET(function, *arguments, grid=grid, warmup=False, **options)
            except Exception as error:
                ours = _our_error(error)
                if ours is None:
                    raise
                raise ours from None


def _enter(run: Emulation) -> None:
    with _LOCK:
        if not _OPEN:
            check_triton()
            put = _STACK.enter_context
            put(patch.object(InterpretedFunction, "run", _run))
            put(patch.object(JITFunction, "run", _run))
            put(patch.object(triton.runtime.driver, "_active", Driver(lambda: _current().capability)))
        _OPEN.append(run)


def _leave(run: Emulation) -> None:
    with _LOCK:
        del _OPEN[next(index for index, one in enumerate(_OPEN) if one is run)]
        if not _OPEN:
            _STACK.close()


@contextmanager
def interpret(
    target: TargetName = "sm_90a",
    *,
    lowering: Source = "compile",
    num_warps: int | None = None,
    fp_fusion: bool | None = None,
    other: Other = "pass",
) -> Iterator[Report]:
    """Run Triton kernels on this CPU, with the bits that they have on a GPU.

    Inside the ``with``, or the function that it decorates, ``kernel[grid](...)`` takes CPU tensors. ``TRITON_INTERPRET`` need not be set.

    Parameters
    ----------
    target : str
        The GPU: ``"H100"``, ``"sm_80"``, ``(8, 9)``.
    lowering : {"compile", "rules"}
        Who says which instructions a dot becomes: Triton's compiler, which needs no GPU for that, or fastmma's rules, which take no time.
        Where the compiler does not take a kernel, rules are taken, and the report says so.
    num_warps : int, optional
        Warps of a program where the launch does not say; 4 by default, as in Triton.
    fp_fusion : bool, optional
        Whether products and sums are contracted to fused multiply-adds; by default as the launch or Triton says.
    other : {"pass", "warn", "error"}
        What happens at an operation whose bits are not known, such as the approximation of ``tl.exp2``: NumPy computes it and the report
        counts it, a warning too, or a `NotEmulatedError`.

    Yields
    ------
    Report
        Counts of what was emulated, and of what was passed to NumPy and why.

    Raises
    ------
    TargetError
        If there is no such GPU, or what it computes in an instruction that a kernel takes is not known.
    NotEmulatedError
        With ``other="error"``.
    BackendError
        If this version of Triton was not tested, or something else has changed its interpreter.
    OperandError
        If an option has none of its values.

    Notes
    -----
    Interpreters nest, the innermost counts. A thread without one of its own takes the one that was entered last.

    Examples
    --------
    >>> with interpret("H100") as report:
    ...     pass
    >>> report.target
    'sm_90a'
    """
    for name, value, values in (("lowering", lowering, ("compile", "rules")), ("other", other, ("pass", "warn", "error"))):
        if value not in values:
            raise OperandError(f"{name} must be one of {', '.join(values)}, not {value!r}")
    named = target_named(target)
    run = Emulation(named, lowering, num_warps, fp_fusion, Report(named, other))
    _enter(run)
    token = _OWN.set((*_OWN.get(), run))
    try:
        yield run.report
    finally:
        _OWN.reset(token)
        _leave(run)


@contextmanager
def from_environment() -> Iterator[Report | None]:
    """The interpreter that ``FASTMMA_TRITON`` asks for, of a GPU's name: what the pytest plug-in enters around a session.

    Yields
    ------
    Report or None
        None where the variable is not set.

    Raises
    ------
    TargetError, BackendError
        As `interpret` does.
    """
    target = os.environ.get("FASTMMA_TRITON")
    if not target:
        yield None
        return
    with interpret(target) as report:
        yield report
