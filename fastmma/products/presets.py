"""How libraries accumulate their matrix products: plans that were found to have the same bits."""

from __future__ import annotations

from dataclasses import dataclass

from fastmma.host.errors import OperandError
from fastmma.isa.formats import FP8
from fastmma.isa.instruction import Instruction
from fastmma.isa.targets import specific
from fastmma.products.library_order import KernelEpilogue

_ALONE, _ROUNDED_FIRST = ("alpha", "bias", "relu", "round"), ("alpha", "round", "bias")
_GELU, _GELU_AFTER, _GELU_FMA = ("bias", "gelu", "round"), ("round", "gelu(x+bias)"), ("bias", "gelu-fma", "round")
_ADD, _FMA = ("alpha", "beta*c", "round"), ("alpha+c", "round")
# seen on an H200 with cuBLAS 13.1: sums of a few bits that c almost cancels, so that every rounding shows
KERNEL_EPILOGUES: dict[str, KernelEpilogue] = {
    "": KernelEpilogue(_ALONE),
    # 8-bit floats by nvjet
    "fp8": KernelEpilogue(_ALONE, with_gelu=_GELU_FMA),
    "fp8 parts": KernelEpilogue(_ALONE, with_gelu=_GELU),
    # nvjet; a kernel of its own, badd, adds c with beta = 1 to a result that was rounded before
    "badd": KernelEpilogue(_ALONE, ("alpha", "round", "c"), _FMA, with_gelu=_GELU_FMA),
    # the kernel that adds parts of k, splitKreduce, and some of CUTLASS's
    "add": KernelEpilogue(_ALONE, _ADD, _ADD, with_gelu=_GELU),
    # CUTLASS's parts in a workspace of 16 bits; a bias is added to what was rounded
    "add-rounded": KernelEpilogue((*_ROUNDED_FIRST, "relu"), _ADD, _ADD, with_gelu=_GELU_AFTER),
    # off the tensor cores, where threads share k: alpha times a sum of 0 is 0, also where alpha is negative
    "lanes": KernelEpilogue(("alpha+0", "bias", "relu", "round"), _FMA, _FMA, with_gelu=_GELU_AFTER),
    # the same where alpha multiplies an operand first
    "lanes-scaled": KernelEpilogue(("bias", "relu", "round"), ("beta*c", "round"), ("beta*c", "round"), with_gelu=_GELU_AFTER),
    "fma": KernelEpilogue(("alpha+bias", "relu", "round"), _FMA, _FMA, with_gelu=_GELU),
    "fma, gelu after": KernelEpilogue(("alpha+bias", "relu", "round"), _FMA, _FMA, with_gelu=_GELU_AFTER),
    "fma, no bias": KernelEpilogue(("alpha", "round"), _FMA, _FMA),
    "fma16": KernelEpilogue(("alpha+bias", "relu", "round"), _FMA, _FMA, wide="add", with_gelu=_GELU),
    # with sums in f16
    "half": KernelEpilogue(("bias", "relu", "round"), ("c", "relu", "round")),
    # parts that are added in place go through the epilogue one by one: c or a bias joins the first one, and its result is the next one's c
    "in-place fma": KernelEpilogue(("alpha+bias", "relu", "round"), _FMA, _FMA),
    "in-place add": KernelEpilogue(_ALONE, _ADD, _ADD),
    "in-place add, no bias": KernelEpilogue(("alpha", "round"), _ADD, _ADD),
    # a bias joins the sum of all parts; with alpha it is not known
    "bias": KernelEpilogue(("bias", "round")),
    # where c and a bias join is not known
    "unknown": KernelEpilogue(("round",)),
}


@dataclass(frozen=True)
class OnePart:
    """Products of which a library takes k in one part, by a rule that was judged on fresh ones: what it chose for each was asked.

    Attributes
    ----------
    gpu : str
    multiple : int
        Of which K, N, and M where the columns of A are contiguous, are multiples.
    rate : (int, int)
        How many fresh products were in one part, of how many.
    most_k : int
        The largest K; 0 for any.
    stack : bool
        Whether it is about stacks of matrices.
    layouts : tuple of str
        Of a and b: n where rows are contiguous, t where columns are.
    least_results : int
        The smallest M * N.
    atypes : tuple of str
        Formats that were asked, of both multiplicands.
    """

    gpu: str
    multiple: int
    rate: tuple[int, int]
    most_k: int = 0
    stack: bool = False
    layouts: tuple[str, ...] = ("nn", "nt", "tn", "tt")
    least_results: int = 0
    atypes: tuple[str, ...] = ("f16", "bf16")

    def holds(self, layout: str, m: int, n: int, k: int) -> bool:
        """Tell whether the rule is about a product."""
        whole = (k, n, m) if layout[0] == "t" else (k, n)
        fits = layout in self.layouts and not (self.most_k and k > self.most_k) and m * n >= self.least_results
        return fits and not any(size % self.multiple for size in whole)

    def __str__(self) -> str:
        depth = f"K <= {self.most_k}" if self.most_k else "any K"
        what = "stacks of matrices" if self.stack else "products"
        depth += f" and M * N >= {self.least_results}" if self.least_results else ""
        return f"one part of k for {what} of {depth} in multiples of {self.multiple}, as cuBLASLt 13.1.0 chooses on {self.gpu}"


