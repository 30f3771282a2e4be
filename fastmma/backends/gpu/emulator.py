"""The backend "cupy-emulate": any target's arithmetic as CUDA kernels, with the bits of the CPU emulator."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from fastmma.backends.call import Codes, Operands, Operation, truth_values, whole_k
from fastmma.backends.engine import Backend
from fastmma.backends.gpu.cuda_source import (
    BLOCK_LINES,
    THREADS,
    Execution,
    covers,
    has_tile_kernel,
    matrix_tile_of,
    source,
    tile_of,
)
from fastmma.backends.gpu.decode_table import decode_table
from fastmma.backends.gpu.executed import executed
from fastmma.backends.native_c import with_native_c
from fastmma.host.errors import BackendError
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of

# elements of operands and results that are on the machine at a time, where there are many products
_ELEMENTS = 1 << 28
_MOST_TABLES = 256  # operations whose tables are kept there
_MATRICES_OF_FLOAT64 = frozenset({"sm_90a"})  # targets on which these are faster than fma: measured on an H200


class Machine(Protocol):
    """An executor of kernels: the GPU (`fastmma.backends.gpu.device`), or a stand-in for it."""

    def to_device(self, array: Codes) -> Any:
        """A copy in the machine's memory, contiguous; what lies there so already is not copied."""

    def holds(self, array: Any) -> bool:
        """Tell whether an array lies in the machine's memory."""

    def copy_to_host(self, array: Any, out: Codes) -> None:
        """Its elements to an array in main memory of the same shape and dtype."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Uninitialised memory."""

    def run(self, text: str, entry: str, blocks: int, threads: int, arguments: tuple[Any, ...], shared_bytes: int = 0) -> None:
        """Run a kernel of some CUDA C++ text. Integers are passed as 64-bit ones; None as a null pointer."""

    def place(self) -> int:
        """Return which memory arrays are sent to, where there are several."""

    def native_target(self) -> str:
        """The target whose instructions it executes."""

    def executes(self, ins: Instruction) -> bool:
        """Tell whether kernels may use an instruction of that target."""


