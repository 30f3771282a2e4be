"""Kernels of the method ``fused``: terms aligned, truncated, summed exactly, rounded once."""

from fastmma.host.modules import submodule_getter

__getattr__ = submodule_getter(__name__)
