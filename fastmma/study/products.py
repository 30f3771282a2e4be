"""The products of a study: on a GPU's tensor cores, or in IEEE f32 for comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.errors import OperandError
from fastmma.formats import format_of
from fastmma.gemm import default_instruction, gemm
from fastmma.isa.model import Instruction
from fastmma.numerics import arithmetic
from fastmma.study.encoding import Encoded, formats_of

IEEE = "ieee-f32"


def _instruction(name: str, target: str) -> Instruction:
    return default_instruction(*formats_of(name), "f32", target)


def check(name: str, target: str, promote_every: int | None, split_k: int) -> None:
    """Raise a FastmmaError unless the format can be multiplied on that target under that accumulation plan."""
    if target == IEEE:
        formats_of(name)
        if promote_every is not None or split_k != 1:
            raise OperandError(f"{IEEE} takes neither promote_every nor split_k: it is one sum in ascending k")
        return
    ins = _instruction(name, target)
    arithmetic(ins, target)
    if promote_every is not None and promote_every % ins.k:
        raise OperandError(f"{name} on {target}: promote_every must be a multiple of the instruction's k, {ins.k}, not {promote_every}")


def evidence(name: str, target: str) -> str:
    """How well the target's arithmetic is known."""
    return "definition" if target == IEEE else arithmetic(_instruction(name, target), target).evidence.level


def multiplied(name: str, target: str, promote_every: int | None, split_k: int, a: Encoded, b: Encoded, threads: int) -> NDArray[Any]:
    """A (M, K) times the transpose of B (N, K), with the bits of the target; float32 (M, N)."""
    if target == IEEE:
        from fastmma.kernels import sequential

        left, right = ((each.values() * each.factor).astype(np.float32) for each in (a, b))
        return sequential.gemm(left, right.T, None, threads)
    ins = _instruction(name, target)
    options: dict[str, Any] = {"promote_every": promote_every, "split_k": split_k, "threads": threads}
    return gemm(a.stored, b.stored.T, instruction=ins, target=target, **options)


OUTPUT = format_of("f32")
