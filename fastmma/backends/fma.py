"""Chains of fma by compiled kernels."""

from __future__ import annotations

import numpy as np

from fastmma.backends.batches import in_turn
from fastmma.backends.call import Codes, Operands, Operation, whole_k
from fastmma.numerics.methods import METHODS


def f64(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """`Backend.run` of "f64-fma"."""
    from fastmma.kernels.fma import f64 as compiled

    ins = operation.instruction
    floats = whole_k(ins, operands).each(lambda codes: codes.view(np.float64))
    in_turn(
        ins.k,
        floats,
        d.view(np.float64),
        lambda one, out: compiled.gemm(ins.rounding, one.a, one.b, one.c, out, threads),
        lambda many, out: compiled.tiles(ins.rounding, many.a, many.b, many.c, out, threads),
    )


def f32(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """`Backend.run` of "f32-fma" and "f32-fma-pairs"."""
    from fastmma.kernels.fma import m8n8k4

    ins, pairs = operation.instruction, METHODS[operation.arithmetic.method].in_pairs
    in_turn(
        ins.k,
        whole_k(ins, operands),  # chains see the padding of the last instruction
        d,
        lambda one, out: m8n8k4.gemm(one.a, one.b, one.c, out, pairs, threads),
        lambda many, out: m8n8k4.tiles(many.a, many.b, many.c, out, pairs, threads),
    )


def f32_from_c(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:  # noqa: ARG001 - there is one such instruction
    """`Backend.run` of "f32-fma-from-c", of products of any depth."""
    from fastmma.kernels.fma import f32 as compiled

    floats = operands.each(lambda codes: codes.view(np.float32))
    compiled.multiply(floats.a, floats.b, floats.c, d.view(np.float32), threads)
