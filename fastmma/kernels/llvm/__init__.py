"""How kernels are written and compiled: vectors, emission of LLVM code, the cache, the CPU."""

from importlib import import_module

from fastmma.host.threads import apart

apart(import_module, "numba")  # an import of Numba that is interrupted cannot be repeated
