"""The engine of ``backend="cupy-emulate"``: any target's arithmetic as CUDA kernels, with the bits of the CPU emulator."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Batch, Job
from fastmma.backends.compiled import Engine, promoted_by_chunks
from fastmma.backends.gpu import device
from fastmma.backends.gpu.cuda_source import LINES, THREADS, has_tile_kernel, source, tile_of
from fastmma.backends.gpu.decode_table import decode_table
from fastmma.isa.formats import format_of
from fastmma.isa.sparsity import pattern_of

Codes = NDArray[Any]
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


class Emulator:
    """An engine on a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.engine = Engine(self._tiles, self._gemm, promoted_by_chunks(self._gemm))

    def _tiles(self, job: Job, batch: Batch, d: Codes, _threads: int) -> None:
        grain = max(1, _RESULTS // max(1, d[0].size if len(d) else 1))
        for start in range(0, len(d), grain):
            part = self.sent(job, batch.each(lambda codes: codes[start : start + grain]))  # noqa: B023
            shape = part.a.shape[0], *d.shape[1:]
            self.machine.copy_to_host(self._elements(job, part, shape), d[start : start + grain])

    def _gemm(self, job: Job, batch: Batch, d: Codes, _threads: int) -> None:
        part = self.sent(job, batch)
        if d.size == 0 or batch.b.shape[0] == 0:
            d[...] = 0 if batch.c is None else batch.c
        else:
            self.machine.copy_to_host(self.product(job, part, d.shape), d)

    def sent(self, job: Job, batch: Batch) -> Batch:
        """Operands of a call on the machine, as codes of their formats' widths."""
        ins = job.instruction
        names = {"a": ins.atype, "b": ins.btype, "c": ins.ctype, "scale_a": ins.stype, "scale_b": ins.stype}

        def send(name: str, codes: Codes | None) -> Any:
            if codes is None:
                return None
            dtype = format_of(names[name]).code_dtype if name in names else np.uint8
            return self.machine.to_device(codes.astype(dtype, copy=False))

        return Batch(*(send(name, codes) for name, codes in batch._asdict().items()))

    def product(self, job: Job, batch: Batch, shape: tuple[int, ...]) -> Any:
        """The result (M, N) of a product of at least one k, in the machine's memory, where the operands are."""
        if not has_tile_kernel(job):
            return self._elements(job, batch, (1, *shape)).reshape(shape)
        tile, machine = tile_of(job), self.machine
        rows, columns, depth = *shape, batch.b.shape[0]
        stages = -(-depth // tile.depth)
        text = source(job, "tile")
        tables, marks = self._tables(job), [machine.to_device(np.zeros(count, np.uint8)) for count in shape]
        blocks = [-(-count // LINES) for count in shape]
        panels = [machine.empty((count, stages, tile.stage_words, LINES), np.uint32) for count in blocks]
        a_table, b_table, scale_table, places = tables
        row_arguments = (batch.a, batch.metadata, batch.scale_a, a_table, scale_table, places, panels[0], marks[0])
        column_arguments = (batch.b, batch.scale_b, b_table, scale_table, panels[1], marks[1])
        packing = [-(-count * LINES * stages // THREADS) for count in blocks]
        machine.run(text, "pack_rows", packing[0], THREADS, (*row_arguments, rows, depth, batch.a.shape[1], stages))
        machine.run(text, "pack_columns", packing[1], THREADS, (*column_arguments, columns, depth, stages))
        result = machine.empty(shape, format_of(job.instruction.dtype).code_dtype)
        arguments = (*panels, batch.c, result, rows, columns, stages)
        machine.run(text, "multiply", blocks[0] * blocks[1], THREADS, arguments, tile.shared_bytes)
        # lines with infinities and NaNs again, one result at a time
        self._compute_elements(job, batch, (1, *shape), result, tables, (marks[0], marks[1]))
        return result

    def _tables(self, job: Job) -> tuple[Any, ...]:
        """Decoding tables of A, B and scales, and the places that metadata words name."""
        ins, send = job.instruction, self.machine.to_device
        tabled = format_of(ins.atype).bits <= 32
        widened = job.arithmetic.widened
        return (
            send(decode_table(ins.atype, widened)) if tabled else None,
            send(decode_table(ins.btype, widened)) if tabled else None,
            send(decode_table(ins.stype)) if ins.stype else None,
            send(pattern_of(ins).table(ins.ordered_metadata)) if ins.sparse else None,
        )

    def _elements(self, job: Job, batch: Batch, shape: tuple[int, ...]) -> Any:
        """Results (tiles, rows, columns), each by a thread."""
        result = self.machine.empty(shape, format_of(job.instruction.dtype).code_dtype)
        self._compute_elements(job, batch, shape, result, self._tables(job), (None, None))
        return result

    def _compute_elements(
        self, job: Job, batch: Batch, shape: tuple[int, ...], result: Any, tables: tuple[Any, ...], marks: tuple[Any, Any]
    ) -> None:
        """Write results of marked rows and columns, or without marks all."""
        operands = batch.a, batch.b, batch.c, result, batch.metadata, batch.scale_a, batch.scale_b
        count = shape[0] * shape[1] * shape[2]
        if count:
            arguments = (*operands, *tables, *marks, *shape, batch.b.shape[-2], batch.a.shape[-1])
            self.machine.run(source(job, "element"), "element", -(-count // THREADS), THREADS, arguments)


ENGINE = Emulator(device).engine
