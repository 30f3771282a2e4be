"""Kernels of the methods ``f64-fma``, ``f32-fma`` and ``f32-fma-pairs``: chains of IEEE fma."""

import fastmma.kernels.llvm  # noqa: F401  # imports Numba, before anything else does
