"""The backend "cupy-emulate": any target's arithmetic as CUDA kernels, with the bits of the CPU emulator."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from fastmma.backends.call import Codes, Operands, Operation, truth_values, whole_k
from fastmma.backends.engine import Backend
from fastmma.backends.gpu.cuda_source import LINES, THREADS, covers, has_tile_kernel, source, tile_of
from fastmma.backends.gpu.decode_table import decode_table
from fastmma.backends.native_c import with_native_c
from fastmma.host.errors import BackendError
from fastmma.isa.sparsity import pattern_of

# results of a batch of tiles that are computed at a time
_RESULTS = 1 << 26


class Machine(Protocol):
    """What executes kernels: the GPU (`fastmma.backends.gpu.device`), or a stand-in for it."""

    def to_device(self, array: Codes) -> Any:
        """A copy in the machine's memory, contiguous."""

    def copy_to_host(self, array: Any, out: Codes) -> None:
        """Its elements to an array in main memory of the same shape and dtype."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Uninitialised memory."""

    def run(self, text: str, entry: str, blocks: int, threads: int, arguments: tuple[Any, ...], shared_bytes: int = 0) -> None:
        """Run a kernel of some CUDA C++ text. Integers are passed as 64-bit ones; None as a null pointer."""


class Emulator(Backend):
    """CUDA kernels on a machine."""

    warps_at_once = 1 << 15

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def run(self, operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
        """`Backend.run`."""
        if not covers(operation):
            family = operation.arithmetic.family
            raise BackendError(f"{operation.instruction}: no CUDA kernel computes {family}; backend='numba' does")
        operands = whole_k(operation.instruction, operands) if operation.own else operands
        if d.size == 0 or operands.depth == 0:
            d[...] = 0 if operands.c is None else operands.c
            return
        with_native_c(self._run)(operation, operands, d, threads)

    def _run(self, operation: Operation, operands: Operands, d: Codes, threads: int) -> None:  # noqa: ARG002 - the machine has its own
        """Products of at least one k."""
        ins = operation.instruction
        large = has_tile_kernel(operation) and ins.ctype == ins.dtype and (len(d) == 1 or operands.depth > ins.k)
        grain = 1 if large else max(1, _RESULTS // d[0].size)
        for start in range(0, len(d), grain):
            part = self.sent(operation, operands.products(start, start + grain))
            target = d[start : start + grain]
            multiply = self.product if large else self._elements
            self.machine.copy_to_host(multiply(operation, part, target.shape), target)

    def sent(self, operation: Operation, operands: Operands) -> Operands:
        """Operands on the machine, as codes of their formats' widths."""
        ins = operation.instruction
        formats = ins.formats._asdict() | {"scale_a": ins.formats.scale, "scale_b": ins.formats.scale}

        def send(name: str, codes: Codes | None) -> Any:
            if codes is None:
                return None
            dtype = formats[name].code_dtype if name in formats else np.uint8
            return self.machine.to_device(codes.astype(dtype, copy=False))

        return Operands(*(send(name, codes) for name, codes in truth_values(ins, operands)._asdict().items()))

    def product(self, operation: Operation, operands: Operands, shape: tuple[int, ...]) -> Any:
        """The result (1, M, N) of one product of at least one k, in the machine's memory, where the operands are."""
        if not has_tile_kernel(operation):
            return self._elements(operation, operands, shape)
        tile, machine = tile_of(operation), self.machine
        _, rows, columns = shape
        depth = operands.depth
        stages = -(-depth // tile.depth)
        text = source(operation, "tile")
        tables, marks = self._tables(operation), [machine.to_device(np.zeros(count, np.uint8)) for count in (rows, columns)]
        blocks = [-(-count // LINES) for count in (rows, columns)]
        panels = [machine.empty((count, stages, tile.stage_words, LINES), np.uint32) for count in blocks]
        a_table, b_table, scale_table, places = tables
        row_arguments = (operands.a, operands.metadata, operands.scale_a, a_table, scale_table, places, panels[0], marks[0])
        column_arguments = (operands.b, operands.scale_b, b_table, scale_table, panels[1], marks[1])
        packing = [-(-count * LINES * stages // THREADS) for count in blocks]
        machine.run(text, "pack_rows", packing[0], THREADS, (*row_arguments, rows, depth, operands.a.shape[2], stages))
        machine.run(text, "pack_columns", packing[1], THREADS, (*column_arguments, columns, depth, stages))
        result = machine.empty(shape, operation.instruction.formats.d.code_dtype)
        arguments = (*panels, operands.c, result, rows, columns, stages)
        machine.run(text, "multiply", blocks[0] * blocks[1], THREADS, arguments, tile.shared_bytes)
        # lines with infinities and NaNs again, one result at a time
        self._compute_elements(operation, operands, shape, result, tables, (marks[0], marks[1]))
        return result

    def _tables(self, operation: Operation) -> tuple[Any, ...]:
        """Decoding tables of A, B and scales, and the places that metadata words name."""
        ins, send = operation.instruction, self.machine.to_device
        tabled = ins.formats.a.bits <= 32
        wide_a, wide_b = operation.multiplied
        return (
            send(decode_table(ins.formats.a, wide_a)) if tabled else None,
            send(decode_table(ins.formats.b, wide_b)) if tabled else None,
            send(decode_table(ins.formats.scale)) if ins.formats.scale else None,
            send(pattern_of(ins).table(ins.ordered_metadata)) if ins.sparse else None,
        )

    def _elements(self, operation: Operation, operands: Operands, shape: tuple[int, ...]) -> Any:
        """Results (tiles, rows, columns), each by a thread."""
        result = self.machine.empty(shape, operation.instruction.formats.d.code_dtype)
        self._compute_elements(operation, operands, shape, result, self._tables(operation), (None, None))
        return result

    def _compute_elements(
        self, operation: Operation, operands: Operands, shape: tuple[int, ...], result: Any, tables: tuple[Any, ...], marks: tuple[Any, Any]
    ) -> None:
        """Write results of marked rows and columns, or without marks all."""
        given = operands.a, operands.b, operands.c, result, operands.metadata, operands.scale_a, operands.scale_b
        count = shape[0] * shape[1] * shape[2]
        if count:
            arguments = (*given, *tables, *marks, *shape, operands.depth, operands.a.shape[-1])
            self.machine.run(source(operation, "element"), "element", -(-count // THREADS), THREADS, arguments)
