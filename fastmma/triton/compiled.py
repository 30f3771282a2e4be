"""Tell what became of a kernel's dots and sums, from the intermediate code of Triton's compiler."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fastmma.isa.table import multiply
from fastmma.triton.contraction import Contractions
from fastmma.triton.formats import BY_MLIR
from fastmma.triton.layouts import aliases, bit_owners, list_bits
from fastmma.triton.lowering import Dot, Lowering
from fastmma.triton.machine.executable import Executable
from fastmma.triton.ptx import Program, Site
from fastmma.triton.splits import SplitReader

_LOC = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
FILE = re.compile(r'"([^"]+)":(\d+):(\d+)')
_DOT = re.compile(r"(?:tt\.dot|ttng\.warp_group_dot|ttng\.tc_gen5_mma) (%[\w#]+), (%[\w#]+), (%[\w#]+)")
_TYPE = re.compile(r"(?:tensor|memdesc)<([\dx]+)x(\w+)(?=[,>])")
_WIDTH = re.compile(r"kWidth = (\d+)")
_ZERO = re.compile(r"^\s*(%[\w#]+) = arith\.constant dense<0(?:\.0+e\+00)?> : tensor", re.MULTILINE)
_AMD_ENCODING = re.compile(r"^(#\w+) = #ttg\.amd_mfma<\{[^}]*instrShape = \[(\d+), (\d+), (\d+)\]", re.MULTILINE)
_MFMA = re.compile(r"^\s*(v_mfma_\w+)", re.MULTILINE)
_ENCODING = re.compile(r"^(#\w+) = #ttg\.nvidia_mma<", re.MULTILINE)
_CALL = re.compile(r"callsite\((#loc\d*) at (#loc\d*)\)")
_REDUCE = re.compile(
    r'"tt\.reduce"\((%[\w#]+)\) <\{axis = (\d+) : i32\}> \(\{.*?\}\) : \(tensor<([\dx]+)xf32, ([^\n]+?)>\) -> [^\n]* loc\((#loc\d*)\)$',
    re.DOTALL | re.MULTILINE,
)
_REORDERED = re.compile(r"^\s*(%[\w#]+) = tt\.reshape %[\w#]+ allow_reorder : tensor<([\dx]+)xf32, ([^\n]+?)> -> ", re.MULTILINE)
_ENDS_AT = re.compile(r"loc\((#loc\d*)\)$")


@dataclass(frozen=True)
class CompiledDot:
    """One dot of the source: where it stands, its shape and formats, whether it starts from zero, and what it became."""

    site: Site
    shape: tuple[int, int, int]
    formats: tuple[str, str]
    from_zero: bool
    lowerings: frozenset[Lowering]


def _sites(text: str) -> dict[str, Site]:
    """The place in the source of every location: of a call, the place in the function that is called."""
    aliases = dict(_LOC.findall(text))

    def place(body: str) -> Site | None:
        found = FILE.search(body)
        if found:
            return found[1], int(found[2]), int(found[3])
        inner = re.search(r"#loc\d*", body)
        return place(aliases[inner[0]]) if inner and inner[0] in aliases else None

    return {name: at for name, body in aliases.items() if (at := place(body)) is not None}


def _calls(text: str) -> dict[str, tuple[Site, ...]]:
    """The places of every location, from the kernel down to the function that is called last."""
    bodies = dict(_LOC.findall(text))

    def chain(body: str) -> tuple[Site, ...]:
        call = _CALL.match(body)
        if call:
            return chain(bodies.get(call[2], "")) + chain(bodies.get(call[1], ""))
        found = FILE.search(body)
        if found:
            return ((found[1], int(found[2]), int(found[3])),)
        inner = re.search(r"#loc\d*", body)
        return chain(bodies.get(inner[0], "")) if inner else ()

    return {name: chain(body) for name, body in bodies.items()}


def _lines(text: str) -> Iterator[tuple[str, Site]]:
    sites = _sites(text)
    for text_line in text.splitlines():
        end = _ENDS_AT.search(text_line)
        if _DOT.search(text_line) and end and end[1] in sites:
            yield text_line, sites[end[1]]


@dataclass(frozen=True)
class _Encodings:
    """The layouts of tensor cores' results: names of NVIDIA's, and of AMD's with their shapes."""

    mma: frozenset[str]
    mfma: dict[str, tuple[int, int, int]]
    opcodes: frozenset[str]  # of AMD's assembly
    is_amd: bool

    @classmethod
    def read(cls, ttgir: str, gcn: str) -> _Encodings:
        shapes = {name: (int(m), int(n), int(k)) for name, m, n, k in _AMD_ENCODING.findall(ttgir)}
        return cls(frozenset(_ENCODING.findall(ttgir)), shapes, frozenset(_MFMA.findall(gcn)), bool(gcn))

    def opcode_of(self, shape: tuple[int, int, int], a: str, b: str) -> str:
        """The instruction of the assembly that has a shape and multiplies these formats; empty where that is not clear."""
        found = set()
        for text in self.opcodes:
            ins = multiply(text)
            alike = all(given in (wanted, wanted.replace("tf32", "f32")) for given, wanted in ((ins.atype, a), (ins.btype, b)))
            if (ins.m, ins.n, ins.k) == shape and alike:
                found.add(ins.opcode)
        return found.pop() if len(found) == 1 else ""


