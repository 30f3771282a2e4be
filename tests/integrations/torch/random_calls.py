"""Calls of torch whose shapes and operands are drawn at random: the same on a GPU, where they were recorded, and under emulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
HALVES = (BF16, F16)
Record = Callable[[str, Callable[[], torch.Tensor]], None]


class Calls:
    """Draws calls on a device, and records them."""

    def __init__(self, device: str, record: Record) -> None:
        self.device, self.record = device, record
        self.rng = np.random.default_rng(2026)
        self.seed = 0  # of the next operand

    def pick(self, *values: Any) -> Any:
        return values[self.rng.integers(len(values))]

    def eights(self, most: int) -> int:
        """A multiple of 8."""
        return 8 * int(self.rng.integers(1, most // 8 + 1))

    def operand(self, seed: int, *shape: int, dtype: torch.dtype = BF16, spread: bool = True) -> torch.Tensor:
        rng = np.random.default_rng(seed)
        values = rng.integers(-(2**23), 2**23, shape) * 2.0**-23
        if spread:
            values = values * 2.0 ** rng.integers(-6, 2, shape)
        return torch.from_numpy(values.astype("f4")).to(dtype).to(self.device)

    def operands(self, dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
        found = [self.operand(self.seed + index, *shape, dtype=dtype) for index, shape in enumerate(shapes)]
        self.seed += len(shapes)
        return found

    def matrices(self) -> None:
        for i in range(72):
            m, n, k = (int(min(1024, 8 * 2 ** self.rng.uniform(0, 7) // 8 * 8 + 8)) for _ in range(3))
            k = self.eights(2560) if i % 3 else k
            dtype, turned = self.pick(*HALVES), (i % 4 == 3, i % 2 == 1)
            a, b = self.operands(dtype, (k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n))
            a, b = a.t() if turned[0] else a, b.t() if turned[1] else b
            self.record(f"mm {i}", lambda a=a, b=b: a @ b)

    def skipped(self) -> None:
        """Draws of calls that are not kept: long k, whose parts are up to cuBLAS."""
        for i in range(24):
            self.eights(512), self.eights(512), self.pick(2816, 3072, 4096, 5120, 8192, 11008)
            if i % 3 == 2:
                self.rng.integers(1, 8), self.rng.integers(1, 8), self.rng.integers(9, 1000)
            self.pick(*HALVES)
            self.seed += 2

    def batches(self) -> None:
        for i in range(48):
            z, m, n, k = int(self.rng.integers(1, 33)), self.eights(256), self.eights(256), self.eights(256)
            if i % 6 == 5:
                z, k = int(self.rng.integers(1, 9)), int(self.pick(1024, 2048, 4096, 8192))
            a, b, c = self.operands(self.pick(*HALVES), (z, m, k), (z, k, n), (z, m, n))
            calls = (
                lambda a=a, b=b: a @ b,
                lambda a=a, b=b: a @ b.transpose(1, 2).contiguous().transpose(1, 2),
                lambda a=a, b=b, c=c: torch.baddbmm(c, a, b),
                lambda a=a, b=b, c=c: torch.baddbmm(c, a, b, beta=0.75, alpha=-1.25),
            )
            self.record(f"batch {i}", calls[i % 4])
        for i in range(6):
            tokens, heads, width = self.eights(128), int(self.pick(2, 4, 8)), int(self.pick(16, 32, 64, 128))
            q, k = self.operands(self.pick(*HALVES), *[(2, tokens, heads, width)] * 2)
            self.record(f"heads {i}", lambda q=q, k=k: q.transpose(1, 2) @ k.transpose(1, 2).transpose(2, 3))

    def epilogues(self) -> None:
        for i in range(32):
            m, n, k = self.eights(512), self.eights(512), self.eights(1024)
            a, b, c, v = self.operands(self.pick(*HALVES), (m, k), (n, k), (m, n), (n,))
            calls = (
                lambda a=a, b=b, v=v: functional.linear(a, b, v),
                lambda a=a, b=b, v=v: functional.linear(a.view(2, a.shape[0] // 2, a.shape[1]), b, v),
                lambda a=a, b=b, c=c: torch.addmm(c, a, b.t()),
                lambda a=a, b=b, c=c: torch.addmm(c, a, b.t(), beta=0.75, alpha=-1.25),
                lambda a=a, b=b, v=v: torch.addmm(v[None], a, b.t()),
                lambda a=a, b=b, c=c: torch.addmm(c[:, :1], a, b.t(), beta=1),
                lambda a=a, b=b, v=v: torch._addmm_activation(v, a, b.t()),
                lambda a=a, b=b, c=c: torch.addmm(c.float(), a, b.t(), out_dtype=F32),
            )
            self.record(f"epilogue {i}", calls[i % 8])

    def vectors(self) -> None:
        for i in range(6):
            m, k = self.eights(512), self.eights(1024)
            a, x, y = self.operands(self.pick(*HALVES), (m, k), (k,), (m,))
            self.record(f"mv {i}", lambda a=a, x=x: torch.mv(a, x)[None])
            self.record(f"addmv {i}", lambda a=a, x=x, y=y: torch.addmv(y, a, x)[None])
            self.record(f"mv turned {i}", lambda a=a, y=y: torch.mv(a.t(), y)[None])

    def sums_and_groups(self) -> None:
        a, b, c = self.operands(BF16, (5, 64, 128), (5, 128, 96), (64, 96))
        self.record("addbmm", lambda: torch.addbmm(c, a, b))
        self.record("addbmm scaled", lambda: torch.addbmm(c, a, b, beta=0.5, alpha=2))
        for i in range(4):
            groups, k, n = int(self.pick(2, 4, 8)), self.eights(512), self.eights(256)
            sizes = self.rng.integers(0, 100, groups)
            ends = torch.tensor(np.cumsum(sizes), dtype=torch.int32, device=self.device)
            x, w = self.operands(BF16, (int(sizes.sum()), k), (groups, k, n))
            self.record(f"groups {i}", lambda x=x, w=w, ends=ends: functional.grouped_mm(x, w, offs=ends))

    def scaled(self) -> None:
        one, two = (torch.tensor(value, device=self.device) for value in (0.37, 1.9))
        for i in range(24):
            m, n, k = (16 * int(self.rng.integers(1, 33)) for _ in range(3))
            k = int(self.pick(1024, 2048, 4096, 7168)) if i % 4 == 3 else k
            q = self.operand(self.seed, m, k, dtype=E4M3)
            r = self.operand(self.seed + 1, n, k, dtype=E5M2 if i % 5 == 4 else E4M3).t()
            of_a, of_b = (self.operand(self.seed + 2 + j, *s, dtype=F32).abs() for j, s in enumerate(((m, 1), (1, n))))
            bias = self.operand(self.seed + 4, n) if i % 3 == 1 else None
            self.seed += 5
            fast, out = i % 2 == 1, BF16 if i % 3 else F32
            how = {"bias": bias, "use_fast_accum": fast}
            if i % 2 == 0 or i % 3:
                self.record(f"fp8 {i}", lambda q=q, r=r, out=out, how=how: torch._scaled_mm(q, r, one, two, out_dtype=out, **how))
            if r.dtype == E4M3:
                scales = of_a, of_b
                self.record(f"fp8 rows {i}", lambda q=q, r=r, s=scales, how=how: torch._scaled_mm(q, r, *s, out_dtype=BF16, **how))
        for i in range(6):
            m, n, k = 128 * int(self.rng.integers(1, 4)), 128 * int(self.rng.integers(1, 4)), 128 * int(self.pick(4, 8, 12, 16))
            q, r = self.operand(self.seed, m, k, dtype=E4M3), self.operand(self.seed + 1, n, k, dtype=E4M3).t()
            shapes = (k // 128, m), (k // 128, n), (n // 128, -(-(k // 128) // 4) * 4)
            of_a, of_b, of_blocks = (self.operand(self.seed + 2 + j, *s, dtype=F32).abs().t() for j, s in enumerate(shapes))
            self.seed += 5
            for recipe, scale in ((4, of_b), (5, of_blocks)):
                args = (q, r, [of_a], [4], [0], [scale], [recipe], [0], None, BF16)
                self.record(f"fp8 blocks {i} {recipe}", lambda args=args: torch._scaled_mm_v2(*args))

    def grouped_and_integers(self) -> None:
        ends = torch.tensor([32, 64, 160, 256], dtype=torch.int32, device=self.device)
        x, w = self.operand(self.seed, 256, 256, dtype=E4M3), self.operand(self.seed + 1, 4, 128, 256, dtype=E4M3).transpose(1, 2)
        scales = [self.operand(self.seed + 2 + j, *shape, dtype=F32).abs() for j, shape in enumerate(((256,), (4, 128)))]
        for fast in (False, True):
            how = {"offs": ends, "out_dtype": BF16, "use_fast_accum": fast}
            self.record(f"fp8 groups {fast}", lambda how=how: torch._scaled_grouped_mm(x, w, *scales, **how))
        shapes = (64, 512), (512, 96)
        both = [(self.operand(self.seed + 4 + j, *s, dtype=F32, spread=False) * 127).to(torch.int8) for j, s in enumerate(shapes)]
        self.record("int8", lambda: torch._int_mm(*both))

    def model(self) -> None:
        shapes = (96, 320), (96, 320), (320, 96), (40, 96)
        weights = [self.operand(900 + index, *shape) / 8 for index, shape in enumerate(shapes)]
        tokens = self.operand(910, 3, 24, 320)

        def step() -> tuple[torch.Tensor, ...]:
            up, gate, down, head = (weight.clone().requires_grad_() for weight in weights)
            x = tokens.clone().requires_grad_()
            hidden = functional.silu(functional.linear(x, up)) * functional.linear(x, gate)
            y = functional.linear(torch.relu(functional.linear(hidden, down)) + x, up)
            y = functional.linear(y, head)
            return y, *torch.autograd.grad((y.float() ** 2).mean(), [x, up, gate, down, head])

        for index, name in enumerate(("output", "of x", "of up", "of gate", "of down", "of head")):
            self.record(f"model {name}", lambda index=index: step()[index])

    def all(self) -> None:
        self.matrices()
        self.skipped()
        self.batches()
        self.epilogues()
        self.vectors()
        self.sums_and_groups()
        self.scaled()
        self.grouped_and_integers()
        self.model()
