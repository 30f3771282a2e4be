"""The names of CuTe's atoms, against those that CUTLASS 4 has for the same PTX."""

from __future__ import annotations

import pytest

from fastmma.isa.cute import atoms
from fastmma.isa.table import instruction, instructions
from fastmma.isa.tcgen05.instruction import largest

_F8F6F4 = "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4"
_SCALED = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec"
_BLOCKSCALED = "SM120::BLOCKSCALED::"
# an opcode for every way of naming, with the struct of include/cute/arch that issues it
NAMES = {
    "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32": ["SM70_8x8x4_F32F16F16F32_TN"],
    "mma.sync.aligned.m8n8k4.col.row.f16.f16.f16.f16": ["SM70_8x8x4_F16F16F16F16_NT"],
    "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16": [],
    "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16": ["SM75_16x8x8_F16F16F16F16_TN"],
    "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32": ["SM75_8x8x16_S32S8S8S32_TN"],
    "mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.s8.s32": ["SM80_8x8x16_S32S8S8S32_TN_SATURATE"],
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": ["SM80_16x8x16_F32F16F16F32_TN"],
    "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32": ["SM80_16x8x4_F32TF32TF32F32_TN"],
    "mma.sync.aligned.m16n8k64.row.col.s32.u4.s4.s32": ["SM80_16x8x64_S32U4S4S32_TN"],
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc": ["SM80_16x8x256_S32U1U1S32_TN_ANDPOPC"],
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64": ["SM80_8x8x4_F64F64F64F64_TN"],
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rz": [],
    "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64": ["SM90::MMA_16x8x8_F64F64F64F64_TN"],
    "mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e4m3.f16": ["SM89_16x8x32_F16E5M2E4M3F16_TN"],
    "mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32": [],
    "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32": [],
    f"{_F8F6F4}.f16.e2m3.e5m2.f16": ["SM120_16x8x32_TN<float_e2m3_t, float_e5m2_t, half_t>"],
    f"{_SCALED}::4X.f32.e2m1.e2m1.f32.ue4m3": [f"{_BLOCKSCALED}SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue4m3_t, 16>"],
    f"{_SCALED}::2X.f32.e2m1.e2m1.f32.ue8m0": [f"{_BLOCKSCALED}SM120_16x8x64_TN_VS<float_e2m1_t, float_e2m1_t, float, float_ue8m0_t, 32>"],
    "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e3m2.f32": [
        "SM120::SPARSE::SM120_SPARSE_16x8x64_TN<float_e4m3_t, float_e3m2_t, float>"
    ],
    "wgmma.mma_async.sync.aligned.m64n256k16.f16.f16.f16": [f"SM90::GMMA::MMA_64x256x16_F16F16F16_{a}S" for a in "SR"],
    "wgmma.mma_async.sync.aligned.m64n24k32.satfinite.s32.u8.s8": [f"SM90::GMMA::MMA_64x24x32_S32U8S8_{a}S_TN_SATURATE" for a in "SR"],
    "wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.tf32.tf32": [f"SM90::GMMA::SPARSE::GMMA_64x8x16_F32TF32TF32_{a}S_TN" for a in "SR"],
    "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc": [],
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32": [],
    "ldmatrix.sync.aligned.m8n8.x4.b16": ["SM75_U32x4_LDSM_N"],
    "ldmatrix.sync.aligned.m8n8.x2.trans.b16": ["SM75_U16x4_LDSM_T"],
    "ldmatrix.sync.aligned.m16n16.x2.trans.b8": ["SM100_U8x16_LDSM_T"],
    "ldmatrix.sync.aligned.m8n16.x2.b8x16.b4x16_p64": ["SM100_SU4_DU8x16_x2_LDSM_N"],
    "ldmatrix.sync.aligned.m8n16.x2.s8.s4": [],
    "stmatrix.sync.aligned.m8n8.x4.trans.b16": ["SM90_U16x8_STSM_T"],
    "stmatrix.sync.aligned.m16n8.x1.trans.b8": ["SM100_U8x4_STSM_T"],
    "movmatrix.sync.aligned.m8n8.trans.b16": ["SM75_U32x1_MOVM_T"],
    "tcgen05.mma.cta_group::1.kind::f16 idesc=0x08400010": [f"SM100_MMA_F16BF16_{a}S<half_t, half_t, float, 128, 256, ...>" for a in "ST"],
    "tcgen05.mma.sp.cta_group::2.kind::i8 idesc=0x10400024": ["SM100_MMA_S8_2x1SM_SS_SPARSE<uint8_t, uint8_t, int32_t, 256, 256, ...>"],
    "tcgen05.mma.ws.cta_group::1.kind::f16 idesc=0x08400010": [],
    "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 idesc=0x08200480": [
        "SM100_MMA_MXF4_SS<float_e2m1_t, float_e2m1_t, float, float_ue4m3_t, 128, 128, 16, ...>"
    ],
}


@pytest.mark.parametrize("opcode", NAMES)
def test_names(opcode: str) -> None:
    assert list(atoms(instruction(opcode))) == NAMES[opcode]


def test_every_name_is_that_of_one_instruction() -> None:
    names = [name for ins in instructions() for name in atoms(ins)]
    assert len(names) == len(set(names)) == 2374
    unnamed = {ins.opcode.partition(" ")[0].rpartition("kind::")[2] for ins in largest(every_form=True) if not ins.ws and not atoms(ins)}
    # k of 96, and scales of mxf4 under another kind
    assert unnamed == {"mxf4.block_scale.block32", "mxf4nvf4.block_scale.block16", "mxf4nvf4.block_scale.block32"}
