"""Emission of LLVM vector code: what vectors of Numba and the micro-kernels are written with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from llvmlite import ir

from fastmma.kernels.llvm.architecture import architecture_of
from fastmma.kernels.llvm.building import get_or_insert_function

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
HALF, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
POINTER = ir.PointerType(I8)
_FIRST = ir.Constant(I32, 0)
_BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "float": 32, "double": 64}
_pointers: dict[str, ir.PointerType] = {}  # by the text of what lies there: all vectors have the same hash


@lru_cache(1024)  # a type, a constant and a mask write their text once, for all their uses
def vector(element: ir.Type, lanes: int) -> ir.VectorType:
    """The LLVM type of `lanes` elements."""
    return ir.VectorType(element, lanes)


def _pointer(kind: ir.Type) -> ir.PointerType:
    """The type of the address of a scalar or a vector."""
    return _pointers.setdefault(str(kind), ir.PointerType(kind))


@lru_cache(4096)
def _index(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


@lru_cache(4096)
def _mask(lanes: tuple[int, ...]) -> ir.Constant:
    return ir.Constant(vector(I32, len(lanes)), lanes if any(lanes) else None)


class _Undefined(ir.Constant):
    """A value of any bits, in one word of text: llvmlite writes one for each lane."""

    def _get_reference(self) -> str:
        return "undef"


@lru_cache(1024)
def undefined(kind: ir.VectorType) -> ir.Constant:
    """A vector of any bits."""
    return _Undefined(kind, None)


def _mangled(kind: ir.Type) -> str:
    """The suffix of an overloaded LLVM intrinsic."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{_mangled(kind.element)}"
    return {F32: "f32", F64: "f64"}.get(kind) or f"i{kind.width}"


@lru_cache(4096)
def _equal_lanes(kind: ir.VectorType, value: str) -> ir.Constant:
    """A vector of equal lanes; the text tells -0.0 from 0.0."""
    if value in ("0", "0.0"):
        return ir.Constant(kind, None)
    number = int(value) if isinstance(kind.element, ir.IntType) else float(value)
    return ir.Constant(kind, [number] * kind.count)


