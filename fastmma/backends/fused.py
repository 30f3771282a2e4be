"""Truncated and grouped sums by compiled kernels: which of them computes which products."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from fastmma.backends.batches import each, in_turn
from fastmma.backends.call import Codes, Operands, Operation, Run
from fastmma.backends.parameters import (
    element_of,
    fused_coding,
    fused_parameters,
    general_parameters,
    holds,
    plain,
    product_order,
    scaled_parameters,
)
from fastmma.backends.parts import DEPTH, parts
from fastmma.host.threads import parallel_for
from fastmma.isa.codes import decode, encode
from fastmma.isa.formats import Format
from fastmma.kernels.params import Fused, Promotion
from fastmma.numerics.arithmetic import CANONICAL_NAN

if TYPE_CHECKING:
    from fastmma.kernels.fused.batch import Blocks, RegisterBlocks

# multiply-adds of a product that is computed in blocks, and of one that blocks are computed of apart, as large as _CHUNK
_SMALL, _MIDDLE, _CHUNK = 1 << 21, 1 << 24, 1 << 22
_THIN = 1 << 20  # codes of the larger operand, from which on products of few rows or columns are computed another way
_SHALLOW, _FLAT = 64, (16, 32)  # k up to which products of any size are, and the rows from and up to which; of bytes, from one row on


@cache
def _cpu() -> ModuleType:
    """What kernels are compiled for. To import it takes long the first time, and to import it again takes a part of a small product."""
    from fastmma.kernels.llvm import cpu

    return cpu


def portable_only() -> bool:
    """Whether only portable kernels are allowed."""
    return bool(_cpu().portable())


@lru_cache(256)
def widening(fmt: Format, wide: Format) -> Codes:
    """Table from every code of a format to the wider format's code of the same value."""
    return encode(decode(np.arange(1 << fmt.bits), fmt), wide)


def widened(operation: Operation, operands: Operands) -> Operands:
    if not operation.arithmetic.widened:
        return operands
    formats, (a, b) = operation.instruction.formats, operation.multiplied
    return operands._replace(a=widening(formats.a, a).take(operands.a), b=widening(formats.b, b).take(operands.b))


def _halved(codes: Codes) -> Codes:
    """f32 codes rounded to f16, NaN canonical."""
    with np.errstate(over="ignore", invalid="ignore"):
        half: Codes = codes.view(np.float32).astype(np.float16).view(np.uint16)
    half[(half & 0x7FFF) > 0x7C00] = CANONICAL_NAN["f16"]
    return half


