"""Chains of fma by compiled kernels."""

from __future__ import annotations

import numpy as np

from fastmma.backends.batches import batches, each
from fastmma.backends.call import Codes, Operands, Operation, whole_k
from fastmma.numerics.methods import METHODS


def _f64(operation: Operation, operands: Operands) -> Operands:
    """Numbers of whole instructions: chains see the padding of the last one."""
    return whole_k(operation.instruction, operands).each(lambda codes: codes.view(np.float64))


def f64(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "f64-fma", product by product."""
    from fastmma.kernels.fma import f64 as compiled

    for one, out in each(_f64(operation, operands), d.view(np.float64)):
        compiled.gemm(operation.instruction.rounding, one.a, one.b, one.c, out, threads)


def f64_tiles(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "f64-fma" of single instructions."""
    from fastmma.kernels.fma import f64 as compiled

    for _, many, out in batches(_f64(operation, operands), d.view(np.float64)):
        compiled.tiles(operation.instruction.rounding, many.a, many.b, many.c, out, threads)


def f64_panels(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "f64-fma" to nearest, of large products."""
    from fastmma.kernels.fma import f64 as compiled

    for one, out in each(_f64(operation, operands), d.view(np.float64)):
        compiled.by_panels(one.a, one.b, one.c, out, threads)


def _f32(operation: Operation, operands: Operands) -> tuple[Operands, bool]:
    """Operands of whole instructions, as chains see the padding of the last one, and whether chains are of pairs."""
    return whole_k(operation.instruction, operands), METHODS[operation.arithmetic.method].in_pairs


def f32(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "f32-fma" and "f32-fma-pairs", product by product."""
    from fastmma.kernels.fma import m8n8k4

    whole, pairs = _f32(operation, operands)
    for one, out in each(whole, d):
        m8n8k4.gemm(one.a, one.b, one.c, out, pairs, threads)


def f32_tiles(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "f32-fma" and "f32-fma-pairs" of single instructions."""
    from fastmma.kernels.fma import m8n8k4

    whole, pairs = _f32(operation, operands)
    for _, many, out in batches(whole, d):
        m8n8k4.tiles(many.a, many.b, many.c, out, pairs, threads)


def f32_panels(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "f32-fma" and "f32-fma-pairs", of large products."""
    from fastmma.kernels.fma import m8n8k4

    whole, pairs = _f32(operation, operands)
    for one, out in each(whole, d):
        m8n8k4.by_panels(one.a, one.b, one.c, out, pairs, threads)


def _floats(operation: Operation, operands: Operands) -> Operands:
    return whole_k(operation.instruction, operands).each(lambda codes: codes.view(np.float32))


def f32_from_c(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "f32-fma-from-c", product by product."""
    from fastmma.kernels.fma import f32 as compiled

    for one, out in each(_floats(operation, operands), d.view(np.float32)):
        compiled.gemm(one.a, one.b, one.c, out, threads)


def f32_from_c_tiles(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "f32-fma-from-c" of many products of any depth."""
    from fastmma.kernels.fma import f32 as compiled

    for _, many, out in batches(_floats(operation, operands), d.view(np.float32)):
        compiled.tiles(many.a, many.b, many.c, out, threads)


def f32_from_c_panels(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "f32-fma-from-c", of large products."""
    from fastmma.kernels.fma import f32 as compiled

    for one, out in each(_floats(operation, operands), d.view(np.float32)):
        compiled.by_panels(one.a, one.b, one.c, out, threads)
