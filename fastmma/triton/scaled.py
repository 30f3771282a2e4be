"""`tl.dot_scaled`: products of block-scaled elements, by instructions that take scales, or scaled in registers, then in 16 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from triton.runtime.interpreter import TensorHandle

from fastmma.execution import tcgen05
from fastmma.host.errors import NotEmulatedError
from fastmma.isa.formats import format_of
from fastmma.numerics.lookup import fidelity
from fastmma.products.gemm import gemm
from fastmma.scaling import unpack_e2m1
from fastmma.triton.compilers import FIRST_OF_AMD
from fastmma.triton.dots import multiplied
from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.lowering import Dot, lowering_by_rules

_FORMATS = {"E4M3": "e4m3", "E5M2": "e5m2", "E2M1": "e2m1", "BF16": "bf16", "FP16": "f16"}
_BITS = {"e4m3": 8, "e5m2": 8, "e2m1": 4, "bf16": 16, "f16": 16}
_BLOCK = 32  # k of one scale
_UE8M0, _UE4M3 = np.dtype(ml_dtypes.float8_e8m0fnu), np.dtype(ml_dtypes.float8_e4m3fn)


@dataclass(frozen=True)
class Side:
    """One operand: its elements as rows along k last, their format, and the codes of its scales, if it has any."""

    elements: NDArray[Any]
    format: str
    scales: NDArray[Any] | None

    def widened(self, kind: str) -> NDArray[Any]:
        """The elements times their scales, rounded to a 16-bit format as it is done in registers: scales first, then products."""
        dtype = format_of(kind).dtype
        values = self.elements.astype(np.float32).astype(dtype)
        if self.scales is None:
            return values
        powers = np.ldexp(np.float32(1), self.scales.view(np.uint8).astype(np.int32) - 127)
        powers = np.where(self.scales.view(np.uint8) == 255, np.float32(np.nan), powers).astype(dtype)
        return np.asarray(values * np.repeat(powers, values.shape[-1] // powers.shape[-1], axis=-1))


def _side(handle: Any, scale: Any, kind: Any, packed_along_k: bool, is_right: bool) -> Side:
    name = _FORMATS[str(kind).rpartition(".")[2]]
    data = np.ascontiguousarray(handle.data)
    if name == "e2m1":
        elements = unpack_e2m1(data.view(np.uint8), axis=-2 if packed_along_k == is_right else -1)
    else:
        elements = data.view(format_of(name).dtype)
    scales = None if scale is None else np.ascontiguousarray(scale.data).view(_UE8M0 if scale.dtype.scalar.is_int() else _UE4M3)
    return Side(np.swapaxes(elements, -1, -2) if is_right else elements, name, scales)


def native_instruction(a: Side, b: Side, capability: int) -> str | None:
    """The instruction that takes scales, where the GPU has one and Triton takes it."""
    if a.scales is None or b.scales is None or a.elements.ndim != 2 or capability < 100:
        return None
    m, n, types = len(a.elements), len(b.elements), (a.format, b.format)
    packed, by_16 = types == ("e2m1", "e2m1"), a.scales.dtype == _UE4M3
    if capability < 120:
        if m % 128 or n % 8:
            raise NotEmulatedError(f"a tile of {m} x {n}: what becomes of it on this GPU is not known; 128 rows are a tcgen05.mma")
        kind = "mxf4nvf4" if by_16 else "mxf4" if packed else "mxf8f6f4"
        return str(tcgen05.instruction(kind, "f32", *types, m=128, n=min(n, 256)))
    if packed:
        vectors = "4X" if by_16 else "2X"
        scale = "ue4m3" if by_16 else "ue8m0"
        return f"mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::{vectors}.m16n8k64.row.col.f32.e2m1.e2m1.f32.{scale}"
    return f"mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.{a.format}.{b.format}.f32.ue8m0"


def _by_instruction(run: Emulation, opcode: str, a: Side, b: Side, start: NDArray[Any]) -> NDArray[Any]:
    assert a.scales is not None
    assert b.scales is not None
    run.report.did("tl.dot_scaled", f"{opcode} ({fidelity(opcode, run.target)})")
    return gemm(a.elements, b.elements.T, start, instruction=opcode, target=run.target, scale_a=a.scales, scale_b=b.scales.T)


def _in_registers(run: Emulation, a: Side, b: Side, start: NDArray[Any]) -> NDArray[Any]:
    kind = "f16" if "f16" in (a.format, b.format) else "bf16"
    if any(side.scales is not None and side.scales.dtype != _UE8M0 for side in (a, b)):
        raise NotEmulatedError("scales other than powers of two, scaled in registers")
    turned = a.scales is None and b.scales is not None  # Triton multiplies the transposed matrices then
    first, second = (b, a) if turned else (a, b)
    m, n, k = first.elements.shape[-2], second.elements.shape[-2], first.elements.shape[-1]
    dot = Dot(m, n, k, kind, kind, "f32", first.elements.ndim > 2, narrowest=min(_BITS[a.format], _BITS[b.format]))
    lowering = lowering_by_rules(dot, run.capability, run.launch.warps)
    opcode = lowering.instruction(dot)
    permuted = f", kWidth {lowering.k_width}" if lowering.order(k) is not None else ""
    run.report.did("tl.dot_scaled", f"scaled in {kind}, then {opcode} ({fidelity(opcode, run.target)}){permuted}, rules")
    x, y = first.widened(kind), np.swapaxes(second.widened(kind), -1, -2)
    result = multiplied(run, dot, lowering, x, y, np.swapaxes(start, -1, -2) if turned else start)
    return np.swapaxes(result, -1, -2) if turned else result


def create_dot_scaled(
    run: Emulation,
    original: Operation,
    left: Any,
    left_scale: Any,
    left_format: Any,
    right: Any,
    right_scale: Any,
    right_format: Any,
    *rest: Any,
) -> Any:
    """Compute `tl.dot_scaled`.

    Raises
    ------
    TargetError
        If the numerics of the instruction on the target are not known.
    NotEmulatedError
        If what the compiler makes of it is not known, and the report does not let it pass.
    """
    _, left_along_k, right_along_k, accumulator = rest
    a = _side(left, left_scale, left_format, left_along_k, is_right=False)
    b = _side(right, right_scale, right_format, right_along_k, is_right=True)
    shape = (*a.elements.shape[:-1], b.elements.shape[-2])
    start = np.ascontiguousarray(np.broadcast_to(accumulator.data, shape))
    try:
        if run.capability >= FIRST_OF_AMD:
            raise NotEmulatedError("what AMD's GPUs make of scaled dots is not known")
        opcode = native_instruction(a, b, run.capability)
        data = _by_instruction(run, opcode, a, b, start) if opcode is not None else _in_registers(run, a, b, start)
    except NotEmulatedError as error:
        run.report.passes("tl.dot_scaled", str(error))
        return original(left, left_scale, left_format, right, right_scale, right_format, *rest)
    return TensorHandle(np.ascontiguousarray(data), accumulator.dtype.scalar)


OPERATIONS: dict[str, Operation] = {"create_dot_scaled": create_dot_scaled}