def _with_accumulator(kernels: Run) -> Run:
    """Kernels that keep sums in the instruction's `accumulator`, where C or D may have another format."""

    def run(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
        ins = operation.instruction
        if operands.c is not None and ins.ctype != ins.accumulator:  # f16 to f32, which is exact
            with np.errstate(invalid="ignore"):  # AArch64 signals NaNs here
                operands = operands._replace(c=operands.c.view(np.float16).astype(np.float32).view(np.uint32))
        if ins.dtype == ins.accumulator:
            kernels(operation, operands, d, threads)
            return
        sums = np.empty(d.shape, dtype=np.uint32)
        kernels(operation, operands, sums, threads)
        d[...] = _halved(sums)

    return run


def _gemm(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    if operands.scale_a is not None and operands.scale_b is not None:
        from fastmma.kernels.scaled import dispatch

        dispatch.gemm(scaled_parameters(operation), operands.a, operands.b, operands.c, d, operands.scale_a, operands.scale_b, threads)
        return
    from fastmma.kernels.fused import portable, x86

    parameters, period = fused_parameters(operation), operation.instruction.k
    if x86.supported(parameters):
        wide = widened(operation, operands)
        x86.gemm(parameters, wide.a, wide.b, wide.c, d, threads, _portable)
    elif parameters.restart and x86.promotes(parameters._replace(restart=0), period):
        # sums of an instruction that start from zero and join c are promotions
        a, b = _in_order(operation, operands.a, 1), _in_order(operation, operands.b, 0)
        wide = widened(operation, operands._replace(a=a, b=b))
        x86.gemm(parameters._replace(restart=0), wide.a, wide.b, wide.c, d, threads, _portable, Promotion(period))
    else:
        wide = widened(operation, operands)
        portable.gemm(parameters, wide.a, wide.b, wide.c, d, threads, product_order(operation))


def _in_order(operation: Operation, codes: Codes, axis: int) -> Codes:
    """Codes of matrices whose k are in the order of the instruction's steps, filled up to whole instructions."""
    order = product_order(operation)
    period, depth = operation.instruction.k, codes.shape[axis]
    whole = np.arange(-(-depth // period) * period).reshape(-1, period)
    places = (whole if order is None else whole[:, order]).ravel()
    taken: Codes = np.take(codes, places, axis, mode="clip")
    if depth % period:
        np.moveaxis(taken, axis, 0)[places >= depth] = 0
    return taken


def _tiles(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    if operands.scale_a is not None and operands.scale_b is not None:
        from fastmma.kernels.scaled import dispatch

        dispatch.tiles(scaled_parameters(operation), operands.a, operands.b, operands.c, d, operands.scale_a, operands.scale_b, threads)
        return
    from fastmma.kernels.fused import portable

    wide = widened(operation, operands)
    portable.tiles(fused_parameters(operation), wide.a, wide.b, wide.c, d, threads, product_order(operation))


def _in_blocks(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Tiles and small products in blocks, where this CPU has a kernel for them."""
    if operation.arithmetic.interleave:
        operands = operands._replace(a=_in_order(operation, operands.a, 2), b=_in_order(operation, operands.b, 1))
        operation = plain(operation)
    if not holds(operation):
        _general_run(operation, operands, d, threads)
        return
    _, rows, columns = d.shape
    work = rows * columns * operands.depth
    flat = rows <= _FLAT[1] and (rows >= _FLAT[0] or operands.b.itemsize == 1)
    if operands.scale_a is None and (work <= _MIDDLE or operands.depth <= _SHALLOW or flat) and not _is_thin(operation, operands):
        blocks = _blocks(operation, rows, columns, operands.depth, portable_only())
        if blocks is not None:

            def again(a: Codes, b: Codes, c: Codes | None, out: Codes) -> None:
                _in_turn(operation, Operands(a, b, c), out, threads)

            if work <= _SMALL:
                blocks.multiply(operands.a, operands.b, operands.c, d, threads, again)
            else:
                _in_chunks(blocks, operands, d, threads, again)
            return
    _in_turn(operation, operands, d, threads)


def _is_thin(operation: Operation, operands: Operands) -> bool:
    """Whether products have so few rows or columns that the other operand is read where it is."""
    if operation.arithmetic.widened or len(operands.a) == 0 or max(operands.a[0].size, operands.b[0].size) < _THIN:
        return False
    from fastmma.kernels.fused import x86

    return x86.is_thin(fused_parameters(operation), operands.a[0], operands.b[0])


def _in_chunks(
    blocks: Blocks, operands: Operands, d: Codes, threads: int, again: Callable[[Codes, Codes, Codes | None, Codes], None]
) -> None:
    """Products in blocks, cut into rows and columns that are computed apart."""
    products, rows, columns = d.shape
    c = operands.c.copy() if operands.c is not None and np.may_share_memory(operands.c, d) else operands.c
    whole = operands._replace(c=c)
    high = min(rows, 256)
    wide = max(_CHUNK // (high * operands.depth) // 8, 16) * 8
    down, across = -(-rows // high), -(-columns // wide)

    def work(index: int, _stop: int, _worker: int) -> None:
        product, place = divmod(index, down * across)
        top, left = place // across * high, place % across * wide
        part = whole.products(product, product + 1).lines(slice(top, top + high), slice(left, left + wide))
        blocks.multiply(part.a, part.b, part.c, d[product : product + 1, top : top + high, left : left + wide], 1, again)

    parallel_for(work, products * down * across, threads)


def _general_run(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Products by an arithmetic that the other kernels do not hold; operands of whole instructions."""
    from fastmma.kernels.general import products

    if operation.arithmetic.split:
        operands = operands._replace(a=_in_order(operation, operands.a, 2), b=_in_order(operation, operands.b, 1))
    ins, scales = operation.instruction, None
    if operands.scale_a is not None and operands.scale_b is not None:
        own = ins.k // ins.scale_vec_size
        scale = scaled_parameters(operation).scale
        scales = scale, np.repeat(operands.scale_a, own, axis=2), np.repeat(operands.scale_b, own, axis=1)
    wide = widened(operation, operands)
    a, b = (element_of(fmt) for fmt in operation.multiplied)
    products.multiply(general_parameters(operation), a, b, wide.a, wide.b, wide.c, d, threads, scales)


@lru_cache(1024)
def _blocks(operation: Operation, rows: int, columns: int, depth: int, portable: bool) -> Blocks | None:
    """What multiplies batches of matrices of this shape."""
    from fastmma.kernels.fused import batch

    return None if portable else batch.blocks(fused_parameters(operation), fused_coding(operation), rows, columns, depth)


def _in_turn(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    in_turn(
        operation.instruction.k,
        operands,
        d,
        lambda one, out: _gemm(operation, one, out, threads),
        lambda many, out: _tiles(operation, many, out, threads),
    )


def _portable(parameters: Fused, a: Codes, b: Codes, c: Codes | None, d: Codes, threads: int) -> None:
    from fastmma.kernels.fused import portable

    portable.gemm(parameters, a, b, c, d, threads)


run = _with_accumulator(_in_blocks)


def promoted(operation: Operation, operands: Operands, d: Codes, promotion: Promotion, threads: int) -> bool:
    """`Backend.promoted` by kernels that promote; False if there is none for the operation."""
    from fastmma.kernels.fused import x86

    parameters, ordered = fused_parameters(operation), not operation.arithmetic.interleave and holds(operation)
    if not ordered or promotion.every > DEPTH or not x86.promotes(parameters, promotion.every):
        return False
    for part in parts(operands, d, promotion.every):
        chunks = slice(part.start // promotion.every, -(-part.stop // promotion.every))
        joining = promotion.of(part.products).part(chunks, part.rows, part.columns)
        whole = widened(operation, part.of(operation.instruction, operands, d))
        for index, (result, product) in enumerate(zip(d[part.results], each(whole), strict=True)):
            x86.gemm(parameters, product.a, product.b, product.c, result, threads, _portable, joining.of(index))
    return True


def run_registers(operation: Operation, registers: Operands, d: Codes, threads: int) -> bool:
    """`Backend.run_registers`."""
    found = _register_blocks(operation, portable_only())
    if found is None or registers.c is None:
        return False

    def again(a: Codes, b: Codes, c: Codes | None, out: Codes) -> None:
        _on_matrices(operation, Operands(a, b, c), out)

    found.multiply(registers.a, registers.b, registers.c, d, threads, again)
    return True


@lru_cache(1024)
def _register_blocks(operation: Operation, portable: bool) -> RegisterBlocks | None:
    """The kernel for registers of dense matrices whose codes and sums are as they are multiplied and kept."""
    from fastmma.kernels.fused import batch

    ins = operation.instruction
    layouts = [ins.operands[name].layout for name in "abcd"]
    formats = ins.formats.a, ins.formats.b, ins.formats.c, ins.formats.d
    as_they_are = all(layout.tiles == 1 and layout.bits == fmt.bits for layout, fmt in zip(layouts, formats, strict=True))
    if (
        portable
        or operation.arithmetic.method != "fused"
        or ins.sparse
        or ins.stype
        or not as_they_are
        or {ins.ctype, ins.dtype} != {ins.accumulator}
        or operation.arithmetic.interleave
        or not holds(operation)
    ):
        return None
    a, b, c = (layout.inverse[0] for layout in layouts[:3])
    return batch.register_blocks(fused_parameters(operation), fused_coding(operation), batch.Orders(a, b, c, layouts[3].offsets))


def _on_matrices(operation: Operation, registers: Operands, d: Codes) -> None:
    """Registers by way of matrices."""
    operands = operation.instruction.operands
    matrices = {}
    for name, given in (("a", registers.a), ("b", registers.b), ("c", registers.c)):
        layout = operands[name].layout
        codes = np.ascontiguousarray(given).view(f"u{layout.bits // 8}")
        matrices[name] = codes[:, layout.inverse[0]]
    layout = operands["d"].layout
    sums = np.empty((len(d), *layout.shape), f"u{layout.bits // 8}")
    _in_turn(operation, Operands(**matrices), sums, 1)
    placed = np.ascontiguousarray(sums.reshape(len(d), -1)[:, layout.offsets.ravel()])
    d[...] = placed.view(d.dtype)
