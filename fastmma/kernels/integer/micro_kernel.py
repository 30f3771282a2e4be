"""Register tiles of dot products over 32-bit words of k, emitted as LLVM vectors.

A word holds consecutive elements of one row of A or one column of B: four bytes, two int16, or 32 single bits.
"""

# the parameters of an intrinsic are Numba types, found again in its signature

from __future__ import annotations

from itertools import chain
from typing import Any

from llvmlite import ir

from fastmma.kernels.integer.config import WordsConfig
from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.building import alloca_once, alloca_once_value, for_range, for_range_slice
from fastmma.kernels.llvm.emit import I8, I16, I32, POINTER, Emitter, vector
from fastmma.kernels.llvm.intrinsics import intrinsic
from fastmma.kernels.matrices.memory import LINE

_BYTE_SUM = 31  # words whose ones a byte can count


class _Words(Emitter):
    """Emission of code on words, for one tile."""

    def __init__(self, builder: ir.IRBuilder, config: WordsConfig) -> None:
        super().__init__(builder)
        self.config = config
        self.lanes = vector(I32, config.lanes)

    def pointer(self, address: ir.Value) -> ir.Value:
        """The byte pointer to an address."""
        return self.builder.inttoptr(address, POINTER)

    def dot(self, operation: str, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        """``total`` plus the dot product of a word of A and a word of B, in every lane."""
        match operation:
            case "signed by unsigned":
                return self.dot_bytes("vpdpbusd", total, b, a)
            case "unsigned by signed":
                return self.dot_bytes("vpdpbusd", total, a, b)
            case "signed by signed":
                return self.dot_bytes("sdot", total, a, b)
            case "unsigned by unsigned":
                return self.dot_bytes("udot", total, a, b)
            case "int16 by int16":
                return self._dot_pairs(total, a, b)
            case "xor":
                return self._count(total, self.builder.xor(a, b))
            case _:
                return self._count(total, self.builder.and_(a, b))

    def _dot_pairs(self, total: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        """Sums of two products in the form that LLVM turns into pmaddwd on x86."""
        halves = 2 * self.config.lanes
        a, b = (self.builder.sext(self.cast(x, vector(I16, halves)), vector(I32, halves)) for x in (a, b))
        products = self.builder.mul(a, b)
        even, odd = (self.shuffle(products, products, range(first, halves, 2)) for first in (0, 1))
        return self.builder.add(total, self.builder.add(even, odd))

    def _count(self, total: ir.Value, bits: ir.Value) -> ir.Value:
        """Add the number of ones, of whole lanes or of each byte."""
        kind = vector(I8, 4 * self.config.lanes) if self.config.words == "bits_by_bytes" else self.lanes
        total, bits = self.cast(total, kind), self.cast(bits, kind)
        return self.cast(self.builder.add(total, self.call("ctpop", bits)), self.lanes)

    def word_of_run(self, place: ir.Value, flip: ir.Value) -> ir.Value:
        """One word from elements that follow one another in memory."""
        match self.config.elements:
            case 4:
                flips = self.builder.mul(self.builder.trunc(flip, I32), ir.Constant(I32, 0x01010101))
                return self.builder.xor(self.load(I32, place), flips)
            case 2:
                kind = vector(I16, 2)
                bias = self.splat(kind, self.builder.trunc(flip, I16))
                pair = self.builder.zext(self.load(vector(I8, 2), place), kind)
                return self.cast(self.builder.sub(self.builder.xor(pair, bias), bias), I32)
            case _:
                run = self.load(vector(I8, 32), place)
                return self.cast(self.builder.icmp_unsigned("!=", run, self.constant(run.type, 0)), I32)

    def words_of_lines(self, elements: list[ir.Value], flip: ir.Value) -> ir.Value:
        """One word in each lane from vectors of elements, ascending in k."""
        bytes_ = elements[0].type
        kind = vector(I32, bytes_.count)
        match self.config.elements:
            case 4:
                bias = self.splat(bytes_, self.builder.trunc(flip, I8))
                parts = [self.widened(self.builder.xor(element, bias)) for element in elements]
            case 2:
                bias = self.splat(kind, self.builder.trunc(flip, I32))
                parts = [self.builder.sub(self.builder.xor(self.widened(element), bias), bias) for element in elements]
                parts[0] = self.masked(parts[0], 0xFFFF)
            case _:
                parts = [self.widened(self._bits(elements[first : first + 8])) for first in range(0, 32, 8)]
        word = parts[0]
        for position, part in enumerate(parts[1:], 1):
            word = self.builder.or_(word, self.shifted_left(part, position * 32 // len(parts)))
        return word

    def _bits(self, elements: list[ir.Value]) -> ir.Value:
        """Bytes of eight elements each, the first in the lowest bit."""
        bytes_ = self.constant(elements[0].type, 0)
        for element in reversed(elements):
            one = self.call("umin", element, self.constant(element.type, 1))
            bytes_ = self.builder.or_(self.builder.add(bytes_, bytes_), one)
        return bytes_


@intrinsic
def load_word(typing_context: Any, address: Any) -> Any:
    """The int32 at an address, aligned or not."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return Emitter(builder).load(I32, builder.inttoptr(args[0], POINTER))

    return kinds.int32(kinds.int64), generate


@intrinsic
def store_word(typing_context: Any, value: Any, address: Any) -> Any:
    """Store an int32 at an address, aligned or not."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        Emitter(builder).store(args[0], builder.inttoptr(args[1], POINTER))
        return context.get_dummy_value()

    return kinds.none(kinds.int32, kinds.int64), generate


@intrinsic
def copy_byte(typing_context: Any, source: Any, target: Any) -> Any:
    """Copy one byte from address to address."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        emitter = Emitter(builder)
        source, target = (builder.inttoptr(address, POINTER) for address in args)
        emitter.store(emitter.load(I8, source), target)
        return context.get_dummy_value()

    return kinds.none(kinds.int64, kinds.int64), generate


@intrinsic
def word_of_run(typing_context: Any, config: Any, address: Any, flip: Any) -> Any:
    """The word of `elements` bytes that follow one another."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        words = _Words(builder, config.value)
        return words.word_of_run(words.pointer(args[1]), args[2])

    return kinds.int32(config, kinds.int64, kinds.int64), generate


@intrinsic
def words_of_lines(typing_context: Any, config: Any, address: Any, k_stride: Any, flip: Any, target: Any) -> Any:
    """Store the words of `lines` neighbouring lines, whose elements are `k_stride` bytes apart."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        _, address, k_stride, flip, target = args
        words = _Words(builder, config.value)
        bytes_, source = vector(I8, config.value.lines), words.pointer(address)
        elements = [words.load(bytes_, source, words.scaled(k_stride, k)) for k in range(config.value.elements)]
        words.store(words.words_of_lines(elements, flip), words.pointer(target))
        return context.get_dummy_value()

    return kinds.none(config, kinds.int64, kinds.int64, kinds.int64, kinds.int64), generate


@intrinsic
def row_biases(typing_context: Any, config: Any, operation: Any, panel: Any, count: Any, target: Any) -> Any:
    """Store what flipped bytes of B take away from each row of a packed panel of `count` words; reads one vector past the panel."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        _, operation, panel, count, target = args
        words = _Words(builder, config.value)
        if not config.value.biases:
            return context.get_dummy_value()
        source, ones = words.pointer(panel), words.constant(words.lanes, 0x01010101)
        sums = [alloca_once_value(builder, words.constant(words.lanes, 0)) for _ in config.value.operations]
        with for_range(builder, count) as loop:
            rows = words.load(words.lanes, source, words.scaled(loop.index, 4 * config.value.rows))
            for name, total in zip(config.value.operations, sums, strict=True):
                builder.store(words.dot(name, builder.load(total), rows, ones), total)
        first, second = (
            builder.mul(builder.load(total), words.constant(words.lanes, bias))
            for total, bias in zip(sums, config.value.biases, strict=True)
        )
        biases = builder.select(builder.icmp_signed("==", operation, words.index(0)), first, second)
        for row in range(config.value.rows):
            words.store(builder.extract_element(biases, ir.Constant(I32, row)), words.pointer(target), 4 * row)
        return context.get_dummy_value()

    return kinds.none(config, *[kinds.int64] * 4), generate


class Multiply(_Words):
    """Emission of the product of a register tile."""

    def __init__(self, builder: ir.IRBuilder, config: WordsConfig) -> None:
        super().__init__(builder, config)
        self.totals = [[alloca_once(builder, self.lanes) for _ in range(config.vectors)] for _ in range(config.rows)]

    def begin(self, starts: ir.Value) -> None:
        """Every row's sums begin with its number at `starts`."""
        for row, totals in enumerate(self.totals):
            start = self.broadcast(self.lanes, starts, 4 * row)
            for total in totals:
                self.builder.store(start, total)

    def run(self, operation: str, a: ir.Value, b: ir.Value, count: ir.Value) -> None:
        """Add the products of `count` words."""
        if self.config.words != "bits_by_bytes":
            self._add(operation, a, b, self.index(0), count, self.totals)
            return
        zero, chunk = self.constant(self.lanes, 0), self.index(_BYTE_SUM)
        chunks = self.builder.sdiv(self.builder.add(count, self.index(_BYTE_SUM - 1)), chunk)
        with for_range(self.builder, chunks) as loop:
            byte_totals = [[alloca_once(self.builder, self.lanes) for _ in totals] for totals in self.totals]
            for byte_total in chain.from_iterable(byte_totals):
                self.builder.store(zero, byte_total)
            first = self.builder.mul(loop.index, chunk)
            rest = self.builder.sub(count, first)
            last = self.builder.add(first, self.builder.select(self.builder.icmp_signed("<", rest, chunk), rest, chunk))
            self._add(operation, a, b, first, last, byte_totals)
            for total, byte_total in zip(chain.from_iterable(self.totals), chain.from_iterable(byte_totals), strict=True):
                value = self.builder.load(byte_total)
                halves = self.builder.add(self.masked(value, 0xFF00FF), self.masked(self.shifted_right(value, 8), 0xFF00FF))
                words = self.builder.add(self.masked(halves, 0xFFFF), self.shifted_right(halves, 16))
                self.builder.store(self.builder.add(self.builder.load(total), words), total)

    def _add(self, operation: str, a: ir.Value, b: ir.Value, first: ir.Value, last: ir.Value, sums: list[list[ir.Value]]) -> None:
        """Add the products of the words from `first` to `last`."""
        rows, columns, lanes = self.config.rows, self.config.columns, self.config.lanes
        with for_range_slice(self.builder, first, last, self.index(1)) as word:
            a_words = self.at(a, self.scaled(word, 4 * rows))
            b_words = self.at(b, self.scaled(word, 4 * columns))
            for row, totals in enumerate(sums):
                if row == 0 or self.config.reads_anew:
                    line = self.opaque(b_words) if self.config.reads_anew else b_words
                    vectors = [self.load(self.lanes, line, 4 * lanes * v, 4 * lanes) for v in range(self.config.vectors)]
                element = self.broadcast(self.lanes, a_words, 4 * row)
                for total, column in zip(totals, vectors, strict=True):
                    self.builder.store(self.dot(operation, self.builder.load(total), element, column), total)

    def end(self, saturate: bool, before: ir.Value, stride: ir.Value, out: ir.Value, out_stride: ir.Value) -> None:
        """Add the sums to the int32 at `before`, clamped or wrapping, into `out`."""
        for row, totals in enumerate(self.totals):
            old_row, new_row = self.at(before, self.scaled(stride, row)), self.at(out, self.scaled(out_stride, row))
            for v, total in enumerate(totals):
                old, new = self.load(self.lanes, old_row, 4 * self.config.lanes * v), self.builder.load(total)
                new = self.call("sadd.sat", old, new) if saturate else self.builder.add(old, new)
                self.store(new, new_row, 4 * self.config.lanes * v)


@intrinsic
def multiply(
    typing_context: Any,
    config: Any,
    operation: Any,
    saturate: Any,
    a: Any,
    next_a: Any,
    b: Any,
    segments: Any,
    count: Any,
    starts: Any,
    starts_step: Any,
    c: Any,
    c_stride: Any,
    out: Any,
    out_stride: Any,
) -> Any:
    """One register tile of ``out = c + a b`` over segments of `count` words; after each of them the sum wraps, or saturates.

    Panels hold the words of all rows (or columns) of the tile, word after word. `starts` has a number for each row of each segment.
    `next_a` is what will be the `a` of the next tile; a tile of few rows asks for it.
    """

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        _, operation, saturate, a, next_a, b, segments, count, starts, starts_step, c, c_stride, out, out_stride = args
        words = Multiply(builder, config.value)
        a, next_a, b, starts, c, out = (words.pointer(address) for address in (a, next_a, b, starts, c, out))
        if config.value.reads_anew:
            lines = builder.udiv(words.scaled(builder.mul(segments, count), 4 * config.value.rows), words.index(LINE))
            with for_range(builder, lines) as line:
                words.prefetch(next_a, words.scaled(line.index, LINE))
            for row in range(config.value.rows, 2 * config.value.rows):
                for place in range(0, 4 * config.value.columns, LINE):
                    words.prefetch(c, words.sum(words.scaled(c_stride, row), place))
        with for_range(builder, segments) as segment:
            words.begin(words.at(starts, builder.mul(segment.index, starts_step)))
            skipped = builder.mul(segment.index, count)
            a_segment = words.at(a, words.scaled(skipped, 4 * config.value.rows))
            b_segment = words.at(b, words.scaled(skipped, 4 * config.value.columns))
            for number, name in enumerate(config.value.operations):
                with builder.if_then(builder.icmp_signed("==", operation, words.index(number))):
                    words.run(name, a_segment, b_segment, count)
            at_first = builder.icmp_signed("==", segment.index, words.index(0))
            before, stride = builder.select(at_first, c, out), builder.select(at_first, c_stride, out_stride)
            with builder.if_else(builder.icmp_signed("!=", saturate, words.index(0))) as (clamped, wrapped):
                with clamped:
                    words.end(True, before, stride, out, out_stride)
                with wrapped:
                    words.end(False, before, stride, out, out_stride)
        return context.get_dummy_value()

    return kinds.none(config, *[kinds.int64] * 13), generate
