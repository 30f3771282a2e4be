"""The backend "numba": each method of the numerics table by compiled kernels, which are imported when they are first needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from fastmma.backends.call import Codes, Operands, Operation, Run, whole_k
from fastmma.backends.engine import Backend
from fastmma.backends.fixed import Form, fixed_product
from fastmma.backends.native_c import with_native_c
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
from fastmma.backends.parts import DEPTH, is_small, parts
from fastmma.backends.zeros import on_dense_kernel
from fastmma.host.threads import parallel_for
from fastmma.isa.codes import decode, encode
from fastmma.isa.formats import Format
from fastmma.kernels.params import Fused, Promotion, Step
from fastmma.numerics.arithmetic import CANONICAL_NAN

if TYPE_CHECKING:
    from fastmma.kernels.fused.batch import Blocks, RegisterBlocks
    from fastmma.kernels.fused.fixed import FixedProduct
    from fastmma.kernels.sums.epilogue import Ending

_BYTES_AT_ONCE = 1 << 27  # of operands that many small products share, copied for each of them
# multiply-adds of a product that is computed in blocks, and of one that blocks are computed of apart, as large as _CHUNK
_SMALL, _MIDDLE, _CHUNK = 1 << 21, 1 << 24, 1 << 22
_THIN = 1 << 20  # codes of the larger operand, from which on products of few rows or columns are computed another way
_SHALLOW, _FLAT = 64, (16, 32)  # k up to which products of any size are, and the rows from and up to which; of bytes, from one row on


class Compiled(Backend):
    """Compiled kernels on this CPU."""

    warps_at_once = 1024
    rows_at_once = 1024  # as many as there are in a piece of a product: a panel of B is packed for each piece anyway

    def run(self, operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
        """`Backend.run`."""
        method, ins = _METHODS[operation.arithmetic.method], operation.instruction
        operands = _filled(operation, operands)
        if is_small(operands, d):
            method(operation, operands, d, threads)
            return
        for part in parts(operands, d, ins.k):
            method(operation, part.of(ins, operands, d), d[part.results], threads)

    def run_registers(self, operation: Operation, registers: Operands, d: Codes, threads: int) -> bool:
        """`Backend.run_registers`."""
        found = _register_blocks(operation, _cpu().portable())
        if found is None or registers.c is None:
            return False

        def again(a: Codes, b: Codes, c: Codes | None, out: Codes) -> None:
            _on_matrices(operation, Operands(a, b, c), out)

        found.multiply(registers.a, registers.b, registers.c, d, threads, again)
        return True

    def fixed(self, operation: Operation, form: Form, ending: Ending | None, threads: int) -> FixedProduct | None:
        """`Backend.fixed`."""
        return fixed_product(operation, form, ending, threads)

    def promoted(self, operation: Operation, operands: Operands, d: Codes, promotion: Promotion, threads: int) -> None:
        """`Backend.promoted`."""
        if operation.arithmetic.method == "fused" and operands.metadata is None and operands.scale_a is None and operands.depth:
            from fastmma.kernels.fused import x86

            parameters, ordered = fused_parameters(operation), not operation.arithmetic.interleave and holds(operation)
            operands = _filled(operation, operands)
            if ordered and promotion.every <= DEPTH and x86.promotes(parameters, promotion.every):
                for part in parts(operands, d, promotion.every):
                    chunks = slice(part.start // promotion.every, -(-part.stop // promotion.every))
                    joining = promotion.of(part.products).part(chunks, part.rows, part.columns)
                    whole = _widened(operation, part.of(operation.instruction, operands, d))
                    for index, (result, product) in enumerate(zip(d[part.results], _each(whole), strict=True)):
                        x86.gemm(parameters, product.a, product.b, product.c, result, threads, _portable, joining.of(index))
                return
        super().promoted(operation, operands, d, promotion, threads)

    def finish(self, sums: Codes, steps: list[Step], out: str, threads: int, results: Codes) -> None:
        """`Backend.finish`, in one pass."""
        from fastmma.kernels.sums import epilogue

        if out != "f32":
            epilogue.apply(sums, steps, threads, results, out == "f16")
            return
        epilogue.apply(sums, steps, threads)
        if results is not sums:
            results[...] = sums


def _filled(operation: Operation, operands: Operands) -> Operands:
    """Operands of whole instructions where steps of zeros may change sums, as they do in an arithmetic of few bits."""
    return whole_k(operation.instruction, operands) if operation.own else operands


@cache
def _cpu() -> ModuleType:
    """What kernels are compiled for. To import it takes long the first time, and to import it again takes a part of a small product."""
    from fastmma.kernels.llvm import cpu

    return cpu


@cache
def _register_blocks(operation: Operation, portable: bool) -> RegisterBlocks | None:
    """The kernel for registers of dense matrices whose codes and sums are as they are multiplied and kept."""
    from fastmma.kernels.fused.batch import Orders, register_blocks

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
    return register_blocks(fused_parameters(operation), fused_coding(operation), Orders(a, b, c, layouts[3].offsets))


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


def _each(operands: Operands) -> list[Operands]:
    """The operands of every product, without their first dimension."""
    return [operands.each(lambda codes: codes[index]) for index in range(len(operands.a))]  # noqa: B023


def _run(one: Run, many: Run) -> Run:
    """`Backend.run` out of a kernel for one product of any strides, and a kernel for many C-contiguous ones of one instruction."""

    def run(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
        if len(d) == 1 or operands.depth > operation.instruction.k:
            for index, product in enumerate(_each(operands)):
                one(operation, product, d[index], threads)
            return
        per_product = sum(codes[:1].size * codes.itemsize for codes in operands if codes is not None)
        at_once = max(1, _BYTES_AT_ONCE // max(1, per_product))
        for first in range(0, len(d), at_once):
            target = d[first : first + at_once]
            results = target if target.flags.c_contiguous else np.empty(target.shape, target.dtype)
            many(operation, operands.products(first, first + at_once).each(np.ascontiguousarray), results, threads)
            if results is not target:
                target[...] = results

    return run


@cache
def widening(fmt: Format, wide: Format) -> Codes:
    """Table from every code of a format to the wider format's code of the same value."""
    return encode(decode(np.arange(1 << fmt.bits), fmt), wide)


