"""proto"""
from __future__ import annotations
from typing import Any
import numpy as np
from fastmma.functions import libdevice
from fastmma.functions.arithmetic import fused, rounded, widened
from fastmma.functions.block import add_block, add_strided, halved
from fastmma.functions.welford import by_quotient, halve, join_block, join_by_quotient
from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.simd import fma
_T = 512
M3 = 0
MX = 0
def _threads(n): return 32 if n < _T else _T
def _add(s): return halved(s) if s.shape[-1] == 32 else add_block(s)
@compiled
def _products(a: Any, b: Any, sums: Any) -> None:
    threads = sums.shape[1]
    for row in range(len(a)):
        for first in range(0, a.shape[1], threads):
            for thread in range(min(threads, a.shape[1] - first)):
                sums[row, thread] = fma(a[row, first + thread], b[row, first + thread], sums[row, thread])
def group_norm(x, weight, bias, n, c, hw, groups, eps):
    dt = x.dtype
    v = widened(x).reshape(n * groups, -1)
    d = c // groups
    t = _threads(v.shape[1])
    m = by_quotient(v, t)
    m = halve(m, join_by_quotient) if t == 32 else join_block(m, join_by_quotient)
    e = rounded(np.float32([eps]), dt).astype(np.float32)
    rstd = libdevice.call("rsqrtf", m.squares / m.count + e)
    mean, rstd = rounded(m.mean, dt), rounded(rstd, dt)
    mw, rw = widened(mean)[:, None], widened(rstd)[:, None]
    w = widened(weight).reshape(1, groups, d); b = widened(bias).reshape(1, groups, d)
    a = rw.reshape(n, groups, 1) * w
    bb = -a * mw.reshape(n, groups, 1) + b
    y = fused(a.reshape(n*c, 1), v.reshape(n * c, hw), bb.reshape(n*c, 1))
    return rounded(y, dt).reshape(x.shape), mean, rstd
def group_norm_backward(g, x, mean, rstd, weight, n, c, hw, groups):
    dt = x.dtype; d = c // groups
    gv, xv = widened(g).reshape(n*c, hw), widened(x).reshape(n*c, hw)
    t = _threads(hw)
    s = np.zeros((n*c, t), np.float32); _products(gv, xv, s)
    ds, db = _add(s), _add(add_strided(gv, t))
    mw, rw = widened(mean).reshape(n*groups), widened(rstd).reshape(n*groups)
    w = widened(weight)
    c1 = rw.reshape(n, groups, 1) * w.reshape(1, groups, d)
    t = _threads(d)
    wr = np.ascontiguousarray(np.broadcast_to(w.reshape(1, groups, d), (n, groups, d))).reshape(n*groups, d)
    s1 = np.zeros((n*groups, t), np.float32); s2 = s1.copy()
    _products(ds.reshape(-1, d), wr, s1); _products(db.reshape(-1, d), wr, s2)
    s1, s2 = _add(s1), _add(s2)
    s = np.float32(1) / np.float32(d * hw)
    xx = fused(s2, mw, -s1) * rw * rw * rw * s
    tt = s2 * rw
    c3 = fused(-xx, mw, -(tt * s)) if M3 == 0 else fused(-tt, s, -(xx * mw))
    c2 = xx
    e = lambda v: np.repeat(v, d)[:, None]
    c1 = c1.reshape(n*c, 1)
    dx = (fused(c1, gv, e(c2) * xv) if MX == 0 else fused(e(c2), xv, c1 * gv)) + e(c3) if MX < 2 else fused(c1, gv, fused(e(c2), xv, e(c3)))
    q = fused(-db.reshape(n, c), np.repeat(mw.reshape(n, groups), d, 1), ds.reshape(n, c))
    rows = 1 if n <= 128 else 32
    dg, dbt = np.zeros((rows, c), np.float32), np.zeros((rows, c), np.float32)
    for i in range(n):
        dg[i % rows] = fused(q[i], np.repeat(rw.reshape(n, groups)[i], d), dg[i % rows])
        dbt[i % rows] += db.reshape(n, c)[i]
    return rounded(dx, dt).reshape(x.shape), rounded(halved(dg.T.copy()), dt), rounded(halved(dbt.T.copy()), dt)
