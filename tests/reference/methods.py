"""Every method of the numerics table as an opcode on a target, and products by gemm on codes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma import gemm, instruction
from reference.products import bits, elements, random_codes

MMA = "mma.sync.aligned."
WGMMA = "wgmma.mma_async.sync.aligned."
# every method of the numerics table: an opcode and a target
METHODS = [
    (MMA + "m8n8k4.row.col.f32.f16.f16.f32", "sm_70"),
    (MMA + "m8n8k4.row.col.f16.f16.f16.f16", "sm_70"),
    (MMA + "m16n8k8.row.col.f32.f16.f16.f32", "sm_75"),
    (MMA + "m16n8k8.row.col.f16.f16.f16.f16", "sm_75"),
    (MMA + "m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
    (MMA + "m16n8k16.row.col.f16.f16.f16.f16", "sm_86"),
    (MMA + "m16n8k16.row.col.f32.bf16.bf16.f32", "sm_87"),
    (MMA + "m16n8k8.row.col.f32.tf32.tf32.f32", "sm_89"),
    (MMA + "m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_89"),
    (MMA + "m16n8k16.row.col.f16.e5m2.e5m2.f16", "sm_89"),
    (MMA + "m16n8k16.row.col.f32.f16.f16.f32", "sm_90"),
    (MMA + "m16n8k8.row.col.f32.f16.f16.f32", "sm_90a"),
    (MMA + "m16n8k16.row.col.f16.f16.f16.f16", "sm_90a"),
    (MMA + "m16n8k8.row.col.f32.bf16.bf16.f32", "sm_90a"),
    (MMA + "m16n8k4.row.col.f32.tf32.tf32.f32", "sm_90a"),
    (MMA + "m16n8k8.row.col.f32.tf32.tf32.f32", "sm_100a"),
    (MMA + "m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90a"),
    (MMA + "m16n8k16.row.col.f16.e5m2.e4m3.f16", "sm_90a"),
    (MMA + "m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e5m2.f32", "sm_100a"),
    (MMA + "m16n8k16.row.col.f32.bf16.bf16.f32", "sm_110a"),
    (MMA + "m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32", "sm_120a"),
    (MMA + "m16n8k32.row.col.kind::f8f6f4.f16.e2m3.e4m3.f16", "sm_121f"),
    (MMA + "m16n8k32.row.col.f32.e5m2.e5m2.f32", "sm_120"),
    (WGMMA + "m64n8k16.f32.f16.f16", "sm_90a"),
    (WGMMA + "m64n16k16.f16.f16.f16", "sm_90a"),
    (WGMMA + "m64n8k8.f32.tf32.tf32", "sm_90a"),
    (WGMMA + "m64n24k32.f32.e4m3.e4m3", "sm_90a"),
    (WGMMA + "m64n8k32.f16.e5m2.e4m3", "sm_90a"),
    (MMA + "m8n8k4.row.col.f32.f16.f16.f32", "sm_90a"),
    (MMA + "m8n8k4.col.row.f16.f16.f16.f16", "sm_80"),
    (MMA + "m8n8k4.row.col.f64.f64.f64.f64", "sm_80"),
    (MMA + "m16n8k8.row.col.f64.f64.f64.f64.rz", "sm_90a"),
    (MMA + "m16n8k16.row.col.f64.f64.f64.f64.rm", "sm_90a"),
    (MMA + "m16n8k4.row.col.f64.f64.f64.f64.rp", "sm_100"),
    (MMA + "m16n8k32.row.col.s32.s8.s8.s32", "sm_90a"),
    (MMA + "m8n8k16.row.col.satfinite.s32.u8.s8.s32", "sm_75"),
    (MMA + "m16n8k64.row.col.s32.s4.u4.s32", "sm_80"),
    (MMA + "m16n8k32.row.col.satfinite.s32.u4.u4.s32", "sm_90a"),
    (MMA + "m16n8k256.row.col.s32.b1.b1.s32.xor.popc", "sm_80"),
    (MMA + "m8n8k128.row.col.s32.b1.b1.s32.and.popc", "sm_90a"),
    (WGMMA + "m64n8k32.s32.s8.u8", "sm_90a"),
    (WGMMA + "m64n8k32.satfinite.s32.u8.u8", "sm_90a"),
    (WGMMA + "m64n8k256.s32.b1.b1.and.popc", "sm_90a"),
]
F16_F32 = MMA + "m16n8k16.row.col.f32.f16.f16.f32"


def operands(opcode: str, shape: tuple[int, int, int], distribution: str, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    ins = instruction(opcode)
    m, n, k = shape
    generator = np.random.default_rng([seed, *shape, len(distribution)])
    return (
        random_codes(generator, ins.atype, (m, k), distribution),
        random_codes(generator, ins.btype, (k, n), distribution),
        random_codes(generator, ins.ctype, (m, n), distribution),
    )


def mixed(opcode: str, shape: tuple[int, int, int], *distributions: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Operands a, b and c of a distribution each."""
    ins = instruction(opcode)
    m, n, k = shape
    generator = np.random.default_rng([7, *shape])
    forms = ((ins.atype, (m, k)), (ins.btype, (k, n)), (ins.ctype, (m, n)))
    a, b, c = (random_codes(generator, fmt, size, name) for (fmt, size), name in zip(forms, distributions, strict=True))
    return a, b, c


def product(opcode: str, target: str, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, **options: Any) -> NDArray[Any]:
    """gemm on codes."""
    ins = instruction(opcode)
    start = None if c is None else elements(c, ins.ctype)
    return bits(gemm(elements(a, ins.atype), elements(b, ins.btype), start, instruction=ins, target=target, **options))
