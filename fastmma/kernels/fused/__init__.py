"""Kernels of the method ``fused``: terms aligned, truncated, summed exactly, rounded once."""
