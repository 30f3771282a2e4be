"""The accumulation of a scaled product: an explicit plan that prints, and the choices of known libraries."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fastmma.host.calls import named_fields
from fastmma.host.errors import InstructionError, OperandError
from fastmma.host.integers import flag, integer
from fastmma.isa.formats import FORMATS, Format
from fastmma.isa.instruction import Instruction
from fastmma.isa.targets import BLACKWELL, specific
from fastmma.kernels.params import PROMOTIONS
from fastmma.products.by_tile import ByTile, Cuts
from fastmma.products.choice import other_spelling
from fastmma.products.library_plan import LibraryPlan
from fastmma.products.order import Order, checked_join, checked_loop, checked_parts, left_out_text, order_text
from fastmma.products.steps import OUTPUTS, check_steps, operands_of, texts
from fastmma.scaling.schemes import scheme_of

WIDER = (FORMATS["e4m3"], FORMATS["f16"])  # what elements may be widened to
_FORMULAS = {
    "add": "total + partial",
    "fma": "fma(scale_a * scale_b, partial, total)",
    "multiply-add": "total + (scale_a * scale_b) * partial",
    "fma-each": "fma(partial * scale_a, scale_b, total)",
    "multiply-add-each": "total + (partial * scale_a) * scale_b",
}
_PLACES = {
    "instruction": "multiply the products inside the instruction",
    "promotion": "multiply the sum of every chunk when it joins the total",
    "epilogue": "multiply the sums in the epilogue",
}


def holders(fmt: Format) -> tuple[Format, ...]:
    """The formats as which elements can be multiplied, because they have all values: first their own, then the wider ones.

    >>> [each.name for each in holders(FORMATS["e2m1"])]
    ['e2m1', 'e4m3', 'f16']
    """
    return (fmt, *(wide for wide in WIDER if wide != fmt and fmt.kind == "float" and wide.holds(fmt)))


@named_fields
@dataclass(frozen=True)
class AccumulationPlan(LibraryPlan):
    """Everything that decides the bits of a scaled product, in the order in which it happens.

    Attributes
    ----------
    target : str
        The GPU.
    instruction : str
        The opcode, looped over k in ascending order with D fed back as C.
    schemes : (str, str)
        The schemes of a and b (`fastmma.scaling.SCHEMES`).
    scales : {"instruction", "promotion", "epilogue"}
        Where the blocks' scales are multiplied in.
    promote_every : int or None
        k between promotions: the tensor core starts at zero again, and its f32 sums join a total that starts at +0. None: no promotion.
    promotion : str
        How they join, by IEEE f32 operations in round to nearest: ``"add"`` (``total + partial``), ``"fma"`` (``fma(scale_a * scale_b,
        partial, total)``, the product of the scales being rounded first), ``"multiply-add"`` (``total + (scale_a * scale_b) * partial``),
        ``"fma-each"`` (``fma(partial * scale_a, scale_b, total)``), ``"multiply-add-each"`` (``total + (partial * scale_a) * scale_b``).
    split_k : int, tuple of (start, stop), or StreamK
        Parts of k: a number of parts of equal length (rounded up to `split_unit`), or where each starts and stops.
    epilogue : tuple of str
        The steps on the f32 sums x, in order: multiplications by ``"scale_a"``, ``"scale_b"``, ``"scale_ab"`` (their rounded product) or
        ``"alpha"``, additions of ``"c"`` (times beta, rounded) or ``"bias"``, both in one fma as in ``"alpha+bias"``, ``"beta*c"``
        (``fma(beta, c, x)``), ``"relu"`` (``max(x, 0)``), and ``"round"`` to the result's format. Steps after ``"round"`` take operands
        rounded to that format, and their f32 results are rounded to it. An operand that is not given
        is left out. Alpha includes the global scales: ``(alpha * global_scale_a) * global_scale_b``.
    out : {"f32", "bf16", "f16"}
        The format of the result.
    join : {"ascending", "pairwise", "workspace", "in-place"}
        In which order the parts of k are added, by f32 adds; as in `fastmma.GemmPlan`.
    join_dtype : {"", "bf16", "f16"}
        The format to which the parts and each of their sums are rounded; f32 if empty.
    split_unit : int
        What the length of equal parts is rounded up to a multiple of; 0: whole chunks if the scales are applied at promotion, else the
        instruction's k.
    leaves_out : bool
        As in `fastmma.GemmPlan`: whether equal parts can end before K, and the k beyond them are left out.
    evidence : OrderEvidence, optional
        How it is known that a library adds so, if these are a preset's choices, unchanged; given by name.
    arithmetic : Arithmetic, optional
        Your own arithmetic instead of the target's; given by name.

    Raises
    ------
    InstructionError, OperandError
        If the parts do not go together.

    Examples
    --------
    >>> plan = AccumulationPlan("sm_90a", "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3", ("fp8_1x128", "fp8_128x128"),
    ...                         "promotion", 128, "fma", 1, ("alpha", "round"), "bf16")
    >>> print(plan)
    fp8_1x128 x fp8_128x128 on sm_90a
      instruction  wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3
      arithmetic   fused: L = 32, F = 13, emax >= -133, keep 13
      known        measured: H200, registers of every opcode on adversarial inputs
      elsewhere    sm_90 takes mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32, with other bits
      k order      ascending by 32, D fed back as C
      promotion    every 128 k: total = fma(scale_a * scale_b, partial, total), f32, from +0
      split-k      none
      scales       multiply the sum of every chunk when it joins the total
      epilogue     x = total; x * alpha; round to bf16
    """

    schemes: tuple[str, str]
    scales: str
    promote_every: int | None
    promotion: str
    split_k: int | Cuts | ByTile
    epilogue: tuple[str, ...]
    out: str
    join: str = "ascending"
    join_dtype: str = ""
    split_unit: int = 0
    leaves_out: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        ins = self.operation.instruction
        _check_name(self.promotion, PROMOTIONS, "promotion must be")
        _check_name(self.scales, _PLACES, "scales must be applied in")
        _check_name(self.out, OUTPUTS, "the result must be")
        if not isinstance(self.schemes, tuple) or len(self.schemes) != 2:
            raise OperandError(f"schemes must be a tuple of two, those of a and b, not {self.schemes!r}")
        check_epilogue(self.epilogue, self.scales, self.target)
        self._check_operands(ins)
        if ins.dtype not in ("f32", "s32") or ins.sparse:
            raise InstructionError(f"{ins}: a scaled product needs a dense instruction that accumulates in f32 or s32")
        if (self.scales == "promotion") == (self.promotion == "add"):
            raise OperandError(f"promotion {self.promotion!r} does not go with scales that are applied in the {self.scales}")
        every = checked_loop(ins, self.promote_every)
        object.__setattr__(self, "promote_every", every)
        object.__setattr__(self, "split_k", checked_parts(ins, self.split_k, every if self.scales == "promotion" else None))
        checked_join(ins, self.join, self.join_dtype)
        object.__setattr__(self, "split_unit", integer(self.split_unit, "split_unit", 0))
        object.__setattr__(self, "leaves_out", flag(self.leaves_out, "leaves_out"))
        if self.scales == "promotion" and every and self.split_unit % every:
            raise OperandError(f"split_unit must be a multiple of promote_every, {every}, not {self.split_unit}")
        if every is None:
            if self.scales == "promotion":
                raise OperandError("scales that are applied at promotion need promote_every")
        elif ins.dtype != "f32":
            raise OperandError(f"{ins}: sums in {ins.dtype} are exact; leave promote_every out")
        elif self.scales == "promotion" and self.block % every:
            raise OperandError(f"promote_every must divide the {self.block} k that share their scales, not be {every}")
        self._keep_evidence()

    def _check_operands(self, ins: Instruction) -> None:
        """Raise InstructionError unless the instruction multiplies the elements exactly, and takes their scales if it takes any."""
        rows = [scheme_of(name) for name in self.schemes]
        for name, fmt, row in zip("ab", ins.formats[:2], rows, strict=True):
            if fmt not in holders(row.element_format):
                raise InstructionError(f"{ins}: {name} is {row.element}, whose values {fmt} does not have")
        if (self.scales == "instruction") != bool(ins.scale_vec_size):
            raise InstructionError(f"{ins}: an instruction with block scaling takes the scales, and no other does")
        own = ins.k // ins.scale_vec_size if ins.scale_vec_size else 0
        if own and any(row.scale != ins.stype or (row.extents[0] or 1) % own for row in rows):
            raise InstructionError(f"{ins}: it takes {ins.stype} scales for every {own} k, not those of {' and '.join(self.schemes)}")

    @property
    def order(self) -> Order:
        """How k is cut, and the parts are joined."""
        least = self.promote_every if self.scales == "promotion" and self.promote_every else self.operation.instruction.k
        return Order(self.split_k, self.split_unit or least, self.join, self.join_dtype, leaves_out=self.leaves_out)

    @cached_property
    def block(self) -> int:
        """How many k share both scales; 0 if all do."""
        return math.gcd(*(scheme_of(name).extents[0] or 0 for name in self.schemes))

    @cached_property
    def widened(self) -> tuple[str, str]:
        """The formats in which a and b are multiplied, where the elements are of others, else empty."""
        ins = self.operation.instruction
        elements = (scheme_of(name).element for name in self.schemes)
        first, second = ("" if fmt == own else fmt for fmt, own in zip((ins.atype, ins.btype), elements, strict=True))
        return first, second

    def _operands(self) -> str:
        return " x ".join(self.schemes)

    def _no_library(self) -> str:
        """Say that no library is known to multiply so, where blocks are promoted that no preset has on this target."""
        a, b = self.schemes
        rows = (row for rows in PRESETS.values() for row in rows if self.target in row.targets)
        if self.scales != "promotion" or any(a in row.a and b in row.b for row in rows):
            return ""
        return f"none is known to multiply {a} by {b} on {self.target}"

    def _details(self) -> list[tuple[str, str]]:
        ins = self.operation.instruction
        widened = [f"{name} as {fmt}" for name, fmt in zip("ab", self.widened, strict=True) if fmt]
        promotion = f"every {self.promote_every} k: total = {_FORMULAS[self.promotion]}, f32, from +0"
        converted = ["convert to f32"] if ins.dtype == "s32" else []
        return [
            *super()._details(),
            ("known", str(self.operation.arithmetic.evidence)),
            ("elsewhere", "" if self.arithmetic is not None else other_spelling(ins, self.target)),
            ("elements", f"{', '.join(widened)}, which has all their values" if widened else ""),
            ("k order", f"ascending by {ins.k}, D fed back as C"),
            ("promotion", "none" if self.promote_every is None else promotion),
            ("split-k", order_text(self.order, ins)),
            ("left out", left_out_text(self.order)),
            ("scales", _PLACES[self.scales]),
            ("epilogue", "; ".join(["x = total", *converted, *texts(self.epilogue, self.out)])),
            ("library", self._library() or self._no_library()),
        ]


def _check_name(name: Any, names: Collection[str], what: str) -> None:
    if not isinstance(name, str) or name not in names:
        raise OperandError(f"{what} one of {', '.join(names)}, not {name!r}")


def check_epilogue(steps: tuple[str, ...], scales: str, target: str) -> None:
    """Raise OperandError unless these are steps of an epilogue, with the scales if they belong there."""
    check_steps(steps, target)
    found = {name for step in steps for name in operands_of(step) if name.startswith("scale_")}
    wanted = [{"scale_ab"}, {"scale_a", "scale_b"}] if scales == "epilogue" else [set()]
    if found not in wanted:
        expected = "'scale_ab', or 'scale_a' and 'scale_b'," if scales == "epilogue" else "no scales, which are applied earlier,"
        raise OperandError(f"the epilogue must have {expected} unlike {steps}")


@dataclass(frozen=True)
class Preset:
    """A library's choices for some schemes of a and of b, on some targets or any; empty or None: as `fastmma.scaled_plan` does."""

    a: tuple[str, ...]
    b: tuple[str, ...]
    epilogue: tuple[str, ...]
    source: str
    promote_every: int | None = None
    promotion: str = ""
    targets: tuple[str, ...] = ()
    split_unit: int = 0
    leaves_out: bool = False


