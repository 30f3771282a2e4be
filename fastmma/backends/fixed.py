"""Small products whose shapes and strides are known beforehand, where a compiled kernel computes them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fastmma.backends.call import Operation
from fastmma.backends.parameters import fused_coding, fused_parameters, holds

if TYPE_CHECKING:
    from fastmma.kernels.sums.epilogue import Ending

_WORK, _RESULTS = 1 << 21, 1 << 16  # multiply-adds and results of all products
_MATRIX = 1 << 16  # codes of an operand, up to which a single product may have more multiply-adds
_SHARED_WORK = 1 << 19  # multiply-adds that one thread is done with before others would have begun
_BATCH = 1 << 10
_BYTES, _PANEL = 1 << 17, 256  # of a packed operand, of which a product keeps one; columns that count as so many rows of it
_SHARED_BYTES = 1 << 21  # multiply-adds of bytes


class Form(NamedTuple):
    """Shapes of products, and strides in bytes of a (products, M, K) and b (products, K, N)."""

    products: int
    rows: int
    columns: int
    depth: int
    a: tuple[int, int, int]
    b: tuple[int, int, int]
    start: bool  # whether sums start from f32 numbers (products, M, N), C-contiguous


class Fixed(Protocol):
    """A product of which all but addresses is known."""

    def __call__(self, a: Any, b: Any, out: int, start: Any = None, addend: int = 0) -> bool:
        """Write the products to an address; False where one is out of reach. `a`, `b` and `start` are arrays or addresses."""


def fixed_product(operation: Operation, form: Form, ending: Ending | None, threads: int) -> Fixed | None:
    """What computes products of this form, or None where no kernel does it in one go."""
    if operation.arithmetic.method == "integer":
        return _fixed_integers(operation, form, ending, threads)
    ins, results = operation.instruction, form.products * form.rows * form.columns
    work = results * form.depth
    usual = operation.arithmetic.method == "fused" and not operation.own and not operation.arithmetic.interleave
    dense = not ins.sparse and not ins.scale_vec_size and ins.ctype == ins.dtype == ins.accumulator == "f32"
    alone = form.products == 1 and max(form.rows, form.columns) * form.depth <= _MATRIX
    done_soon = work <= _SHARED_WORK if threads > 1 else alone or work <= _WORK
    small = work > 0 and done_soon and results <= _RESULTS and form.products <= _BATCH
    if not (usual and dense and small and holds(operation)):
        return None
    from fastmma.kernels.fused import batch, fixed
    from fastmma.kernels.llvm import cpu

    if cpu.portable():
        return None
    found = batch.blocks(fused_parameters(operation), fused_coding(operation), form.rows, form.columns, form.depth)
    if found is None or (form.start and found.p.restart):
        return None
    sums = (4 * form.rows * form.columns, 4 * form.columns, 4)
    loop = batch.loop_of(found.kernel, form.rows, form.columns, form.depth, form.a, form.b, sums if form.start else None, sums)
    return fixed.FixedProduct(loop, form.products, ending)


def _fixed_integers(operation: Operation, form: Form, ending: Ending | None, threads: int) -> Fixed | None:
    """A product of bytes whose sums wrap."""
    ins, (rows, columns, depth) = operation.instruction, form[1:4]
    formats = ins.formats.a, ins.formats.b
    usual = form.products == 1 and ending is None and not ins.sparse and not ins.satfinite and not operation.own
    small = rows * columns <= _RESULTS and max(rows, _PANEL) * depth <= _BYTES and (threads == 1 or rows * columns * depth <= _SHARED_BYTES)
    if not (usual and small and all(fmt.bits == 8 for fmt in formats) and 1 in form.a[1:] and 1 in form.b[1:]):
        return None
    from fastmma.kernels.integer import int8

    kinds = "u" if formats[0].kind == "unsigned" else "i", "u" if formats[1].kind == "unsigned" else "i"
    return int8.fixed(kinds, (rows, columns, depth), form.a[1:], form.b[1:], form.start)
