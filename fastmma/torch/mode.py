"""The mode: within a `with`, torch's products on this thread have a GPU's bits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

from fastmma.functions.autocast import casting
from fastmma.functions.pretended import pretended
from fastmma.isa.gpus import TargetName
from fastmma.torch import generators
from fastmma.torch.composites import recognised
from fastmma.torch.dispatch import DispatchMode, emulates, recognise
from fastmma.torch.emulation import Emulation
from fastmma.torch.report import Report
from fastmma.torch.settings import settings_of


class emulate:  # noqa: N801 - a context manager, named as one
    """Run torch code with the matrix products of a GPU, bit for bit, on CPU tensors or on those of another GPU.

    It is a context manager and a decorator; it can be nested, and entered again. It emulates products of the forward and of the backward
    pass that run inside the ``with`` on the same thread; torch computes all else. The report lists every operation that ran.

    Parameters
    ----------
    target : str
        The GPU, for example ``"H100"`` or ``"sm_80"``.
    library : {"cublas", None}
        The library whose orders of k and epilogues are followed. None: one accumulator, and one rounding at the end.
    plans : mapping, str or Path, optional
        ``{(M, N, K): parts of k or a GemmPlan}`` for products whose plan you know. Or the file that ``fastmma record --cublas`` wrote on
        the GPU; all products are then looked up there, and nowhere else.
    unknown : {"warn", "one", "error"}
        What to do if the library's plan for a shape is not known: compute with one part of k, with a warning or without, or raise
        TargetError. The report calls such products assumed.
    other : {"pass", "warn", "error"}
        What to do with operations that multiply off the tensor cores, or whose bits are not known: return torch's own result, with a
        warning or without, or raise NotEmulatedError. The report calls them passed, or unseen if fastmma does not know them. Sums, and
        functions that are not emulated, are always passed; only the report says so.
    attention : {"fused", "math", "pass", "error"}
        ``"fused"`` computes fused attention as the GPU's kernels do, on those GPUs whose functions are known. Other attention is split into
        products and a softmax, which are assumed; ``"math"`` splits all attention so. ``"pass"`` leaves all attention to torch's CPU
        kernels, and ``"error"`` refuses attention that is not known.
    functions : {True, "torch"} or FunctionAgreement
        True computes functions of each element (`exp`, GELU, powers, ...) with the bits of the GPU's kernels where they are known: on an
        H100 and an H200 with PyTorch 2.11, with NVIDIA's libdevice installed. ``"torch"`` leaves them to torch. The result of
        `compare_functions` says which of them another version of torch computes alike; the others are assumed.
    fp32 : {"tf32", "ieee"}, optional
        How to multiply float32; by default as torch's settings say (``torch.backends.cuda.matmul.fp32_precision``).
    check : {"cuda", None}
        Refuse scaled products that torch refuses on a GPU, with torch's errors.
    as_cuda : bool
        Experimental: pretend to be the GPU, so that code that asks for ``device="cuda"`` runs on the CPU.
    strict : bool, optional
        Refuse arithmetic that is only reported.
    threads : int, optional
        All cores by default. Results do not depend on it.

    Attributes
    ----------
    report : Report
        Each operation is emulated, assumed, passed, neutral or unseen. The report says why, and at which line of the caller.

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
        """The report of all calls since the first entry."""
        return self._run.report

    def __enter__(self) -> emulate:
        stack = ExitStack()
        with stack:
            if self._as_cuda:
                settings = self._run.settings
                stack.enter_context(pretended(settings.architecture, generators if settings.computes_functions else None))
            stack.enter_context(recognised(recognise, emulates))
            stack.enter_context(casting(emulates=True))
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
