"""Matrix level: one instruction on any number of tiles, without registers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.engines import Batch
from fastmma.errors import OperandError
from fastmma.formats import format_of
from fastmma.isa.model import Instruction
from fastmma.operands import elements_of, multiply_tiles
from fastmma.plan import plan
from fastmma.threads import thread_count


def mma(
    ins: str | Instruction,
    a: Any,
    b: Any,
    c: Any,
    *,
    target: str,
    threads: int | None = None,
    backend: str = "numba",
) -> NDArray[Any]:
    """Execute an instruction once on every tile of a batch.

    Parameters
    ----------
    ins : str or Instruction
        A dense ``mma.sync`` or ``wgmma.mma_async`` opcode.
    a, b, c : arrays (..., m, k), (..., k, n) and (..., m, n)
        Elements in the NumPy or ml_dtypes dtype of the operand's format (tf32 is float32, b1 is bool). Leading dimensions broadcast.
    target : str
        For example ``"sm_90a"``.
    threads : int, optional
        All cores by default, or ``FASTMMA_NUM_THREADS``.
    backend : {"numba", "reference"}

    Returns
    -------
    array (..., m, n) of d, in the dtype of its format

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError, BackendError
        All are `fastmma.FastmmaError`.

    Notes
    -----
    PTX: Multiply-and-Accumulate Instruction: mma; Asynchronous Multiply-and-Accumulate Instruction: wgmma.mma_async. Rounding and order of
    accumulation are the target's: see `fastmma.fidelity`.

    Examples
    --------
    >>> opcode = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    >>> a, b = np.ones((100, 16, 16), np.float16), np.ones((16, 8), np.float16)
    >>> mma(opcode, a, b, np.zeros((16, 8), np.float32), target="sm_90a").shape
    (100, 16, 8)
    """
    todo = plan(ins, target, backend)
    ins = todo.instruction
    arrays = [
        multiply_tiles(a, "a", ins.atype, (ins.m, ins.k), ins),
        multiply_tiles(b, "b", ins.btype, (ins.k, ins.n), ins),
        multiply_tiles(c, "c", ins.ctype, (ins.m, ins.n), ins),
    ]
    try:
        lead = np.broadcast_shapes(*(array.shape[:-2] for array in arrays))
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in zip("abc", arrays, strict=True))
        raise OperandError(f"{ins}: the leading dimensions do not broadcast: {shapes}") from None
    flat = [np.ascontiguousarray(np.broadcast_to(array, lead + array.shape[-2:])).reshape(-1, *array.shape[-2:]) for array in arrays]
    d = np.empty((len(flat[0]), ins.m, ins.n), dtype=format_of(ins.dtype).code_dtype)
    todo.engine.tiles(todo.job, Batch(flat[0], flat[1], flat[2]), d, thread_count(threads))
    return elements_of(d.reshape(*lead, ins.m, ins.n), ins.dtype)
