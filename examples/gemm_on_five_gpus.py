"""One product as five GPUs compute it: how far each is from the exact sum, and in how many elements it differs from IEEE f32."""

import numpy as np

import fastmma

GPUS = ("V100", "A100", "H100", "B200", "RTX 5090")


def main() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((256, 2048)).astype(np.float16)
    b = rng.standard_normal((2048, 256)).astype(np.float16)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    ieee = a.astype(np.float32) @ b.astype(np.float32)
    for gpu in GPUS:
        d = fastmma.gemm(a, b, target=gpu)
        error = np.linalg.norm(d - exact) / np.linalg.norm(exact)
        plan = fastmma.gemm_plan(a, b, target=gpu)
        print(f"{gpu:9} error {error:.1e}  {np.mean(d != ieee):6.1%} differ from NumPy  {plan.operation.arithmetic.family}")


if __name__ == "__main__":
    main()
