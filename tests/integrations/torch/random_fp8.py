"""fp8 products of random shapes and long k, which cuBLAS cuts: the same calls on a GPU and under emulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

BF16, F32 = torch.bfloat16, torch.float32


def calls(device: str) -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    """Each call by its name; they multiply the same numbers on all devices."""
    draw = np.random.default_rng(4242)

    def operand(seed: int, *shape: int) -> torch.Tensor:
        rng = np.random.default_rng(seed)
        values = rng.integers(-(2**23), 2**23, shape) * 2.0**-23 * 2.0 ** rng.integers(-6, 2, shape)
        return torch.from_numpy(values.astype("f4")).to(torch.float8_e4m3fn).to(device)

    for index in range(120):
        m, n = (16 * int(draw.integers(1, 33)) for _ in range(2))
        k = int(draw.choice([7168, 7168, 5120, 6144, 8192, 4096]))
        a, b = operand(9000 + 2 * index, m, k), operand(9001 + 2 * index, n, k).t()
        scales = [torch.tensor(value, device=device) for value in (0.37, 1.9)]
        row = torch.from_numpy(np.random.default_rng(index).standard_normal(n).astype("f4")).to(BF16).to(device)
        how = {"out_dtype": BF16 if index % 3 else F32, "bias": row if index % 3 == 1 else None, "use_fast_accum": index % 2 == 1}
        yield f"{index} {m} {n} {k}", lambda a=a, b=b, scales=scales, how=how: torch._scaled_mm(a, b, *scales, **how)
