"""Products of float32 off the tensor cores: chains of fused multiply-adds, as `fma.rn.f32` computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import as_array, integer
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.threads import thread_count

OPCODE = "fma.rn.f32"
_UNIT = 4  # k that a slice is a multiple of, as the slices of cuBLAS are
NAN = 0x7FFFFFFF


@public_call
def fma_product(
    a: Any, b: Any, c: Any = None, *, split_k: int = 1, out: NDArray[np.float32] | None = None, threads: int | None = None
) -> NDArray[np.float32]:
    """Product of float32 matrices by chains of ``fma.rn.f32``, k ascending, from c or +0.

    Parameters
    ----------
    a, b : float32 array (M, K) and (K, N)
    c : float32 array (M, N), optional
        What the chain starts from.
    split_k : int
        Slices of k of equal length, a multiple of 4: each is a chain of its own, the first from c, and they are added in ascending order.
        So does cuBLAS where torch multiplies float32 without TF32; how many there are is up to its heuristics.
    out : float32 array (M, N), optional
    threads : int, optional

    Raises
    ------
    OperandError, OperandTypeError

    Examples
    --------
    >>> x = np.full((2, 24), 0.1, np.float32)
    >>> fma_product(x, x.T)[0, 0], fma_product(x, x.T, split_k=2)[0, 0]
    (np.float32(0.24000005), np.float32(0.24))
    """
    arrays = [as_array(value, f"{OPCODE}: {name}") for name, value in (("a", a), ("b", b), ("c", c)) if value is not None]
    for array in arrays:
        if array.dtype != np.float32 or array.ndim != 2:
            raise OperandTypeError(f"{OPCODE}: operands must be float32 matrices, not {array.dtype} of shape {array.shape}")
    x, y = arrays[:2]
    shape = (x.shape[0], y.shape[1])
    if x.shape[1] != y.shape[0]:
        raise OperandError(f"{OPCODE}: a must have shape (M, K) and b (K, N), not {x.shape} and {y.shape}")
    if c is not None and arrays[2].shape != shape:
        raise OperandError(f"{OPCODE}: c must have shape {shape}, not {arrays[2].shape}")
    if out is not None and (not isinstance(out, np.ndarray) or out.dtype != np.float32 or out.shape != shape):
        raise OperandError(f"{OPCODE}: out must be a float32 array of shape {shape}")
    depth, workers = x.shape[1], thread_count(threads)
    length = -(-max(-(-depth // integer(split_k, "split_k", 1)), 1) // _UNIT) * _UNIT
    total = _chain(x[:, :length], y[:length], arrays[2] if c is not None else None, workers)
    with np.errstate(all="ignore"):
        for start in range(length, depth, length):
            total = total + _chain(x[:, start : start + length], y[start : start + length], None, workers)
    total.view(np.uint32)[np.isnan(total)] = NAN
    if out is None:
        return total
    out[...] = total
    return out


def _chain(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, threads: int) -> NDArray[np.float32]:
    """One chain for each element."""
    from fastmma.kernels.fma import chain_kernel, chains

    result = np.empty((a.shape[0], b.shape[1]), np.float32)
    how = chains.chain(32)
    missing = -a.shape[1] % chain_kernel.DEPTH
    if how is None or not chains.is_large(*result.shape, a.shape[1] + missing):
        return _one_by_one(a, b, c)
    if missing:  # products of -0, which leave every sum as it is
        a = np.concatenate([a, np.zeros((len(a), missing), np.float32)], 1)
        b = np.concatenate([b, np.full((missing, b.shape[1]), -0.0, np.float32)], 0)

    def write(rows: slice, columns: slice, sums: NDArray[Any]) -> None:
        result[rows, columns] = sums

    chains.multiply(how, a, b, c, threads, write)
    return result


def _one_by_one(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None) -> NDArray[np.float32]:
    """Small products, and CPUs without vectors."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32) if c is None else np.array(c, np.float32)
    for k in range(a.shape[1]):
        total = fused(a[:, k, None], b[k], total)
    return total


def fused(a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32]) -> NDArray[np.float32]:
    """``a * b + c``, rounded once: an exact product in float64, and a sum that is rounded to odd before it is narrowed."""
    with np.errstate(all="ignore"):
        product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
        wide = product + addend
        back = wide - product
        lost = (product - (wide - back)) + (addend - back)
        inexact = np.isfinite(wide) & (lost != 0) & (wide.view(np.uint64) & 1 == 0)
        nearer_zero = (lost < 0) == (wide > 0)
        odd = wide.view(np.int64) + np.where(nearer_zero, -1, 1)
        return np.where(inexact, odd.view(np.float64), wide).astype(np.float32)
