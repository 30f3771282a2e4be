"""Kernels of block scaling: single products with scales, and the method ``grouped``, exact sums of groups."""

import fastmma.kernels.llvm  # noqa: F401  # imports Numba, before anything else does
