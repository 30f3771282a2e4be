"""The public names, for type checkers: `__init__.py` imports each where it is first used."""

from fastmma import scaling, shared
from fastmma.agreement.gpus import Agreement, compare_gpus
from fastmma.agreement.invariance import Invariance, invariance
from fastmma.agreement.same_bits import same_bits
from fastmma.agreement.verdict import Verdict
from fastmma.execution import tcgen05, warp, warpgroup
from fastmma.execution.plan import MmaPlan, mma_plan
from fastmma.execution.tiles import mma
from fastmma.explanation.comparison import Comparison, compare
from fastmma.explanation.explain import explain
from fastmma.explanation.explanation import Explanation
from fastmma.host.errors import (
    BackendError,
    CacheWarning,
    FastmmaError,
    InstructionError,
    NotEmulatedError,
    OperandError,
    OperandTypeError,
    OutOfMemoryError,
    TargetError,
    VersionWarning,
)
from fastmma.isa.codes import decode, encode
from fastmma.isa.formats import FORMATS, Format
from fastmma.isa.instruction import Instruction, Movement, Operand
from fastmma.isa.layout import Layout
from fastmma.isa.table import instruction, instructions
from fastmma.isa.targets import TARGETS
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.numerics.evidence import Evidence, Source
from fastmma.numerics.lookup import arithmetic, fidelity
from fastmma.operands import sparse
from fastmma.operands.placement import placement
from fastmma.operands.registers import gather, scatter
from fastmma.operands.trace import trace
from fastmma.products import cublas
from fastmma.products.by_tile import LastWave, StreamK
from fastmma.products.gemm import gemm
from fastmma.products.gemm_choice import gemm_plan
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.matmul import matmul
from fastmma.products.plan import AccumulationPlan
from fastmma.products.prepared import Prepared, prepare
from fastmma.products.scaled import scaled_matmul
from fastmma.products.scaled_choice import scaled_plan
from fastmma.scaling import ScaledArray
from fastmma.verification.identify import Match, identify

__version__: str

__all__ = [
    "FORMATS",
    "TARGETS",
    "AccumulationPlan",
    "Agreement",
    "Arithmetic",
    "BackendError",
    "CacheWarning",
    "Comparison",
    "Evidence",
    "Explanation",
    "FastmmaError",
    "Format",
    "GemmPlan",
    "Instruction",
    "InstructionError",
    "Invariance",
    "LastWave",
    "Layout",
    "Match",
    "MmaPlan",
    "Movement",
    "NotEmulatedError",
    "Operand",
    "OperandError",
    "OperandTypeError",
    "OutOfMemoryError",
    "Prepared",
    "ScaledArray",
    "Source",
    "StreamK",
    "TargetError",
    "Verdict",
    "VersionWarning",
    "arithmetic",
    "compare",
    "compare_gpus",
    "cublas",
    "decode",
    "encode",
    "explain",
    "fidelity",
    "gather",
    "gemm",
    "gemm_plan",
    "identify",
    "instruction",
    "instructions",
    "invariance",
    "matmul",
    "mma",
    "mma_plan",
    "placement",
    "prepare",
    "same_bits",
    "scaled_matmul",
    "scaled_plan",
    "scaling",
    "scatter",
    "shared",
    "sparse",
    "tcgen05",
    "trace",
    "warp",
    "warpgroup",
]