_FP8_TENSORS = ("fp8_tensor", "fp8_tensor_e5m2")
_FP8_ROWS = ("fp8_row", "fp8_row_e5m2")
_FP8_LINES = ("fp8_1x128", "fp8_1x128_e5m2")
_FP8_BLOCKS = ("fp8_128x128", "fp8_128x128_e5m2")
_NVFP4 = ("nvfp4", "nvfp4_16x16")
_MXFP8 = ("mxfp8_e4m3", "mxfp8_e5m2")
_HOPPER = ("sm_90a",)
_BLACKWELL = specific("sm_100", "sm_103")
_NVJET = "bitequiv: cuBLASLt 12.8.5 and 13.1.1 on GB200, 13.1.1 on GB300, not compared here"
_ONE_SUM = "one sum over all k, whose order is assumed to be ascending; not compared here"
_CUBLAS = "cuBLAS 13 through PyTorch 2.11 on an H200, every bit of the f32 results"
PRESETS: dict[str, tuple[Preset, ...]] = {
    "cublas": (
        Preset(
            _FP8_TENSORS, _FP8_TENSORS, ("scale_ab", "bias", "round"), f"{_CUBLAS}; use_fast_accum=False", 128, "add", _HOPPER, 128, True
        ),
        Preset(_FP8_ROWS, _FP8_ROWS, ("scale_b", "scale_a", "bias", "round"), f"{_CUBLAS}; use_fast_accum=False", 128, "add", _HOPPER),
        Preset(_FP8_LINES, _FP8_BLOCKS, ("round",), _CUBLAS, 128, "fma", _HOPPER),
        Preset(_FP8_LINES, _FP8_LINES, ("round",), _CUBLAS, 128, "fma-each", _HOPPER),
        Preset(("fp8_tensor",), ("fp8_tensor",), ("scale_ab", "round"), _NVJET, targets=_BLACKWELL),
        Preset(_MXFP8, _MXFP8, ("alpha", "round"), f"cuBLASLt VEC32_UE8M0: {_ONE_SUM}", targets=_BLACKWELL),
        Preset(_NVFP4, _NVFP4, ("alpha", "round"), f"cuBLASLt VEC16_UE4M3: {_ONE_SUM}", targets=_BLACKWELL),
    ),
    "cublas-fast-accum": (
        Preset(
            _FP8_TENSORS,
            _FP8_TENSORS,
            ("scale_ab", "bias", "round"),
            f"{_CUBLAS}; use_fast_accum=True",
            targets=_HOPPER,
            split_unit=128,
            leaves_out=True,
        ),
        Preset(_FP8_ROWS, _FP8_ROWS, ("scale_b", "scale_a", "bias", "round"), f"{_CUBLAS}; use_fast_accum=True", targets=_HOPPER),
    ),
    "deepgemm": (
        Preset(
            _FP8_LINES,
            (*_FP8_LINES, *_FP8_BLOCKS),
            ("c", "round"),
            "DeepGEMM sm90_fp8_gemm_1d2d and 1d1d: scale_a * scale_b is one multiplication, scaling and adding one FFMA",
            128,
            "fma",
            _HOPPER,
        ),
        Preset(
            ("mxfp8_e4m3", "fp8_1x128_ue8m0"),
            ("mxfp8_e4m3", "mxfp4", "fp8_1x128_ue8m0", "fp8_128x128_ue8m0"),
            ("c", "round"),
            "DeepGEMM sm100_fp8_fp4_gemm_1d1d (54e2261): one sum over all k; four instructions take the scale of 128 k one after another",
            targets=_BLACKWELL,
        ),
    ),
    "cutlass": (
        Preset(
            _FP8_LINES,
            (*_FP8_LINES, *_FP8_BLOCKS),
            ("alpha+c", "round"),
            "CUTLASS sm100_mma_warpspecialized_blockwise_scaling: scale_a * scale_b is one multiplication, scaling and adding one FFMA",
            128,
            "fma",
            _BLACKWELL,
        ),
    ),
    "transformer-engine": (
        Preset(_MXFP8, _MXFP8, ("alpha", "bias", "round"), f"TransformerEngine: cuBLASLt VEC32_UE8M0, {_ONE_SUM}", targets=_BLACKWELL),
        Preset(
            _NVFP4,
            _NVFP4,
            ("alpha", "bias", "round"),
            "TransformerEngine: the global scales are part of cuBLAS's f32 alpha",
            targets=BLACKWELL,
        ),
    ),
    "torchao": (
        Preset(
            _NVFP4,
            _NVFP4,
            ("round", "alpha", "bias"),
            "torchao nvfp4_tensor.py: the global scales multiply the rounded result, in its dtype",
            targets=BLACKWELL,
        ),
    ),
}
