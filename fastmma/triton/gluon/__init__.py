"""Gluon kernels on a CPU: what Triton's own front end makes of them is executed, operation by operation."""