@dataclass(frozen=True)
class GemmPreset:
    """What a library does with multiplicands of some formats, on some targets.

    Attributes
    ----------
    atypes : tuple of str
        Formats of both multiplicands.
    targets : tuple of str
    split_unit : int
        Parts of split-k have equal length, rounded up to a multiple of this. How many there are is up to the library's heuristics.
    promote_every : int or None
        k between promotions to an f32 total.
    cast : bool
        float32 multiplicands are rounded to the format first, to nearest even.
    source : str
        The evidence.
    ops : tuple of str
        The library's instructions: other ones of the same formats may give other bits.
    ends, split_ends : str
        The rows of `KERNEL_EPILOGUES` for one part of k, and for several.
    recorded : bool
        Whether products on a GPU of these targets are recorded in a file that ships with fastmma.
    rules : tuple of OnePart
        For what is not recorded.
    choices : str
        The type of products in the map of choices and in plan books, if it is not the format.
    leaves_out : bool
        Whether parts are so long as `fastmma.GemmPlan.leaves_out` says, and the library leaves out the k beyond them.
    """

    atypes: tuple[str, ...]
    targets: tuple[str, ...]
    split_unit: int
    source: str
    promote_every: int | None = None
    cast: bool = False
    ops: tuple[str, ...] = ("wgmma",)
    ends: str = ""
    split_ends: str = ""
    recorded: bool = False
    rules: tuple[OnePart, ...] = ()
    choices: str = ""
    leaves_out: bool = False


# on an H200, choices of cuBLASLt for seeds that the rules were not made from; on an H100, products of random shapes that ran
_16_BITS = (
    OnePart("H200", 8, (3_200_000, 3_200_000), 2560),
    OnePart("H200", 8, (960_000, 960_000), 131072, least_results=2048**2),
    OnePart("H200", 8, (2_000_000, 2_000_000), stack=True),
    OnePart("H100", 8, (1_569_925, 1_569_925), 2560),
    OnePart("H100", 8, (628_832, 628_832), 131072, least_results=2048**2),
    OnePart("H100", 8, (630_541, 630_541), stack=True),
)
_E4M3 = (
    OnePart("H200", 16, (1_200_000, 1_200_000), 5120, layouts=("nt",), atypes=("e4m3",)),
    OnePart("H200", 16, (240_000, 240_000), 131072, layouts=("nt",), least_results=2048**2, atypes=("e4m3",)),
    OnePart("H100", 16, (749_760, 749_760), 5120, layouts=("nt",), atypes=("e4m3",)),
    OnePart("H100", 16, (137_651, 137_651), 131072, layouts=("nt",), least_results=2048**2, atypes=("e4m3",)),
)
_E4M3_FAST = (
    OnePart("H200", 16, (300_000, 300_000), 5120, layouts=("nt",), atypes=("e4m3",)),
    OnePart("H200", 16, (100_000, 100_000), 131072, layouts=("nt",), least_results=2048**2, atypes=("e4m3",)),
    OnePart("H100", 16, (381_742, 381_742), 5120, layouts=("nt",), atypes=("e4m3",)),
    OnePart("H100", 16, (69_475, 69_475), 131072, layouts=("nt",), least_results=2048**2, atypes=("e4m3",)),
)
_HOPPER = ("sm_90a",)
_BLACKWELL = specific("sm_100", "sm_103")
_NVJET = "bitequiv: cuBLASLt 12.8.5 and 13.1.1 on GB200, 13.1.1 on GB300, not compared here"
_SEEN = "cuBLAS 13 through PyTorch 2.11 on an H200, every bit of the f32 results"
GEMM_PRESETS: dict[str, tuple[GemmPreset, ...]] = {
    "cublas": (
        GemmPreset(("f16", "bf16"), _HOPPER, 64, _SEEN, ends="badd", split_ends="add", recorded=True, rules=_16_BITS, leaves_out=True),
        GemmPreset(("tf32",), _HOPPER, 4, _SEEN, cast=True, ends="fma", split_ends="add", recorded=True),
        GemmPreset(FP8, _HOPPER, 128, f"{_SEEN}; use_fast_accum=False", promote_every=128, recorded=True, rules=_E4M3, leaves_out=True),
        GemmPreset(("f32",), _HOPPER, 4, _SEEN, ops=("fma",), recorded=True),
        GemmPreset(("f16", "bf16"), _BLACKWELL, 64, _NVJET, ops=("tcgen05",), leaves_out=True),
        GemmPreset(("e4m3",), _BLACKWELL, 128, _NVJET, ops=("tcgen05",), leaves_out=True),
    ),
    "cublas-fast-accum": (
        GemmPreset(FP8, _HOPPER, 128, f"{_SEEN}; use_fast_accum=True", rules=_E4M3_FAST, choices="e4m3fast", leaves_out=True),
    ),
}


def gemm_preset(name: str, ins: Instruction, target: str) -> GemmPreset:
    """The row of a preset for an instruction's multiplicands.

    Raises
    ------
    OperandError
        If there is no such preset, or it says nothing about this instruction on this target.

    Examples
    --------
    >>> from fastmma.isa.table import multiply
    >>> gemm_preset("cublas", multiply("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e5m2"), "sm_90a").promote_every
    128
    """
    rows = GEMM_PRESETS.get(name) if isinstance(name, str) else None
    if rows is None:
        raise OperandError(f"there is no preset {name!r}; there are {', '.join(GEMM_PRESETS)}")
    for row in rows:
        formats = {ins.atype, ins.btype} <= set(row.atypes) and ins.dtype == "f32" and not ins.sparse
        if formats and ins.op in row.ops and target in row.targets:
            return row
    known = "; ".join(f"{', '.join(row.atypes)} by {', '.join(row.ops)} on {', '.join(row.targets)}" for row in rows)
    raise OperandError(f"preset {name!r} is known for {known} with f32 accumulators, not for {ins} on {target}")
