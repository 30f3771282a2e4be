"""JAX's primitives besides products: those that have the same bits anywhere, and the reasons why others have not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

_finfo: Any = ml_dtypes.finfo  # which have no types
_iinfo: Any = ml_dtypes.iinfo

_BODIES = """
    jit call closed_call remat2 remat_opt custom_jvp_call custom_vjp_call custom_vmap_call linear_call custom_linear_solve composite
    while cond scan eval_jaxpr shard_map run_state run_scoped pallas_call core_map mpmd_map xla_metadata_call
    random_bits random_seed random_split random_fold_in ragged_dot_general
"""
_MOVES = """
    reshape transpose broadcast_in_dim broadcast_to squeeze slice dynamic_slice dynamic_update_slice gather concatenate pad rev split
    stack unstack tile empty2 select_n copy iota iota_2x32_shape bitcast_convert_type real imag complex conj neg is_finite
    stop_gradient optimization_barrier device_put sharding_constraint layout_constraint reshard name tie stage dce_sink pvary
    create_token after_all axis_index dim_as_value dimension_size shape_assertion random_wrap random_unwrap random_clone
    to_edtype from_edtype threefry2x32 threefry4x32 philox2x32 philox4x32 lu_pivots_to_permutation
    all_gather all_gather_invariant all_to_all ppermute ragged_all_to_all debug_callback debug_print inspect_sharding
    relayout xla_metadata_value reduced_vary_cast vary_unreduced_cast
"""
_ARITHMETIC = """
    add add_any sub mul div rem max min clamp square integer_pow sign eq ne lt le gt ge eq_to lt_to le_to floor ceil round
    nextafter reduce_precision argmax argmin reduce_max reduce_min reduce_and reduce_or reduce_xor cummax cummin
    reduce_window_max reduce_window_min pmax pmin and or xor not shift_left shift_right_logical shift_right_arithmetic
    population_count clz mulhi scatter-min scatter-max unreduced_pmax unreduced_pmin one_minus_square polynomial
"""
_SUMS = """
    reduce_sum reduce_prod cumsum cumprod cumlogsumexp reduce_window_sum select_and_scatter_add select_and_gather_add
    scatter-add scatter-sub scatter-mul psum psum_invariant unreduced_psum reduce_scatter unreduced_reduce_scatter
"""
_APPROXIMATED = """
    exp exp2 expm1 log log2 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh logistic sqrt rsqrt cbrt pow
    erf erfc erf_inv lgamma digamma polygamma zeta igamma igammac igamma_grad_a regularized_incomplete_beta random_gamma
    bessel_i0e bessel_i1e reciprocal
"""
_LIBRARIES = """
    cholesky cholesky_update lu qr geqrf geqp3 ormqr householder_product eig eigh svd schur hessenberg tridiagonal
    tridiagonal_solve triangular_solve fft
"""
_PRODUCTS = """
    scaled_dot symmetric_product
    dot_product_attention_fwd_wrapper dot_product_attention_bwd_wrapper
    dot_product_attention_fp8_fwd_wrapper dot_product_attention_fp8_bwd_wrapper
