"""What Triton's own compiler makes of a kernel: it runs without a GPU, and its intermediate code says what becomes of dots and sums."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from triton import knobs
from triton.runtime.jit import JITFunction, MockTensor

from fastmma.triton.formats import BY_MLIR
from fastmma.triton.layouts import aliases, bit_owners
from fastmma.triton.lowering import Dot, Lowering
from fastmma.triton.reasons import explain
from fastmma.triton.twins import all_of_kind, callees, convert_kind, list_functions

Site = tuple[str, int, int]  # file, line, column

_LOC = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_FILE = re.compile(r'"([^"]+)":(\d+):(\d+)')
_DOT = re.compile(r"(?:tt\.dot|ttng\.warp_group_dot|ttng\.tc_gen5_mma) (%[\w#]+), (%[\w#]+), (%[\w#]+)")
_TYPE = re.compile(r"(?:tensor|memdesc)<([\dx]+)x(\w+)(?=[,>])")
_WIDTH = re.compile(r"kWidth = (\d+)")
_ZERO = re.compile(r"^\s*(%[\w#]+) = arith\.constant dense<0(?:\.0+e\+00)?> : tensor", re.MULTILINE)
_ENCODING = re.compile(r"^(#\w+) = #ttg\.nvidia_mma<", re.MULTILINE)
_SUM = ("arith.addf", "arith.subf")
_VALUE = re.compile(r"^\s*(%[\w#]+) = ([\w.]+) (%[\w#]+)(?:, (%[\w#]+))?")
_SAME_THREADS = ("arith.negf", "tt.broadcast", "tt.expand_dims", "tt.splat")  # a product stays in the registers in which it was computed
_PTX_FILE = re.compile(r'\.file\s+(\d+) "([^"]+)"(?: "([^"]+)")?')
_PTX_PLACE = re.compile(r"\.loc\s+(\d+) (\d+) (\d+)")
_PTX_SUM = re.compile(r"(fma\.rn|add|sub)(?:\.rn)?(?:\.ftz)?\.(?:f16|bf16|f32|f64)")
_COMPILE = JITFunction.run
_CALL = re.compile(r"callsite\((#loc\d*) at (#loc\d*)\)")
_REDUCE = re.compile(
    r'"tt\.reduce"\(%[\w#]+\) <\{axis = (\d+) : i32\}> \(\{.*?\}\) : \(tensor<([\dx]+)xf32, ([^\n]+?)>\) -> [^\n]* loc\((#loc\d*)\)$',
    re.DOTALL | re.MULTILINE,
)
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
        found = _FILE.search(body)
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
        found = _FILE.search(body)
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


def _lowerings(ttgir: str) -> dict[Site, set[Lowering]]:
    encodings = set(_ENCODING.findall(ttgir))
    found: dict[Site, set[Lowering]] = {}
    for text, site in _lines(ttgir):
        types = _TYPE.findall(text)
        a, b = (BY_MLIR[name].multiplied if name in BY_MLIR else name for _, name in types[:2])
        width = _WIDTH.search(text)
        if "warp_group_dot" in text:
            lowering = Lowering("wgmma", a, b)
        elif "tc_gen5_mma" in text:
            lowering = Lowering("tcgen05", a, b)
        elif width and any(f"parent = {encoding}," in text for encoding in encodings):
            lowering = Lowering("mma", a, b, int(width[1]))
        else:
            lowering = Lowering("fma", a.replace("tf32", "f32"), b.replace("tf32", "f32"))
        found.setdefault(site, set()).add(lowering)
    return found


def _products(ttgir: str) -> dict[Site, tuple[bool, bool]]:
    """Which operands of additions are products, with nothing between that moves them to other threads."""
    made: dict[str, tuple[str, str]] = {}
    sites = _sites(ttgir)
    found: dict[Site, tuple[bool, bool]] = {}

    def is_product(name: str) -> bool:
        operation, operand = made.get(name, ("", ""))
        return operation == "arith.mulf" or (operation in _SAME_THREADS and is_product(operand))

    for text in ttgir.splitlines():
        value, end = _VALUE.match(text), _ENDS_AT.search(text)
        if value is None:
            continue
        made[value[1]] = value[2], value[3]
        if value[2] in _SUM and value[4] and end and end[1] in sites:
            first, second = found.get(sites[end[1]], (True, True))
            found[sites[end[1]]] = first and is_product(value[3]), second and is_product(value[4])
    return found


def _separate(ptx: str) -> set[Site]:
    """Where sums stand that are no fused multiply-adds."""
    files: dict[str, str] = {}
    sums: dict[Site, set[str]] = {}
    for number, folder, name in _PTX_FILE.findall(ptx):
        files[number] = f"{folder}/{name}" if name else folder
    here: Site | None = None
    for text in ptx.splitlines():
        place, instruction = _PTX_PLACE.search(text), _PTX_SUM.match(text.strip())
        if place:
            here = files.get(place[1], ""), int(place[2]), int(place[3])
        elif instruction and here is not None:
            sums.setdefault(here, set()).add(instruction[1])
    return {site for site, kinds in sums.items() if "fma.rn" not in kinds}


@dataclass(frozen=True)
class CompiledSum:
    """One sum along an axis: where it stands, and who holds each bit of a coordinate along the axis, if the layout is known."""

    places: tuple[Site, ...]
    shape: tuple[int, ...]
    axis: int
    owners: tuple[str, ...] | None


def _reductions(ttgir: str) -> tuple[CompiledSum, ...]:
    named, calls, found = aliases(ttgir), _calls(ttgir), []
    for axis, sizes, layout, end in _REDUCE.findall(ttgir):
        shape = tuple(int(size) for size in sizes.split("x"))
        owners = bit_owners(layout, shape, named)
        found.append(CompiledSum(calls.get(end, ()), shape, int(axis), None if owners is None else tuple(owners[int(axis)])))
    return tuple(found)


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel's dots and sums, compiled for one set of arguments."""

    dots: tuple[CompiledDot, ...]
    operands: dict[Site, tuple[bool, bool]]
    separate: set[Site]
    reductions: tuple[CompiledSum, ...]

    @classmethod
    def read(cls, ttir: str, ttgir: str, ptx: str) -> CompiledKernel:
        """Read the compiler's intermediate code: dots as the source has them, as layouts decide them, and what became of sums."""
        zeros, lowerings, dots = set(_ZERO.findall(ttir)), _lowerings(ttgir), []
        for text, site in _lines(ttir):
            (first, a), (second, b), *_ = _TYPE.findall(text)
            accumulator = _DOT.search(text)
            (m, k), n = (int(size) for size in first.split("x")[-2:]), int(second.split("x")[-1])
            names = tuple(BY_MLIR[name].multiplied if name in BY_MLIR else name for name in (a, b))
            from_zero = accumulator is not None and accumulator[3] in zeros
            dots.append(CompiledDot(site, (m, n, k), (names[0], names[1]), from_zero, frozenset(lowerings.get(site, ()))))
        return cls(tuple(dots), _products(ttgir), _separate(ptx), _reductions(ttgir))

    def lowering(self, dot: Dot, site: Site) -> Lowering | None:
        """What a dot at a place became; None where that is not clear."""
        alike = [one for one in self.dots if one.shape == (dot.m, dot.n, dot.k) and one.formats == (dot.a, dot.b)]
        nearest = [one for one in alike if one.site == site] or [one for one in alike if one.site[:2] == site[:2]] or alike
        choices = {lowering for one in nearest for lowering in one.lowerings}
        return choices.pop() if len(choices) == 1 else None

    def starts_from_zero(self, site: Site) -> bool:
        """Whether a dot at this place was left to start from zero."""
        return any(one.site == site and one.from_zero for one in self.dots)

    def order_of_sum(self, places: tuple[Site, ...], shape: tuple[int, ...], axis: int) -> list[str] | None:
        """Who holds each bit of a coordinate along the axis of the sum at a place; None where that is not clear."""
        found = {one.owners for one in self.reductions if one.places == places and (one.shape, one.axis) == (shape, axis)}
        owners = found.pop() if len(found) == 1 else None
        return None if owners is None else list(owners)

    def products(self, site: Site) -> tuple[bool, bool]:
        """Which operands of the sum at a place can be fused with it; both where the compiler does not say."""
        return (False, False) if site in self.separate else self.operands.get(site, (True, True))


