"""The mode: within a `with`, torch's products on this thread have a GPU's bits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fastmma.isa.gpus import TargetName
from fastmma.torch.attention import APART, answered
from fastmma.torch.emulation import Emulation
from fastmma.torch.operators import COMPOSITE, OPERATORS, UNKNOWN
from fastmma.torch.report import Report
from fastmma.torch.settings import settings_of

_NO_DISPATCH = torch._C._disabled_torch_dispatch_impl
_CONCERNED = frozenset(map(id, {*OPERATORS, *APART, *COMPOSITE, *UNKNOWN}))  # they live as long as torch, which hashes them in Python
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class emulate:  # noqa: N801 - a context manager, named as one
    """Run torch code on CPU tensors, or on those of another GPU, with the matrix products of a GPU, bit for bit.

    A context manager, also a decorator; it can be nested, and entered again. Products in the forward and in the backward pass are
    emulated, where they run inside the ``with`` on the same thread; all else is torch's.

    Parameters
    ----------
    target : str
        The GPU, for example ``"H100"`` or ``"sm_80"``.
    library : {"cublas", None}
        Whose orders of k and epilogues; None: one accumulator, and one rounding at the end.
    plans : mapping, optional
        ``{(M, N, K): parts of k or a GemmPlan}`` for products of which you know more.
    unknown : {"warn", "one", "error"}
        Where the library's plan for a shape is not known: compute with one part of k, with a warning or without, or raise TargetError.
        The report calls such products assumed.
    other : {"pass", "warn", "error"}
        What becomes of operations that multiply, and that no tensor core does, or whose bits nobody knows: torch's own result, with a
        warning or without, or NotEmulatedError. The report calls them passed.
    attention : {"math", "pass", "error"}
        What becomes of fused attention, whose bits are not known: products and a softmax, torch's CPU kernel, or what `other` says.
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
        What was emulated, what was not, and why.

    Raises
    ------
    OperandError, TargetError
        If an option is wrong.

    Examples
    --------
    >>> layer = torch.nn.Linear(64, 32, dtype=torch.bfloat16)
    >>> with emulate("H100") as gpu:
    ...     y = layer(torch.ones(8, 64, dtype=torch.bfloat16))
    ...     y.sum().backward()
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
                from fastmma.torch.pretended import pretended

                stack.enter_context(pretended(self._run.settings.architecture))
            stack.enter_context(DispatchMode(self._run))
            self._stacks().append(stack.pop_all())
        return self

    def __exit__(self, *error: Any) -> None:
        self._stacks().pop().__exit__(*error)

    def _stacks(self) -> list[ExitStack]:
        """What this thread has entered."""
        found: list[ExitStack] = self._entered.__dict__.setdefault("stacks", [])
        return found

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, run within the mode."""

        @wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return wrapped


class DispatchMode(TorchDispatchMode):
    """What torch asks about every operator below autograd."""

    def __init__(self, run: Emulation) -> None:
        super().__init__()
        self._run = run

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        for kind in types:
            if kind in _PLAIN:
                continue
            if kind.__name__ == "FakeTensor":  # shapes only, of a mode below
                return func(*args, **(kwargs or {}))
            if getattr(kind, "__torch_dispatch__", _NO_DISPATCH) is not _NO_DISPATCH:
                return NotImplemented  # the subclass first: its inner operators come back here
        if id(func) not in _CONCERNED:
            return func(*args, **kwargs) if kwargs else func(*args)
        kwargs = kwargs or {}
        if func in COMPOSITE:  # in inference mode nobody has taken it apart
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        return answered(self._run, func, args, kwargs)
