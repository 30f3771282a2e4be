"""Instructions on the registers of whole warps, exactly as PTX describes them."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Operands, Operation
from fastmma.backends.gpu.arrays import accepts_cupy
from fastmma.backends.gpu.multiplication_ptx import Selectors
from fastmma.backends.resolve import backend_of
from fastmma.execution.matrix_moves import ldmatrix, movmatrix, stmatrix
from fastmma.execution.plan import MmaPlan, chosen_operation
from fastmma.execution.wmma_moves import wmma_load, wmma_store
from fastmma.host.calls import public_call
from fastmma.host.errors import InstructionError
from fastmma.host.kept_memory import empty
from fastmma.host.threads import parallel_for, thread_count
from fastmma.isa.amd.modifiers import Modifiers, modifiers
from fastmma.isa.gpus import TargetName
from fastmma.isa.instruction import Instruction, Operand
from fastmma.isa.targets import target_of
from fastmma.numerics.lookup import fragment_evidence
from fastmma.operands.check import broadcast, flatten
from fastmma.operands.extra import register_operands
from fastmma.operands.registers import as_matrices, check_registers, pack_range, register_dtype, stored_dtype, unpack_range

__all__ = ["ldmatrix", "mma", "movmatrix", "stmatrix", "wmma_load", "wmma_store"]


def __dir__() -> list[str]:
    return list(__all__)


@public_call
@accepts_cupy
def mma(
    ins: str | Instruction | None,
    a: Any,
    b: Any,
    c: Any,
    *,
    target: TargetName | None = None,
    metadata: Any = None,
    selector: int = 0,
    scale_a: Any = None,
    scale_b: Any = None,
    byte_id_a: int = 0,
    thread_id_a: int = 0,
    byte_id_b: int = 0,
    thread_id_b: int = 0,
    cbsz: int = 0,
    abid: int = 0,
    blgp: int = 0,
    plan: MmaPlan | None = None,
    threads: int | None = None,
    backend: str = "numba",
) -> NDArray[Any]:
    """Execute an ``mma`` on the registers of any number of warps, or a ``v_mfma`` on those of waves.

    Parameters
    ----------
    ins : str or Instruction, or None with a plan
        An ``mma.sync``, ``mma.sp`` or ``wmma.mma`` opcode, or one of AMD's. The registers of wmma are those of the target's silicon
        (measured on sm_90).
    a, b, c : array (..., 32, registers) of uint32, uint64 for f64; waves of CDNA have 64 lanes
        ``fastmma.instruction(ins).operands[name].registers`` registers a lane; the leading dimensions (warps) broadcast.
    target : str
        For example ``"sm_90a"``; left out with a plan.
    metadata : uint32 array (..., 32), sparse instructions only
        Operand e. Invalid indices are errors, also unsorted ones under ``sp::ordered_metadata``.
    selector : int
        Operand f, the sparsity selector; of ``v_smfmac`` abid, where cbsz is 0.
    scale_a, scale_b : uint32 array (..., 32), block-scaled instructions only
        Operands scale-a-data and scale-b-data.
    byte_id_a, thread_id_a, byte_id_b, thread_id_b : int
        Their selectors; other values than those in PTX's table are errors.
    cbsz, abid, blgp : int
        Modifiers of ``v_mfma``: each 2**cbsz blocks take A of the abid-th of them; blgp rearranges the lanes of B, or negates f64.
    plan : MmaPlan, optional
        The plan to follow, from `fastmma.mma_plan` for an instruction and a target.
    threads : int, optional
        All cores by default, or ``FASTMMA_NUM_THREADS``.
    backend : {"numba", "reference", "cupy", "cupy-emulate"}
        Compiled for the CPU; exact Python integers; the tensor cores of the GPU in the machine, which execute the opcode on the very
        registers; or the emulator, for any target, on any NVIDIA GPU. The last two need CuPy.

    Returns
    -------
    array (..., 32, registers) of d

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError, BackendError
        All are `fastmma.FastmmaError`.

    Notes
    -----
    PTX: Multiply-and-Accumulate Instruction: mma; mma.sp / mma.sp::ordered_metadata; Block Scaling. Rounding and order of accumulation are
    the target's: see `fastmma.fidelity`.

    Examples
    --------
    >>> opcode = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    >>> ones = lambda count: np.full((32, count), 0x3C003C00, dtype=np.uint32)  # two f16 ones a register
    >>> d = mma(opcode, ones(4), ones(2), np.zeros((32, 4), dtype=np.uint32), target="sm_90a")
    >>> d.view(np.float32)[0].tolist()
    [16.0, 16.0, 16.0, 16.0]
    """
    runner = backend_of(backend)
    operation = chosen_operation(ins, target, plan, "warp.mma")
    ins = operation.instruction
    if not ins.in_registers:
        raise InstructionError(f"{ins}: warp.mma takes mma and wmma.mma opcodes only, and AMD's")
    if ins.op == "wmma":
        fragment_evidence(ins, operation.target)
    operands = ins.operands
    given = {name: check_registers(value, operands[name], f"{ins}: {name}") for name, value in (("a", a), ("b", b), ("c", c))}
    given = _modified(given, modifiers(ins, operation.target, cbsz, abid, blgp))
    extra = register_operands(ins, metadata, selector, scale_a, scale_b, (byte_id_a, thread_id_a), (byte_id_b, thread_id_b))
    lead, workers = broadcast(ins, {**given, **extra}), thread_count(threads)
    if runner.raw is not None:
        raw = {"metadata": metadata, "scale_a": scale_a, "scale_b": scale_b}
        selectors = Selectors(selector, byte_id_a, thread_id_a, byte_id_b, thread_id_b)
        return _on_gpu(runner.raw, operation, given, {name: np.asarray(raw[name]) for name in extra}, lead, selectors)
    flat = {name: flatten(array, lead) for name, array in given.items()}
    flat_extra = {name: flatten(array, lead) for name, array in extra.items()}
    d = operands["d"]
    count = math.prod(lead)
    result = empty((count, d.layout.lanes * d.registers), register_dtype(d))
    rows = {name: _rows(array.reshape(count, ins.lanes * operands[name].registers)) for name, array in flat.items()}
    if not extra and runner.run_registers(operation, Operands(**rows), result, workers):
        return result.reshape(*lead, d.layout.lanes, d.registers)
    scratch: dict[tuple[int, int], dict[str, NDArray[Any]]] = {}

    def work(start: int, stop: int, worker: int) -> None:
        key = worker, stop - start
        if key not in scratch:
            scratch[key] = {name: _storage(operand, stop - start) for name, operand in operands.items()}
        codes = scratch[key]
        for name, registers in rows.items():
            unpack_range(np.ascontiguousarray(registers[start:stop]), operands[name], ins.kind, codes[name])
        matrices = {name: _tiles(codes[name], operands[name]) for name in "abcd"}
        more = {name: array[start:stop] for name, array in flat_extra.items()}
        runner.run(operation, Operands(matrices["a"], matrices["b"], matrices["c"], **more), matrices["d"], 1)
        pack_range(codes["d"], d, ins.kind, result[start:stop])

    parallel_for(work, count, workers, runner.warps_at_once)
    return result.reshape(*lead, d.layout.lanes, d.registers)


def _modified(given: dict[str, NDArray[Any]], chosen: Modifiers) -> dict[str, NDArray[Any]]:
    """Registers as AMD's modifiers have them."""
    found = dict(given)
    for name, lanes in (("a", chosen.a), ("b", chosen.b)):
        if lanes is not None:
            found[name] = found[name][..., lanes, :]
    for name in chosen.negated:
        found[name] = found[name] ^ np.uint64(1 << 63)
    return found


