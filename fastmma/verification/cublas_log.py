"""cuBLASLt's log of its choices: its lines, and the orders of k that they mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fastmma.products.book import Entry, Request
from fastmma.products.order import split

# environment variables under which cuBLASLt writes a line for each product; they are read when the library is loaded
VARIABLES = {"CUBLASLT_LOG_MASK": "2", "CUBLASLT_LOG_FILE": ""}
_PRODUCT = re.compile(r"Matmul\] A=.*Adesc=\[type=\S+ rows=(\d+) cols=(\d+).*Ddesc=\[type=\S+ rows=(\d+) cols=(\d+).*algo=\[([^\]]*)\]")
_STAGES = re.compile(r"MATMUL_STAGES_(\d+)x")


class Choice(NamedTuple):
    """cuBLASLt's choice for a product; M and N are the caller's, whose rows are cuBLAS's columns."""

    m: int
    n: int
    k: int
    algorithm: int
    parts: int
    scheme: str  # how parts are joined: "", COMPUTE_TYPE, OUTPUT_TYPE or INPLACE
    tile: str  # M x N
    stage: int  # k of a tile, or 0 where the line does not say
    biased: bool  # whether the kernel adds the bias


@dataclass(frozen=True)
class Kernels:
    """Kernels of cuBLASLt that share a number.

    Attributes
    ----------
    instruction, tf32 : str
        As in `fastmma.products.book.Entry`, for 16-bit and 8-bit formats, and for tf32.
    tile : int
        k of a tile whose left-over comes first, where a line does not say it; 0: it comes last.
    line : tuple of int
        Bytes that the length of a part is a multiple of: where K is a multiple of the first, and else.
    ends : str
        The row of `fastmma.products.presets.ENDS` for one part, without tf32.
    """

    instruction: str
    tf32: str
    tile: int
    line: tuple[int, int]
    ends: str


# nvjet; xmma by wgmma; xmma by mma; CUTLASS for sm_80; CUTLASS for sm_75, whose names have no stages where it multiplies m16n8k8
KERNELS: dict[int, Kernels] = {
    66: Kernels("wgmma", "wgmma", 0, (128, 128), "badd"),
    41: Kernels("wgmma", "wgmma", 0, (128, 128), "fma"),
    43: Kernels("wgmma", "wgmma", 0, (128, 128), "fma"),
    63: Kernels("m16n8k16", "m16n8k8", 0, (16, 16), "fma"),
    21: Kernels("m16n8k16", "m16n8k8", 32, (128, 16), "fma16"),
    23: Kernels("m16n8k16", "m16n8k8", 32, (128, 16), "fma16"),
    24: Kernels("m16n8k8", "m16n8k8", 32, (128, 16), "fma16"),
}
_BITS = {"tf32": 32, "e4m3": 8}
_JOINS = {"OUTPUT_TYPE": "out", "INPLACE": "inplace"}


def choices(lines: Iterable[str]) -> Iterator[Choice]:
    """The choices that lines of the log tell of, in their order.

    Examples
    --------
    >>> line = "[cublasLtMatmul] A=0X1 Adesc=[type=R_16BF rows=4096 cols=128 ld=4096] Ddesc=[type=R_16BF rows=128 cols=64 ld=128] "
    >>> line += "computeDesc=[transa=OP_T] algo=[algoId=66 tile=MATMUL_TILE_64x8 "
    >>> line += "reductionScheme=REDUCTION_SCHEME_COMPUTE_TYPE numSplitsK=3]"
    >>> next(choices([line]))
    Choice(m=64, n=128, k=4096, algorithm=66, parts=3, scheme='COMPUTE_TYPE', tile='64x8', stage=0, biased=False)
    """
    for line in lines:
        if found := _PRODUCT.search(line):
            rows, columns, n, m = (int(size) for size in found.groups()[:4])
            fields = dict(field.split("=", 1) for field in found[5].split())
            stage = _STAGES.match(fields.get("stages", ""))
            scheme = fields.get("reductionScheme", "").removeprefix("REDUCTION_SCHEME_")
            tile = fields.get("tile", "").removeprefix("MATMUL_TILE_")
            known = int(fields["algoId"]), int(fields.get("numSplitsK", 1)), scheme, tile, int(stage[1]) if stage else 0
            yield Choice(m, n, rows if "transa=OP_T" in line else columns, *known, "EPILOGUE_BIAS" in line)


def entry(request: Request, choice: Choice) -> Entry | None:
    """The order of k that a choice means for a product; None where it is none that a plan has, as in kernels without tensor cores."""
    kernels = KERNELS.get(choice.algorithm)
    if kernels is None:
        return None
    tf32, mma = request.fmt == "tf32", kernels.instruction != "wgmma"
    instruction = kernels.tf32 if tf32 else "m16n8k16" if choice.stage and mma else kernels.instruction
    tile = (choice.stage or kernels.tile) if kernels.tile else 0
    bits = _BITS.get(request.fmt, 16)
    whole, least = (line * 8 // bits for line in kernels.line)
    # parts are cut at lines of 128 bytes where k is contiguous in an operand
    unit = whole if (request.k % whole == 0 and request.layout != "tn") or not mma else least
    parts = max(choice.parts, 1)
    if len(split(request.k, parts, unit)) == 1 and choice.scheme != "OUTPUT_TYPE":  # a single part, too, goes through that workspace
        parts = 1
    join = _JOINS.get(choice.scheme, "f32") if parts > 1 and not tf32 else "f32"
    return Entry(instruction, tile, parts, unit if parts > 1 else 0, join, _ends(request, choice, kernels))


def _ends(request: Request, choice: Choice, kernels: Kernels) -> str:
    """Read how the kernel ends."""
    added = request.kind == "biased" and not choice.biased
    if choice.parts > 1:
        through = request.kind == "biased" and choice.scheme == "OUTPUT_TYPE"
        return "unknown" if choice.scheme == "INPLACE" else "add-rounded" if through else "add"
    if kernels.ends == "badd":
        return "badd-bias" if added else "badd"
    if kernels.ends == "fma16" and request.fmt == "tf32":
        # kernels for alignments of 16 bytes, and of 4, one of which does both
        if choice.tile == "256x128" and (request.k % 4 or request.n % 4):
            return "unknown"
        return "fma" if request.k % 4 == 0 and request.n % 4 == 0 else "add"
    if kernels.ends == "fma16" and request.fmt == "f16" and choice.algorithm == 24:
        return "add"
    return kernels.ends
