"""Gluon kernels on a CPU: Triton's own front end translates them, and fastmma executes the operations one by one."""
