"""Kernels of block scaling: single products with scales, and the method ``grouped``, exact sums of groups."""

from fastmma.host.modules import submodule_getter

__getattr__ = submodule_getter(__name__)
