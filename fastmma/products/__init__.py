"""Matrix products of any size."""

from fastmma.host.modules import submodule_getter

__getattr__ = submodule_getter(__name__)
