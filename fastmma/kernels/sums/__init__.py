"""What becomes of sums: promotions and epilogues."""

import fastmma.kernels.llvm  # noqa: F401  # imports Numba, before anything else does
