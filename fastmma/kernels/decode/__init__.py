"""Decoding: what the codes of a format of elements or of scales mean."""

from fastmma.host.modules import submodule_getter

__getattr__ = submodule_getter(__name__)
