"""Products of cuBLAS on an H200, recorded with ``python tests/reference/cublas.py`` on a machine with the GPU, CuPy and PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fastmma.verification.stream import Stream

PATH = Path(__file__).parent / "cublas.npz"
ROWS = 8  # of each result that are kept
TF32 = "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32"


class Case(NamedTuple):
    """A product, the plan that has cuBLAS's bits, and the parts into which its heuristics cut k."""

    kind: str
    preset: str
    m: int
    n: int
    k: int
    split_k: int = 1

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.preset}, {self.m} x {self.n} x {self.k}"


CASES = (
    *(Case(kind, "cublas", *shape) for kind in ("f16", "bf16") for shape in ((128, 128, 64), (256, 256, 1024), (1000, 1000, 1000))),
    *(Case(kind, "cublas", 128, 128, 4096, 3) for kind in ("f16", "bf16")),
    Case("f16", "cublas", 128, 128, 5120, 3),
    Case("f16", "cublas", 64, 256, 8192, 6),
    Case("f16", "cublas", 1, 1024, 4096, 3),
    Case("f16", "cublas", 96, 72, 4000, 3),
    Case("f16", "cublas", 128, 128, 16384, 12),
    *(Case(kind, preset, 512, 512, 4096) for kind in ("e4m3", "e5m2") for preset in ("cublas", "cublas-fast-accum")),
    Case("e4m3", "cublas", 256, 2048, 7168),
    Case("e4m3", "cublas-fast-accum", 128, 128, 8192, 3),
    Case("e4m3", "cublas-fast-accum", 128, 128, 16384, 6),
    Case("tf32", "cublas", 512, 512, 2048),
    Case("tf32", "cublas", 256, 256, 1024, 8),
    Case("tf32", "cublas", 96, 72, 200, 17),
)
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "tf32": np.float32}


def dtypes(case: Case) -> tuple[Any, Any]:
    """Of a and b; the second of e5m2 is e4m3: Hopper's cuBLAS does not multiply two e5m2."""
    return DTYPES[case.kind], DTYPES["e4m3" if case.kind == "e5m2" else case.kind]


def operands(case: Case) -> tuple[NDArray[Any], NDArray[Any]]:
    """a (m, k) and b (n, k): sums of four uniform numbers, the same on every machine."""
    stream = Stream("cublas", case.kind, case.m, case.n, case.k)
    # sums of less than 24 bits, which float32 has exactly
    drawn = (stream.integers(-(1 << 20), 1 << 20, (4, rows, case.k), np.int32).sum(axis=0, dtype=np.int32) for rows in (case.m, case.n))
    first, second = dtypes(case)
    a, b = (sums.astype(np.float32) / np.float32(1 << 20) for sums in drawn)
    return a.astype(first), b.astype(second)


def torch_product(case: Case) -> NDArray[np.float32]:
    """What cuBLAS computes in this machine, through PyTorch."""
    import torch

    types = {np.dtype(np.float16): torch.float16, np.dtype(np.float32): torch.float32}
    types |= {np.dtype(name): getattr(torch, name) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
    bits = {1: np.uint8, 2: np.int16, 4: np.int32}
    a, b = (torch.from_numpy(x.view(bits[x.dtype.itemsize])).cuda().view(types[x.dtype]) for x in operands(case))
    torch.backends.cuda.matmul.allow_tf32 = True
    if case.kind in ("e4m3", "e5m2"):
        one = torch.ones((), device="cuda")
        d = torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.float32, use_fast_accum=case.preset == "cublas-fast-accum")
    else:
        d = torch.mm(a, b.t()) if case.kind == "tf32" else torch.mm(a, b.t(), out_dtype=torch.float32)
    found: NDArray[np.float32] = d.cpu().numpy()
    return found


class ScaledCase(NamedTuple):
    """A product of e4m3 with scales, by the names of their schemes."""

    a: str
    b: str
    m: int
    n: int
    k: int
    fast: bool = False

    @property
    def name(self) -> str:
        return f"{self.a} x {self.b}, {self.m} x {self.n} x {self.k}" + (", fast" if self.fast else "")