def _widened(operation: Operation, operands: Operands) -> Operands:
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


def _fused(kernels: Callable[[Operation, Operands, Codes, int], None]) -> Run:
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


def _fused_one(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    if operands.scale_a is not None and operands.scale_b is not None:
        from fastmma.kernels.scaled import dispatch

        dispatch.gemm(scaled_parameters(operation), operands.a, operands.b, operands.c, d, operands.scale_a, operands.scale_b, threads)
        return
    from fastmma.kernels.fused import portable, x86

    parameters, period = fused_parameters(operation), operation.instruction.k
    if x86.supported(parameters):
        wide = _widened(operation, operands)
        x86.gemm(parameters, wide.a, wide.b, wide.c, d, threads, _portable)
    elif parameters.restart and x86.promotes(parameters._replace(restart=0), period):
        # sums of an instruction that start from zero and join c are promotions
        a, b = _in_order(operation, operands.a, 1), _in_order(operation, operands.b, 0)
        wide = _widened(operation, operands._replace(a=a, b=b))
        x86.gemm(parameters._replace(restart=0), wide.a, wide.b, wide.c, d, threads, _portable, Promotion(period))
    else:
        wide = _widened(operation, operands)
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


def _fused_many(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    if operands.scale_a is not None and operands.scale_b is not None:
        from fastmma.kernels.scaled import dispatch

        dispatch.tiles(scaled_parameters(operation), operands.a, operands.b, operands.c, d, operands.scale_a, operands.scale_b, threads)
        return
    from fastmma.kernels.fused import portable

    wide = _widened(operation, operands)
    portable.tiles(fused_parameters(operation), wide.a, wide.b, wide.c, d, threads, product_order(operation))


def _fused_run(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
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
        blocks = _blocks(operation, rows, columns, operands.depth, _cpu().portable())
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
    wide = _widened(operation, operands)
    a, b = (element_of(fmt) for fmt in operation.multiplied)
    products.multiply(general_parameters(operation), a, b, wide.a, wide.b, wide.c, d, threads, scales)


@cache
def _blocks(operation: Operation, rows: int, columns: int, depth: int, portable: bool) -> Blocks | None:
    """What multiplies batches of matrices of this shape."""
    from fastmma.kernels.fused.batch import blocks

    return None if portable else blocks(fused_parameters(operation), fused_coding(operation), rows, columns, depth)


_in_turn = _run(_fused_one, _fused_many)


def _portable(parameters: Fused, a: Codes, b: Codes, c: Codes | None, d: Codes, threads: int) -> None:
    from fastmma.kernels.fused import portable

    portable.gemm(parameters, a, b, c, d, threads)


def _f64_one(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    from fastmma.kernels.fma import f64

    floats = operands.each(lambda codes: codes.view(np.float64))
    f64.f64_gemm(operation.instruction.rounding, floats.a, floats.b, floats.c, d.view(np.float64), threads)


def _f64_many(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    from fastmma.kernels.fma import f64

    floats = operands.each(lambda codes: codes.view(np.float64))
    f64.f64_tiles(operation.instruction.rounding, floats.a, floats.b, floats.c, d.view(np.float64), threads)


def _f32_one(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    from fastmma.kernels.fma import m8n8k4

    m8n8k4.f32_chain_gemm(operands.a, operands.b, operands.c, d, operation.arithmetic.method == "f32-fma-pairs", threads)


def _f32_many(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    from fastmma.kernels.fma import m8n8k4

    m8n8k4.f32_chain_tiles(operands.a, operands.b, operands.c, d, operation.arithmetic.method == "f32-fma-pairs", threads)


def _chain(kernels: Run) -> Run:
    """Chains of fma, which see the padding of the last instruction."""

    def run(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
        kernels(operation, whole_k(operation.instruction, operands), d, threads)

    return run


def _integers(codes: Codes, fmt: Format) -> Codes:
    """Codes of a multiplicand as int8 or uint8 values."""
    if fmt.kind == "unsigned":
        return codes
    return codes.view(np.int8) if fmt.bits == 8 else ((codes ^ 8) - 8).view(np.int8)


def _integer_one(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    from fastmma.kernels.integer import int8

    ins = operation.instruction
    a, b = _integers(operands.a, ins.formats.a), _integers(operands.b, ins.formats.b)
    c = None if operands.c is None else operands.c.view(np.int32)
    int8.gemm(a, b, c, d.view(np.int32), ins.satfinite, ins.k, threads)


def _integer_many(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    from fastmma.kernels.integer import int8

    ins = operation.instruction
    a, b = _integers(operands.a, ins.formats.a), _integers(operands.b, ins.formats.b)
    c = None if operands.c is None else operands.c.view(np.int32)
    int8.tiles(a, b, c, d.view(np.int32), ins.satfinite, threads)


def _bit_one(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    from fastmma.kernels.integer import b1

    c = None if operands.c is None else operands.c.view(np.int32)
    b1.gemm(operands.a, operands.b, c, d.view(np.int32), operation.instruction.bit_op, threads)


def _bit_many(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    from fastmma.kernels.integer import b1

    c = None if operands.c is None else operands.c.view(np.int32)
    b1.tiles(operands.a, operands.b, c, d.view(np.int32), operation.instruction.bit_op, threads)


_FUSED = on_dense_kernel(with_native_c(_fused(_fused_run)))
_F32 = _chain(_run(_f32_one, _f32_many))
_METHODS: dict[str, Run] = {
    "fused": _FUSED,
    "grouped": _FUSED,
    "f64-fma": _chain(_run(_f64_one, _f64_many)),
    "f32-fma": _F32,
    "f32-fma-pairs": _F32,
    "integer": on_dense_kernel(_run(_integer_one, _integer_many)),
    "bit": _run(_bit_one, _bit_many),
}
