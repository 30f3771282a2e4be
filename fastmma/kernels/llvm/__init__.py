"""Tools that write and compile kernels: vectors, emission of LLVM code, the cache, the CPU."""

from fastmma.host.modules import submodule_getter

__getattr__ = submodule_getter(__name__)
