"""The micro-kernel for terms that are exact sums of groups: integer dot products, then the fused sum in float64.

An element of A is an unsigned byte, twice its value plus 12, one of B a signed byte, twice its value; a dot product starts at what the
12 adds too much, plus 2**31. Such a word below the word of 2**52 is a float64; one fma takes the offset off and multiplies by B's scale,
one more multiplies by A's scale and adds.

*Exact* kernels leave alignment out: where nothing can be truncated they add in float64 without rounding, then clear the bits that
float32 has not. They hold sums times so large a power of two that those which would be truncated overflow to infinity, and stay there.
*Aligned* kernels truncate by flooring under round toward zero, as `fastmma.kernels.fused.micro_kernel` does: an accumulator starts at
1.5 * 2**(52 + emax - align_bits) plus the number of negative terms, and A's scales are packed times 1 + 2**-48.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fastmma.kernels.llvm.constants import constant
from fastmma.kernels.llvm.emit import F32, F64, I8, I32, I64, POINTER, Emitter, vector

TERMS = 4  # of a step
GROWTH = 48  # A's scales are packed times 1 + 2**-GROWTH for aligned kernels
EXCESS = 150  # what the exponent field of an aligned kernel's sums exceeds the exponent by
HIGH_WORD = 0x43300000  # of 2**52
OFFSET = float((1 << 52) + (1 << 31))
ROUND_TO_NEAREST, ROUND_TOWARD_ZERO = 0x1F80, 0x7F80  # MXCSR: all exceptions masked, subnormals neither flushed nor taken as zeros

_I16 = ir.IntType(16)


@constant
@dataclass(frozen=True)
class GroupTile:
    """What a micro-kernel is compiled for."""

    aligned: bool
    group: int  # elements a term
    align_bits: int
    vnni: bool
    lanes: int  # 32-bit lanes of a vector
    rows: int
    vectors: int  # of columns

    @property
    def columns(self) -> int:
        """Columns of the tile."""
        return self.lanes * self.vectors

    @property
    def step(self) -> int:
        """Elements of k in a step."""
        return TERMS * self.group

    @property
    def order(self) -> tuple[int, ...]:
        """Columns of one vector in the order of float64 lanes: two, then two of the other half."""
        return tuple(4 * quad + 2 * part + lane for part in (0, 1) for quad in range(self.lanes // 4) for lane in (0, 1))


@dataclass(frozen=True)
class _Operands:
    """Byte pointers, then integers (strides are bytes from row to row of A), then what sums are multiplied by, in two factors."""

    a: ir.Value
    scales_a: ir.Value
    exponents_a: ir.Value  # (exponent + EXCESS / 2) << 20; used by aligned kernels only, like B's
    b: ir.Value  # [step][word of k][column]
    starts: ir.Value  # [step][term][column]
    scales_b: ir.Value  # the same, in `order`
    exponents_b: ir.Value
    state: ir.Value  # float32 [row][column]
    a_stride: ir.Value
    scales_stride: ir.Value
    exponents_stride: ir.Value
    blocks: ir.Value  # of rows
    steps: ir.Value
    factor0: ir.Value
    factor1: ir.Value


_POINTERS, _INTEGERS, _FLOATS = 8, 5, 2


class _Kernel:
    """Emits the loops over blocks of rows and steps."""

    def __init__(self, tile: GroupTile, builder: ir.IRBuilder, operands: _Operands) -> None:
        self.tile, self.builder, self.operands = tile, builder, operands
        self.emit = Emitter(builder)
        self.words = vector(I32, tile.lanes)
        self.bytes = vector(I8, 4 * tile.lanes)
        self.doubles = vector(F64, tile.lanes // 2)
        self.wholes = vector(I64, tile.lanes // 2)
        quads = range(tile.lanes // 4)
        # a word of the first vector, then one of the second: with 128-bit lanes' unpack instructions
        self.pairs = [
            [lane for quad in quads for low in (0, 1) for lane in (4 * quad + part + low, tile.lanes + 4 * quad + part + low)]
            for part in (0, 2)
        ]

    def sum(self, *terms: ir.Value | int) -> ir.Value:
        """The sum of 64-bit integers."""
        total = self.emit.index(0)
        for term in terms:
            total = self.builder.add(total, self.emit.index(term) if isinstance(term, int) else term)
        return total

    def doubles_of(self, low: ir.Value, high: ir.Value) -> list[ir.Value]:
        """float64 lanes from their low and high words."""
        return [self.emit.cast(self.emit.shuffle(low, high, pairs), self.doubles) for pairs in self.pairs]

    def dot(self, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        """Sums plus the products of a word of unsigned and a word of signed bytes (int16 pairs of sums without VNNI)."""
        bits = 32 * self.tile.lanes
        a, b = self.emit.cast(a, self.bytes), self.emit.cast(b, self.bytes)
        if not self.tile.vnni:
            name = "avx512.pmaddubs.w.512" if bits == 512 else "avx2.pmadd.ub.sw"
            pairs = self._x86(name, vector(_I16, 2 * self.tile.lanes), [a, b])
            return pairs if total is None else self.builder.add(total, pairs)
        if llvmlite.binding.llvm_version_info[0] < 21:
            a, b = self.emit.cast(a, self.words), self.emit.cast(b, self.words)
        return self._x86(f"avx512.vpdpbusd.{bits}", self.words, [total, a, b])

    def _x86(self, name: str, kind: ir.Type, arguments: list[ir.Value]) -> ir.Value:
        function_type = ir.FunctionType(kind, [argument.type for argument in arguments])
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, function_type, f"llvm.x86.{name}"), arguments)

    def dots(self, rows: list[ir.Value], step: ir.Value, term: int) -> list[list[ir.Value]]:
        """The words of the dot products of a term, of rows by vectors; `rows` are the places of A's bytes."""
        tile, emit, operands = self.tile, self.emit, self.operands
        place = emit.scaled(self.sum(emit.scaled(step, TERMS), term), 4 * tile.columns)
        starts = [emit.load(self.words, operands.starts, self.sum(place, 4 * tile.lanes * v), 4 * tile.lanes) for v in range(tile.vectors)]
        totals: list[list[Any]] = [list(starts) if tile.vnni else [None] * tile.vectors for _ in rows]
        for word in range(tile.group // 4):
            place = emit.scaled(self.sum(emit.scaled(step, tile.step // 4), term * tile.group // 4 + word), 4 * tile.columns)
            columns = [emit.load(self.words, operands.b, self.sum(place, 4 * tile.lanes * v), 4 * tile.lanes) for v in range(tile.vectors)]
            for row, line in zip(rows, totals, strict=True):
                element = emit.broadcast(self.words, row, self.sum(emit.scaled(step, tile.step), term * tile.group + 4 * word))
                line[:] = [self.dot(total, element, column) for total, column in zip(line, columns, strict=True)]
        if tile.vnni:
            return totals
        ones = emit.constant(vector(_I16, 2 * tile.lanes), 1)
        name = "avx512.pmaddw.d.512" if tile.lanes == 16 else "avx2.pmadd.wd"
        return [
            [self.builder.add(self._x86(name, self.words, [total, ones]), start) for total, start in zip(line, starts, strict=True)]
            for line in totals
        ]

    def scales_of(self, step: ir.Value, term: int) -> list[list[ir.Value]]:
        """B's scales of a term, two float64 vectors for each vector of columns."""
        tile, emit = self.tile, self.emit
        place = emit.scaled(self.sum(emit.scaled(step, TERMS), term), 8 * tile.columns)
        size = 4 * tile.lanes
        return [
            [emit.load(self.doubles, self.operands.scales_b, self.sum(place, size * (2 * v + part)), size) for part in (0, 1)]
            for v in range(tile.vectors)
        ]

    def add_term(
        self, sums: list[list[list[ir.Value]]], dots: list[list[ir.Value]], scales: list[ir.Value], step: ir.Value, term: int
    ) -> list[list[list[ir.Value]]]:
        """Sums of rows by vectors by parts, plus a term; `scales` are the places of A's."""
        emit, builder = self.emit, self.builder
        high = emit.constant(self.words, HIGH_WORD)
        minus_offset = emit.constant(self.doubles, -OFFSET)
        columns = self.scales_of(step, term)
        offsets = [[builder.fmul(scale, minus_offset) for scale in parts] for parts in columns]
        result = []
        for line, row_dots, place in zip(sums, dots, scales, strict=True):
            scale = emit.broadcast(self.doubles, place, emit.scaled(self.sum(emit.scaled(step, TERMS), term), 8))
            new = []
            for v, total in enumerate(line):
                raw = self.doubles_of(row_dots[v], high)
                products = [emit.call("fma", raw[part], columns[v][part], offsets[v][part]) for part in (0, 1)]
                new.append([emit.call("fma", product, scale, old) for product, old in zip(products, total, strict=True)])
            result.append(new)
        return result

    def rounded(self, value: ir.Value) -> ir.Value:
        """float64 without the bits that a float32 has not."""
        return self.emit.cast(self.emit.masked(self.emit.cast(value, self.wholes), -(1 << 29)), self.doubles)

    def start(self, values: list[ir.Value], words: list[ir.Value], exponents: list[ir.Value]) -> list[ir.Value]:
        """Accumulators that hold a vector's `values`; `words` are its dot products, `exponents` those of their terms."""
        emit, builder = self.emit, self.builder
        lanes = self.tile.lanes
        first, second = (emit.cast(value, self.words) for value in values)
        top = emit.shuffle(
            first,
            second,
            [part + 4 * quad + odd for quad in range(lanes // 4) for part in (0, lanes) for odd in (1, 3)],
        )
        emax = emit.masked(top, 0x7FF00000)
        positives = None
        for word, exponent in zip(words, exponents, strict=True):
            nonzero = builder.icmp_unsigned("!=", word, emit.constant(self.words, -(1 << 31)))
            emax = emit.call("umax", emax, builder.select(nonzero, exponent, emit.constant(self.words, 0)))
            bit = emit.shifted_right(word, 31)
            positives = bit if positives is None else builder.add(positives, bit)
        half_ulp = 1 << 19
        high = emit.plus(emax, ((52 - self.tile.align_bits) << 20) + half_ulp)
        negatives = builder.sub(emit.plus(emit.shifted_right(top, 31), TERMS), positives)
        # with its last bit set a negative value, too, floors to one less and is counted
        grown = [emit.cast(builder.or_(emit.cast(value, self.wholes), emit.constant(self.wholes, 1)), self.doubles) for value in values]
        return [builder.fadd(value, begin) for value, begin in zip(grown, self.doubles_of(negatives, high), strict=True)]

    def end(self, total: ir.Value) -> ir.Value:
        """The rounded result of an aligned step."""
        # a sum never leaves the binade of its start, which is therefore its own exponent with half an ulp of that exponent
        bits = self.emit.cast(total, self.wholes)
        origin = self.builder.or_(self.emit.masked(bits, -(1 << 52)), self.emit.constant(self.wholes, 1 << 51))
        return self.rounded(self.builder.fsub(total, self.emit.cast(origin, self.doubles)))

    def aligned_step(
        self, sums: list[list[list[ir.Value]]], rows: list[ir.Value], scales: list[ir.Value], exponents: list[ir.Value], step: ir.Value
    ) -> list[list[list[ir.Value]]]:
        """One step with alignment."""
        tile, emit, builder = self.tile, self.emit, self.builder
        dots = [self.dots(rows, step, term) for term in range(TERMS)]
        started = []
        for row, line in enumerate(sums):
            new = []
            for v, values in enumerate(line):
                of_terms = []
                for term in range(TERMS):
                    place = self.sum(emit.scaled(step, TERMS), term)
                    offset = self.sum(emit.scaled(place, 4 * tile.columns), 4 * tile.lanes * v)
                    column = emit.load(self.words, self.operands.exponents_b, offset, 4 * tile.lanes)
                    of_terms.append(builder.add(column, emit.broadcast(self.words, exponents[row], emit.scaled(place, 4))))
                new.append(self.start(values, [dots[term][row][v] for term in range(TERMS)], of_terms))
            started.append(new)
        for term in range(TERMS):
            started = self.add_term(started, dots[term], scales, step, term)
        return [[[self.end(total) for total in parts] for parts in line] for line in started]

    def exact_step(
        self, sums: list[list[list[ir.Value]]], rows: list[ir.Value], scales: list[ir.Value], step: ir.Value
    ) -> list[list[list[ir.Value]]]:
        """One step without."""
        for term in range(TERMS):
            sums = self.add_term(sums, self.dots(rows, step, term), scales, step, term)
        return [[[self.rounded(total) for total in parts] for parts in line] for line in sums]

    def load_state(self, place: ir.Value) -> list[ir.Value]:
        """A vector of sums."""
        lanes = self.tile.lanes
        singles = self.emit.load(vector(F32, lanes), self.operands.state, place, 4 * lanes)
        factors = [self.emit.splat(self.doubles, factor) for factor in (self.operands.factor0, self.operands.factor1)]
        values = []
        for part in (0, lanes // 2):
            piece = self.emit.shuffle(singles, singles, self.tile.order[part : part + lanes // 2])
            values.append(self.builder.fmul(self.builder.fmul(self.builder.fpext(piece, self.doubles), factors[0]), factors[1]))
        return values

    def store_state(self, values: list[ir.Value], place: ir.Value) -> None:
        """A vector of sums, which float32 has."""
        lanes = self.tile.lanes
        inverses = [self.builder.fdiv(ir.Constant(F64, 1.0), factor) for factor in (self.operands.factor1, self.operands.factor0)]
        factors = [self.emit.splat(self.doubles, inverse) for inverse in inverses]
        pieces = [
            self.builder.fptrunc(self.builder.fmul(self.builder.fmul(value, factors[0]), factors[1]), vector(F32, lanes // 2))
            for value in values
        ]
        order = self.tile.order
        singles = self.emit.shuffle(pieces[0], pieces[1], [order.index(column) for column in range(lanes)])
        self.emit.store(singles, self.operands.state, place, 4 * lanes)

    def run(self) -> None:
        """All blocks of rows."""
        tile, emit, builder, operands = self.tile, self.emit, self.builder, self.operands
        with cgutils.for_range(builder, operands.blocks) as blocks:
            numbers = [self.sum(emit.scaled(blocks.index, tile.rows), row) for row in range(tile.rows)]
            rows = [emit.at(operands.a, builder.mul(number, operands.a_stride)) for number in numbers]
            scales = [emit.at(operands.scales_a, builder.mul(number, operands.scales_stride)) for number in numbers]
            exponents = [emit.at(operands.exponents_a, builder.mul(number, operands.exponents_stride)) for number in numbers]
            places = [
                [self.sum(emit.scaled(number, 4 * tile.columns), 4 * tile.lanes * v) for v in range(tile.vectors)] for number in numbers
            ]
            variables = [[[cgutils.alloca_once(builder, self.doubles) for _ in (0, 1)] for _ in line] for line in places]
            for line, targets in zip(places, variables, strict=True):
                for place, parts in zip(line, targets, strict=True):
                    for value, target in zip(self.load_state(place), parts, strict=True):
                        builder.store(value, target)
            with cgutils.for_range(builder, operands.steps) as loop:
                sums = [[[builder.load(part) for part in parts] for parts in line] for line in variables]
                if tile.aligned:
                    sums = self.aligned_step(sums, rows, scales, exponents, loop.index)
                else:
                    sums = self.exact_step(sums, rows, scales, loop.index)
                for line_sums, line in zip(sums, variables, strict=True):
                    for values, parts in zip(line_sums, line, strict=True):
                        for value, part in zip(values, parts, strict=True):
                            builder.store(value, part)
            for line, targets in zip(places, variables, strict=True):
                for place, parts in zip(line, targets, strict=True):
                    self.store_state([builder.load(part) for part in parts], place)


def _emit_slab(tile: GroupTile, module: ir.Module) -> ir.Function:
    """The function that runs a slab of k for blocks of rows."""
    name = "fastmma_groups_" + "_".join(str(int(value)) for value in tile.__dict__.values())
    if name in module.globals:
        return module.globals[name]
    kinds = [POINTER] * _POINTERS + [I64] * _INTEGERS + [F64] * _FLOATS
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    for argument in function.args[:_POINTERS]:
        argument.add_attribute("noalias")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    _Kernel(tile, builder, _Operands(*function.args)).run()
    builder.ret_void()
    return function


@contextmanager
def _mode(builder: ir.IRBuilder, control: int) -> Iterator[None]:
    """Run calls of functions that are never inlined under a value of MXCSR, then restore the caller's."""

    def execute(instruction: str, place: ir.Value) -> None:
        function_type = ir.FunctionType(ir.VoidType(), [POINTER])
        function = cgutils.get_or_insert_function(builder.module, function_type, f"llvm.x86.sse.{instruction}")
        builder.call(function, [builder.bitcast(place, POINTER)])

    saved, chosen = (cgutils.alloca_once(builder, I32) for _ in range(2))
    builder.store(ir.Constant(I32, control), chosen)
    execute("stmxcsr", saved)
    execute("ldmxcsr", chosen)
    yield
    execute("ldmxcsr", saved)


@intrinsic
def run_slab(typingctx: Any, tile: Any, addresses: Any, sizes: Any, factors: Any) -> Any:
    """``run_slab(tile, addresses, sizes, factors)``: the micro-kernel; the tuples are the fields of its operands, in their order."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        pointers = [builder.inttoptr(builder.extract_value(args[1], place), POINTER) for place in range(_POINTERS)]
        integers = [builder.extract_value(args[2], place) for place in range(_INTEGERS)]
        floats = [builder.extract_value(args[3], place) for place in range(_FLOATS)]
        function = _emit_slab(tile.value, builder.module)
        with _mode(builder, ROUND_TOWARD_ZERO if tile.value.aligned else ROUND_TO_NEAREST):
            builder.call(function, pointers + integers + floats)
        return context.get_dummy_value()

    return types.none(tile, addresses, sizes, factors), codegen
