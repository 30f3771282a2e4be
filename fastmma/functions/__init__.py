"""Functions with the bits of a GPU: its special function unit, libdevice, and the kernels that frameworks run between products."""
