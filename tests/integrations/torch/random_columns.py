"""float32 matrices times one column or row where TF32 is allowed, of random shapes: the same calls on a GPU and under emulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

LIMITS = ((2, 8192, 2, 48), (2, 1000, 63, 513), (256, 1000, 600, 5000), (2, 8192, 2, 8192))
NUMBERS, SHAPES, SINGLE = 1 << 22, 110, 100  # from SINGLE on there is one k


def calls(device: str) -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    """Each call by its name; they multiply the same numbers on all devices."""
    rng = np.random.default_rng(32)
    numbers, vector = (torch.from_numpy(rng.standard_normal(size).astype("f4")).to(device) for size in (NUMBERS, 1 << 14))
    draw = np.random.default_rng(5)
    for index in range(SHAPES):
        limits = LIMITS[index % 4]
        low, high = np.log(limits[::2]), np.log(limits[1::2])
        m, k = np.exp(low + (high - low) * draw.random(2)).round().astype(int).tolist()
        if index % 8 >= 4:
            m, k = max(8, m // 8 * 8), max(8, k // 8 * 8)
        k = 1 if index >= SINGLE else k
        if m * k > NUMBERS:
            continue
        start = int(draw.integers(0, (NUMBERS - m * k) // 4 + 1)) * 4
        draw.integers(2, 7)
        flat, x, c = numbers[start : start + m * k], vector[:k], vector[9 : 9 + m]
        rows, columns = flat.view(m, k), flat.view(k, m).t()
        found = {
            "column": lambda a=rows, x=x: a @ x[:, None],
            "row": lambda a=rows, x=x: x[None] @ a.t(),
            "column of columns": lambda a=columns, x=x: a @ x[:, None],
            "row of columns": lambda a=columns, x=x: x[None] @ a.t(),
            "row and bias": lambda a=rows, x=x, c=c: torch.nn.functional.linear(x[None], a, c),
            "column and bias": lambda a=rows, x=x, c=c: torch.nn.functional.linear(a, x[None], c[:1]),
            "row and c": lambda a=rows, x=x, c=c: torch.addmm(c[None], x[None], a.t(), alpha=0.7, beta=-1.3),
            "column times alpha": lambda a=rows, x=x, c=c: torch.addmm(c[:, None], a, x[:, None], alpha=0.7, beta=0),
        }
        for form, call in found.items():
            yield f"{form} {m} {k} {index}", call
