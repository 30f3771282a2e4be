"""Fused dot-product-adds of any numbers and roundings, on any CPU: for arithmetics that no GPU has."""

import fastmma.kernels.llvm  # noqa: F401  # imports Numba, before anything else does
