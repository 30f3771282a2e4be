"""Process-wide: torch's CPU kernels of products are replaced, for all threads, and for code that torch compiles."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch

from fastmma.host.errors import OperandError
from fastmma.isa.gpus import TargetName
from fastmma.torch.attention import APART, answered
from fastmma.torch.emulation import Emulation
from fastmma.torch.operators import OPERATORS, UNKNOWN
from fastmma.torch.report import Report
from fastmma.torch.settings import settings_of

_lock = threading.Lock()
_present: Installation | None = None
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


class Installation:
    """Kernels that `fastmma.torch.install` has put into torch; a context manager that removes them.

    Attributes
    ----------
    report : Report
    """

    def __init__(self, run: Emulation) -> None:
        self._run = run
        self._library: Any = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning only once for all operators")  # torch's, that kernels are replaced
            for func in (*OPERATORS, *filter(_computes, (*APART, *UNKNOWN))):
                run.plain[func] = _original(func)
                self._library.impl(func, _kernel(run, func), "CPU", allow_override=True)

    @property
    def report(self) -> Report:
        """What calls became of, on all threads."""
        return self._run.report

    def remove(self) -> None:
        """Put torch's own kernels back; again, it does nothing."""
        global _present
        with _lock:
            if self._library is not None:
                self._library._destroy()
                self._library = None
                _present = None

    def __enter__(self) -> Installation:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def _original(func: Any) -> Callable[..., Any]:
    """torch's own CPU kernel of an operator."""
    try:
        kernel = torch.library.get_kernel(func, "CPU")
    except RuntimeError as error:
        reason = str(error)

        def missing(*_: Any, **__: Any) -> Any:
            raise NotImplementedError(reason)

        return missing
    return lambda *args, **kwargs: kernel.call_boxed(_CPU, *args, **kwargs)


def _computes(func: Any) -> bool:
    """Whether an operator has a kernel of its own, and is not taken apart into others before one is looked for."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has(func.name(), key) for key in ("CPU", "CompositeExplicitAutograd"))


def _kernel(run: Emulation, func: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return answered(run, func, args, kwargs, run.plain[func])

    return kernel


def install(target: TargetName = "sm_90a", **options: Any) -> Installation:
    """Replace torch's CPU kernels of products by those of a GPU, in the whole process.

    All threads are emulated, also those that load data, and so is code that ``torch.compile`` has compiled.

    Parameters
    ----------
    target : str
        The GPU.
    **options
        Those of `emulate`, except for `as_cuda`.

    Returns
    -------
    Installation
        Its ``remove()``, or the end of a ``with``, puts torch's kernels back.

    Raises
    ------
    OperandError, TargetError
        If an option is wrong, or kernels are installed already.

    Examples
    --------
    >>> a = torch.ones(16, 32, dtype=torch.bfloat16)
    >>> with install("H100") as installed:
    ...     y = a @ a.T
    >>> installed.report.emulated
    1
    """
    global _present
    run = Emulation(settings_of(target, options))
    with _lock:
        if _present is not None:
            raise OperandError(f"kernels of {_present.report.target} are installed already; remove() them first")
        _present = Installation(run)
        return _present