class Emitter:
    """Vector code on top of an IRBuilder; addresses are byte pointers plus byte offsets."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def index(self, value: int) -> ir.Constant:
        """A 64-bit constant."""
        return _index(value)

    def sum(self, *terms: ir.Value | int) -> ir.Value:
        """The sum of 64-bit integers."""
        total = self.index(0)
        for term in terms:
            total = self.builder.add(total, self.index(term) if isinstance(term, int) else term)
        return total

    def constant(self, kind: ir.VectorType, value: float) -> ir.Constant:
        """A vector constant with equal lanes."""
        return _equal_lanes(kind, str(value))

    def at(self, base: ir.Value, offset: ir.Value | int) -> ir.Value:
        """The byte pointer `offset` bytes after `base`."""
        if isinstance(offset, int) and not offset:
            return base
        return self.builder.gep(base, [self.index(offset) if isinstance(offset, int) else offset])

    def scaled(self, value: ir.Value, factor: int) -> ir.Value:
        """An index times a constant."""
        return self.builder.mul(value, self.index(factor))

    def load(self, kind: ir.Type, base: ir.Value, offset: ir.Value | int = 0, alignment: int = 1) -> ir.Value:
        """A scalar or a vector from memory."""
        value = self.builder.load(self.builder.bitcast(self.at(base, offset), _pointer(kind)))
        value.align = alignment
        return value

    def store(self, value: ir.Value, base: ir.Value, offset: ir.Value | int = 0, alignment: int = 1) -> None:
        """A scalar or a vector to memory."""
        self.builder.store(value, self.builder.bitcast(self.at(base, offset), _pointer(value.type))).align = alignment

    def splat(self, kind: ir.VectorType, scalar: ir.Value) -> ir.Value:
        """A scalar in every lane."""
        first = self.builder.insert_element(undefined(kind), scalar, _FIRST)
        return self.shuffle(first, undefined(kind), [0] * kind.count)

    def broadcast(self, kind: ir.VectorType, base: ir.Value, offset: ir.Value | int = 0) -> ir.Value:
        """A scalar from memory in every lane."""
        return self.splat(kind, self.load(kind.element, base, offset))

    def shuffle(self, first: ir.Value, second: ir.Value, lanes: Sequence[int]) -> ir.Value:
        """The named lanes of two vectors one after the other."""
        return self.builder.shuffle_vector(first, second, _mask(tuple(lanes)))

    def intrinsic(self, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
        """The LLVM intrinsic of this full name."""
        function_type = ir.FunctionType(result, [argument.type for argument in arguments])
        return self.builder.call(get_or_insert_function(self.builder.module, function_type, f"llvm.{name}"), arguments)

    def call(self, name: str, *arguments: ir.Value) -> ir.Value:
        """The LLVM intrinsic `name` whose operands and result share one type."""
        kind = arguments[0].type
        return self.intrinsic(f"{name}.{_mangled(kind)}", kind, *arguments)

    def reduced(self, name: str, value: ir.Value) -> ir.Value:
        """The sum or the extremum of all lanes, by LLVM's name."""
        return self.intrinsic(f"vector.reduce.{name}.{_mangled(value.type)}", value.type.element, value)

    def any_lane(self, mask: ir.Value) -> ir.Value:
        """Tell whether any lane of a mask is set."""
        bits = self.cast(mask, ir.IntType(mask.type.count))
        return self.builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))

    def dot_bytes(self, instruction: str, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        """Words plus the products of their four bytes, wrapping: by `vpdpbusd` unsigned by signed ones, by `sdot` or `udot` of one kind.

        By `smull`, which AArch64 always has, signed ones, of which the products of two bytes are below 2**15 together.
        """
        words = total.type
        if instruction != "vpdpbusd":
            return self._dot_in_quarters(instruction, total, a, b)
        from fastmma.kernels.llvm.library import binding

        operands = words if binding.llvm_version_info[0] < 21 else vector(I8, 4 * words.count)
        name = f"x86.avx512.vpdpbusd.{32 * words.count}"
        return self.intrinsic(name, words, total, self.cast(a, operands), self.cast(b, operands))

    def _dot_in_quarters(self, instruction: str, *operands: ir.Value) -> ir.Value:
        """NEON's vectors have 16 bytes: four lanes at a time."""
        words, bytes_ = vector(I32, 4), vector(I8, 16)
        results = []
        for quarter in self.parts(operands[0].type, 4):
            total, a, b = (self.shuffle(operand, operand, quarter) for operand in operands)
            a, b = self.cast(a, bytes_), self.cast(b, bytes_)
            if instruction == "smull":
                results.append(self._dot_by_products(total, a, b))
            else:
                results.append(self.intrinsic(f"aarch64.neon.{instruction}.v4i32.v16i8", words, total, a, b))
        return self.joined(results)

    def _dot_by_products(self, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        """smull twice, addp, and sadalp."""
        products = vector(I16, 8)
        halves = [
            self.intrinsic("aarch64.neon.smull.v8i16", products, *(self.shuffle(bytes_, bytes_, half) for bytes_ in (a, b)))
            for half in self.parts(a.type, 8)
        ]
        pairs = self.intrinsic("aarch64.neon.addp.v8i16", products, *halves)
        return self.builder.add(total, self.intrinsic("aarch64.neon.saddlp.v4i32.v8i16", total.type, pairs))

    @staticmethod
    def parts(kind: ir.VectorType, lanes: int) -> list[range]:
        """The lanes of a vector, so many at a time."""
        return [range(first, first + lanes) for first in range(0, kind.count, lanes)]

    def joined(self, values: Sequence[ir.Value]) -> ir.Value:
        """Vectors one after the other as one."""
        whole = list(values)
        while len(whole) > 1:
            pairs = zip(whole[::2], whole[1::2], strict=True)
            whole = [self.shuffle(first, second, range(2 * first.type.count)) for first, second in pairs]
        return whole[0]

    def cast(self, value: ir.Value, kind: ir.Type) -> ir.Value:
        """The same bits as another type."""
        return self.builder.bitcast(value, kind)

    def masked(self, value: ir.Value, bits: int) -> ir.Value:
        """``value & bits`` in every lane."""
        return self.builder.and_(value, self.constant(value.type, bits))

    def plus(self, value: ir.Value, number: int) -> ir.Value:
        """``value + number`` in every lane."""
        return self.builder.add(value, self.constant(value.type, number))

    def shifted_left(self, value: ir.Value, bits: int) -> ir.Value:
        """``value << bits`` in every lane."""
        return self.builder.shl(value, self.constant(value.type, bits))

    def shifted_right(self, value: ir.Value, bits: int) -> ir.Value:
        """``value >> bits`` in every lane, without sign."""
        return self.builder.lshr(value, self.constant(value.type, bits))

    def widened(self, value: ir.Value) -> ir.Value:
        """Unsigned lanes as 32-bit ones."""
        return self.builder.zext(value, vector(I32, value.type.count))

    def opaque(self, pointer: ir.Value) -> ir.Value:
        """The same pointer, but LLVM does not know that, so loads through it are not replaced by earlier ones kept in registers."""
        return self.builder.asm(ir.FunctionType(POINTER, [POINTER]), "", "=r,0", [pointer], side_effect=True)

    def prefetch(self, base: ir.Value, offset: ir.Value | int = 0, *, written: bool = False, near: bool = True) -> None:
        """Ask for a cache line, to be read or `written`, into the nearest cache or the next one; the address may be anywhere."""
        function_type = ir.FunctionType(ir.VoidType(), [POINTER, I32, I32, I32])
        function = self.builder.module.declare_intrinsic("llvm.prefetch", (POINTER,), function_type)
        access, locality, data = (ir.Constant(I32, value) for value in (int(written), 3 if near else 2, 1))
        self.builder.call(function, [self.at(base, offset), access, locality, data])

    def pinned(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        """The same values, computed before this point and used after it: the order of code that LLVM's scheduler keeps."""
        architecture = architecture_of(self.builder.module)
        pieces = [self._pieces(value, architecture.register_bytes) for value in values]
        kinds = [piece.type for each in pieces for piece in each]
        constraints = ",".join([f"={architecture.register}"] * len(kinds) + [str(place) for place in range(len(kinds))])
        result = ir.LiteralStructType(kinds) if len(kinds) > 1 else kinds[0]
        operands = [piece for each in pieces for piece in each]
        pins = self.builder.asm(ir.FunctionType(result, kinds), "", constraints, operands, side_effect=True)
        pinned = iter([pins] if len(kinds) == 1 else [self.builder.extract_value(pins, place) for place in range(len(kinds))])
        return [self.joined([next(pinned) for _ in each]) for each in pieces]

    def _pieces(self, value: ir.Value, longest: int) -> list[ir.Value]:
        """A vector in pieces of at most so many bytes."""
        kind = value.type
        lanes = 8 * longest // _BITS[str(kind.element)]
        return [value] if kind.count <= lanes else [self.shuffle(value, value, part) for part in self.parts(kind, lanes)]


class Variables:
    """Stack variables for rows of vectors, which LLVM keeps in registers."""

    def __init__(self, builder: ir.IRBuilder, kinds: Iterable[Sequence[ir.Type]]) -> None:
        self._builder = builder
        with builder.goto_entry_block():
            self._places = [[builder.alloca(kind) for kind in row] for row in kinds]

    def put(self, rows: Sequence[Sequence[ir.Value]]) -> None:
        """Set them."""
        for places, values in zip(self._places, rows, strict=True):
            for place, value in zip(places, values, strict=True):
                self._builder.store(value, place)

    def get(self) -> list[list[ir.Value]]:
        """Return what they hold."""
        return [[self._builder.load(place) for place in places] for places in self._places]