def _lowering(text: str, encodings: _Encodings) -> Lowering | None:
    types = _TYPE.findall(text)
    a, b = (BY_MLIR[name].multiplied if name in BY_MLIR else name for _, name in types[:2])
    width = _WIDTH.search(text)
    if "warp_group_dot" in text:
        return Lowering("wgmma", a, b)
    if "tc_gen5_mma" in text:
        return Lowering("tcgen05", a, b)
    for name, shape in encodings.mfma.items():
        if width and f"parent = {name}," in text:
            opcode = encodings.opcode_of(shape, a, b)
            return Lowering("v_mfma", a, b, int(width[1]), opcode) if opcode else None
    if width and any(f"parent = {encoding}," in text for encoding in encodings.mma):
        return Lowering("mma", a, b, int(width[1]))
    if encodings.is_amd:  # chains of fma or of short dot products
        return None
    return Lowering("fma", a.replace("tf32", "f32"), b.replace("tf32", "f32"))


def _lowerings(ttgir: str, encodings: _Encodings) -> dict[Site, set[Lowering]]:
    found: dict[Site, set[Lowering]] = {}
    for text, site in _lines(ttgir):
        lowering = _lowering(text, encodings)
        if lowering is not None:
            found.setdefault(site, set()).add(lowering)
    return found


def _shape(text: str) -> tuple[int, int, int]:
    """Return M, N and K of a dot."""
    (first, _), (second, _), *_ = _TYPE.findall(text)
    (m, k), n = (int(size) for size in first.split("x")[-2:]), int(second.split("x")[-1])
    return m, n, k


def _read_splits(ttgir: str, encodings: _Encodings) -> dict[tuple[str, tuple[int, int, int]], set[Lowering]]:
    found: dict[tuple[str, tuple[int, int, int]], set[Lowering]] = {}
    for precision, text in SplitReader(ttgir).list_dots():
        lowering = _lowering(text, encodings)
        if lowering is not None:
            found.setdefault((precision, _shape(text)), set()).add(lowering)
    return found


@dataclass(frozen=True)
class CompiledSum:
    """One sum along an axis: where it stands, and who holds each bit of a coordinate along the axis, if the layout is known.

    Attributes
    ----------
    registers : tuple
        The dimension and the bit of a coordinate that each bit of a register's number is.
    source : tuple or None
        Where a sum is one of a whole tensor, whose elements are taken as they lie: its shape and, for each bit of a coordinate along the
        axis, the dimension and the bit of one of the tensor.
    """

    places: tuple[Site, ...]
    shape: tuple[int, ...]
    axis: int
    owners: tuple[str, ...] | None
    registers: tuple[tuple[int, int], ...]
    source: tuple[tuple[int, ...], tuple[tuple[int, int], ...]] | None = None

    @classmethod
    def of_tensor(cls, places: tuple[Site, ...], shape: tuple[int, ...], bits: dict[str, list[tuple[int, int]]]) -> CompiledSum:
        """Describe the sum of a tensor whose elements have these places."""
        owners = tuple(owner for owner, found in bits.items() for _ in found)
        source = tuple(bit for found in bits.values() for bit in found)
        registers = tuple((0, bit) for bit in range(len(bits["register"])))
        return cls(places, (1 << len(owners),), 0, owners, registers, (shape, source))


