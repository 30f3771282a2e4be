"""Kernels of the methods ``f64-fma``, ``f32-fma`` and ``f32-fma-pairs``: chains of IEEE fma."""

from fastmma.host.modules import submodule_getter

__getattr__ = submodule_getter(__name__)
