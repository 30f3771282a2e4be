"""Tensors that are drawn, and what a report says of the operators that took them."""

from __future__ import annotations

import numpy as np
import torch

from fastmma.torch import Report


def drawn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(shape).standard_normal(shape).astype(np.float32)).to(dtype)


def lines(report: Report, *statuses: str) -> set[tuple[str, str]]:
    """The operators and their statuses."""
    return {
        (line.status, line.operator.removeprefix("aten.").split(".")[0])
        for line, _ in report.lines(*(statuses or ("emulated", "assumed", "passed", "unseen")))
    }
