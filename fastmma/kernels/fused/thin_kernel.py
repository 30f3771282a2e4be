"""The kernel for few rows of A: B is read where the caller has it, and decoded in registers for all rows of a block.

The sums are those of `fastmma.kernels.fused.micro_kernel`: FMA chains under round toward zero from starts that count the negative
products. A, not B, is packed times 1 + 2**-t, with tiny values for its zeros. Zeros of B stay zeros, and are not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir
from numba.core import cgutils

from fastmma.kernels.fused.lanes import ColumnLanes
from fastmma.kernels.llvm.emit import F32, HALF, I16, I32, Emitter, Variables, vector
from fastmma.kernels.llvm.micro_kernel import MicroKernel
from fastmma.kernels.params import Element

WORD = 16  # signs of a step's products in a word
ZERO = -12000  # the exponent of a zero of B, below that of every product, also if A's is as low as this
_LANE = 16  # bytes within which shuffles are cheap
_AHEAD = 256  # bytes along a line of B: what is asked for so far ahead


@dataclass(frozen=True)
class ThinChain:
    """What the kernel is compiled for.

    Sums are held as they are. Exponents of products are words: those of float64's fields.
    """

    element: Element  # of B
    along: bool  # whether adjacent k of B are adjacent in memory, and not adjacent columns
    bounded: bool  # whether to keep the lowest emax, where small products may have bits below those of f32
    terms: int  # of a step
    align_bits: int
    keep_bits: int
    half: bool
    floor: int  # the word below which emax does not fall
    vector_bytes: int
    rows: int  # of a block
    groups: int  # of columns in a tile

    @property
    def single(self) -> bool:
        """Whether lanes are f32."""
        return False

    @property
    def lanes(self) -> int:
        """Columns in a group."""
        return self.vector_bytes // 4

    @property
    def tile(self) -> int:
        """Columns whose sums are in registers at a time."""
        return self.groups * self.lanes

    @property
    def excess(self) -> int:
        """What a word holds above the exponent."""
        return 1023

    @property
    def lift(self) -> int:
        """What an exponent field of a sum holds above the word."""
        return 0

    @property
    def scale(self) -> int:
        """Sums are held times 2**scale."""
        return 0

    @property
    def watched(self) -> bool:
        """Whether starts note the largest exponents of sums."""
        return self.half

    @property
    def itemsize(self) -> int:
        """Bytes of a code of B."""
        bits = 1 + self.element.exponent_bits + self.element.mantissa_bits + self.element.shift
        return 1 if bits <= 8 else 2 if bits <= 16 else 4

    @property
    def width(self) -> int:
        """Bits of a magnitude of B."""
        return self.element.exponent_bits + self.element.mantissa_bits

    @property
    def dropped(self) -> int:
        """Low bits that a magnitude loses in a word, where its largest is kept."""
        return self.element.mantissa_bits if self.width > 15 else 0

    @property
    def words(self) -> int:
        """Words of signs of a step."""
        return -(-self.terms // WORD)

    @property
    def through_half(self) -> bool:
        """Whether f16 holds all values of B, up to a power of two."""
        return self.element.exponent_bits <= 5 and self.element.mantissa_bits <= 10

    @property
    def lowered(self) -> int:
        """log2 of a value of B over the one that is decoded."""
        return 15 - self.element.bias if self.through_half else 0


@dataclass(frozen=True)
class Operands:
    """The kernel's arguments: byte pointers, then 64-bit integers; strides in bytes."""

    b: ir.Value
    tail: ir.Value  # the last step of B where there are not enough k for one, filled up with zeros, laid out alike
    values: ir.Value  # of A: float64 [step][block][k][row]
    exponents: ir.Value  # words, each twice
    signs: ir.Value  # words, each twice: [step][block][word][row]
    state: ir.Value  # float32 [row][column]
    lowest: ir.Value  # words [row][column]
    largest: ir.Value  # words [column]
    worst: ir.Value  # largest exponent fields of sums, a vector
    scratch: ir.Value  # codes of a step of a tile, [k][column]
    stride: ir.Value  # from k to k of B, or from column to column if it lies along k
    tail_stride: ir.Value
    state_stride: ir.Value  # from row to row of the state
    tiles: ir.Value
    blocks: ir.Value  # of rows
    whole: ir.Value  # steps that are all in B
    steps: ir.Value
    chunk: ir.Value  # steps between two tiles


_POINTERS, _INTEGERS = 10, 8

Grid = list[list[ir.Value]]  # by group, then by row or vector


class _Lanes(ColumnLanes):
    """Columns in ascending order; words of a step are put where the lanes of sums find them."""

    def __init__(self, chain: ThinChain, emit: Emitter) -> None:
        super().__init__(chain, emit)
        self._places = [self.order.index(lane) for lane in range(chain.lanes)]
        self.order = tuple(range(chain.lanes))

    def ordered(self, words: ir.Value) -> ir.Value:
        """Words of 16 bits as those of 32 bits that `start` takes."""
        return self.emit.widened(self.emit.shuffle(words, words, self._places))


