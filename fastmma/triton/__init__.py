"""Triton kernels on a CPU with the bits of a GPU's tensor cores: `interpret`.

It needs torch and Triton: ``pip install "fastmma[triton]"``.
"""

from fastmma.triton import versions  # noqa: F401 - first: it names an old Triton, of which the others lack parts
from fastmma.triton.gluon.barriers import BarrierError
from fastmma.triton.gluon.clocks import RaceError
from fastmma.triton.gluon.program import DeadlockError
from fastmma.triton.interpret import from_environment, interpret
from fastmma.triton.report import Report

__all__ = ["BarrierError", "DeadlockError", "RaceError", "Report", "from_environment", "interpret"]


def __dir__() -> list[str]:
    return list(__all__)
