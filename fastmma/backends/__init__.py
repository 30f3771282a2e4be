"""Backends compute calls: compiled kernels, exact integers, a real GPU, the emulator on a GPU."""
