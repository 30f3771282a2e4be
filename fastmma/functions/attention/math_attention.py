"""Math attention: ``_scaled_dot_product_attention_math``, which torch 2.11 composes of products, a softmax and functions of each element.

Queries and keys are both multiplied by the root of the scale. Operands of 16 bits become float32 first, and results are rounded once,
unless torch is allowed to multiply them as they are. A product of float32 is one chain of fused multiply-adds, k ascending, if torch is not
allowed to use TF32. What cuBLAS does with operands of 16 bits, with one head, with vectors, or with few queries is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastmma.functions.arithmetic import round_to
from fastmma.functions.attention.operands import EVERY, Array, Floats, Heads, flatten, heads_of, hide, read_bias
from fastmma.functions.softmax import softmax, softmax_backward
from fastmma.host.errors import NotEmulatedError, OperandError
from fastmma.host.float_mode import default_floats
from fastmma.products.matmul import matmul

Product = Callable[[Array, Array], Array]
_INSTRUCTION, _TARGET = "fma.rn.f32", "sm_90a"
_ROWS = 17  # of which all recorded stacks had one chain an element; of fewer, cuBLAS shares k by lanes


class Scores(NamedTuple):
    """Changes of scores: a bias, and whether later keys are hidden."""

    bias: Floats | None
    causal: bool


class Composed(NamedTuple):
    """Operands that the products of a call share: scaled queries and keys, probabilities (head, query, key), and their root scale."""

    q: Array
    k: Array
    v: Array
    weights: Array
    root: np.float32


def multiply_chains(a: Array, b: Array) -> Array:
    """Multiply stacks of float32 as cuBLAS does for attention: one chain of fused multiply-adds for each element.

    Raises
    ------
    NotEmulatedError
        If the operands are of 16 bits, of one head, or vectors, or a has few rows whose elements are contiguous.
    """
    few = a.shape[1] < _ROWS and a.strides[1] != a.itemsize
    if a.dtype != np.float32 or few or a.shape[0] == 1 or 1 in (a.shape[1], b.shape[2]):
        raise NotEmulatedError(f"math attention: cuBLAS's product of {a.dtype} {a.shape} and {b.shape} is for a `product` to say")
    found: Array = matmul(a, b, target=_TARGET, instruction=_INSTRUCTION)
    return found


@default_floats
def math_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    bias: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    wide: bool = True,
    product: Product = multiply_chains,
) -> Array:
    """Compute ``aten::_scaled_dot_product_attention_math`` without dropout.

    Parameters
    ----------
    q, k, v : array
        float32, bfloat16 or float16 (batch, heads, length, head dimension). Keys and values may have fewer heads.
    bias : array, optional
        Added to the scores; of the same dtype, and of a shape that broadcasts to (batch, heads, queries, keys).
    causal : bool
        A query sees keys up to its own place, counted from the start of both.
    scale : float, optional
        By default one over the square root of the head dimension.
    wide : bool
        Whether to compute 16-bit operands in float32, as torch does if ``torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp`` is not
        set.
    product : function, optional
        Takes stacks (head, M, K) and (head, K, N) of one dtype, and returns the stack of their products.

    Returns
    -------
    array (batch, heads, queries, head dimension of the values)

    Raises
    ------
    OperandError, OperandTypeError, NotEmulatedError

    Examples
    --------
    >>> import numpy as np
    >>> q = k = v = np.eye(8, dtype=np.float32).reshape(1, 1, 8, 8)
    >>> math_attention(q, k, v).shape  # doctest: +SKIP
    (1, 1, 8, 8)
    """
    operands = heads_of("math_attention", q, k, v, scale, EVERY)
    composed = _compose(operands, _root(scale, q.shape[3]), Scores(read_bias("math_attention", bias, q, k.shape[2]), causal), wide, product)
    return round_to(product(composed.weights, composed.v), q.dtype).reshape(*q.shape[:3], v.shape[3])


@default_floats
def math_backward(
    grad_out: Array,
    q: Array,
    k: Array,
    v: Array,
    *,
    bias: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    wide: bool = True,
    product: Product = multiply_chains,
) -> tuple[Array, Array, Array]:
    """Compute the gradients of `math_attention` by the operators of torch's autograd.

    Parameters
    ----------
    grad_out : array
        The gradient of the output.
    q, k, v, bias, causal, scale, wide, product
        As in `math_attention`; queries, keys and values have equally many heads.

    Returns
    -------
    dq, dk, dv : array

    Raises
    ------
    OperandError, OperandTypeError, NotEmulatedError

    Examples
    --------
    >>> import numpy as np
    >>> q = k = v = np.eye(8, dtype=np.float32).reshape(1, 1, 8, 8)
    >>> [gradient.shape for gradient in math_backward(q, q, k, v)]  # doctest: +SKIP
    [(1, 1, 8, 8), (1, 1, 8, 8), (1, 1, 8, 8)]
    """
    if k.shape[1] != q.shape[1] or grad_out.shape != (*q.shape[:3], v.shape[3]):
        raise OperandError(f"math_backward: {grad_out.shape} does not fit {q.shape}, {k.shape} and {v.shape}")
    operands = heads_of("math_backward", q, k, v, scale, EVERY)
    composed = _compose(operands, _root(scale, q.shape[3]), Scores(read_bias("math_backward", bias, q, k.shape[2]), causal), wide, product)
    gradient = flatten(grad_out).astype(composed.q.dtype)
    dv = product(composed.weights.transpose(0, 2, 1), gradient)
    slopes = softmax_backward(product(gradient, composed.v.transpose(0, 2, 1)), composed.weights, 2)
    dq = _scaled(product(slopes, composed.k), composed.root)
    dk = _scaled(product(slopes.transpose(0, 2, 1), composed.q), composed.root)
    return round_to(dq, q.dtype).reshape(q.shape), round_to(dk, q.dtype).reshape(k.shape), round_to(dv, q.dtype).reshape(v.shape)


def _scaled(values: Array, factor: np.float32) -> Array:
    return (values.astype(np.float32) * factor).astype(values.dtype)


def _root(scale: float | None, dimension: int) -> np.float32:
    """Return the root of the scale, which the host computes in float64 and rounds once."""
    if scale is not None and scale < 0:
        raise OperandError(f"math attention: the scale is not negative, as {scale} is")
    return np.float32(math.sqrt(1 / math.sqrt(dimension) if scale is None else scale))


def _compose(operands: Heads, root: np.float32, wanted: Scores, wide: bool, product: Product) -> Composed:
    """Scale queries and keys, and compute probabilities; rows that see no key are zeros."""
    dtype = np.dtype(np.float32) if wide else operands.q.dtype
    q, k, v = (each.astype(dtype) for each in operands[:3])
    q, k = _scaled(q, root), _scaled(k, root)
    scores = product(q, k.transpose(0, 2, 1))
    if wanted.causal:
        scores[:, hide(q.shape[1], 0, k.shape[1], 0)] = -np.inf
    if wanted.bias is not None:
        scores = (scores.astype(np.float32) + wanted.bias).astype(dtype)
    weights = softmax(scores, 2)
    weights[np.isneginf(scores.astype(np.float32)).all(2)] = 0
    return Composed(q, k, v, weights, root)
