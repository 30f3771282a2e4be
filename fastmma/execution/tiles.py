"""Matrix level: one instruction on any number of tiles, without registers."""

from __future__ import annotations

import math
from typing import Any

from numpy.typing import NDArray

from fastmma.backends.call import Operands
from fastmma.backends.gpu.arrays import accepts_cupy
from fastmma.backends.resolve import backend_of
from fastmma.execution.plan import MmaPlan, chosen_operation
from fastmma.host.calls import public_call
from fastmma.host.integers import flag
from fastmma.host.kept_memory import empty
from fastmma.host.threads import thread_count
from fastmma.isa.codes import from_codes
from fastmma.isa.gpus import TargetName
from fastmma.isa.instruction import Instruction
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.operands.check import broadcast, flatten, tile_codes
from fastmma.operands.extra import extra_operands


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
    scale_a: Any = None,
    scale_b: Any = None,
    cast: bool = False,
    arithmetic: Arithmetic | None = None,
    plan: MmaPlan | None = None,
    threads: int | None = None,
    backend: str = "numba",
) -> NDArray[Any]:
    """Execute an instruction once on every tile of a batch.

    Parameters
    ----------
    ins : str or Instruction, or None with a plan
        An ``mma.sync``, ``mma.sp``, ``wmma.mma`` or ``wgmma.mma_async`` opcode.
    a, b, c : arrays (..., m, k), (..., k, n) and (..., m, n)
        Elements in the NumPy or ml_dtypes dtype of the operand's format (tf32 is float32, b1 is bool). Sparse A is stored, (..., m, k / 2).
        Leading dimensions broadcast.
    target : str
        For example ``"sm_90a"``; left out with a plan.
    metadata : integer array (..., m, k / chunk), sparse instructions only
        The 4-bit words that `fastmma.sparse.compress` returns.
    scale_a, scale_b : arrays (..., m, scale_vec_size) and (..., scale_vec_size, n), block-scaled instructions only
        float8_e8m0fnu, or float8_e4m3fn (not negative) for ue4m3.
    cast : bool
        Round float16, float32 and float64 inputs to the instruction's formats first, to nearest even.
    arithmetic : Arithmetic, optional
        Your own arithmetic instead of the target's: `fastmma.arithmetic` returns the target's, and `dataclasses.replace` changes it.
    plan : MmaPlan, optional
        The plan to follow, from `fastmma.mma_plan` for an instruction and a target.
    threads : int, optional
        All cores by default, or ``FASTMMA_NUM_THREADS``.
    backend : {"numba", "reference", "cupy", "cupy-emulate"}
        Compiled for the CPU; exact Python integers; the tensor cores of the GPU in the machine; or the emulator, for any target, on any
        NVIDIA GPU. The last two need CuPy.

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
    >>> import numpy as np
    >>> opcode = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    >>> a, b = np.ones((100, 16, 16), np.float16), np.ones((16, 8), np.float16)
    >>> mma(opcode, a, b, np.zeros((16, 8), np.float32), target="sm_90a").shape
    (100, 16, 8)
    """
    runner = backend_of(backend)
    operation = chosen_operation(ins, target, plan, "mma", own=arithmetic)
    ins, rounded = operation.instruction, flag(cast, "cast")
    given = {
        "a": tile_codes(a, "a", (ins.m, ins.stored_k), ins, cast=rounded),
        "b": tile_codes(b, "b", (ins.k, ins.n), ins, cast=rounded),
        "c": tile_codes(c, "c", (ins.m, ins.n), ins, cast=rounded),
        **extra_operands(ins, metadata, scale_a, scale_b, ins.m, ins.n, ins.k),
    }
    lead = broadcast(ins, given)
    d = empty((math.prod(lead), ins.m, ins.n), ins.formats.d.code_dtype)
    runner.run(operation, Operands(**{name: flatten(array, lead) for name, array in given.items()}), d, thread_count(threads))
    return from_codes(d.reshape(*lead, ins.m, ins.n), ins.formats.d)
