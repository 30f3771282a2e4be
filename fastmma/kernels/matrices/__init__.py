"""Operands in memory: addresses, fragments of registers, sparse rows."""

import fastmma.kernels.llvm  # noqa: F401  # imports Numba, before anything else does
