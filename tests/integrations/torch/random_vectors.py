"""float32 matrices times vectors, of random shapes: the same calls on a GPU and under emulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

FORMS = ("mv of rows", "mv of columns", "addmv", "mm by a column", "mm of a row")
# rows and k between which sizes are drawn, the logarithms evenly
LIMITS = {
    "mv of rows": ((2, 8192, 2, 48), (2, 1000, 63, 513), (256, 1000, 600, 5000)),
    "mv of columns": ((2, 8192, 2, 65), (2, 128, 384, 768)),
}


def calls(device: str) -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    """Each call by its name; they multiply the same numbers on all devices."""
    rng = np.random.default_rng(2026)
    numbers = torch.from_numpy(rng.standard_normal(1 << 22).astype(np.float32) * 2.0 ** rng.integers(-4, 5, 1 << 22)).float().to(device)
    vector, addend = (torch.from_numpy(rng.standard_normal(8192).astype(np.float32)).to(device) for _ in range(2))
    for form in FORMS:
        for limits in LIMITS.get(form, LIMITS["mv of rows"]):
            for index in range(24):
                low, high = np.log([limits[0], limits[2]]), np.log([limits[1], limits[3]])
                rows, k = np.exp(low + (high - low) * rng.random(2)).round().astype(int).tolist()
                start = int(rng.integers(0, numbers.numel() - rows * k)) if rows * k < numbers.numel() else 0
                if rows * k > numbers.numel():
                    continue
                flat, x = numbers[start : start + rows * k], vector[:k]
                matrix = flat.view(k, rows).t() if form == "mv of columns" else flat.view(rows, k)
                found = {
                    "addmv": lambda a=matrix, x=x, y=addend[:rows]: torch.addmv(y, a, x, alpha=0.7, beta=-1.3),
                    "mm by a column": lambda a=matrix, x=x: a @ x[:, None],
                    "mm of a row": lambda a=matrix, x=x: torch.nn.functional.linear(x[None], a),
                }.get(form, lambda a=matrix, x=x: torch.mv(a, x))
                yield f"{form} {rows} {k} {index}", found
