"""Functions of each element: NVVM's intrinsics, libdevice and formulas as loops of machine code."""

from fastmma.host.modules import submodule_getter

__getattr__ = submodule_getter(__name__)
