"""Proto norms."""
from __future__ import annotations
from typing import Any
import numpy as np
from numpy.typing import NDArray
from fastmma.functions import libdevice
from fastmma.functions.arithmetic import Floats, fused, rounded, widened
from fastmma.functions.block import add_block, halved
from fastmma.functions.welford import Moments, by_quotient, by_reciprocal, halve, join_block, join_by_quotient, join_by_reciprocal
from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.simd import fma

_THREADS = 128
_MOMENT_THREADS = 512
_VECTOR = 4

@compiled
def _square_vectors(values: Any, sums: Any, size: int) -> None:
    threads = sums.shape[1]
    for row in range(len(values)):
        for first in range(0, values.shape[1], threads * size):
            for thread in range(min(threads, (values.shape[1] - first) // size)):
                total = sums[row, thread]
                for element in range(size):
                    value = values[row, first + thread * size + element]
                    total = fma(value, value, total)
                sums[row, thread] = total

def _statistics(values, eps, centred):
    rows, n = values.shape
    eps = np.float32(eps)
    if n % _VECTOR == 0:
        if centred:
            found = join_block(by_reciprocal(values, _THREADS, _VECTOR), join_by_reciprocal)
            mean, variance = found.mean, found.squares / np.float32(n)
        else:
            sums = np.zeros((rows, _THREADS), np.float32)
            _square_vectors(values, sums, _VECTOR)
            mean, variance = np.zeros(rows, np.float32), halved(halved(sums.reshape(rows, -1, 32))) / np.float32(n)
        return mean, libdevice.call("rsqrtf", variance + eps)
    found = join_block(by_quotient(values, _MOMENT_THREADS), join_by_quotient)
    variance = found.squares / found.count
    if not centred:
        variance = fused(found.mean, found.mean, variance)
    return found.mean, libdevice.call("rsqrtf", variance + eps)

def norm(x, weight, bias, eps, centred=True):
    values = widened(x)
    n = values.shape[1]
    with np.errstate(all="ignore"):
        mean, rstd = _statistics(values, eps, centred)
        d = (values - mean[:, None] if centred else values)
        y = rstd[:, None] * d
        if weight is not None and bias is not None: y = fused(widened(weight), y, widened(bias))
        elif weight is not None: y = widened(weight) * y
    return rounded(y, x.dtype), mean, rstd

@compiled
def _gradient_sums(g: Any, x: Any, weight: Any, mean: Any, rstd: Any, sums: Any, products: Any, size: int) -> None:
    threads = sums.shape[1]
    n = x.shape[1]
    for row in range(len(x)):
        for first in range(0, n, threads * size):
            for thread in range(min(threads, (n - first + size - 1) // size)):
                s, p = sums[row, thread], products[row, thread]
                start = first + thread * size
                for column in range(start, min(start + size, n)):
                    gw = g[row, column] * weight[column]
                    s += gw
                    p = fma(gw * (x[row, column] - mean[row]), rstd[row], p)
                sums[row, thread], products[row, thread] = s, p

MODE = 1
def norm_backward(g, x, mean, rstd, weight, centred=True):
    gv, xv = widened(g), widened(x)
    M, n = xv.shape
    w = np.ones(n, np.float32) if weight is None else widened(weight)
    mean = mean if centred else np.zeros(M, np.float32)
    sums, products = np.zeros((M, _THREADS), np.float32), np.zeros((M, _THREADS), np.float32)
    _gradient_sums(gv, xv, w, mean, rstd, sums, products, _VECTOR)
    s1, s2 = add_block(sums)[:, None], add_block(products)[:, None]
    fh = np.float32(n)
    term = (np.float32(1) / fh) * rstd[:, None]
    d = (xv - mean[:, None]) if centred else xv
    t = d * rstd[:, None]
    a = fh * w
    f = fused(-t, s2, a * gv) if MODE == 0 else fused(a, gv, -(t * s2))
    if centred: f = f - s1
    dx = rounded(f * term, x.dtype)
    if weight is None: return dx, None, None
    dg, db = _weight_gradients(gv, xv, mean, rstd)
    return dx, rounded(dg, weight.dtype), rounded(db, weight.dtype)

@compiled
def _column_sums(g: Any, x: Any, mean: Any, rstd: Any, dg: Any, db: Any, height: int) -> None:
    m, n = x.shape
    for row in range(m):
        y = row // 8 % height
        for column in range(n):
            dg[y, column] = fma(g[row, column] * (x[row, column] - mean[row]), rstd[row], dg[y, column])
            db[y, column] += g[row, column]

def _weight_gradients(g, x, mean, rstd):
    m, n = x.shape
    height = 1 if m < 64 else 8 if m < 128 else 16 if m < 256 else 32
    dg, db = np.zeros((height, n), np.float32), np.zeros((height, n), np.float32)
    _column_sums(g, x, mean, rstd, dg, db, height)
    return halved(np.ascontiguousarray(dg.T)), halved(np.ascontiguousarray(db.T))