SCALED_CASES = (
    *(ScaledCase(scheme, scheme, 256, 256, 1024, fast) for scheme in ("fp8_tensor", "fp8_row") for fast in (False, True)),
    *(ScaledCase("fp8_row", "fp8_row", *shape) for shape in ((64, 2048, 512), (2048, 64, 512), (1024, 1024, 512), (16, 256, 4096))),
    *(ScaledCase("fp8_1x128", "fp8_128x128", *shape) for shape in ((256, 512, 1024), (1024, 128, 512), (64, 2048, 1024))),
    *(ScaledCase("fp8_1x128", "fp8_1x128", *shape) for shape in ((256, 512, 1024), (1024, 128, 512), (64, 2048, 1024))),
)
# rows and columns that share a scale; 0 is all of them
BLOCKS = {"fp8_tensor": (0, 0), "fp8_row": (1, 0), "fp8_1x128": (1, 128), "fp8_128x128": (128, 128)}


def scaled_operands(case: ScaledCase) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float32], NDArray[np.float32]]:
    """a (m, k), b (n, k) and their scales from 0.5 to 2, one for each block of rows and of k."""
    a, b = operands(Case("e4m3", "", case.m, case.n, case.k))
    stream = Stream("cublas scales", case.a, case.b, case.m, case.n, case.k)
    scales = []
    for scheme, rows in ((case.a, case.m), (case.b, case.n)):
        block = [each or extent for each, extent in zip(BLOCKS[scheme], (rows, case.k), strict=True)]
        shape = (-(-rows // block[0]), -(-case.k // block[1]))
        scales.append(((stream.integers(1 << 22, 1 << 24, shape)) / (1 << 23)).astype(np.float32))
    return a, b, scales[0], scales[1]


def torch_scaled_product(case: ScaledCase) -> NDArray[np.float32]:
    """What cuBLAS computes in this machine, through PyTorch."""
    import torch
    from torch.nn.functional import ScalingType, scaled_mm

    kinds = {
        "fp8_tensor": ScalingType.TensorWise,
        "fp8_row": ScalingType.RowWise,
        "fp8_1x128": ScalingType.BlockWise1x128,
        "fp8_128x128": ScalingType.BlockWise128x128,
    }
    a, b, scale_a, scale_b = scaled_operands(case)
    x, y = (torch.from_numpy(each.view(np.uint8)).cuda().view(torch.float8_e4m3fn) for each in (a, b))
    s, t = (torch.from_numpy(each).cuda() for each in (scale_a, scale_b))
    # scales of lines lie with the lines contiguous; those of 128 x 128 blocks of b with k contiguous, transposed as b is
    arranged = {"fp8_tensor": lambda z: z.reshape(()), "fp8_row": lambda z: z, "fp8_1x128": lambda z: z.t().contiguous().t()}
    s = arranged[case.a](s)
    t = t.t() if case.b in ("fp8_row", "fp8_128x128") else arranged[case.b](t)
    if case.a in ("fp8_tensor", "fp8_row"):
        d = torch._scaled_mm(x, y.t(), s, t, out_dtype=torch.float32, use_fast_accum=case.fast)
    else:
        d = scaled_mm(x, y.t(), s, kinds[case.a], t, kinds[case.b], output_dtype=torch.float32)
    found: NDArray[np.float32] = d.cpu().numpy()
    return found


def kept_rows(case: Case | ScaledCase) -> NDArray[np.intp]:
    """The rows of a result that are recorded."""
    return np.unique(np.linspace(0, case.m - 1, min(ROWS, case.m)).astype(np.intp))


def record(path: Path) -> None:
    """Record the rows of every case."""
    found = {case.name: torch_product(case)[kept_rows(case)] for case in CASES}
    found |= {case.name: torch_scaled_product(case)[kept_rows(case)] for case in SCALED_CASES}
    np.savez_compressed(path, **found)  # type: ignore[arg-type]


if __name__ == "__main__":
    record(Path(sys.argv[1]) if len(sys.argv) > 1 else PATH)
