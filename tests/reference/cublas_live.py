"""Fresh products of cuBLAS on the GPU in this machine, through PyTorch, against ``preset="cublas"``: how many have every bit.

``python tests/reference/cublas_live.py --count 1000 --seed 3`` draws products from the book of its GPU, with their epilogues, and normal
numbers.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

import fastmma
from fastmma.products.cublas.book import shipped_book
from fastmma.products.cublas.book_file import TYPES
from fastmma.products.cublas.rows import Product
from fastmma.products.library_gpu import library_gpu
from fastmma.verification.cublas_requests import Request

TF32 = "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32"
TORCH = {"bf16": torch.bfloat16, "f16": torch.float16, "tf32": torch.float32, "e4m3": torch.float8_e4m3fn}
NUMPY = {
    torch.bfloat16: ml_dtypes.bfloat16,
    torch.float16: np.float16,
    torch.float32: np.float32,
    torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
MOST_WORK, MOST_ELEMENTS = 2e10, 2**27
CALLS = {
    "tf32": ("mm", "c", "alpha, beta"),
    "e4m3": ("fast", "promoted"),
    "bf16": ("mm", "f32", "c", "alpha, beta"),
    "f16": ("mm", "f32", "c", "alpha, beta"),
}


def host(tensor: torch.Tensor) -> NDArray[Any]:
    """A tensor's elements as NumPy's, laid out alike."""
    turned = tensor.ndim == 2 and not tensor.is_contiguous()
    lying = (tensor.t() if turned else tensor).contiguous()
    found = lying.view(BITS[lying.element_size()]).cpu().numpy().view(NUMPY[tensor.dtype])
    return found.T if turned else found


def draw(rows: int, columns: int, fmt: str, layout: str) -> torch.Tensor:
    """Normal numbers on the GPU."""
    shape = (columns, rows) if layout == "t" else (rows, columns)
    drawn = torch.randn(shape, device="cuda").to(TORCH[fmt])
    return drawn.t() if layout == "t" else drawn


def call(request: Request, rng: random.Random) -> tuple[str, torch.Tensor, dict[str, Any]]:
    """One product: what was called, its result, and the arguments of fastmma.gemm."""
    fmt, a, b = (
        request.type,
        draw(request.m, request.k, request.type, request.layout[0]),
        draw(request.k, request.n, request.type, request.layout[1]),
    )
    given: dict[str, Any] = {"a": host(a), "b": host(b), "preset": "cublas"} | ({"instruction": TF32} if fmt == "tf32" else {})
    if request.biased:
        bias = torch.randn(request.n, device="cuda").to(TORCH[fmt])
        return "bias", torch.nn.functional.linear(a, b.t(), bias), given | {"bias": host(bias)}
    what = rng.choice(CALLS[fmt])
    if what in ("fast", "promoted"):
        one = torch.ones((), device="cuda")
        fast = what == "fast"
        d = torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=fast)
        return what, d, given | {"preset": "cublas-fast-accum" if fast else "cublas"}
    if what in ("mm", "f32"):
        return what, torch.mm(a, b, out_dtype=torch.float32) if what == "f32" else torch.mm(a, b), given
    c = torch.randn(request.m, request.n, device="cuda").to(TORCH[fmt])
    alpha, beta = (1.0, 1.0) if what == "c" else (rng.choice((0.3, -1.25, 1.7)), rng.choice((0.75, 0.1, 2.0)))
    return what, torch.addmm(c, a, b, alpha=alpha, beta=beta), given | {"c": host(c), "alpha": alpha, "beta": beta}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(options.seed)
    rng, name = random.Random(options.seed), torch.cuda.get_device_name()
    gpu = library_gpu(name)
    pages = shipped_book(gpu)
    if pages is None:
        raise SystemExit(f"no products on {name} are recorded")
    known = []
    for kind, m, n, k in pages.products():
        found = pages.find(kind.type, Product(TYPES[kind.type].fmt, kind.layout, m, n, k, ""), biased=bool(kind.addend))
        if found is not None and found.samples:
            known.append(Request(kind.type, kind.layout, m, n, k, bool(kind.addend)))
    small = [each for each in known if each.m * each.n * each.k <= MOST_WORK and max(each.m, each.n) * each.k <= MOST_ELEMENTS]
    counts: Counter[tuple[str, str]] = Counter()
    for request in rng.sample(small, options.count):
        what, tensor, given = call(request, rng)
        expected = host(tensor)
        try:
            found = fastmma.gemm(given.pop("a"), given.pop("b"), given.pop("c", None), target=gpu, out_dtype=expected.dtype, **given)
        except fastmma.OperandError:
            counts[what, "refused"] += 1
            continue
        wrong = int((found.view(np.uint8) != np.ascontiguousarray(expected).view(np.uint8)).sum())
        counts[what, "wrong" if wrong else "every bit"] += 1
        if wrong:
            print(request, what, f"{wrong} bytes differ")
    for key, count in sorted(counts.items()):
        print(f"{count:6,}  {', '.join(key)}")
    for outcome in ("every bit", "wrong", "refused"):
        print(f"{sum(count for (_, each), count in counts.items() if each == outcome):6,}  {outcome} on {name}")


if __name__ == "__main__":
    main()
