"""JAX 0.11's interpreter of Mosaic GPU kernels: what NumPy multiplies in its calls, for wgmma and tcgen05_mma, a function multiplies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
from jax._src.source_info_util import SourceInfo
from numpy.typing import NDArray

Multiply = Callable[[NDArray[Any], NDArray[Any], NDArray[Any] | None], NDArray[Any]]


class Noted(SourceInfo):
    """The place of an equation in the source, which JAX hands to its calls, and what multiplies there.

    Attributes
    ----------
    product : callable
    """

    __slots__ = ("product",)

    def __init__(self, info: Any, product: Multiply) -> None:
        super().__init__(info.traceback, info.name_stack)
        self.product = product


@dataclass(frozen=True)
class _Call:
    """A call that runs.

    Attributes
    ----------
    product : callable
    lhs : array, optional
        The left operand, where it comes in registers.
    adds : bool
        Whether the accumulator has been read.
    """

    product: Multiply
    lhs: NDArray[Any] | None
    adds: bool


_running: ContextVar[_Call | None] = ContextVar("fastmma_jax_call", default=None)


@contextmanager
def _running_call(call: _Call) -> Iterator[None]:
    token = _running.set(call)
    try:
        yield
    finally:
        _running.reset(token)


class _Sum:
    """A product that waits for the accumulator, to which JAX adds it."""

    __array_ufunc__ = None  # so that NumPy leaves the addition to `__radd__`

    def __init__(self, lhs: NDArray[Any], rhs: NDArray[Any], product: Multiply) -> None:
        self.lhs, self.rhs, self.product = lhs, rhs, product

    def __radd__(self, sums: NDArray[Any]) -> NDArray[Any]:
        return self.product(self.lhs, self.rhs, sums)


class _NumPy:
    """NumPy, as the module of the calls sees it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def matmul(lhs: NDArray[Any], rhs: NDArray[Any], **options: Any) -> Any:
        """Multiply as the call that runs asks for, or as NumPy does."""
        call = _running.get()
        if call is None:
            return np.matmul(lhs, rhs, **options)
        left = lhs if call.lhs is None else call.lhs
        return _Sum(left, rhs, call.product) if call.adds else call.product(left, rhs, None)


def replace_products(callbacks: Any) -> Callable[[], None]:
    """Have the calls of noted equations multiply by their functions, and return what puts JAX's own back."""
    wgmma, task = callbacks.wgmma, callbacks.TcGen05Mma
    run = task.__call__

    @wraps(wgmma)
    def multiply_and_add(*, source_info: Any = None, **given: Any) -> Any:
        if not isinstance(source_info, Noted):
            return wgmma(source_info=source_info, **given)
        lhs, others = np.asarray(given["a_allocation_key_as_array"]), {}
        in_registers = lhs.ndim == 2
        if in_registers:  # JAX reads a buffer: the right operand's, which is there
            others = {f"a_{name}": given[f"b_{name}"] for name in ("allocation_key_as_array", "transforms")}
        with _running_call(_Call(source_info.product, lhs if in_registers else None, True)):
            return wgmma(source_info=source_info, **{**given, **others})

    @wraps(run)
    def run_product(self: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(self.source_info, Noted):
            return run(self, *arguments, **options)
        with _running_call(_Call(self.source_info.product, None, self.accumulate)):
            return run(self, *arguments, **options)

    def restore() -> None:
        callbacks.np, callbacks.wgmma, task.__call__ = np, wgmma, run

    callbacks.np, callbacks.wgmma, task.__call__ = _NumPy(), multiply_and_add, run_product
    return restore