class Emulator(Backend):
    """CUDA kernels on a machine.

    Parameters
    ----------
    machine : Machine
    instructions : bool
        Whether an instruction of the machine's own may compute what it has the bits of.
    """

    warps_at_once = 1 << 15

    def __init__(self, machine: Machine, *, instructions: bool = True) -> None:
        self.machine = machine
        self.instructions = instructions
        self._kept: dict[tuple[Operation, int], tuple[Any, ...]] = {}

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
        _, rows, columns = d.shape
        grain = max(1, _ELEMENTS // (rows * columns + operands.depth * (rows + columns)))
        for start in range(0, len(d), grain):
            part = self.sent(operation, operands.products(start, start + grain))
            self._deliver(operation, part, d[start : start + grain])

    def _deliver(self, operation: Operation, operands: Operands, target: Codes) -> None:
        """Results of operands on the machine, to main memory."""
        self.machine.copy_to_host(self.product(operation, operands, target.shape), target)

    def sent(self, operation: Operation, operands: Operands) -> Operands:
        """Operands on the machine, as codes of their formats' widths; of an A or B that all products share, one."""
        ins = operation.instruction
        formats = ins.formats._asdict() | {"scale_a": ins.formats.scale, "scale_b": ins.formats.scale}

        def send(name: str, codes: Codes | None) -> Any:
            if codes is None:
                return None
            dtype = formats[name].code_dtype if name in formats else np.uint8
            if name not in ("a", "b"):
                return self.machine.to_device(codes.astype(dtype, copy=False))
            found = (codes[:1] if codes.strides[0] == 0 else codes).astype(dtype, copy=False)
            return found if self.machine.holds(found) else self.machine.to_device(found)

        return Operands(*(send(name, codes) for name, codes in truth_values(ins, operands)._asdict().items()))

    def product(self, operation: Operation, operands: Operands, shape: tuple[int, ...], out: Any = None) -> Any:
        """The results (T, M, N) of products of at least one k, in the machine's memory, where the operands are.

        A and B may have any strides, and be one for all products; everything else lies in order, as `out` does, where results go.
        """
        ins = operation.instruction
        result = self.machine.empty(shape, ins.formats.d.code_dtype) if out is None else out
        found = self.executed(operation) if ins.ctype == ins.dtype and _is_large(operation, operands, shape) else None
        if found is not None:
            self._by_instruction(operation, found, operands, shape, result)
        elif has_tile_kernel(operation) and ins.ctype == ins.dtype and _is_large(operation, operands, shape):
            self._by_tiles(operation, operands, shape, result)
        else:
            self._elements(operation, operands, shape, result, self._tables(operation), (None, None))
        return result

    def executed(self, operation: Operation) -> Instruction | None:
        """The machine's own instruction that computes an operation, if there is one."""
        found = executed(operation, self.machine.native_target()) if self.instructions else None
        return found if found is not None and self.machine.executes(found) else None

    def _by_instruction(self, operation: Operation, ins: Instruction, operands: Operands, shape: tuple[int, ...], result: Any) -> None:
        """Results by an instruction of the machine."""
        machine, execution = self.machine, Execution(ins)
        text, wanted = source(operation, "instruction", ins), operation.instruction
        # zeros up to the emulated instruction's k are multiplied, too: in a chain of fma they turn -0 into +0
        steps = -(-(-(-operands.depth // wanted.k) * wanted.k) // ins.k)
        places = machine.to_device(pattern_of(wanted).table(wanted.ordered_metadata)) if wanted.sparse else None

        def packed(entry: str, codes: Any, axes: tuple[int, int, int], count: int, *extra: Any) -> Any:
            blocks = len(codes) * -(-count // BLOCK_LINES)
            panels = machine.empty((blocks, steps, BLOCK_LINES, execution.words), execution.word_dtype)
            arguments = (*_lines(codes, axes), *extra, panels, len(codes), count, operands.depth, steps)
            machine.run(text, entry, -(-blocks * BLOCK_LINES * steps // THREADS), THREADS, arguments)
            return panels

        _, rows, columns = shape
        a = packed("pack_rows", operands.a, (0, 1, 2), rows, operands.metadata, places)
        b = packed("pack_columns", operands.b, (0, 2, 1), columns)
        blocks = shape[0] * -(-rows // BLOCK_LINES) * -(-columns // BLOCK_LINES)
        arguments = (a, b, operands.c, result, len(operands.a), len(operands.b), rows, columns, operands.depth, steps)
        machine.run(text, "multiply", blocks, THREADS, arguments, execution.shared_bytes)

    def _by_tiles(self, operation: Operation, operands: Operands, shape: tuple[int, ...], result: Any) -> None:
        """Results of fused steps."""
        machine = self.machine
        matrices = matrix_tile_of(operation) if machine.native_target() in _MATRICES_OF_FLOAT64 else None
        tile = matrices or tile_of(operation)
        _, rows, columns = shape
        depth = operands.depth
        stages = -(-depth // tile.depth)
        text = source(operation, "matrices" if matrices else "tile")
        tables = self._tables(operation)
        a_table, b_table, scale_table, places = tables
        counts = [(len(codes), count) for codes, count in ((operands.a, rows), (operands.b, columns))]
        if operands.scale_a is not None or operands.metadata is not None:  # each product has its own
            counts = [(shape[0], count) for _, count in counts]
        marks = [machine.to_device(np.zeros(count, np.uint8)) for count in counts]
        blocks = [-(-count // tile.lines) for _, count in counts]
        panels = [
            machine.empty((products, count, stages, tile.stage_words, tile.lines), np.uint32)
            for (products, _), count in zip(counts, blocks, strict=True)
        ]
        packing = [-(-products * count * tile.lines * stages // tile.threads) for (products, _), count in zip(counts, blocks, strict=True)]
        of_rows = (operands.metadata, operands.scale_a, a_table, scale_table, places, panels[0], marks[0], counts[0][0])
        of_columns = (operands.scale_b, b_table, scale_table, panels[1], marks[1], counts[1][0])
        machine.run(text, "pack_rows", packing[0], tile.threads, (*_lines(operands.a, (0, 1, 2)), *of_rows, rows, depth, stages))
        machine.run(text, "pack_columns", packing[1], tile.threads, (*_lines(operands.b, (0, 2, 1)), *of_columns, columns, depth, stages))
        arguments = (*panels, operands.c, result, counts[0][0], counts[1][0], rows, columns, stages)
        machine.run(text, "multiply", shape[0] * blocks[0] * blocks[1], tile.threads, arguments, tile.shared_bytes)
        # lines with infinities and NaNs again, one result at a time
        self._elements(operation, operands, shape, result, tables, (marks[0], marks[1]))

    def _tables(self, operation: Operation) -> tuple[Any, ...]:
        """Decoding tables of A, B and scales, and the places that metadata words name; they stay on the machine."""
        key = operation, self.machine.place()
        if key not in self._kept:
            if len(self._kept) >= _MOST_TABLES:
                self._kept.clear()
            self._kept[key] = self._new_tables(operation)
        return self._kept[key]

    def _new_tables(self, operation: Operation) -> tuple[Any, ...]:
        ins, send = operation.instruction, self.machine.to_device
        tabled = ins.formats.a.bits - ins.formats.a.padding < 32
        wide_a, wide_b = operation.multiplied
        return (
            send(decode_table(ins.formats.a, wide_a)) if tabled else None,
            send(decode_table(ins.formats.b, wide_b)) if tabled else None,
            send(decode_table(ins.formats.scale)) if ins.formats.scale else None,
            send(pattern_of(ins).table(ins.ordered_metadata)) if ins.sparse else None,
        )

    def _elements(
        self, operation: Operation, operands: Operands, shape: tuple[int, ...], result: Any, tables: tuple[Any, ...], marks: tuple[Any, Any]
    ) -> None:
        """Write results of marked rows and columns, or without marks all."""
        given = operands.c, result, operands.metadata, operands.scale_a, operands.scale_b
        count = shape[0] * shape[1] * shape[2]
        marked = [(None, 0) if each is None else (each, each.shape[1] if len(each) > 1 else 0) for each in marks]
        if count:
            lines = (*_lines(operands.a, (0, 1, 2)), *_lines(operands.b, (0, 2, 1)))
            arguments = (*lines, *given, *tables, *marked[0], *marked[1], *shape, operands.depth)
            self.machine.run(source(operation, "element"), "element", -(-count // THREADS), THREADS, arguments)


def _is_large(operation: Operation, operands: Operands, shape: tuple[int, ...]) -> bool:
    """Tell whether blocks of results have work: tiles of one instruction each do not."""
    return shape[0] == 1 or operands.depth > operation.instruction.k


def _lines(codes: Any, axes: tuple[int, int, int]) -> tuple[Any, ...]:
    """An operand (T, ..., ...), and its strides in elements from product to product, from line to line and along k."""
    steps = [codes.strides[axis] // codes.itemsize for axis in axes]
    return (codes, 0 if len(codes) == 1 else steps[0], *steps[1:])
