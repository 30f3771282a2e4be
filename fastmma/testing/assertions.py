"""Assertions about bits."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.plan import Plan
from fastmma.host.errors import OperandError
from fastmma.host.integers import integer
from fastmma.isa.gpus import TargetName
from fastmma.products.gemm import gemm
from fastmma.products.gemm_choice import gemm_plan
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.matmul import matmul
from fastmma.products.plan import AccumulationPlan
from fastmma.products.scaled import scaled_matmul
from fastmma.products.scaled_choice import scaled_plan
from fastmma.products.steps import OUTPUTS
from fastmma.scaling import ScaledArray
from fastmma.testing.arrays import host_array
from fastmma.testing.bits import codes_of, is_nan, is_zero, known_format
from fastmma.testing.message import ComparedProduct, message

_Sameness = Literal["any", "bits"]
_ARRAYS = ("bias", "metadata", "scale_a", "scale_b")
_NO_CHOICE = ("alpha", "beta", "bias")  # of `scaled_matmul`, which its plan leaves open


def assert_bits_equal(
    actual: Any,
    expected: Any,
    *,
    nan: _Sameness = "any",
    zero: _Sameness = "bits",
    a: Any = None,
    b: Any = None,
    c: Any = None,
    plan: GemmPlan | AccumulationPlan | None = None,
    show: int = 5,
    **options: Any,
) -> None:
    """Raise unless two arrays have the same shape, dtype and bits.

    Parameters
    ----------
    actual, expected : arrays
        Of NumPy (with the dtypes of ml_dtypes), torch, JAX or CuPy.
    nan : {"any", "bits"}
        "any": all NaNs are equal. "bits": NaNs must have the same bits.
    zero : {"bits", "any"}
        "any": 0 and -0 are equal. "bits": they differ.
    a, b, c : arrays, optional
        The operands of the product. Given a and b, the message names the plans that have the bits of either result.
    plan : GemmPlan or AccumulationPlan, optional
        The plan of `expected`.
    show : int
        How many elements the message shows.
    **options
        The other operands of the product: bias, alpha and beta.

    Raises
    ------
    AssertionError
        The message says how many elements differ and by how much, shows the first of them, and says where the bits come from.
    OperandError, OperandTypeError

    Examples
    --------
    >>> import fastmma
    >>> x = np.array([1, 2, np.nan], np.float32)
    >>> assert_bits_equal(x, x.copy())
    >>> assert_bits_equal(x, np.array([1, np.nextafter(np.float32(2), np.float32(0)), np.nan], np.float32))
    Traceback (most recent call last):
    ...
    AssertionError: 1 of 3 elements differ (33.3 %): 3, float32
      ulps           median 1, largest 1
      closer to zero actual in 0 %
      [1]  actual 0x40000000 = 2 = 1 * 2^1; expected 0x3fffffff = 1.99999988 = 16777215 * 2^-23
    """
    __tracebackhide__ = True
    product = None if a is None or b is None else _product(a, b, c, plan, options)
    _compare(host_array(actual, "actual"), host_array(expected, "expected"), nan, zero, product, integer(show, "show", 0))


def assert_product(
    actual: Any,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    target: TargetName | None = None,
    plan: Any = None,
    nan: _Sameness = "any",
    zero: _Sameness = "bits",
    show: int = 5,
    **options: Any,
) -> None:
    """Raise unless a matrix product has the bits of a GPU.

    Parameters
    ----------
    actual : array (..., M, N)
        Of NumPy (with the dtypes of ml_dtypes), torch, JAX or CuPy. A float32, bfloat16 or float16 dtype is the `out_dtype` of the call.
    a, b : arrays (..., M, K) and (..., K, N), or ScaledArrays
    c : array, optional
    target : str
        The GPU.
    plan : GemmPlan or AccumulationPlan, optional
        The expected plan, in place of the target.
    nan, zero, show
        As in `assert_bits_equal`.
    **options
        The other arguments of `fastmma.gemm` or `fastmma.scaled_matmul`.

    Raises
    ------
    AssertionError
        The last lines of the message name the plans that have the bits of `actual`, and the expected plan.
    OperandError, OperandTypeError, InstructionError, TargetError

    Examples
    --------
    >>> import fastmma
    >>> a, b = np.ones((2, 64), np.float16), np.ones((64, 2), np.float16)
    >>> assert_product(fastmma.gemm(a, b, target="A100"), a, b, target="A100")
    """
    __tracebackhide__ = True
    result = host_array(actual, "actual")
    if (target is None) == (plan is None):
        raise OperandError("assert_product: name a target or a plan, and not both")
    product = _product(a, b, c, plan, options)
    call: dict[str, Any] = dict(product.options)
    fmt = known_format(result.dtype)
    if plan is None:
        call["target"] = target
        if fmt is not None and fmt.name in OUTPUTS:
            call.setdefault("out_dtype", fmt)
    if isinstance(product.a, ScaledArray) or isinstance(product.b, ScaledArray):
        chosen = plan or scaled_plan(product.a, product.b, **{name: value for name, value in call.items() if name not in _NO_CHOICE})
        expected = scaled_matmul(product.a, product.b, c=product.c, plan=plan, **call)
    else:
        chosen = plan or gemm_plan(_matrix(product.a), _matrix(product.b), product.c, **call)
        multiply = gemm if np.ndim(product.a) == np.ndim(product.b) == 2 else matmul
        expected = multiply(product.a, product.b, c=product.c, plan=plan, **call)
    found = ComparedProduct(product.a, product.b, product.c, chosen, product.options)
    _compare(result, np.asarray(expected), nan, zero, found, integer(show, "show", 0))


def _product(a: Any, b: Any, c: Any, plan: Plan | None, options: dict[str, Any]) -> ComparedProduct:
    """The operands in main memory."""
    first, second = (each if isinstance(each, ScaledArray) else host_array(each, name) for each, name in ((a, "a"), (b, "b")))
    others = {name: host_array(value, name) if name in _ARRAYS and value is not None else value for name, value in options.items()}
    return ComparedProduct(first, second, None if c is None else host_array(c, "c"), plan, others)


def _matrix(array: NDArray[Any]) -> NDArray[Any]:
    """One matrix of a batch, for a plan."""
    return array if array.ndim <= 2 else array[(0,) * (array.ndim - 2)] if array.size else np.zeros(array.shape[-2:], array.dtype)


def _compare(actual: NDArray[Any], expected: NDArray[Any], nan: str, zero: str, product: ComparedProduct | None, show: int) -> None:
    __tracebackhide__ = True
    for name, value in (("nan", nan), ("zero", zero)):
        if value not in ("any", "bits"):
            raise OperandError(f"{name} must be 'any' or 'bits', not {value!r}")
    if actual.dtype != expected.dtype:
        raise AssertionError(f"dtypes differ: actual is {actual.dtype}, expected {expected.dtype}")
    if actual.shape != expected.shape:
        raise AssertionError(f"shapes differ: actual is {actual.shape}, expected {expected.shape}")
    x, y, fmt = codes_of(actual), codes_of(expected), known_format(actual.dtype)
    differ = x != y
    if nan == "any":
        differ &= ~(is_nan(x, fmt) & is_nan(y, fmt))
    if zero == "any":
        differ &= ~(is_zero(x, fmt) & is_zero(y, fmt))
    if differ.any():
        raise AssertionError(message(actual, expected, differ, product, show))
