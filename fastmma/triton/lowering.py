"""The instructions into which Triton's compiler turns a dot: what it chooses, and the rules by which it does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastmma.execution import tcgen05
from fastmma.host.errors import NotEmulatedError
from fastmma.isa.table import multiply
from fastmma.triton.compilers import FIRST_OF_AMD

_STEP = 256  # bits of k in one instruction
_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "e4m3": 8, "e5m2": 8, "s8": 8}  # in registers
_KINDS = {"f16": "f16", "bf16": "f16", "tf32": "tf32", "e4m3": "f8f6f4", "e5m2": "f8f6f4", "s8": "i8"}
FP8 = ("e4m3", "e5m2")


@dataclass(frozen=True)
class Dot:
    """A dot as the compiler sees it: shape, formats, and what was asked for.

    Attributes
    ----------
    m, n, k : int
        Its shape.
    a, b, accumulator : str
        Formats of the operands and of the sums.
    batched : bool
        Whether it has more than two dimensions.
    precision : str
        ``"tf32"``, ``"ieee"`` or another name of Triton's.
    imprecise : int
        ``max_num_imprecise_acc``: how many k 8-bit floats accumulate in the tensor core alone; 0 is none.
    narrowest : int
        Bits of the narrowest elements from which an operand was loaded.
    """

    m: int
    n: int
    k: int
    a: str
    b: str
    accumulator: str
    batched: bool = False
    precision: str = "tf32"
    imprecise: int = 0
    narrowest: int = 16

    @property
    def is_split(self) -> bool:
        """True if it becomes several dots of parts of its numbers."""
        return self.a == "tf32" and self.precision not in ("tf32", "ieee")


@dataclass(frozen=True)
class Lowering:
    """The instructions of a dot.

    Attributes
    ----------
    unit : {"wgmma", "mma", "tcgen05", "v_mfma", "fma"}
        What computes it; ``"fma"`` are chains of f32 fused multiply-adds off the tensor cores.
    a, b : str
        The formats multiplied: those of the operands, or f16 for 8-bit floats where the unit has none.
    k_width : int
        Neighbouring k that a thread of an ``"mma"`` or a ``"v_mfma"`` holds: more than an instruction takes of it permute k. 0 elsewhere.
    opcode : str
        The ``"v_mfma"``.
    ctas : int
        How many multiply together: 2 for a ``"tcgen05"`` of a pair.
    """

    unit: str
    a: str
    b: str
    k_width: int = 0
    opcode: str = ""
    ctas: int = 1

    def instruction(self, dot: Dot) -> str:
        """The opcode.

        Examples
        --------
        >>> dot = Dot(64, 128, 64, "bf16", "bf16", "f32")
        >>> Lowering("wgmma", "bf16", "bf16").instruction(dot)
        'wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16'
        """
        if self.opcode or self.unit == "fma":
            return self.opcode or "fma.rn.f32"
        k, end = _STEP // _BITS[self.a], f"{dot.accumulator}.{self.a}.{self.b}"
        if self.unit == "tcgen05":
            m, n = min(dot.m, 128 * self.ctas), min(dot.n, 256)
            return str(tcgen05.instruction(_KINDS[self.a], dot.accumulator, self.a, self.b, m=m, n=n, cta_group=self.ctas))
        if self.unit == "wgmma":
            return f"wgmma.mma_async.sync.aligned.m64n{min(dot.n, 256)}k{k}.{end}"
        if self.a == "f64":
            return "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
        saturates = ".satfinite" if self.a == "s8" else ""
        return f"mma.sync.aligned.m16n8k{k}.row.col{saturates}.{end}.{dot.accumulator}"

    def promotion(self, dot: Dot) -> int | None:
        """After how many k the sums of 8-bit floats join an f32 total."""
        return dot.imprecise if self.unit == "wgmma" and self.a in FP8 and 0 < dot.imprecise <= dot.k else None

    def order(self, k: int) -> NDArray[np.intp] | None:
        """In which order k is multiplied, if that is not ascending.

        In each group of 8 `k_width` k, the j-th instruction takes k = w t + 2 j + i and 4 w + w t + 2 j + i, for threads t = 0 to 3 and
        i = 0, 1, where w is `k_width`. Of v_mfma, whose lanes hold e neighbours of k and whose groups of lanes are g, the j-th of w / e
        instructions takes w g + e j + i, for all g.
        """
        if self.opcode:
            return _in_waves(k, self.opcode, self.k_width)
        return _permuted(k, self.k_width) if self.unit == "mma" and self.k_width * _BITS[self.a] > 32 and self.a != "f64" else None


@lru_cache(maxsize=256)
def _permuted(k: int, width: int) -> NDArray[np.intp]:
    if k % (8 * width):
        raise NotEmulatedError(
            f"a dot of k = {k} whose operands are widened in registers by groups of {8 * width} k: the order is not known"
        )
    pairs = np.arange(2)
    threads = width * np.arange(4)[:, None] + pairs
    steps = [half + 2 * j + threads for j in range(width // 2) for half in (0, 4 * width)]
    group = np.concatenate([step.ravel() for step in steps])
    return np.asarray((np.arange(0, k, 8 * width)[:, None] + group).ravel())


def _in_waves(k: int, opcode: str, width: int) -> NDArray[np.intp] | None:
    layout = multiply(opcode).operands["a"].layout
    held, groups = layout.elements, multiply(opcode).k // layout.elements
    if width == held:
        return None
    if k % (groups * width) or width % held:
        raise NotEmulatedError(f"a dot of k = {k} by {opcode} whose lanes hold {width} k: the order is not known")
    places = np.arange(k).reshape(-1, groups, width // held, held)
    return np.ascontiguousarray(places.swapaxes(1, 2)).ravel()


def lowering_by_rules(dot: Dot, capability: int, warps: int) -> Lowering:
    """Return what Triton chooses for a dot on a GPU of this compute capability (90 for sm_90a).

    Raises
    ------
    NotEmulatedError
        If no rule says so.
    """
    if capability >= FIRST_OF_AMD:
        raise NotEmulatedError("no rule says what Triton makes of a dot on a GPU of AMD's; its compiler does")
    if dot.a not in _BITS:
        raise NotEmulatedError(f"a dot of {dot.a}, which only AMD's GPUs multiply")
    if dot.is_split:
        raise NotEmulatedError(f"input_precision={dot.precision!r}: which dots it becomes was not found in the compiler's output")
    if dot.precision == "ieee" and dot.a == "tf32":
        return Lowering("fma", "f32", "f32")
    tiles = dot.m % 64 == 0 and dot.n % 8 == 0 and not dot.batched and dot.a != "f64"
    wants_sums = dot.a in FP8 and dot.imprecise == 0
    if 90 <= capability < 100 and tiles and warps % 4 == 0 and not wants_sums:
        return Lowering("wgmma", dot.a, dot.b)
    if 100 <= capability < 120 and tiles and warps in (4, 8):
        return Lowering("tcgen05", dot.a, dot.b)
    widened = dot.a in FP8 and capability not in (89, 120, 121)
    a, b = ("f16", "f16") if widened else (dot.a, dot.b)
    narrowest = min(_BITS[a], dot.narrowest, 8 if widened else 64)
    return Lowering("mma", a, b, max(1, 32 // narrowest))
