"""Fused dot-product-adds of any numbers and roundings, on any CPU: for arithmetics that no GPU has."""

from fastmma.host.modules import submodule_getter

__getattr__ = submodule_getter(__name__)
