"""Whether a numerical test notices wrong kernels: it is run again with products that have a fault."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.calls import named_keywords
from fastmma.host.errors import FastmmaError, OperandError
from fastmma.isa.gpus import TargetName
from fastmma.products.gemm import gemm
from fastmma.products.gemm_choice import gemm_plan
from fastmma.testing.arrays import host_array, result_like

Multiply = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]


def _zeros(right: Multiply, a: NDArray[Any], b: NDArray[Any], target: TargetName) -> NDArray[Any]:  # noqa: ARG001 - as all faults are called
    return np.zeros_like(right(a, b))


def _transpose(right: Multiply, a: NDArray[Any], b: NDArray[Any], target: TargetName) -> NDArray[Any]:  # noqa: ARG001
    return right(a, np.ascontiguousarray(b.T).reshape(b.shape))


def _one_lost(right: Multiply, a: NDArray[Any], b: NDArray[Any], target: TargetName) -> NDArray[Any]:  # noqa: ARG001
    fewer = a.copy()
    fewer[:, -1:] = 0
    return right(fewer, b)


def _bit_less(right: Multiply, a: NDArray[Any], b: NDArray[Any], target: TargetName) -> NDArray[Any]:  # noqa: ARG001
    plan = gemm_plan(a, b, target=target)
    own = plan.operation.arithmetic
    if not own.keep_bits or plan.operation.instruction.dtype != "f32":
        raise OperandError("assert_sensitive: sums of this product have no bit less")
    return gemm(a, b, plan=replace(plan, arithmetic=replace(own, keep_bits=own.keep_bits - 1)))


def _half_sums(right: Multiply, a: NDArray[Any], b: NDArray[Any], target: TargetName) -> NDArray[Any]:
    return gemm(a, b, target=target, accumulator="f16").astype(right(a, b).dtype)


# what may be wrong with a kernel
FAULTS: dict[str, Callable[[Multiply, NDArray[Any], NDArray[Any], TargetName], NDArray[Any]]] = {
    "zeros": _zeros,
    "transposed operand": _transpose,
    "one lost product": _one_lost,
    "one bit less": _bit_less,
    "sums in f16": _half_sums,
}


def unnoticed(test: Callable[[Multiply], None], *, target: TargetName = "H100", faults: Collection[str] = tuple(FAULTS)) -> tuple[str, ...]:
    """Return the faults of a matrix product that a test does not notice.

    Parameters
    ----------
    test : callable
        Takes a function of two matrices, tests it as it would a kernel, and raises an AssertionError if the product is wrong.
    target : str
    faults : collection of str
        Of `FAULTS`. One that these operands cannot have is left out.

    Raises
    ------
    AssertionError
        If the test fails with a product that is right.
    OperandError

    Examples
    --------
    >>> a, b = np.full((8, 64), 0.1, np.float16), np.full((64, 8), 0.1, np.float16)
    >>> def test(multiply):
    ...     assert np.allclose(multiply(a, b), a.astype(np.float64) @ b.astype(np.float64), rtol=1e-3)
    >>> unnoticed(test)
    ('transposed operand', 'one bit less', 'sums in f16')
    """
    for name in faults:
        if name not in FAULTS:
            raise OperandError(f"there is no fault {name!r}; there are {', '.join(FAULTS)}")

    def right(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        return gemm(a, b, target=target)

    test(lambda a, b: result_like(a, right(host_array(a, "a"), host_array(b, "b"))))
    return tuple(name for name in faults if _passes(test, name, right, target))


def _passes(test: Callable[[Multiply], None], name: str, right: Multiply, target: TargetName) -> bool:
    """Tell whether a test passes with a fault; a fault that no product of the test can have is none."""
    met = []

    def wrong(a: Any, b: Any) -> Any:
        first, second = host_array(a, "a"), host_array(b, "b")
        try:
            found = FAULTS[name](right, first, second, target)
        except FastmmaError:
            return result_like(a, right(first, second))
        met.append(name)
        return result_like(a, found)

    try:
        test(wrong)
    except AssertionError:
        return False
    return bool(met)


@named_keywords
def assert_sensitive(test: Callable[[Multiply], None], *, target: TargetName = "H100", faults: Collection[str] = tuple(FAULTS)) -> None:
    """Run a numerical test on faulty matrix products, and raise unless it notices each fault.

    Parameters
    ----------
    test : callable
        Takes a function of two matrices, tests it as it would a kernel, and raises an AssertionError if the product is wrong.
        The function returns float32 arrays of NumPy. Given tensors, it returns a tensor of their dtype, as ``torch.matmul`` does.
    target : str
        The GPU. The correct product has its bits.
    faults : collection of str
        ``"zeros"``: all results are 0; ``"transposed operand"``: b is read along its other dimension; ``"one lost product"``: the last k
        is left out; ``"one bit less"``: sums keep one bit less; ``"sums in f16"``.

    Raises
    ------
    AssertionError
        The message names the faults that the test does not notice.
    OperandError

    Examples
    --------
    >>> from fastmma.testing import adversarial, assert_product
    >>> a, b = adversarial((16, 64)), adversarial((64, 16), seed=1)
    >>> assert_sensitive(lambda multiply: assert_product(multiply(a, b), a, b, target="H100"))
    """
    __tracebackhide__ = True
    found = unnoticed(test, target=target, faults=faults)
    if found:
        raise AssertionError(f"the test does not notice: {', '.join(found)}")
