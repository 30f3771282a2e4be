"""How kernels are written and compiled: vectors, emission of LLVM code, the cache, the CPU."""
