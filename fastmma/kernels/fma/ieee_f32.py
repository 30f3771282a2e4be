"""The IEEE yardstick: an f32 matrix product that adds in ascending k, every multiplication and addition rounded to nearest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.llvm.compilation import compiled

_ROWS = 16
_COLUMNS = 256
_DEPTH = 256  # a block of b of this depth stays in the second-level cache


@compiled
def _row_range(a: Any, b: Any, out: Any, start: int, stop: int) -> None:
    depth, columns = b.shape
    for j0 in range(0, columns, _COLUMNS):
        j1 = min(j0 + _COLUMNS, columns)
        for k0 in range(0, depth, _DEPTH):
            k1 = min(k0 + _DEPTH, depth)
            fours = k0 + (k1 - k0) // 4 * 4
            for i in range(start, stop):
                total = out[i, j0:j1]
                for k in range(k0, fours, 4):
                    w, x, y, z = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
                    bw, bx, by, bz = b[k, j0:j1], b[k + 1, j0:j1], b[k + 2, j0:j1], b[k + 3, j0:j1]
                    for j in range(j1 - j0):
                        total[j] = total[j] + w * bw[j] + x * bx[j] + y * by[j] + z * bz[j]
                for k in range(fours, k1):
                    w, bw = a[i, k], b[k, j0:j1]
                    for j in range(j1 - j0):
                        total[j] += w * bw[j]


def gemm(a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32] | None, threads: int) -> NDArray[np.float32]:
    """``c + a @ b`` in f32, one product at a time."""
    left, right = np.ascontiguousarray(a, dtype=np.float32), np.ascontiguousarray(b, dtype=np.float32)
    out = np.zeros((len(left), right.shape[1]), np.float32) if c is None else np.array(c, dtype=np.float32, order="C")

    def work(start: int, stop: int, _worker: int) -> None:
        _row_range(left, right, out, start, stop)

    parallel_for(work, len(out), threads, _ROWS)
    return out
