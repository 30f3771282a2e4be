"""Chains of fma by compiled kernels."""

from __future__ import annotations

import numpy as np

from fastmma.backends.batches import in_turn
from fastmma.backends.call import Codes, Operands, Operation, whole_k


def f64(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """`Backend.run` of "f64-fma"."""
    from fastmma.kernels.fma.f64 import gemm, tiles

    ins = operation.instruction
    floats = whole_k(ins, operands).each(lambda codes: codes.view(np.float64))
    in_turn(
        ins.k,
        floats,
        d.view(np.float64),
        lambda one, out: gemm(ins.rounding, one.a, one.b, one.c, out, threads),
        lambda many, out: tiles(ins.rounding, many.a, many.b, many.c, out, threads),
    )


def f32(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """`Backend.run` of "f32-fma" and "f32-fma-pairs"."""
    from fastmma.kernels.fma.m8n8k4 import gemm, tiles

    ins, pairs = operation.instruction, operation.arithmetic.method == "f32-fma-pairs"
    in_turn(
        ins.k,
        whole_k(ins, operands),  # chains see the padding of the last instruction
        d,
        lambda one, out: gemm(one.a, one.b, one.c, out, pairs, threads),
        lambda many, out: tiles(many.a, many.b, many.c, out, pairs, threads),
    )


def f32_from_c(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:  # noqa: ARG001 - there is one such instruction
    """`Backend.run` of "f32-fma-from-c", of products of any depth."""
    from fastmma.kernels.fma.f32 import multiply

    floats = operands.each(lambda codes: codes.view(np.float32))
    multiply(floats.a, floats.b, floats.c, d.view(np.float32), threads)
