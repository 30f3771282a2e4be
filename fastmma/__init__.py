"""fastmma computes what NVIDIA tensor cores compute, bit for bit, on any CPU.

>>> import numpy as np
>>> a = np.ones((64, 64), np.float16)
>>> float(gemm(a, a, target="sm_90a")[0, 0])
64.0
"""

from fastmma import scaling, sparse, warp, warpgroup
from fastmma.accumulation import AccumulationPlan
from fastmma.errors import BackendError, FastmmaError, InstructionError, OperandError, OperandTypeError, OutOfMemoryError, TargetError
from fastmma.formats import FORMATS, Format, decode, encode
from fastmma.fragment import gather, scatter
from fastmma.gemm import gemm, matmul
from fastmma.isa.model import Instruction, Operand
from fastmma.isa.movement import Movement
from fastmma.isa.table import instruction, instructions
from fastmma.isa.targets import TARGETS
from fastmma.layout import Layout
from fastmma.matrix import mma
from fastmma.numerics import Arithmetic, Evidence, arithmetic, fidelity
from fastmma.placement import placement
from fastmma.scaled_matmul import scaled_matmul
from fastmma.scaled_plan import scaled_plan
from fastmma.scaling import ScaledArray
from fastmma.trace import trace

__version__ = "0.1.0"

__all__ = [
    "FORMATS",
    "TARGETS",
    "AccumulationPlan",
    "Arithmetic",
    "BackendError",
    "Evidence",
    "FastmmaError",
    "Format",
    "Instruction",
    "InstructionError",
    "Layout",
    "Movement",
    "Operand",
    "OperandError",
    "OperandTypeError",
    "OutOfMemoryError",
    "ScaledArray",
    "TargetError",
    "arithmetic",
    "decode",
    "encode",
    "fidelity",
    "gather",
    "gemm",
    "instruction",
    "instructions",
    "matmul",
    "mma",
    "placement",
    "scaled_matmul",
    "scaled_plan",
    "scaling",
    "scatter",
    "sparse",
    "trace",
    "warp",
    "warpgroup",
]