def _rows(registers: NDArray[Any]) -> NDArray[Any]:
    """Registers (warps, words) whose words follow each other; all warps may share theirs."""
    return registers if registers.strides[1] == registers.itemsize else np.ascontiguousarray(registers)


def _on_gpu(
    raw: ModuleType,
    operation: Operation,
    given: dict[str, NDArray[Any]],
    extra: dict[str, NDArray[Any]],
    lead: tuple[int, ...],
    selectors: Selectors,
) -> NDArray[Any]:
    """Registers, as they are, through the real opcode."""
    a, b, c = (flatten(given[name], lead) for name in "abc")
    lanes = target_of(operation.target).lanes
    more = {name: np.ascontiguousarray(np.broadcast_to(array, (*lead, lanes))).reshape(-1, lanes) for name, array in extra.items()}
    d: NDArray[Any] = raw.multiply(operation.of_silicon().instruction, operation.target, a, b, c, more, selectors)
    return d.reshape(*lead, *d.shape[-2:])


def _storage(operand: Operand, warps: int) -> NDArray[Any]:
    layout = operand.layout
    return np.empty((warps, layout.tiles * layout.shape[0] * layout.shape[1]), dtype=stored_dtype(operand))


def _tiles(codes: NDArray[Any], operand: Operand) -> NDArray[Any]:
    """Stored codes as a batch (tiles, rows, columns)."""
    rows, columns = operand.shape
    return as_matrices(codes, operand).reshape(-1, rows, columns)
