"""Block scaling: MX, NVFP4, fp8 and int8 with scales; quantisation, block-scaled arrays, and their layouts in memory."""

from fastmma.scaling.array import ScaledArray
from fastmma.scaling.layouts import from_blocked, pack_e2m1, to_blocked, unpack_e2m1
from fastmma.scaling.quantizer import quantize
from fastmma.scaling.rules import RULES, Rule
from fastmma.scaling.schemes import SCHEMES, Scheme

__all__ = [
    "RULES",
    "SCHEMES",
    "Rule",
    "ScaledArray",
    "Scheme",
    "from_blocked",
    "pack_e2m1",
    "quantize",
    "to_blocked",
    "unpack_e2m1",
]


def __dir__() -> list[str]:
    return list(__all__)
