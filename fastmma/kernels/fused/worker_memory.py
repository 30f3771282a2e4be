"""The memory of a worker: a packed panel of B, its sums, and what a micro-kernel notes."""

from __future__ import annotations

from fastmma.kernels.fused.lanes import Chain
from fastmma.kernels.fused.panels import VECTOR_BYTES
from fastmma.kernels.fused.piece import Work
from fastmma.kernels.fused.sparse_kernel import ROWS_AHEAD
from fastmma.kernels.matrices.memory import AlignedMemory


def memory_of_worker(chain: Chain, rows: int, promotes: bool) -> AlignedMemory:
    """Memory for pieces of at most so many rows."""
    steps = chain.depth // chain.terms
    return AlignedMemory(
        chain.panel * chain.depth * chain.value_bytes,
        chain.panel * chain.depth,
        chain.panel * steps * chain.sign_bytes,
        VECTOR_BYTES * chain.depth,
        2 * 4 * chain.panel,
        (rows + 2 * ahead(chain)) * chain.panel * 4,
        2 * (steps + 1) * chain.rows * 2 * chain.panel,
        (rows + ahead(chain)) * chain.panel,
        rows // chain.rows * chain.lanes * 4,
        rows * chain.panel * 4 if promotes else 0,
    )


def addresses(chain: Chain, work: AlignedMemory) -> Work:
    """The memory of a worker; before the sums of the first row there is room for those of one more."""
    found = Work(*work.addresses)
    return found._replace(state=found.state + 4 * chain.panel) if chain.sparse else found


def ahead(chain: Chain) -> int:
    """Rows past the last one that a micro-kernel reads: the exponents of a block are added while the one before it is computed."""
    return ROWS_AHEAD if chain.sparse else chain.rows
