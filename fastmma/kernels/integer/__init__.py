"""Kernels of the methods ``integer`` and ``bit``."""

import fastmma.kernels.llvm  # noqa: F401  # imports Numba, before anything else does
