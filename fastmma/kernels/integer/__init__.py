"""Kernels of the methods ``integer`` and ``bit``."""
