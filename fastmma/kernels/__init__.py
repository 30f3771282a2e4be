"""Compiled loops, in rooms by what they compute; those that are not imported yet are when they are first asked for."""

from fastmma.host.modules import submodule_getter
from fastmma.kernels import decode, fma, functions, fused, general, integer, llvm, matrices, scaled, sums  # noqa: F401  # they import nothing: no signal handler finds half of one

__getattr__ = submodule_getter(__name__)