class _Thin:
    """Emits the loops over chunks of steps, tiles of columns, blocks of rows and steps."""

    def __init__(self, chain: ThinChain, builder: ir.IRBuilder, operands: Operands) -> None:
        self.chain, self.builder, self.operands = chain, builder, operands
        self.emit = Emitter(builder)
        self.lanes = _Lanes(chain, self.emit)
        self.words = vector(I16, chain.lanes)
        self.code = ir.IntType(8 * chain.itemsize)
        self.worst = cgutils.alloca_once(builder, self.lanes.words)

    def run(self) -> None:
        """All of the product."""
        emit, builder, operands = self.emit, self.builder, self.operands
        builder.store(emit.load(self.lanes.words, operands.worst), self.worst)
        with cgutils.for_range_slice(builder, emit.index(0), operands.steps, operands.chunk) as (first, _):
            last = emit.sum(first, operands.chunk)
            last = builder.select(builder.icmp_signed("<", last, operands.steps), last, operands.steps)
            with cgutils.for_range(builder, operands.tiles) as tiles, cgutils.for_range(builder, operands.blocks) as blocks:
                self.tile(tiles.index, blocks.index, first, last)
        emit.store(builder.load(self.worst), operands.worst)

    def tile(self, tile: ir.Value, block: ir.Value, first: ir.Value, last: ir.Value) -> None:
        """Steps first to last of a tile and a block of rows."""
        chain, emit, builder, operands = self.chain, self.emit, self.builder, self.operands
        column = emit.scaled(tile, chain.tile)
        row = builder.mul(emit.scaled(block, chain.rows), operands.state_stride)
        places = [
            [
                emit.sum(row, builder.mul(emit.index(number), operands.state_stride), emit.scaled(emit.sum(column, group * chain.lanes), 4))
                for number in range(chain.rows)
            ]
            for group in range(chain.groups)
        ]
        flat = [place for each in places for place in each]
        sums = Variables(builder, [[self.lanes.kind] * 2] * len(flat))
        sums.put([self.lanes.grown(self.lanes.load(operands.state, place)) for place in flat])
        noted = self._noted(column, flat)
        notes = Variables(builder, [[self.words] * len(noted)])
        notes.put([[emit.load(self.words, base, place) for base, place in noted]])
        with cgutils.for_range_slice(builder, first, last, emit.index(1)) as (step, _):
            sums.put(self.step(tile, block, step, sums.get(), notes))
        for values, place in zip(sums.get(), flat, strict=True):
            self.lanes.store(values, operands.state, place)
        for value, (base, place) in zip(notes.get()[0], noted, strict=True):
            emit.store(value, base, place)

    def _noted(self, column: ir.Value, places: Sequence[ir.Value]) -> list[tuple[ir.Value, ir.Value]]:
        """Where the largest magnitudes of columns are kept, and the lowest emax of sums, at half of a sum's offset."""
        chain, emit, builder, operands = self.chain, self.emit, self.builder, self.operands
        size = 2 * chain.lanes
        found = [(operands.largest, emit.sum(emit.scaled(column, 2), group * size)) for group in range(chain.groups)]
        if chain.bounded:
            found += [(operands.lowest, builder.lshr(place, emit.index(1))) for place in places]
        return found

    def step(self, tile: ir.Value, block: ir.Value, step: ir.Value, before: Grid, notes: Variables) -> Grid:
        """One step from the sums `before`, one after the other by group, then by row."""
        chain, emit, builder, operands = self.chain, self.emit, self.builder, self.operands
        inside = builder.icmp_signed("<", step, operands.whole)
        stride = builder.select(inside, operands.stride, operands.tail_stride)
        line = emit.scaled(tile, chain.tile * chain.itemsize)  # along a row of B
        if chain.along:
            line = builder.mul(emit.scaled(tile, chain.tile), stride)
            first = emit.scaled(step, chain.terms * chain.itemsize)
        else:
            first = builder.mul(emit.scaled(step, chain.terms), stride)
        source = builder.select(inside, emit.at(operands.b, first), operands.tail)
        source, stride = self.asked(emit.at(source, line), stride)
        number = emit.sum(builder.mul(step, operands.blocks), block)
        exponents = emit.opaque(emit.at(operands.exponents, emit.scaled(number, chain.terms * chain.rows * 4)))
        signs = emit.opaque(emit.at(operands.signs, emit.scaled(number, chain.words * chain.rows * 4)))
        values = emit.opaque(emit.at(operands.values, emit.scaled(number, chain.terms * chain.rows * 8)))
        starts = self.starts(self.lines(source, stride, chain.terms), exponents, signs, notes)
        sums = [self.lanes.start(held, *start, self.worst) for held, start in zip(before, starts, strict=True)]
        kept = emit.opaque(operands.scratch)
        for k, place in enumerate(self.lines(kept, emit.index(chain.tile * chain.itemsize), chain.terms)):
            columns = [self.values(place, group) for group in range(chain.groups)]
            for row in range(chain.rows):
                element = emit.broadcast(self.lanes.kind, values, (k * chain.rows + row) * 8)
                for group, parts in enumerate(columns):
                    held = sums[group * chain.rows + row]
                    held[:] = [emit.call("fma", element, part, total) for part, total in zip(parts, held, strict=True)]
        return [self.lanes.end(held) for held in sums]

    def starts(self, rows: Sequence[ir.Value], exponents: ir.Value, signs: ir.Value, notes: Variables) -> list[tuple[ir.Value, ir.Value]]:
        """emax and the number of negative products of every sum, by group, then by row, as words that `Lanes.start` takes."""
        chain, emit, builder = self.chain, self.emit, self.builder
        (noted,) = notes.get()
        zero = ir.Constant(self.words, None)
        emax = [[emit.constant(self.words, 2 * ZERO)] * chain.rows for _ in range(chain.groups)]
        negative, nonzero = ([[zero] * chain.words for _ in range(chain.groups)] for _ in range(2))
        for k in range(chain.terms):
            fields = []
            word, bit = k // WORD, 1 << k % WORD
            for group in range(chain.groups):
                field, largest, sign, real = self.parts(self.codes(rows[k], group, k), k % WORD)
                noted[group] = emit.call("umax", noted[group], largest)
                negative[group][word] = builder.or_(negative[group][word], sign)
                there = builder.select(real, emit.constant(self.words, bit), zero)
                nonzero[group][word] = builder.or_(nonzero[group][word], there)
                fields.append(field)
            for row in range(chain.rows):
                place = 4 * (k * chain.rows + row)
                twice = emit.broadcast(vector(I32, chain.lanes // 2), exponents, place)
                left = emit.cast(twice, self.words)
                for group, field in enumerate(fields):
                    emax[group][row] = emit.call("smax", emax[group][row], builder.add(left, field))
        starts = []
        for group in range(chain.groups):
            for row in range(chain.rows):
                count = None
                for word in range(chain.words):
                    twice = emit.broadcast(vector(I32, chain.lanes // 2), signs, 4 * (word * chain.rows + row))
                    differ = builder.xor(emit.cast(twice, self.words), negative[group][word])
                    ones = emit.call("ctpop", builder.and_(differ, nonzero[group][word]))
                    count = ones if count is None else builder.add(count, ones)
                highest = emax[group][row]
                if chain.bounded:
                    place = chain.groups + group * chain.rows + row
                    noted[place] = emit.call("umin", noted[place], highest)  # where all products are zeros, it is negative
                highest = emit.call("smax", highest, emit.constant(self.words, chain.floor))
                starts.append((self.lanes.ordered(highest), self.lanes.ordered(count)))
        notes.put([noted])
        return starts

    def codes(self, row: ir.Value, group: int, k: int) -> ir.Value:
        """A group's codes at a k, left in the scratch: rows of B often lie where a cache holds few of them at a time."""
        chain, emit = self.chain, self.emit
        place = group * chain.lanes * chain.itemsize
        codes = emit.load(vector(self.code, chain.lanes), row, place)
        if not chain.along:
            emit.store(codes, self.operands.scratch, k * chain.tile * chain.itemsize + place)
        return codes

    def parts(self, codes: ir.Value, bit: int) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
        """Of codes: exponent fields, magnitudes, signs at a bit, and which ones are not zero."""
        chain, emit, builder, element = self.chain, self.emit, self.builder, self.chain.element
        if chain.itemsize == 1:
            codes = builder.zext(codes, self.words)
        if element.shift:
            codes = emit.shifted_right(codes, element.shift)
        magnitude = emit.masked(codes, (1 << chain.width) - 1)
        real = builder.icmp_unsigned("!=", magnitude, ir.Constant(magnitude.type, None))
        if chain.itemsize == 4:
            field = self._narrow(emit.shifted_right(magnitude, element.mantissa_bits))
            largest = field if chain.dropped else self._narrow(magnitude)
            sign = self._narrow(emit.shifted_right(codes, chain.width))
            sign = emit.shifted_left(sign, bit)
        else:
            field, largest = emit.shifted_right(magnitude, element.mantissa_bits), magnitude
            place = bit - chain.width
            sign = emit.masked(codes, 1 << chain.width)
            sign = emit.shifted_left(sign, place) if place >= 0 else emit.shifted_right(sign, -place)
        field = emit.call("smax", field, emit.constant(self.words, 1))
        return builder.select(real, field, emit.constant(self.words, ZERO)), largest, sign, real

    def _narrow(self, value: ir.Value) -> ir.Value:
        return self.builder.trunc(value, self.words)

    def values(self, row: ir.Value, group: int) -> list[ir.Value]:
        """A group's values at a k, as they are times 2**-lowered."""
        chain, emit, builder, element = self.chain, self.emit, self.builder, self.chain.element
        count, size = chain.lanes // 2, chain.itemsize
        singles = vector(F32, count)
        found = []
        for part in (0, 1):
            codes = emit.load(vector(self.code, count), row, (group * chain.lanes + part * count) * size)
            if chain.through_half:
                halves = codes if size == 2 else self._halves(codes)
                value = builder.fpext(emit.cast(halves, vector(HALF, count)), singles)
            elif size == 2:
                value = emit.cast(emit.shifted_left(builder.zext(codes, vector(I32, count)), 16), singles)
            else:
                value = emit.cast(emit.masked(codes, -1 << element.shift), singles)
            found.append(builder.fpext(value, self.lanes.kind))
        return found

    def _halves(self, codes: ir.Value) -> ir.Value:
        """The f16 codes of bytes, whose exponents are lower by `lowered`."""
        emit, chain = self.emit, self.chain
        kind, shift = vector(I16, codes.type.count), 10 - chain.element.mantissa_bits
        magnitude = (1 << chain.width) - 1 << shift
        if chain.width == 7:  # copies of the sign go to the top
            return emit.masked(emit.shifted_left(self.builder.sext(codes, kind), shift), magnitude | -1 << 15)
        words = self.builder.zext(codes, kind)
        sign = emit.masked(emit.shifted_left(words, 15 - chain.width), 1 << 15)
        return self.builder.or_(sign, emit.masked(emit.shifted_left(words, shift), magnitude))

    def lines(self, source: ir.Value, stride: ir.Value, count: int) -> list[ir.Value]:
        """Where so many lines begin."""
        return [self.emit.at(source, self.emit.scaled(stride, number)) for number in range(count)]

    def asked(self, source: ir.Value, stride: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Where a tile's codes of the first k of a step begin, columns adjacent, and the stride from k to k.

        The lines of B that come next are asked for.
        """
        chain, emit = self.chain, self.emit
        size = chain.tile * chain.itemsize
        places = self.lines(source, stride, chain.tile if chain.along else chain.terms)
        for place in places:
            if chain.along:
                emit.prefetch(place, _AHEAD)
            else:
                for line in range(0, size, 64):
                    emit.prefetch(place, _AHEAD + line)
        if not chain.along:
            return source, stride
        self._turn(places)
        return self.operands.scratch, emit.index(size)

    def _turn(self, places: Sequence[ir.Value]) -> None:
        """Put the codes of a step, whose columns begin at `places`, into the scratch by k."""
        chain, emit = self.chain, self.emit
        size = chain.tile * chain.itemsize
        side = _LANE // chain.itemsize  # of the squares that are turned within lanes
        for first in range(0, chain.tile, 16):
            for k in range(0, chain.terms, side):
                count = min(side, chain.terms - k)  # a step may have fewer k than a lane
                lines = []
                for column in range(side):
                    pieces = []
                    for lane in range(first + column, first + 16, side):
                        piece = emit.load(vector(self.code, count), places[lane], k * chain.itemsize)
                        pieces.append(emit.shuffle(piece, piece, [place % count for place in range(side)]))
                    lines.append(emit.joined(pieces))
                for number, line in enumerate(self._transposed(lines, side)[:count]):
                    emit.store(line, self.operands.scratch, (k + number) * size + first * chain.itemsize)

    def _transposed(self, lines: Sequence[ir.Value], side: int) -> list[ir.Value]:
        """Squares of `side` by `side` codes, one in each lane of the lines, transposed."""
        found = list(lines)
        count = found[0].type.count
        picks = [
            [
                place + other
                for lane in range(0, count, side)
                for place in range(lane + half, lane + half + side // 2)
                for other in (0, count)
            ]
            for half in (0, side // 2)
        ]
        # perfect shuffles: lines i and i + side / 2 interleaved become lines 2 i and 2 i + 1
        for _ in range(side.bit_length() - 1):
            pairs = [(found[place], found[place + side // 2]) for place in range(side // 2)]
            found = [self.emit.shuffle(*pair, pick) for pair in pairs for pick in picks]
        return found


def _emit(chain: ThinChain, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    for argument in arguments[:_POINTERS]:
        argument.add_attribute("noalias")
    _Thin(chain, builder, Operands(*arguments)).run()


KERNEL = MicroKernel(_emit, _POINTERS, _INTEGERS)
