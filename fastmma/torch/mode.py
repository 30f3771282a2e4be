"""The mode: within a `with`, torch's products on this thread have a GPU's bits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

from fastmma.functions.pretended import pretended
from fastmma.isa.gpus import TargetName
from fastmma.torch import generators
from fastmma.torch.autocast import casting
from fastmma.torch.composites import recognised
from fastmma.torch.dispatch import DispatchMode, emulates, recognise
from fastmma.torch.emulation import Emulation
from fastmma.torch.report import Report
from fastmma.torch.settings import settings_of


class emulate:  # noqa: N801 - a context manager, named as one
    """Run torch code on CPU tensors, or on those of another GPU, with the matrix products of a GPU, bit for bit.

    A context manager, also a decorator; it can be nested, and entered again. Products in the forward and in the backward pass are
    emulated, where they run inside the ``with`` on the same thread; all else is torch's. The report lists every operation that ran.

    Parameters
    ----------
    target : str
        The GPU, for example ``"H100"`` or ``"sm_80"``.
    library : {"cublas", None}
        Whose orders of k and epilogues; None: one accumulator, and one rounding at the end.
    plans : mapping, str or Path, optional
        ``{(M, N, K): parts of k or a GemmPlan}`` for products of which you know more; or the file that ``fastmma record --cublas`` wrote
        on the GPU, in which all products are looked up then, and nowhere else.
    unknown : {"warn", "one", "error"}
        Where the library's plan for a shape is not known: compute with one part of k, with a warning or without, or raise TargetError.
        The report calls such products assumed.
    other : {"pass", "warn", "error"}
        What becomes of operations that multiply, and that no tensor core does, or whose bits nobody knows: torch's own result, with a
        warning or without, or NotEmulatedError. The report calls them passed, or unseen where fastmma has not heard of them. Sums, and
        functions that are not emulated, are passed in any case, and told in the report alone.
    attention : {"fused", "math", "pass", "error"}
        Fused attention by the kernels that the GPU takes, where their bits are known: where functions are. Others are taken apart into
        products and a softmax, which are assumed; so are all with ``"math"``. ``"pass"`` leaves all to torch's CPU kernels, and
        ``"error"`` refuses what is not known.
    functions : {True, "torch"}
        Functions of each element (`exp`, GELU, powers, ...) with the bits of the GPU's kernels, where they are known: on an H100 and an
        H200, with NVIDIA's libdevice installed. ``"torch"`` leaves them to torch.
    fp32 : {"tf32", "ieee"}, optional
        Products of float32; by default as torch's settings say (``torch.backends.cuda.matmul.fp32_precision``).
    check : {"cuda", None}
        Refuse scaled products that torch refuses on a GPU, with torch's errors.
    as_cuda : bool
        Experimental: pretend to be the GPU, so that code which asks for ``device="cuda"`` runs on the CPU.
    strict : bool, optional
        Refuse arithmetic that is only reported.
    threads : int, optional
        All cores by default. Results do not depend on it.

    Attributes
    ----------
    report : Report
        Each operation is emulated, assumed, passed, neutral or unseen, and the report says why, and in which line of the caller's.

    Raises
    ------
    OperandError, TargetError
        If an option is wrong.

    Examples
    --------
    >>> import torch
    >>> w, x = torch.ones(32, 64, dtype=torch.bfloat16, requires_grad=True), torch.ones(8, 64, dtype=torch.bfloat16)
    >>> with emulate("H100") as gpu:
    ...     y = torch.relu(x @ w.t())
    ...     y.backward(torch.ones_like(y))
    >>> gpu.report.assert_all_emulated()
    >>> gpu.report.emulated
    2
    """

    def __init__(self, target: TargetName = "sm_90a", *, as_cuda: bool = False, **options: Any) -> None:
        self._run = Emulation(settings_of(target, options))
        self._as_cuda = as_cuda
        self._entered = threading.local()

    @property
    def report(self) -> Report:
        """What calls became of, since the first entry."""
        return self._run.report

    def __enter__(self) -> emulate:
        stack = ExitStack()
        with stack:
            if self._as_cuda:
                settings = self._run.settings
                stack.enter_context(pretended(settings.architecture, generators if settings.computes_functions else None))
            stack.enter_context(recognised(recognise, emulates))
            stack.enter_context(casting())
            mode = DispatchMode(self._run)
            stack.callback(self._run.report.settle, mode.tally)
            stack.enter_context(mode)
            self._stacks().append(stack.pop_all())
        return self

    def __exit__(self, *error: Any) -> None:
        self._stacks().pop().__exit__(*error)

    def _stacks(self) -> list[ExitStack]:
        """Return what this thread has entered."""
        found: list[ExitStack] = self._entered.__dict__.setdefault("stacks", [])
        return found

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, run within the mode."""

        @wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return wrapped
