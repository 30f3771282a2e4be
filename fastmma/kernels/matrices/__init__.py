"""Operands in memory: addresses, fragments of registers, sparse rows."""

from fastmma.host.modules import submodule_getter

__getattr__ = submodule_getter(__name__)