_elsewhere: set[int] = set()  # functions whose code names files that nobody can tell


def _compiled(function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The compiler's answer, or one that Triton keeps on the disk, if that names the files where the functions are now."""

    def answer() -> Any:
        return _COMPILE(function, *map(MockTensor.wrap_dtype, arguments), grid=(1,), warmup=True, **options)

    def is_of_other_files(compiled: Any) -> bool:
        files = {one.fn.__code__.co_filename for one in callees(function)}
        return any(name not in files for name, _, _ in _FILE.findall(compiled.asm["ttir"]))

    compiled = answer()
    if is_of_other_files(compiled) and id(function) not in _elsewhere:
        function.device_caches.clear()
        with knobs.compilation.scope():
            knobs.compilation.always_compile = True
            compiled = answer()
        if is_of_other_files(compiled):
            _elsewhere.add(id(function))
    return compiled


def compiled_kernel(kernel: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> CompiledKernel | str:
    """Compile a kernel for the active driver's target; a string says why the compiler did not take it."""
    others = list_functions((*arguments, *options.values()))
    with all_of_kind(kernel, JITFunction, *others) as function:
        try:
            arguments = tuple(convert_kind(value, JITFunction) for value in arguments)
            options = {name: convert_kind(value, JITFunction) for name, value in options.items()}
            compiled = _compiled(function, arguments, options)
            return CompiledKernel.read(compiled.asm["ttir"], compiled.asm["ttgir"], compiled.asm["ptx"])
        except Exception as error:
            return explain(error)
