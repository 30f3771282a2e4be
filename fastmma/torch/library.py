"""Process-wide: torch's CPU kernels of products are replaced, for all threads."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from fastmma.host import forks
from fastmma.host.errors import OperandError
from fastmma.isa.gpus import TargetName
from fastmma.torch.attention import answered
from fastmma.torch.attention_apart import APART
from fastmma.torch.emulation import Emulation
from fastmma.torch.operators import OPERATORS, UNKNOWN
from fastmma.torch.report import UNSEEN, Line, Report
from fastmma.torch.settings import Settings, settings_of

_lock = forks.shared_lock(outermost=True)
_present: Installation | None = None
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_REST = Line("all else", UNSEEN, "", "an installation sees the products that torch's dispatcher is asked for, and no other operation")


class InstallationReport(Report):
    """A report of products on all threads; a line says that all other operations are unseen."""

    def lines(self, *statuses: str) -> list[tuple[Line, int]]:
        """List kinds of calls and how often they were made, and what is unseen; all, or those of some statuses."""
        found = super().lines(*statuses)
        return found if statuses and UNSEEN not in statuses else [*found, (_REST, 1)]

    def assert_all_emulated(self, *, assumed: bool = False, products_only: bool = False) -> None:
        """Raise, since an installation sees products alone; with `products_only`, raise unless all that it saw are emulated.

        Parameters
        ----------
        assumed : bool
            Tolerate products that took an order of k, or an epilogue, which is not known to be the library's.
        products_only : bool
            Ask only of the products that torch's dispatcher was asked for.

        Raises
        ------
        NotEmulatedError
            It is an AssertionError, too, and names the calls.
        """
        if not products_only:
            return super().assert_all_emulated(assumed=assumed)
        seen = Report(self.target)
        for line, number in super().lines():
            seen.count(line, number=number)
        return seen.assert_all_emulated(assumed=assumed)


class Installation:
    """Kernels that `fastmma.torch.install` has put into torch; a context manager that removes them.

    Attributes
    ----------
    report : InstallationReport
    """

    def __init__(self, settings: Settings) -> None:
        self._report = InstallationReport(settings.architecture)
        run = Emulation(settings, self._report)
        self._stance = torch.compiler.set_stance("force_eager")  # compiled code multiplies beside torch's dispatcher
        self._library: Any = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning only once for all operators")  # torch's, that kernels are replaced
            for func in (*OPERATORS, *filter(_computes, (*APART, *UNKNOWN))):
                run.plain[func] = _original(func)
                self._library.impl(func, _kernel(run, func), "CPU", allow_override=True)

    @property
    def report(self) -> InstallationReport:
        """The report of products on all threads."""
        return self._report

    def remove(self) -> None:
        """Put torch's own kernels back. A second call does nothing."""
        global _present
        with _lock:
            if self._library is not None:
                self._library._destroy()
                self._library = None
                _present = None
                _restore(self._stance)

    def __enter__(self) -> Installation:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def _restore(stance: Any) -> None:
    """Let compiled functions run as before, unless someone else has said how meanwhile."""
    from torch._dynamo import eval_frame

    if eval_frame._stance is stance.stance:
        stance.__exit__(None, None, None)


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
    """Tell whether an operator has a kernel of its own, and is not taken apart into others before one is looked for."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has(func.name(), key) for key in ("CPU", "CompositeExplicitAutograd"))


def _kernel(run: Emulation, func: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return answered(run, func, args, kwargs, run.plain[func])

    return kernel


def install(target: TargetName = "sm_90a", **options: Any) -> Installation:
    """Replace torch's CPU kernels of products by those of a GPU, in the whole process.

    All threads are emulated, also those that load data. Functions that ``torch.compile`` has compiled run uncompiled while kernels are
    installed. An installation sees only products, so its ``report.assert_all_emulated()`` raises; ``products_only=True`` checks products
    alone.

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
    >>> installed.report.assert_all_emulated(products_only=True)
    """
    global _present
    settings = settings_of(target, options)
    with _lock:
        if _present is not None:
            raise OperandError(f"kernels of {_present.report.target} are installed already; remove() them first")
        _present = Installation(settings)
        return _present
