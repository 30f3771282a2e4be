"""B of a product of few rows: read where the caller has it, turned where its columns lie along k, and decoded in registers."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from fastmma.kernels.decode.emit import decoder_of, half_codes, singles
from fastmma.kernels.fused.thin_config import ThinConfig
from fastmma.kernels.llvm.emit import F64, I16, Emitter, vector

ZERO = -12000  # the exponent of a zero of B, below that of every product, also if A's is as low as this
_LANE = 16  # bytes within which shuffles are cheap
_AHEAD = 256  # bytes along a line of B: what is asked for so far ahead


class Reader:
    """Reads a step's codes of a tile; `scratch` has room for them, [k][column]."""

    def __init__(self, config: ThinConfig, emit: Emitter, scratch: ir.Value) -> None:
        self.config, self.emit, self.builder, self.scratch = config, emit, emit.builder, scratch
        self.words = vector(I16, config.lanes)
        self.code = ir.IntType(8 * config.element.itemsize)

    def codes(self, row: ir.Value, group: int, k: int) -> ir.Value:
        """A group's codes at a k, left in the scratch: rows of B often lie where a cache holds few of them at a time."""
        config, emit = self.config, self.emit
        place = group * config.lanes * config.element.itemsize
        codes = emit.load(vector(self.code, config.lanes), row, place)
        if not config.along:
            emit.store(codes, self.scratch, k * config.tile * config.element.itemsize + place)
        return codes

    def parts(self, codes: ir.Value, bit: int) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
        """Of codes: exponent fields, magnitudes, signs at a bit, and which ones are not zero."""
        config, emit, builder, element = self.config, self.emit, self.builder, self.config.element
        if element.itemsize == 1:
            codes = builder.zext(codes, self.words)
        if element.shift:
            codes = emit.shifted_right(codes, element.shift)
        decoder = decoder_of(emit, element)
        magnitude = decoder.magnitude(codes)
        real = decoder.nonzero(magnitude)
        field = decoder.bare_field(magnitude, I16)
        if element.itemsize == 4:
            largest = field if config.dropped else self._narrow(magnitude)
            sign = self._narrow(emit.shifted_right(codes, element.width))
            sign = emit.shifted_left(sign, bit)
        else:
            largest, place = magnitude, bit - element.width
            sign = decoder.sign(codes)
            sign = emit.shifted_left(sign, place) if place >= 0 else emit.shifted_right(sign, -place)
        return builder.select(real, decoder.raised(field), emit.constant(self.words, ZERO)), largest, sign, real

    def _narrow(self, value: ir.Value) -> ir.Value:
        return self.builder.trunc(value, self.words)

    def values(self, row: ir.Value, group: int) -> list[ir.Value]:
        """A group's values at a k, as they are times 2**-decoded_scale."""
        config, emit, element = self.config, self.emit, self.config.element
        count, size = config.lanes // 2, element.itemsize
        found = []
        for part in (0, 1):
            codes = emit.load(vector(self.code, count), row, (group * config.lanes + part * count) * size)
            if size == 1:
                codes = half_codes(emit, element, codes)
            found.append(self.builder.fpext(singles(emit, element, codes), vector(F64, count)))
        return found

    def lines(self, source: ir.Value, stride: ir.Value, count: int) -> list[ir.Value]:
        """Return where so many lines begin."""
        return [self.emit.at(source, self.emit.scaled(stride, number)) for number in range(count)]

    def asked(self, source: ir.Value, stride: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return where a tile's codes of the first k of a step begin, columns adjacent, and the stride from k to k.

        The lines of B that come next are asked for.
        """
        config, emit = self.config, self.emit
        size = config.tile * config.element.itemsize
        places = self.lines(source, stride, config.tile if config.along else config.terms)
        for place in places:
            if config.along:
                emit.prefetch(place, _AHEAD)
            else:
                for line in range(0, size, 64):
                    emit.prefetch(place, _AHEAD + line)
        if not config.along:
            return source, stride
        self._turn(places)
        return self.scratch, emit.index(size)

    def _turn(self, places: Sequence[ir.Value]) -> None:
        """Put the codes of a step, whose columns begin at `places`, into the scratch by k."""
        config, emit = self.config, self.emit
        size = config.tile * config.element.itemsize
        side = _LANE // config.element.itemsize  # of the squares that are turned within lanes
        for first in range(0, config.tile, 16):
            for k in range(0, config.terms, side):
                count = min(side, config.terms - k)  # a step may have fewer k than a lane
                lines = []
                for column in range(side):
                    pieces = []
                    for lane in range(first + column, first + 16, side):
                        piece = emit.load(vector(self.code, count), places[lane], k * config.element.itemsize)
                        pieces.append(emit.shuffle(piece, piece, [place % count for place in range(side)]))
                    lines.append(emit.joined(pieces))
                for number, line in enumerate(self._transposed(lines, side)[:count]):
                    emit.store(line, self.scratch, (k + number) * size + first * config.element.itemsize)

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
