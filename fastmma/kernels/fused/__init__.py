"""Kernels of the method ``fused``: terms aligned, truncated, summed exactly, rounded once."""

import fastmma.kernels.llvm  # noqa: F401  # imports Numba, before anything else does
