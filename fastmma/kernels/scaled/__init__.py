"""Kernels of block scaling: single products with scales, and the method ``grouped``, exact sums of groups."""
