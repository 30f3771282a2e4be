"""Ask cuBLASLt on a GPU how it takes fresh products, without running them, and judge the rules of the preset by the answers.

``python -m tests.reference.cublas_choices --count 100000 --seed 7`` prints, for each rule, how many of so many products it predicted.
It needs PyTorch with CUDA, whose cuBLASLt it asks, and asks as PyTorch does.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Iterator
from functools import cache

import numpy as np

from fastmma.products.presets import GEMM_PRESETS, OnePart
from tools.choice_trees.ask import Asker, library_path
from tools.choice_trees.draw import KINDS, Kind

NVJET = 66  # the algorithm that adds with one accumulator of wgmma
Asked = tuple[int, int, int, int, int]  # layout, m, n, k and the products of a stack


def rules(gpu: str) -> Iterator[tuple[str, str, OnePart]]:
    """Yield the preset, a format and a rule about a GPU."""
    for name, rows in GEMM_PRESETS.items():
        yield from ((name, fmt, rule) for row in rows for rule in row.rules if rule.gpu == gpu for fmt in rule.atypes)


def draw(rng: np.random.Generator, fmt: str, rule: OnePart, fast: bool) -> tuple[Kind, Asked]:
    """Draw a product that a rule is about."""
    step = rule.multiple
    while True:
        layout = str(rng.choice(rule.layouts))
        most = rule.most_k or 16384
        n = step * int(2 ** rng.uniform(0, 12))
        m = int(2 ** rng.uniform(0, 14)) * (step if layout[0] == "t" else 1)
        k = step * (int(rng.integers(1, most // step + 1)) if rng.random() < 0.5 else int(2 ** rng.uniform(0, np.log2(most / step))))
        if rule.holds(layout, m, n, k):
            stack = int(2 ** rng.uniform(1, 9)) if rule.stack else 1
            biased = not rule.stack and bool(rng.random() < 0.5)
            kind = KINDS[f"{fmt}_bias" if biased else fmt]._replace(fast=fast)
            return kind, ((layout[1] == "t") + 2 * (layout[0] == "t"), m, n, k, stack)


def main() -> None:
    """Judge all rules about the GPU of this machine."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="products for each rule and format")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    name, path = torch.cuda.get_device_name(), library_path()
    print(f"{name}, cuBLASLt {ctypes.CDLL(path).cublasLtGetVersion()}, seed {given.seed}")
    rng = np.random.default_rng(given.seed)

    @cache
    def asker(kind: Kind) -> Asker:
        return Asker(path, kind)

    def is_one_part(kind: Kind, asked: Asked) -> bool:
        algorithm, _, parts, *_ = asker(kind).ask(*asked)
        return (algorithm, parts) == (NVJET, 1)

    for preset, fmt, rule in rules(name.split()[1]):
        right = sum(is_one_part(*draw(rng, fmt, rule, preset == "cublas-fast-accum")) for _ in range(given.count))
        print(f"{right:,} of {given.count:,}: {preset}, {fmt}: {rule}", flush=True)


if __name__ == "__main__":
    main()
