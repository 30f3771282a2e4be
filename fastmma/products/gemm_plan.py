"""The accumulation of a plain product: a plan that prints, and can be changed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fastmma.host.calls import named_fields
from fastmma.host.errors import OperandError
from fastmma.host.integers import check_string, flag, integer
from fastmma.isa.instruction import Instruction
from fastmma.products.by_tile import ByTile, Cuts
from fastmma.products.choice import other_spelling
from fastmma.products.library_plan import LibraryPlan
from fastmma.products.order import (
    IN_PLACE,
    SECOND_HALF,
    Order,
    checked_join,
    checked_loop,
    checked_parts,
    left_out_text,
    order_text,
)
from fastmma.products.steps import OUTPUTS, check_steps, joining, operands_of, texts

_SUMS = ("f32", "f16", "s32")  # what an epilogue takes


@named_fields
@dataclass(frozen=True)
class GemmPlan(LibraryPlan):
    """Everything that decides the bits of a plain product.

    Attributes
    ----------
    target : str
        The GPU.
    instruction : str
        The opcode, looped over k in ascending order with D fed back as C.
    arithmetic : Arithmetic, optional
        Your own arithmetic instead of the target's; given by name.
    promote_every : int or None
        k between promotions: the tensor core starts at zero again, and its sums join a total, which starts from c, by one IEEE add.
    split_k : int, tuple of (start, stop), StreamK, or LastWave
        Parts of k, joined by IEEE adds, the first starting from c: a number of parts of equal length, or where each starts and stops.
    split_unit : int
        What the length of a part is rounded up to a multiple of; 0 means the instruction's k.
    first_tile : int
        If K, or a part of it, is not a multiple of this many k, the remainder comes first, so the first tile ends with a short instruction.
        0: the last instruction of all is the short one.
    cast : bool
        Whether float16, float32 and float64 multiplicands are rounded to the instruction's formats first, to nearest even.
    join : {"ascending", "pairwise", "pairwise from the end", "workspace", "in-place", "second half"}
        The order in which the parts of k are added. ``"workspace"`` and ``"in-place"`` are ascending; ``"second half"`` is for dealt parts.
    join_dtype : {"", "bf16", "f16"}
        The format to which f32 parts and each of their sums are rounded; the accumulator's if empty. With ``"workspace"`` only the parts
        are rounded, with ``"in-place"`` only the first and the sums. If it is that of `out`, each part goes through the epilogue: the
        first with c or the bias, any other with the result before it as its c, and beta 1.
    epilogue : tuple of str
        What becomes of the sums, as f32 numbers x, step by step: ``"alpha"`` (``x * alpha``), ``"bias"`` (``x + bias``), ``"c"`` (``x +
        c``, c being beta * c, rounded), ``"alpha+bias"`` and ``"alpha+c"`` (in one fma), ``"beta*c"`` (``fma(beta, c, x)``), ``"relu"``
        (``max(x, 0)``), ``"gelu"`` and ``"gelu-fma"`` (by ``tanh.approx.f32``, on Hopper; in ``"gelu(x+bias)"`` there is no rounding
        between the two), ``"round"`` to `out`. Steps after ``"round"`` take operands rounded to `out`, and their results are rounded to it.
        What a call is not given is left out. If empty, the result is the accumulator. c starts the accumulator where no step takes it.
    out : {"", "f32", "bf16", "f16"}
        The format of the result, where there is an epilogue.
    leaves_out : bool
        Whether equal parts of k have the length K // split_k, rounded up to `split_unit`, as in kernels of cuBLAS. If these parts end
        before K, the last k are in no part, and the result lacks them. If False, the parts have all k.
    dealt : int
        The k of a tile, if tiles are dealt to equal parts of k in turn; 0 if the k of a part lie side by side.
    evidence : OrderEvidence, optional
        How it is known that a library adds so, if these are a preset's choices, unchanged; given by name.

    Raises
    ------
    InstructionError, TargetError, OperandError
        If the parts do not go together.

    Examples
    --------
    >>> print(GemmPlan("sm_80", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", split_k=2))
    f16 x f16 on sm_80
      instruction  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
      arithmetic   fused: L = 8, F = 24, emax >= -132, keep 23
      known        recorded: A100, A2, Ada and L40S, 5,000 dot products a format
      k order      ascending by 16, D fed back as C
      promotion    none
      split-k      2 parts, rounded up to 16 k, added in ascending order, f32
      result       f32
    """

    promote_every: int | None = None
    split_k: int | Cuts | ByTile = 1
    split_unit: int = 0
    first_tile: int = 0
    cast: bool = False
    join: str = "ascending"
    join_dtype: str = ""
    epilogue: tuple[str, ...] = ()
    out: str = ""
    leaves_out: bool = False
    dealt: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        ins = self.operation.instruction
        every, parts = checked_loop(ins, self.promote_every), checked_parts(ins, self.split_k)
        unit, tile = integer(self.split_unit, "split_unit", 0), integer(self.first_tile, "first_tile", 0)
        plain = {"promote_every": every, "split_k": parts, "split_unit": unit, "first_tile": tile, "cast": flag(self.cast, "cast")}
        plain["leaves_out"] = flag(self.leaves_out, "leaves_out")
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        checked_join(ins, self.join, self.join_dtype)
        self._check_epilogue(ins)
        if tile and (tile % ins.k or ins.sparse or ins.scale_vec_size or every is not None):
            form = "without promotion, for dense operands without scales"
            raise OperandError(f"{ins}: first_tile must be 0 or, {form}, a multiple of the instruction's k, {ins.k}, not {tile}")
        object.__setattr__(self, "dealt", integer(self.dealt, "dealt", 0))
        if self.dealt and (not isinstance(self.split_k, int) or every is not None or ins.sparse or ins.scale_vec_size or self.in_place):
            raise OperandError(f"{ins}: dealt needs a number of parts (split_k), no promotion, and dense operands without scales")
        if self.join == SECOND_HALF and not self.dealt:
            raise OperandError(f"{ins}: join {self.join!r} is for parts to which tiles of k are dealt")
        self._keep_evidence()

    def _check_epilogue(self, ins: Instruction) -> None:
        """Raise OperandError unless the epilogue and the result's format go with the sums."""
        check_string(self.out, "out")
        if isinstance(self.epilogue, tuple) and not self.epilogue and not self.out:
            return
        check_steps(self.epilogue, self.target)
        if self.out not in OUTPUTS:
            raise OperandError(f"{ins}: the result of an epilogue must be one of {', '.join(OUTPUTS)}, not {self.out!r}")
        if ins.dtype not in _SUMS:
            raise OperandError(f"{ins}: an epilogue takes sums in {', '.join(_SUMS)}, not {ins.dtype}")
        if self.in_place:
            joining(self.epilogue)
        if any(name.startswith("scale") for step in self.epilogue for name in operands_of(step)):
            raise OperandError(f"{ins}: gemm's epilogue has no scales; fastmma.scaled_matmul has")

    @property
    def unit(self) -> int:
        """What the length of equal parts of k is a multiple of."""
        return self.split_unit or self.operation.instruction.k

    @cached_property
    def order(self) -> Order:
        """How k is cut, and the parts are joined."""
        return Order(self.split_k, self.unit, self.join, self.join_dtype, self.first_tile, self.leaves_out, self.dealt)

    @cached_property
    def is_direct(self) -> bool:
        """True if sums are one run of instructions over all k."""
        return self.order.parts == 1 and self.promote_every is None and not self.first_tile

    @cached_property
    def in_place(self) -> bool:
        """True if the parts of k go through the epilogue one by one, to the result in memory."""
        whole = isinstance(self.split_k, ByTile) or self.split_k == 1
        sums = "f16" if self.operation.instruction.dtype == "f16" else "f32"
        return self.join == IN_PLACE and bool(self.epilogue) and not whole and (self.join_dtype or sums) == self.out

    @cached_property
    def adds_c(self) -> bool:
        """True if the epilogue takes c, so that the accumulator starts at zero."""
        return any("c" in operands_of(step) for step in self.epilogue)

    def _details(self) -> list[tuple[str, str]]:
        ins = self.operation.instruction
        opcode, arithmetic = super()._details()
        promotion = f"every {self.promote_every} k: total + partial, {ins.dtype}, from c"
        first = f", the remainder after tiles of {self.first_tile} k first" if self.first_tile else ""
        converted = ["convert to f32"] if ins.dtype == "s32" else []
        read = ins.atype == "tf32" and not self.cast
        truncated = "float32 bits of which the low 13 are not read; cuBLAS rounds to tf32 first, as cast=True does" if read else ""
        return [
            opcode,
            ("operands", f"rounded to {ins.atype} and {ins.btype} first, to nearest even" if self.cast else truncated),
            arithmetic,
            ("known", str(self.operation.arithmetic.evidence)),
            ("elsewhere", "" if self.arithmetic is not None else other_spelling(ins, self.target)),
            ("k order", f"ascending by {ins.k}, D fed back as C{first}"),
            ("promotion", "none" if self.promote_every is None else promotion),
            ("split-k", order_text(self.order, ins)),
            ("left out", left_out_text(self.order)),
            ("epilogue", "; ".join(["x = sum", *converted, *texts(self.epilogue, self.out)]) if self.epilogue else ""),
            ("result", self.out or ins.dtype),
            ("library", self._library()),
        ]