def _reductions(ttgir: str) -> tuple[CompiledSum, ...]:
    named, calls, found = aliases(ttgir), _calls(ttgir), []
    reordered = {name: (_sizes(sizes), layout) for name, sizes, layout in _REORDERED.findall(ttgir)}
    for name, axis, sizes, layout, end in _REDUCE.findall(ttgir):
        places, shape = calls.get(end, ()), _sizes(sizes)
        if name in reordered:
            source, layout = reordered[name]
            bits = list_bits(layout, source, named)
            if bits is not None:
                found.append(CompiledSum.of_tensor(places, source, bits))
            continue
        owners, bits = bit_owners(layout, shape, named), list_bits(layout, shape, named)
        along = None if owners is None else tuple(owners[int(axis)])
        found.append(CompiledSum(places, shape, int(axis), along, tuple(bits["register"] if bits is not None else ())))
    return tuple(found)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split("x"))


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel's dots and sums, compiled for one set of arguments."""

    dots: tuple[CompiledDot, ...]
    splits: dict[tuple[str, tuple[int, int, int]], set[Lowering]]
    contractions: Contractions
    reductions: tuple[CompiledSum, ...]
    executable: Executable | None = None

    @classmethod
    def read(cls, ttir: str, ttgir: str, ptx: str, gcn: str = "", executable: Executable | None = None) -> CompiledKernel:
        """Read the compiler's intermediate code: dots as the source has them, as layouts decide them, and what became of sums."""
        encodings = _Encodings.read(ttgir, gcn)
        zeros, lowerings, dots = set(_ZERO.findall(ttir)), _lowerings(ttgir, encodings), []
        for text, site in _lines(ttir):
            (_, a), (_, b), *_ = _TYPE.findall(text)
            accumulator = _DOT.search(text)
            names = tuple(BY_MLIR[name].multiplied if name in BY_MLIR else name for name in (a, b))
            from_zero = accumulator is not None and accumulator[3] in zeros
            dots.append(CompiledDot(site, _shape(text), (names[0], names[1]), from_zero, frozenset(lowerings.get(site, ()))))
        contractions = Contractions(Program.read_from(ptx))
        return cls(tuple(dots), _read_splits(ttgir, encodings), contractions, _reductions(ttgir), executable)

    def lowering(self, dot: Dot, site: Site) -> Lowering | None:
        """Find what a dot at a place became, or each of the dots of its parts; None where that is not clear."""
        if dot.is_split:
            found = self.splits.get((dot.precision, (dot.m, dot.n, dot.k)), set())
            return next(iter(found)) if len(found) == 1 else None
        alike = [one for one in self.dots if one.shape == (dot.m, dot.n, dot.k) and one.formats == (dot.a, dot.b)]
        nearest = [one for one in alike if one.site == site] or [one for one in alike if one.site[:2] == site[:2]] or alike
        choices = {lowering for one in nearest for lowering in one.lowerings}
        return choices.pop() if len(choices) == 1 else None

    def starts_from_zero(self, site: Site) -> bool:
        """Tell whether a dot at this place was left to start from zero."""
        return any(one.site == site and one.from_zero for one in self.dots)

    def find_sum(self, places: tuple[Site, ...], shape: tuple[int, ...], axis: int | None) -> CompiledSum | None:
        """Find the sum along an axis at a place, or of all of a tensor; None where that is not clear."""
        here = [one for one in self.reductions if one.places == places]
        if axis is None:
            found = {
                one for one in here if (one.shape if one.source is None else one.source[0]) == shape and (one.source or len(shape) == 1)
            }
        else:
            found = {one for one in here if one.source is None and (one.shape, one.axis) == (shape, axis)}
        return found.pop() if len(found) == 1 else None
