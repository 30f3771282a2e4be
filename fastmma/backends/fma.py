"""Chains of fma by compiled kernels."""

from __future__ import annotations

import numpy as np

from fastmma.backends.batches import each, in_turn
from fastmma.backends.call import Codes, Operands, Operation, whole_k
from fastmma.numerics.methods import METHODS


def _f64(operation: Operation, operands: Operands) -> Operands:
    """Numbers of whole instructions: chains see the padding of the last one."""
    return whole_k(operation.instruction, operands).each(lambda codes: codes.view(np.float64))


def f64(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """`Backend.run` of "f64-fma"."""
    from fastmma.kernels.fma import f64 as compiled

    ins = operation.instruction
    in_turn(
        ins.k,
        _f64(operation, operands),
        d.view(np.float64),
        lambda one, out: compiled.gemm(ins.rounding, one.a, one.b, one.c, out, threads),
        lambda many, out: compiled.tiles(ins.rounding, many.a, many.b, many.c, out, threads),
    )


def f64_panels(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """`Backend.run` of "f64-fma" to nearest, of large products."""
    from fastmma.kernels.fma import f64 as compiled

    for one, out in zip(each(_f64(operation, operands)), d.view(np.float64), strict=True):
        compiled.by_panels(one.a, one.b, one.c, out, threads)


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


def f32_panels(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """`Backend.run` of "f32-fma" and "f32-fma-pairs", of large products."""
    from fastmma.kernels.fma import m8n8k4

    pairs = METHODS[operation.arithmetic.method].in_pairs
    for one, out in zip(each(whole_k(operation.instruction, operands)), d, strict=True):
        m8n8k4.by_panels(one.a, one.b, one.c, out, pairs, threads)


def f32_from_c(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:  # noqa: ARG001 - there is one such instruction
    """`Backend.run` of "f32-fma-from-c", of products of any depth."""
    from fastmma.kernels.fma import f32 as compiled

    floats = operands.each(lambda codes: codes.view(np.float32))
    compiled.multiply(floats.a, floats.b, floats.c, d.view(np.float32), threads)


def f32_from_c_panels(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:  # noqa: ARG001 - there is one such instruction
    """`Backend.run` of "f32-fma-from-c", of large products."""
    from fastmma.kernels.fma import f32 as compiled

    floats = operands.each(lambda codes: codes.view(np.float32))
    for one, out in zip(each(floats), d.view(np.float32), strict=True):
        compiled.by_panels(one.a, one.b, one.c, out, threads)
