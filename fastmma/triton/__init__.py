"""Triton kernels on a CPU with the bits of a GPU's tensor cores: `interpret`.

Needs torch, and Triton: ``pip install "fastmma[triton]"``.
"""

from fastmma.triton.interpret import from_environment, interpret
from fastmma.triton.report import Report

__all__ = ["Report", "from_environment", "interpret"]
