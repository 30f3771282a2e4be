"""wgmma on registers and shared memory: warpgroups of 128 threads, matrix descriptors, swizzles."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Operands, Operation
from fastmma.backends.gpu.arrays import accepts_cupy
from fastmma.backends.resolve import backend_of
from fastmma.execution.plan import MmaPlan, chosen_operation
from fastmma.execution.shared_memory import matrix_in_memory
from fastmma.host.arrays import as_array
from fastmma.host.calls import public_call
from fastmma.host.errors import InstructionError, OperandError, OperandTypeError
from fastmma.host.integers import whole
from fastmma.host.threads import thread_count
from fastmma.isa.descriptor import Descriptor
from fastmma.isa.formats import Format
from fastmma.isa.gpus import TargetName
from fastmma.isa.instruction import Instruction
from fastmma.operands.check import broadcast, flatten
from fastmma.operands.extra import register_operands
from fastmma.operands.registers import check_registers, gather, register_dtype, scatter

__all__ = ["Descriptor", "mma"]


def __dir__() -> list[str]:
    return list(__all__)


def _flag(value: Any, allowed: tuple[int, ...], what: str) -> int:
    found = int(value) if isinstance(value, bool) else whole(value)
    if found is None or found not in allowed:
        raise OperandError(f"{what} must be {' or '.join(map(str, allowed))}, not {value!r}")
    return found


def _descriptor(value: Any, what: str) -> Descriptor:
    if isinstance(value, Descriptor):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= int(value) < 1 << 64:
        return Descriptor.decode(int(value))
    raise OperandTypeError(f"{what} must be a matrix descriptor (a Descriptor or its 64 bits), not {type(value).__name__}")


def _negate(codes: NDArray[Any], fmt: Format, scale: int) -> NDArray[Any]:
    return codes if scale == 1 else codes ^ codes.dtype.type(1 << (fmt.bits - 1))


def _on_gpu(
    raw: ModuleType,
    operation: Operation,
    a: Any,
    b: Any,
    d: Any,
    metadata: Any,
    memory: NDArray[np.uint8],
    lead: tuple[int, ...],
    selector: int,
    scale_d: int,
    immediates: tuple[int, ...],
) -> NDArray[Any]:
    """Registers, memory and descriptors, as they are, through the real opcode."""

    def flat(array: Any, keep: int) -> NDArray[Any]:
        given = np.asarray(array)
        tail = given.shape[given.ndim - keep :]
        return np.ascontiguousarray(np.broadcast_to(given, lead + tail)).reshape(-1, *tail)

    in_memory = isinstance(a, Descriptor | int | np.integer)
    result: NDArray[Any] = raw.multiply_warpgroup(
        operation.of_silicon().instruction,
        operation.target,
        _descriptor(a, "a").encode() if in_memory else flat(a, 2),
        _descriptor(b, "b").encode(),
        flat(d, 2),
        flat(memory, 1),
        None if metadata is None else flat(metadata, 1),
        selector=selector,
        scale_d=scale_d,
        immediates=immediates,
    )
    return result.reshape(*lead, *result.shape[-2:])


@public_call
@accepts_cupy
def mma(
    ins: str | Instruction | None,
    d: Any,
    a: Any,
    b: Descriptor | int,
    *,
    target: TargetName | None = None,
    memory: Any,
    metadata: Any = None,
    selector: int = 0,
    scale_d: int = 1,
    imm_scale_a: int = 1,
    imm_scale_b: int = 1,
    imm_trans_a: int = 0,
    imm_trans_b: int = 0,
    plan: MmaPlan | None = None,
    threads: int | None = None,
    backend: str = "numba",
) -> NDArray[Any]:
    """Execute a ``wgmma.mma_async`` on the registers and the shared memory of any number of warpgroups.

    Parameters
    ----------
    ins : str or Instruction, or None with a plan
        A ``wgmma.mma_async`` opcode, dense or ``.sp``.
    d : uint32 array (..., 128, registers)
        The accumulators before.
    a : uint32 array (..., 128, registers), or Descriptor or int
        A in registers, or the matrix descriptor of A in shared memory. Sparse A is stored without its zeros.
    b : Descriptor or int
        The matrix descriptor of B.
    target : str, optional
        By default that of the plan, or ``"sm_90a"``.
    memory : uint8 array (..., bytes)
        Shared memory; descriptors' addresses are offsets into it, and swizzles count from its start. Leading dimensions broadcast.
    metadata : uint32 array (..., 128), sparse instructions only
    selector : int
        The sparsity selector.
    scale_d : {1, 0}
        0 computes A x B alone.
    imm_scale_a, imm_scale_b : {1, -1}
        Negate a float operand.
    imm_trans_a, imm_trans_b : {0, 1}
        16-bit operands in shared memory: 1 if m (or n) is contiguous, not k.
    plan : MmaPlan, optional
        The plan to follow, from `fastmma.mma_plan` for an instruction and a target.
    threads : int, optional
        All cores by default, or ``FASTMMA_NUM_THREADS``.
    backend : {"numba", "reference", "cupy", "cupy-emulate"}
        Compiled for the CPU; exact Python integers; the tensor cores of the GPU in the machine, which execute the opcode on at most 48
        KiB of memory; or the emulator, for any target, on any NVIDIA GPU. The last two need CuPy.

    Returns
    -------
    uint32 array (..., 128, registers)
        The accumulators afterwards.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError, BackendError
        All are `fastmma.FastmmaError`.

    Notes
    -----
    PTX: Asynchronous Multiply-and-Accumulate Instruction: wgmma.mma_async; Matrix Descriptor Format; Strides. Measured on an H200.

    Examples
    --------
    >>> opcode = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    >>> memory = np.ones(128, np.float16).view(np.uint8)  # B: 8 columns of 16 elements
    >>> a = np.full((128, 4), 0x3C003C00, dtype=np.uint32)
    >>> d = mma(opcode, np.zeros((128, 4), np.uint32), a, Descriptor(0, leading=128, stride=256), memory=memory)
    >>> d.view(np.float32).max()
    np.float32(16.0)
    """
    runner = backend_of(backend)
    operation = chosen_operation(ins, target, plan, "warpgroup.mma", "sm_90a")
    ins = operation.instruction
    if ins.op != "wgmma":
        raise InstructionError(f"{ins}: warpgroup.mma takes wgmma.mma_async opcodes only")
    afmt, bfmt = ins.formats.a, ins.formats.b
    signs = (1, -1) if afmt.kind == "float" else (1,)
    imm_scale_a, imm_scale_b = (_flag(value, signs, f"{ins}: imm_scale_{name}") for name, value in (("a", imm_scale_a), ("b", imm_scale_b)))
    in_memory = isinstance(a, Descriptor | int | np.integer)
    imm_trans_a = _flag(imm_trans_a, (0, 1) if in_memory and afmt.bits == 16 else (0,), f"{ins}: imm_trans_a")
    imm_trans_b = _flag(imm_trans_b, (0, 1) if bfmt.bits == 16 else (0,), f"{ins}: imm_trans_b")
    shared = as_array(memory, f"{ins}: memory")
    if shared.dtype != np.uint8 or shared.ndim < 1:
        raise OperandTypeError(f"{ins}: memory must be an array (..., bytes) of dtype uint8, not {shared.dtype} of shape {shared.shape}")
    operands = ins.operands
    if in_memory:
        acodes = matrix_in_memory(shared, _descriptor(a, f"{ins}: a"), ins.m, ins.stored_k, afmt, bool(imm_trans_a), f"{ins}: a")
    else:
        acodes = gather(check_registers(a, operands["a"], f"{ins}: a"), operands["a"], threads=threads)
    bcodes = matrix_in_memory(shared, _descriptor(b, f"{ins}: b"), ins.n, ins.k, bfmt, bool(imm_trans_b), f"{ins}: b").swapaxes(-1, -2)
    before = check_registers(d, operands["d"], f"{ins}: d")
    scale_d = _flag(scale_d, (1, 0), f"{ins}: scale_d")
    if not scale_d:
        before = np.zeros_like(before)
    given = {
        "a": _negate(acodes, afmt, imm_scale_a),
        "b": _negate(bcodes, bfmt, imm_scale_b),
        "c": gather(before, operands["d"], threads=threads),
        **register_operands(ins, metadata, selector),
    }
    lead = broadcast(ins, given)
    if runner.raw is not None:
        flags = (imm_scale_a, imm_scale_b) if afmt.kind == "float" else ()
        trans = ((imm_trans_a,) if in_memory else ()) + (imm_trans_b,) if bfmt.bits == 16 else ()
        return _on_gpu(runner.raw, operation, a, b, d, metadata, shared, lead, selector, scale_d, (*flags, *trans))
    result = np.empty((math.prod(lead), ins.m, ins.n), dtype=ins.formats.d.code_dtype)
    runner.run(operation, Operands(**{name: flatten(array, lead) for name, array in given.items()}), result, thread_count(threads))
    registers = scatter(result, operands["d"], threads=threads)
    return registers.reshape(*lead, *registers.shape[-2:]).astype(register_dtype(operands["d"]), copy=False)
