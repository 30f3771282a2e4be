"""The compiled code by which threads take pieces of a product, phase after phase, and by which helpers wait for a product.

A product has memory of lines of eight words: whether helpers are to stop; then for each phase what does not change, the number of pieces
taken, and that of pieces done. A helper has a line: its claim, the product, the phases, its own memory, and the lock on which it sleeps.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from llvmlite import ir

from fastmma.kernels.llvm.architecture import NEAREST
from fastmma.kernels.llvm.building import for_range
from fastmma.kernels.llvm.emit import I32, I64, POINTER, Emitter
from fastmma.kernels.llvm.micro_kernel import MicroKernel
from fastmma.kernels.matrices.memory import LINE

WORD = 8
LINES_OF_PHASE = 3
MOST_NUMBERS = 64  # of a call
EVERY = 1 << 62  # pieces, or looks
_FREE, _OFFERED, _TAKEN = 0, 1, 2  # claims of a helper: the caller offers and withdraws, the helper takes and frees
_CLAIM, _PRODUCT, _PHASES, _MEMORY, _LOCK = range(5)
_STATUS = ir.FunctionType(I32, [])
_ACQUIRE, _RELEASE = ir.FunctionType(I32, [POINTER, I32]), ir.FunctionType(ir.VoidType(), [POINTER])


@dataclass(frozen=True)
class Loop:
    """The variant of a loop, of which there is one."""

    numbers: int = MOST_NUMBERS


class _Shared(Emitter):
    """Emission of what threads share."""

    def word(self, base: ir.Value, number: int) -> ir.Value:
        """Load one of the words in memory."""
        return self.load(I64, base, WORD * number)

    def address(self, base: ir.Value, number: int) -> ir.Value:
        """Load a word that is an address."""
        return self.builder.inttoptr(self.word(base, number), POINTER)

    def seen(self, place: ir.Value) -> ir.Value:
        """Load a word that another thread may write: loads after it find what that thread wrote before."""
        return self.builder.load_atomic(self._words(place), "acquire", WORD)

    def show(self, value: int, place: ir.Value) -> None:
        """Write a word for other threads."""
        self.builder.store_atomic(self.index(value), self._words(place), "release", WORD)

    def raised(self, place: ir.Value) -> ir.Value:
        """Add one to a word, and return what it was before."""
        return self.builder.atomic_rmw("add", self._words(place), self.index(1), "acq_rel")

    def exchanged(self, place: ir.Value, old: int, new: int) -> ir.Value:
        """Put the new value in the place of the old one, and tell whether the word had that."""
        found = self.builder.cmpxchg(self._words(place), self.index(old), self.index(new), "acq_rel", "acquire")
        return self.builder.extract_value(found, 1)

    def called(self, kind: ir.FunctionType, address: ir.Value, *arguments: ir.Value) -> None:
        """Call the function at an address."""
        self.builder.call(self.builder.inttoptr(address, kind.as_pointer()), arguments)

    def _words(self, place: ir.Value) -> ir.Value:
        return self.builder.bitcast(place, I64.as_pointer())


def _is(emit: Emitter, sign: str, left: ir.Value, right: ir.Value | int) -> ir.Value:
    return emit.builder.icmp_signed(sign, left, emit.index(right) if isinstance(right, int) else right)


def _emit_pieces(loop: Loop, emit: _Shared, product: ir.Value, memory: ir.Value, phases: ir.Value, how: tuple[ir.Value, ...]) -> None:
    """Take pieces; `how` is the most of them, whether the worker is a helper, how often to look whether those of others are done, and
    what lets another thread run meanwhile.
    """
    most, helps, looks, other = how
    builder = emit.builder
    with builder.goto_entry_block():
        left, looked = builder.alloca(I64), builder.alloca(I64)
        numbers = builder.bitcast(builder.alloca(ir.ArrayType(I64, loop.numbers)), POINTER)
    builder.store(most, left)
    builder.store(looks, looked)
    end = builder.append_basic_block("end")

    def leave_if(condition: ir.Value) -> None:
        go_on = builder.append_basic_block("go.on")
        builder.cbranch(condition, end, go_on)
        builder.position_at_end(go_on)

    def leave_if_told() -> None:
        leave_if(_is(emit, "!=", builder.and_(helps, emit.seen(product)), 0))

    with for_range(builder, phases) as phase:
        place = emit.at(product, emit.sum(emit.scaled(phase.index, LINES_OF_PHASE * LINE), LINE))
        count, calls, size, own = (emit.word(place, number) for number in range(1, 5))
        taken, done = emit.at(place, LINE), emit.at(place, 2 * LINE)
        again, piece, wait, pause, following = (builder.append_basic_block() for _ in range(5))
        builder.branch(again)
        builder.position_at_end(again)
        leave_if_told()
        leave_if(_is(emit, "==", builder.load(left), 0))
        number = emit.raised(taken)
        builder.cbranch(_is(emit, "<", number, count), piece, wait)
        builder.position_at_end(piece)
        records = emit.at(emit.address(place, 0), emit.scaled(builder.mul(number, builder.mul(calls, size)), WORD))
        with for_range(builder, calls) as call:
            source = emit.at(records, emit.scaled(builder.mul(call.index, size), WORD))
            with for_range(builder, size) as each:
                offset = emit.scaled(each.index, WORD)
                emit.store(emit.load(I64, source, offset), numbers, offset)
            emit.store(builder.ptrtoint(memory, I64), numbers, emit.scaled(own, WORD))
            emit.called(_RELEASE, emit.word(numbers, 0), emit.at(numbers, WORD))
        emit.raised(done)
        builder.store(builder.sub(builder.load(left), emit.index(1)), left)
        builder.branch(again)
        builder.position_at_end(wait)
        waits = _is(emit, "<", emit.sum(phase.index, 1), phases)  # nothing comes after the last one
        builder.cbranch(builder.and_(waits, _is(emit, "<", emit.seen(done), count)), pause, following)
        builder.position_at_end(pause)
        leave_if_told()
        builder.store(builder.sub(builder.load(looked), emit.index(1)), looked)
        leave_if(_is(emit, "==", builder.load(looked), 0))
        emit.called(_STATUS, other)
        builder.branch(wait)
        builder.position_at_end(following)
    builder.branch(end)
    builder.position_at_end(end)


def _emit_take(loop: Loop, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    """Take a piece as the caller. Addresses: product, memory. Integers: phases, looks, what lets another thread run."""
    product, memory, phases, looks, other = arguments
    emit = _Shared(builder)
    _emit_pieces(loop, emit, product, memory, phases, (emit.index(1), emit.index(0), looks, other))


def _emit_serve(loop: Loop, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    """Help with one product after another, for ever. Address: helper. Integers: what takes a lock, what lets another thread run."""
    helper, acquire, other = arguments
    emit = _Shared(builder)
    sleep, help_, free = (builder.append_basic_block(name) for name in ("sleep", "help", "free"))
    builder.branch(sleep)
    builder.position_at_end(sleep)
    emit.called(_ACQUIRE, acquire, emit.address(helper, _LOCK), ir.Constant(I32, 1))
    builder.cbranch(emit.exchanged(helper, _OFFERED, _TAKEN), help_, sleep)
    builder.position_at_end(help_)
    product, memory = (emit.address(helper, number) for number in (_PRODUCT, _MEMORY))
    how = emit.index(EVERY), emit.index(1), emit.index(EVERY), other
    _emit_pieces(loop, emit, product, memory, emit.word(helper, _PHASES), how)
    builder.branch(free)
    builder.position_at_end(free)
    emit.show(_FREE, helper)
    builder.branch(sleep)
    builder.position_at_end(builder.append_basic_block("never"))


def _emit_offer(_loop: Loop, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    """Wake helpers for a product. Addresses: those of the helpers, product. Integers: helpers, phases, what releases a lock."""
    helpers, product, count, phases, release = arguments
    emit = _Shared(builder)
    with for_range(builder, count) as each:
        helper = builder.inttoptr(emit.load(I64, helpers, emit.scaled(each.index, WORD)), POINTER)
        emit.store(builder.ptrtoint(product, I64), helper, WORD * _PRODUCT)
        emit.store(phases, helper, WORD * _PHASES)
        emit.show(_OFFERED, helper)
        emit.called(_RELEASE, release, emit.address(helper, _LOCK))


def _emit_end(_loop: Loop, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    """Let no helper begin any more, and wait for those that have begun. Arguments: as above, but what lets another thread run."""
    helpers, product, count, _, other = arguments
    emit = _Shared(builder)
    emit.show(1, product)
    with for_range(builder, count) as each:
        emit.exchanged(builder.inttoptr(emit.load(I64, helpers, emit.scaled(each.index, WORD)), POINTER), _OFFERED, _FREE)
    with for_range(builder, count) as each:
        helper = builder.inttoptr(emit.load(I64, helpers, emit.scaled(each.index, WORD)), POINTER)
        look, pause, ended = (builder.append_basic_block(name) for name in ("look", "pause", "ended"))
        builder.branch(look)
        builder.position_at_end(look)
        builder.cbranch(_is(emit, "==", emit.seen(helper), _TAKEN), pause, ended)
        builder.position_at_end(pause)
        emit.called(_STATUS, other)
        builder.branch(look)
        builder.position_at_end(ended)


def _loop(emit: Callable[[Loop, ir.IRBuilder, list[ir.Value]], None], pointers: int, integers: int) -> MicroKernel:
    return MicroKernel(emit, pointers, integers, mode=lambda _: NEAREST)


TAKE, SERVE, OFFER, END = _loop(_emit_take, 2, 3), _loop(_emit_serve, 1, 2), _loop(_emit_offer, 2, 3), _loop(_emit_end, 2, 3)


class SystemFunctions:
    """Addresses of functions of C: what takes and what releases a lock, and what gives the core to another thread that waits for it."""

    acquire, release = (
        ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
        for name in ("PyThread_acquire_lock", "PyThread_release_lock")
    )

    @staticmethod
    @cache
    def other() -> int:
        """Let another thread run."""
        library, name = (ctypes.CDLL("kernel32"), "SwitchToThread") if sys.platform == "win32" else (ctypes.CDLL(None), "sched_yield")
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
