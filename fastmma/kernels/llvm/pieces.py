"""Pieces of a product that threads take without the interpreter: compiled code hands them out, phase after phase.

A thread that has run out of pieces of a phase waits until the others have done theirs, so that a product wakes its threads once.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from operator import setitem

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from fastmma.host.threads import share
from fastmma.kernels.llvm.architecture import NEAREST
from fastmma.kernels.llvm.building import for_range
from fastmma.kernels.llvm.emit import I64, POINTER, Emitter
from fastmma.kernels.llvm.micro_kernel import MicroKernel
from fastmma.kernels.macro_tiles import OfWorkers
from fastmma.kernels.matrices.memory import LINE, AlignedMemory

_MOST_NUMBERS = 32  # of a call
_WORD = 8
_WORDS = LINE // _WORD
_PHASE = 3 * LINE  # bytes: what does not change, the number of pieces taken, and of those done
_NUMBERS = struct.Struct("=7q").pack
_ALL = 1 << 62
_LOOKS = 1 << 12  # of a caller at pieces of others, before it looks for signals

Records = NDArray[np.int64]


class Phase:
    """Calls of a phase: pieces by calls by numbers, the first of which is the address of a function that takes that of the others.

    The number at the place `scratch` becomes the address of the memory of the worker that does the call.
    """

    def __init__(self, pieces: int, calls: int, numbers: int, scratch: int) -> None:
        self.records: Records = np.empty((pieces, calls, numbers), np.int64)
        self.scratch = scratch


@dataclass(frozen=True)
class _Loop:
    """The variant of the code, of which there is one."""

    numbers: int = _MOST_NUMBERS


def _emit(loop: _Loop, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    """Take at most so many pieces.

    Addresses: the phases, a line after a line that starts with whether helpers are to stop; the worker's memory. Integers: phases; the
    most pieces; whether the worker is a helper; how often to look at other's pieces, at most; the address of what lets other threads run.
    """
    job, scratch, phases, most, helps, looks, other = arguments
    emit = Emitter(builder)
    left, looked = builder.alloca(I64), builder.alloca(I64)
    numbers = builder.bitcast(builder.alloca(ir.ArrayType(I64, loop.numbers)), POINTER)
    builder.store(most, left)
    builder.store(looks, looked)
    end = builder.append_basic_block("end")
    zero, one = emit.index(0), emit.index(1)

    def word(base: ir.Value, number: int) -> ir.Value:
        return emit.load(I64, base, _WORD * number)

    def shared(place: ir.Value) -> ir.Value:
        return builder.load_atomic(builder.bitcast(place, I64.as_pointer()), "acquire", _WORD)

    def raised(place: ir.Value) -> ir.Value:
        return builder.atomic_rmw("add", builder.bitcast(place, I64.as_pointer()), one, "acq_rel")

    def leave_if(condition: ir.Value) -> None:
        go_on = builder.append_basic_block("go.on")
        builder.cbranch(condition, end, go_on)
        builder.position_at_end(go_on)

    def leave_if_told() -> None:
        leave_if(builder.icmp_signed("!=", builder.and_(helps, shared(job)), zero))

    with for_range(builder, phases) as phase:
        place = emit.at(job, emit.sum(emit.scaled(phase.index, _PHASE), LINE))
        records, count, calls, size, own = (word(place, number) for number in range(5))
        taken, done = emit.at(place, LINE), emit.at(place, 2 * LINE)
        again, piece, wait, pause, following = (
            builder.append_basic_block(name) for name in ("again", "piece", "wait", "pause", "following")
        )
        builder.branch(again)
        builder.position_at_end(again)
        leave_if_told()
        leave_if(builder.icmp_signed("==", builder.load(left), zero))
        number = raised(taken)
        builder.cbranch(builder.icmp_signed("<", number, count), piece, wait)
        builder.position_at_end(piece)
        record = emit.at(builder.inttoptr(records, POINTER), emit.scaled(builder.mul(number, builder.mul(calls, size)), _WORD))
        with for_range(builder, calls) as call:
            source = emit.at(record, emit.scaled(builder.mul(call.index, size), _WORD))
            with for_range(builder, size) as each:
                offset = emit.scaled(each.index, _WORD)
                emit.store(emit.load(I64, source, offset), numbers, offset)
            emit.store(builder.ptrtoint(scratch, I64), numbers, emit.scaled(own, _WORD))
            function = builder.inttoptr(word(numbers, 0), ir.FunctionType(ir.VoidType(), [POINTER]).as_pointer())
            builder.call(function, [emit.at(numbers, _WORD)])
        raised(done)
        builder.store(builder.sub(builder.load(left), one), left)
        builder.branch(again)
        builder.position_at_end(wait)
        waits = builder.icmp_signed("<", emit.sum(phase.index, 1), phases)  # nothing comes after the last one
        builder.cbranch(builder.and_(waits, builder.icmp_signed("<", shared(done), count)), pause, following)
        builder.position_at_end(pause)
        leave_if_told()
        builder.store(builder.sub(builder.load(looked), one), looked)
        leave_if(builder.icmp_signed("==", builder.load(looked), zero))
        builder.call(builder.inttoptr(other, ir.FunctionType(ir.IntType(32), []).as_pointer()), [])
        builder.branch(wait)
        builder.position_at_end(following)
    builder.branch(end)
    builder.position_at_end(end)


_LOOP = MicroKernel(_emit, 2, 5, mode=lambda _: NEAREST)


@cache
def _lets_others_run() -> int:
    """Return the address of what gives the core to another thread, if one waits for it."""
    library, name = (ctypes.CDLL("kernel32"), "SwitchToThread") if sys.platform == "win32" else (ctypes.CDLL(None), "sched_yield")
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def run_phases(phases: Sequence[Phase], threads: int, scratch: OfWorkers[AlignedMemory]) -> None:
    """Do the calls of phases on threads, each phase after the one before, each piece by one worker with memory of its own.

    Between the pieces that the caller takes, signal handlers run; an exception of one is raised here after all workers have stopped.
    """
    memory = AlignedMemory(LINE + len(phases) * _PHASE, zeroed=True)
    words = memory.array((1 + 3 * len(phases), _WORDS), np.int64)
    for number, phase in enumerate(phases):
        words[1 + 3 * number, :5] = phase.records.ctypes.data, *phase.records.shape, phase.scratch
    stopped, taken = words[0], words[-2]
    last, run = len(phases[-1].records), _LOOP.function(_Loop())

    def take(worker: int) -> bool:
        most = (_ALL, 1, _ALL) if worker else (1, 0, _LOOKS)
        run(_NUMBERS(memory.address, scratch[worker].address, len(phases), *most, _lets_others_run()))  # type: ignore[arg-type]
        return not worker and bool(taken[0] < last)

    share(take, sum(len(phase.records) for phase in phases), threads, partial(setitem, stopped, 0, 1))
