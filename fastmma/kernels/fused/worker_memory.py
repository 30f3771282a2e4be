"""The memory of a worker: a packed panel of B, its sums, and what a micro-kernel notes."""

from __future__ import annotations

from fastmma.kernels.fused.lanes import PanelConfig
from fastmma.kernels.fused.macro_tile import WorkerMemory
from fastmma.kernels.fused.panels import VECTOR_BYTES
from fastmma.kernels.fused.sparse_kernel import ROWS_AHEAD
from fastmma.kernels.fused.word_packing import scratch_of_columns
from fastmma.kernels.matrices.memory import AlignedMemory


def sizes_of_worker(config: PanelConfig, rows: int, promotes: bool) -> tuple[int, ...]:
    """Bytes of the parts of its memory, those of `WorkerMemory`, for macro tiles of at most so many rows."""
    steps = config.depth // config.terms
    return (
        config.panel * config.depth * config.value_bytes,
        config.panel * config.depth,
        config.panel * steps * config.sign_bytes,
        max(VECTOR_BYTES * config.depth, scratch_of_columns(config.panel)),
        2 * 4 * config.panel,
        (rows + 2 * ahead(config)) * config.panel * 4,
        2 * (steps + 1) * config.rows * 2 * config.panel,
        (rows + ahead(config)) * config.panel,
        rows // config.rows * config.lanes * 4,
        rows * config.panel * 4 if promotes else 0,
    )


def addresses(config: PanelConfig, work: AlignedMemory) -> WorkerMemory:
    """The memory of a worker; before the sums of the first row there is room for those of one more."""
    found = WorkerMemory(*work.addresses)
    return found._replace(state=found.state + 4 * config.panel) if config.sparse else found


def ahead(config: PanelConfig) -> int:
    """Rows past the last one that a micro-kernel reads: the exponents of a block are added while the one before it is computed."""
    return ROWS_AHEAD if config.sparse else config.rows