"""
_UNSPECIFIED = "reduce reduce_window select_and_scatter top_k approx_top_k"


def _always(_: Any) -> bool:
    return True


def _never(_: Any) -> bool:
    return False


def _is_of_integers(equation: Any) -> bool:
    """Tell whether all operands and results are integers or booleans."""
    return all(_kind_of(each.aval) in "iub" for each in (*equation.invars, *equation.outvars))


def _is_fixed_conversion(equation: Any) -> bool:
    """Tell whether a conversion has the same bits on any machine."""
    return is_fixed(equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype)


def _is_real(equation: Any) -> bool:
    """Tell whether no operand is complex."""
    return all(_kind_of(each.aval) != "c" for each in equation.invars)


def _has_one_order(equation: Any) -> bool:
    """Tell whether a sort is of integers, and what is equal keeps its order or is the same."""
    return _is_of_integers(equation) and (equation.params["is_stable"] or equation.params["num_keys"] == len(equation.invars))


def _writes_once(equation: Any) -> bool:
    """Tell whether a scatter writes no element twice: its indices are said to be unique, or there is one."""
    rows = equation.invars[1].aval.shape[:-1]
    return bool(equation.params["unique_indices"]) or math.prod(rows) <= 1


@dataclass(frozen=True)
class Kind:
    """Primitives of which the same is known.

    Attributes
    ----------
    names : str
        As JAX names them.
    why : str
        Why their bits may not be a GPU's.
    is_neutral : callable
        Takes an equation and tells whether its bits are those of any machine.
    has_body : bool
        Whether they compute nothing but other equations, which are compiled, too.
    is_product : bool
        Whether they multiply matrices: a caller says what is to become of them.
    """

    names: str
    why: str = ""
    is_neutral: Callable[[Any], bool] = _never
    has_body: bool = False
    is_product: bool = False


_KINDS = (
    Kind(_BODIES, has_body=True),
    Kind(_MOVES, is_neutral=_always),
    Kind(_ARITHMETIC, "XLA flushes subnormals on a CPU, and contracts, fuses and skips roundings elsewhere than on a GPU", _is_of_integers),
    Kind("convert_element_type", "XLA may skip this rounding, and flushes subnormals on a CPU", _is_fixed_conversion),
    Kind("abs", "a GPU approximates the absolute value of a complex number in another way", _is_real),
    Kind("sort", "XLA flushes subnormals on a CPU before it compares, or orders what is equal in no fixed way", _has_one_order),
    Kind("scatter", "where indices repeat, a GPU writes them in no fixed order", _writes_once),
    Kind(_SUMS, "a GPU adds in another order", _is_of_integers),
    Kind("conv_general_dilated", "is no product of fastmma: cuDNN or XLA chooses its algorithm on a GPU", _is_of_integers, is_product=True),
    Kind(_PRODUCTS, "is no product of fastmma: a library or XLA chooses its algorithm on a GPU", is_product=True),
    Kind(_APPROXIMATED, "a GPU approximates it in another way", _is_of_integers),
    Kind(_LIBRARIES, "another library computes it on a GPU"),
    Kind("rng_bit_generator rng_uniform", "a GPU has another generator"),
    Kind(_UNSPECIFIED, "XLA computes it in an order of its own"),
    Kind("empty", "a GPU does not initialise its memory"),
    Kind("platform_index", "the program takes another branch on a GPU"),
)
KINDS = {name: kind for kind in _KINDS for name in kind.names.split()}


def is_fixed(source: Any, result: Any) -> bool:
    """Tell whether XLA converts every value of a dtype to one and the same value of another.

    Between integers, low bits are kept; of 32 bits and fewer, they are rounded to float32 to nearest even; other conversions that lose no
    value change none. Floats to float64 take no part: on a CPU, XLA flushes subnormals on the way to it.

    Examples
    --------
    >>> is_fixed(np.dtype("float16"), np.dtype("float32")), is_fixed(np.dtype("float32"), np.dtype("float16"))
    (True, False)
    """
    if source == result:
        return True
    if _kind_of(result) in "iub":
        return _kind_of(source) in "iub"
    if result.name not in ("float32", "float16", "bfloat16"):
        return False
    to = _finfo(result)
    if _kind_of(source) in "iub":
        bits = 1 if source == np.dtype(bool) else _iinfo(source).bits - (_kind_of(source) == "i")
        return bool(bits <= (32 if result.name == "float32" else to.nmant + 1))
    if _kind_of(source) != "f" or source.name == "float64":
        return False
    of = _finfo(source)
    return bool(of.nmant <= to.nmant and of.maxexp <= to.maxexp and float(of.smallest_subnormal) >= float(to.smallest_subnormal))


def _kind_of(typed: Any) -> str:
    """Return NumPy's letter of a dtype's kind, with those of ml_dtypes among floats and integers; "V" for all others."""
    dtype = getattr(typed, "dtype", typed)
    if not isinstance(dtype, np.dtype):
        return "V"
    if dtype.kind != "V":
        return dtype.kind
    try:
        return "i" if _iinfo(dtype).min < 0 else "u"
    except ValueError:
        pass
    try:
        return "f" if _finfo(dtype) else "V"
    except ValueError:
        return "V"
