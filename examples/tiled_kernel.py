"""A kernel as its author writes it, in NumPy: tiles staged in swizzled shared memory, `ldmatrix`, `mma`. Its bits are those of `gemm`."""

import numpy as np
from numpy.typing import NDArray

import fastmma
from fastmma.shared import Tile, bank_conflicts

OPCODE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
LOAD = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"


def warp_tile(a: NDArray[np.float16], b: NDArray[np.float16], target: str) -> NDArray[np.float32]:
    """16 x 16 of a product by one warp: a is (16, K), b is (K, 16)."""
    sa = Tile(16, 64, "f16", swizzle=128)
    sb = sa.moved(sa.end)  # B by columns: a row for each n
    memory, lane = np.zeros(sb.end, np.uint8), np.arange(32)
    d = np.zeros((2, 32, 4), np.uint32)
    for start in range(0, a.shape[1], 64):
        memory = sb.store(sa.store(memory, a[:, start : start + 64]), b[start : start + 64].T)
        for k in range(0, 64, 16):
            ra = fastmma.warp.ldmatrix(LOAD, memory, sa.addresses(lane % 16, k + lane // 16 * 8))
            rb = fastmma.warp.ldmatrix(LOAD, memory, sb.addresses(lane % 8 + lane // 16 * 8, k + lane // 8 % 2 * 8))
            for half in (0, 1):
                d[half] = fastmma.warp.mma(OPCODE, ra, rb[:, 2 * half : 2 * half + 2], d[half], target=target)
    return np.concatenate(list(fastmma.gather(d, fastmma.instruction(OPCODE).operands["d"]).view(np.float32)), axis=1)


def main() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((16, 512)).astype(np.float16), rng.standard_normal((512, 16)).astype(np.float16)
    for target in ("sm_80", "sm_90a"):
        same = (warp_tile(a, b, target) == fastmma.gemm(a, b, instruction=OPCODE, target=target)).all()
        print(f"on {target}: {'the bits of gemm' if same else 'other bits than gemm'}")
    lane = np.arange(32)
    for swizzle in (0, 128):
        print(f"swizzle {swizzle}: {bank_conflicts(Tile(16, 64, 'f16', swizzle=swizzle).addresses(lane % 16, lane // 16 * 8), 16)}")


if __name__ == "__main__":
    main()
