"""Register level: whole warps, exactly as PTX sees them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.engines import Batch
from fastmma.errors import InstructionError, OperandError
from fastmma.fragment import as_matrices, check_registers, pack_range, register_dtype, stored_dtype, unpack_range
from fastmma.isa.model import Instruction, Operand
from fastmma.plan import plan
from fastmma.threads import parallel_for, thread_count

# warps handled at a time: their matrices stay in the cache between unpacking, computing and packing
_GRAIN = 512


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
    """Execute an ``mma`` on the registers of any number of warps.

    Parameters
    ----------
    ins : str or Instruction
        A dense ``mma.sync`` opcode.
    a, b, c : array (..., 32, registers) of uint32, uint64 for f64
        ``fastmma.instruction(ins).operands[name].registers`` registers a lane; the leading dimensions (warps) broadcast.
    target : str
        For example ``"sm_90a"``.
    threads : int, optional
        All cores by default, or ``FASTMMA_NUM_THREADS``.
    backend : {"numba", "reference"}

    Returns
    -------
    array (..., 32, registers) of d

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError, BackendError
        All are `fastmma.FastmmaError`.

    Notes
    -----
    PTX: Multiply-and-Accumulate Instruction: mma. Rounding and order of accumulation are the target's: see `fastmma.fidelity`.

    Examples
    --------
    >>> opcode = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    >>> ones = lambda count: np.full((32, count), 0x3C003C00, dtype=np.uint32)  # two f16 ones a register
    >>> d = mma(opcode, ones(4), ones(2), np.zeros((32, 4), dtype=np.uint32), target="sm_90a")
    >>> d.view(np.float32)[0].tolist()
    [16.0, 16.0, 16.0, 16.0]
    """
    todo = plan(ins, target, backend)
    ins = todo.instruction
    if ins.op != "mma":
        raise InstructionError(f"{ins}: warp.mma takes mma opcodes only")
    operands = ins.operands
    arrays = [check_registers(value, operands[name], f"{ins}: {name}") for name, value in (("a", a), ("b", b), ("c", c))]
    try:
        lead = np.broadcast_shapes(*(array.shape[:-2] for array in arrays))
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in zip("abc", arrays, strict=True))
        raise OperandError(f"{ins}: the leading dimensions do not broadcast: {shapes}") from None
    flat = [
        np.ascontiguousarray(np.broadcast_to(array, lead + array.shape[-2:])).reshape(-1, array.shape[-2] * array.shape[-1])
        for array in arrays
    ]
    d = operands["d"]
    result = np.empty((len(flat[0]), d.layout.lanes * d.registers), dtype=register_dtype(d))
    scratch: dict[tuple[int, int], dict[str, NDArray[Any]]] = {}
    threads = thread_count(threads)

    def work(start: int, stop: int, worker: int) -> None:
        key = worker, stop - start
        if key not in scratch:
            scratch[key] = {name: _storage(operand, stop - start) for name, operand in operands.items()}
        codes = scratch[key]
        for name, registers in zip("abc", flat, strict=True):
            unpack_range(registers[start:stop], operands[name], ins.kind, codes[name])
        matrices = {name: _tiles(codes[name], operands[name]) for name in "abcd"}
        todo.engine.tiles(todo.job, Batch(matrices["a"], matrices["b"], matrices["c"]), matrices["d"], 1)
        pack_range(codes["d"], d, ins.kind, result[start:stop])

    parallel_for(work, len(result), threads, _GRAIN if backend == "numba" else 1)
    return result.reshape(*lead, d.layout.lanes, d.registers)


def _storage(operand: Operand, warps: int) -> NDArray[Any]:
    layout = operand.layout
    return np.empty((warps, layout.tiles * layout.shape[0] * layout.shape[1]), dtype=stored_dtype(operand))


def _tiles(codes: NDArray[Any], operand: Operand) -> NDArray[Any]:
    """Stored codes as a batch (tiles, rows, columns)."""
    rows, columns = operand.shape
    return as_matrices(codes, operand).reshape(-1, rows, columns)
