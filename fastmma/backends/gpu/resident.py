"""The CUDA emulator on arrays that lie in the GPU's memory, and whose results stay there, epilogues included."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.backends.call import Codes, Operands, Operation, cut
from fastmma.backends.gpu.cuda_source import THREADS, epilogue_source
from fastmma.backends.gpu.emulator import Emulator
from fastmma.host.errors import OperandError
from fastmma.isa.formats import FORMATS, Format
from fastmma.kernels.params import FORMULAS, OPERATIONS, PROMOTIONS, Promotion, Step

_JOINED = ("f32", "s32", "f16", "f64")  # as in epilogue.cu


class Resident(Emulator):
    """Operands, results and sums are arrays of the machine; they have the bits of every other backend."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Codes:
        """`Backend.empty`."""
        found: Codes = self.machine.empty(shape, dtype)
        return found

    def holds(self, array: Any) -> bool:
        """`Backend.holds`."""
        return self.machine.holds(array)

    def _deliver(self, operation: Operation, operands: Operands, target: Codes) -> None:
        """Results of operands on the machine, to an array there."""
        if target.flags.c_contiguous:
            self.product(operation, operands, target.shape, target)
        else:
            target[...] = self.product(operation, operands, target.shape)

    def _each(self, entry: str, count: int, *arguments: Any) -> None:
        """A kernel of the epilogue, a thread an element."""
        if count:
            self.machine.run(epilogue_source(), entry, -(-count // THREADS), THREADS, arguments)

    def look_up(self, table: Codes, codes: Codes) -> Codes:
        """`Backend.look_up`."""
        found, send = self.empty(codes.shape, table.dtype), self.machine.to_device
        self._each("look_up", codes.size, send(codes), send(table), found, codes.size, table.itemsize)
        return found

    def promoted(self, operation: Operation, operands: Operands, d: Codes, promotion: Promotion, threads: int) -> None:
        """`Backend.promoted`."""
        total, ins = self.empty(d.shape, d.dtype), operation.instruction
        total[...] = 0 if operands.c is None else operands.c
        partial = self.empty(d.shape, d.dtype)
        for chunk, start in enumerate(range(0, operands.depth, promotion.every)):
            self.run(operation, cut(ins, operands, start, min(start + promotion.every, operands.depth)), partial, threads)
            scales = (*_of_chunk(promotion.scale_a, chunk), *_of_chunk(promotion.scale_b, chunk))
            self._each("promote", d.size, partial, total, *d.shape, PROMOTIONS.index(promotion.rule), *scales)
        d[...] = total

    def join(self, total: Codes, part: Codes, fmt: Format, stage: str = "split-k") -> Codes:  # noqa: ARG002 - as `Backend.join` has it
        """`Backend.join`."""
        result = self.empty(total.shape, fmt.code_dtype)
        given = (self.machine.to_device(each) for each in (total, part))
        self._each("join", total.size, *given, result, total.size, _JOINED.index(fmt.name))
        return result

    def apply(self, sums: Codes, steps: list[Step], threads: int) -> Codes:
        """`Backend.apply`; what lies in main memory, as alpha does, is changed there."""
        if not self.holds(sums):
            return super().apply(sums, steps, threads)
        rows, columns = sums.shape
        for step in steps:
            if step.operation in FORMULAS:
                raise OperandError(f"{step.operation} is computed on a CPU alone")
            operands = (*self._operand(step.first), *self._operand(step.second))
            self._each("step", sums.size, sums, sums.strides[0] // 4, rows, columns, OPERATIONS.index(step.operation), *operands)
        return sums

    def _operand(self, array: Any) -> tuple[Any, int, int]:
        """An operand of a step and its strides; of one in main memory what all sums share is sent."""
        if array is None:
            return None, 0, 0
        if not self.holds(array):
            shared = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)
            sent = self.machine.to_device(array[shared])
            strides = tuple(0 if stride == 0 else step for stride, step in zip(array.strides, sent.strides, strict=True))
            return sent, strides[0] // 4, strides[1] // 4
        return array, array.strides[0] // 4, array.strides[1] // 4

    def finish(self, sums: Codes, steps: list[Step], out: str, threads: int, results: Codes) -> None:
        """`Backend.finish`."""
        found = self.narrow(self.apply(sums, steps, threads), out, threads)
        if found is not results:
            results[...] = found

    def narrow(self, sums: Codes, out: str, threads: int) -> Codes:  # noqa: ARG002 - the machine has its own
        """`Backend.narrow`."""
        if out == "f32":
            return sums
        narrowed = self.empty(sums.shape, FORMATS[out].code_dtype)
        self._each("narrow", sums.size, self.machine.to_device(sums), narrowed, sums.size, int(out == "f16"))
        return narrowed

    def rounded_to_tf32(self, numbers: Codes) -> Codes:
        """f32 codes as codes of tf32, to nearest even."""
        codes, nan = self.empty(numbers.shape, np.dtype(np.uint32)), FORMATS["tf32"].nan
        self._each("round_to_tf32", numbers.size, self.machine.to_device(numbers), codes, numbers.size, nan)
        return codes


def _of_chunk(scales: Any, chunk: int) -> tuple[Any, int, int]:
    """A chunk's scales (T, lines), or (lines,) of all products, with strides in elements from product to product and from line to line."""
    if scales is None:
        return None, 0, 0
    found = scales[..., chunk, :]
    return found, 0 if found.ndim == 1 else found.strides[0] // 4, found.strides[-1] // 4
