"""Every arithmetic of the tables as an opcode on a target, and products by gemm on codes."""

from __future__ import annotations

from typing import Any

import numpy as np
from drivers.operations import operations
from numpy.typing import NDArray

from fastmma import gemm, instruction
from reference.products import bits, elements, random_codes

MMA = "mma.sync.aligned."
WGMMA = "wgmma.mma_async.sync.aligned."
# an opcode and a target for every arithmetic of dense operands whose results go on as c, with and without an order of layouts
METHODS = [
    (each.instruction.opcode, each.target)
    for each in operations()
    if each.instruction.op in ("mma", "wgmma")
    and each.instruction.ctype == each.instruction.dtype
    and not (each.instruction.sparse or each.instruction.scale_vec_size)
]
F16_F32 = MMA + "m16n8k16.row.col.f32.f16.f16.f32"


def operands(opcode: str, shape: tuple[int, int, int], distribution: str, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    ins = instruction(opcode)
    m, n, k = shape
    generator = np.random.default_rng([seed, *shape, len(distribution)])
    return (
        random_codes(generator, ins.atype, (m, k), distribution),
        random_codes(generator, ins.btype, (k, n), distribution),
        random_codes(generator, ins.ctype, (m, n), distribution),
    )


def mixed(opcode: str, shape: tuple[int, int, int], *distributions: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Operands a, b and c of a distribution each."""
    ins = instruction(opcode)
    m, n, k = shape
    generator = np.random.default_rng([7, *shape])
    forms = ((ins.atype, (m, k)), (ins.btype, (k, n)), (ins.ctype, (m, n)))
    a, b, c = (random_codes(generator, fmt, size, name) for (fmt, size), name in zip(forms, distributions, strict=True))
    return a, b, c


def product(opcode: str, target: str, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, **options: Any) -> NDArray[Any]:
    """gemm on codes."""
    ins = instruction(opcode)
    start = None if c is None else elements(c, ins.ctype)
    return bits(gemm(elements(a, ins.atype), elements(b, ins.btype), start, instruction=ins, target=target, **options))
