"""The backend "cupy": products on real tensor cores, in the same k order as the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.backends.call import Codes, Operands, Operation, whole_k
from fastmma.backends.engine import Backend
from fastmma.backends.gpu import device, raw
from fastmma.backends.gpu.multiplication_ptx import loop_kernel, warpgroup_kernel
from fastmma.host.errors import BackendError
from fastmma.isa.descriptor import Descriptor
from fastmma.isa.instruction import Instruction, Operand
from fastmma.isa.sparsity import pattern_of
from fastmma.operands.registers import gather, scatter, stored_dtype
from fastmma.operands.scales import pack_scales
from fastmma.operands.sparse import pack_metadata

# fragments in GPU memory at a time
_BYTES = 1 << 30
_GRID = 65535


def _contained(codes: Codes, operand: Operand) -> Codes:
    """Codes as wide as their containers in registers."""
    return codes.astype(stored_dtype(operand), copy=False)


def _fragments(codes: Codes, ins: Instruction, name: str) -> Codes:
    """Matrices (count, rows, columns) to fragments (count / tiles, lanes, registers), filled up with zeros to whole warps."""
    operand = ins.operands[name]
    tiles = operand.layout.tiles
    matrices = _contained(codes, operand)
    if tiles > 1:
        missing = -len(matrices) % tiles
        matrices = np.pad(matrices, ((0, missing), (0, 0), (0, 0))).reshape(-1, tiles, *matrices.shape[1:])
    return scatter(matrices, operand, kind=ins.kind)


def _matrices(fragments: Codes, ins: Instruction, count: int, dtype: np.dtype[Any]) -> Codes:
    """Fragments of D back to matrices."""
    operand = ins.operands["d"]
    return gather(fragments, operand, kind=ins.kind).reshape(-1, *operand.shape)[:count].astype(dtype, copy=False)


def _image(b: Codes, ins: Instruction) -> Codes:
    """Memory images (count, bytes) of B matrices (count, k, n): K-major, not swizzled, blocks of 8 columns."""
    bits = ins.formats.b.bits
    columns = np.ascontiguousarray(b.swapaxes(-1, -2))
    raw = np.packbits(columns, axis=-1, bitorder="little") if bits < 8 else columns.view(np.uint8)
    units = raw.reshape(len(b), ins.n // 8, 8, -1, 16).swapaxes(2, 3)
    flat = np.ascontiguousarray(units).reshape(len(b), -1)
    return np.pad(flat, ((0, 0), (0, -flat.shape[1] % 512)))


def _descriptor(ins: Instruction) -> int:
    """Of `_image`: k units of a block of 8 columns follow each other."""
    units = ins.k * ins.formats.b.bits // 128
    return Descriptor(0, leading=128, stride=128 * units).encode()


def immediates(ins: Instruction) -> tuple[int, ...]:
    """imm-scale-a, imm-scale-b and imm-trans-b of a wgmma with A in registers, neutral."""
    scales = () if ins.dtype == "s32" else (1, 1)
    return scales + ((0,) if ins.formats.b.bits == 16 else ())


def _launch(
    operation: Operation, fragments: dict[str, Codes], c: Codes, grid: tuple[int, int], steps: int, strides: tuple[int, int, int, int]
) -> Codes:
    """Run the loop over k on fragments; `strides` are a_x, a_y, b_x and b_y."""
    ins, target = operation.instruction, operation.target
    given = {name: device.to_device(array) for name, array in fragments.items()}
    before = device.to_device(c)
    d = ins.operands["d"]
    result = device.empty((len(c), ins.lanes, d.registers), c.dtype if d.layout.register_bits == 64 else np.uint32)
    if ins.op == "wgmma":
        text = warpgroup_kernel(ins, target, image_bytes=fragments["b"].shape[1], immediates=immediates(ins))
        arguments: tuple[Any, ...] = (
            given["a"],
            before,
            result,
            given.get("metadata"),
            given["b"],
            steps,
            *strides,
            0,
            _descriptor(ins),
            1,
        )
    else:
        text = loop_kernel(ins, target)
        extra = (given.get("metadata"), given.get("scale_a"), given.get("scale_b"))
        arguments = (given["a"], given["b"], before, result, *extra, steps, *strides)
    device.launch(text, grid, ins.lanes, arguments)
    return device.to_host(result)


def _prepare(ins: Instruction, batch: Operands) -> dict[str, Codes]:
    """Fragments, images, metadata and scales of matrices of the instruction's shape."""
    found = {"a": _fragments(batch.a, ins, "a"), "b": _image(batch.b, ins) if ins.op == "wgmma" else _fragments(batch.b, ins, "b")}
    if batch.metadata is not None:
        found["metadata"] = pack_metadata(ins, batch.metadata)
    if batch.scale_a is not None and batch.scale_b is not None:
        found["scale_a"] = pack_scales(ins, np.ascontiguousarray(batch.scale_a), "a")
        found["scale_b"] = pack_scales(ins, np.ascontiguousarray(batch.scale_b.swapaxes(-1, -2)), "b")
    return found


def _instructions(operation: Operation, operands: Operands, d: Codes) -> None:
    """Products of one instruction each."""
    ins = operation.instruction
    per_tile = 8 * (ins.m * ins.k + ins.k * ins.n + 2 * ins.m * ins.n)
    grain = max(ins.tiles, _BYTES // per_tile // ins.tiles * ins.tiles)
    for start in range(0, len(d), grain):
        part = operands.products(start, start + grain)
        count = len(part.a)
        before = part.c if part.c is not None else np.zeros((count, ins.m, ins.n), dtype=ins.formats.c.code_dtype)
        c = _fragments(before, ins, "c")
        # warps in a row of the grid, each with operands of its own
        after = _launch(operation, _prepare(ins, part), c, (len(c), 1), 1, (1, 0, 1, 0))
        d[start : start + grain] = _matrices(after, ins, count, d.dtype)


def _blocks(codes: Codes, rows: int, columns: int) -> Codes:
    """A matrix cut into blocks (row blocks, column blocks, rows, columns), filled up with zeros."""
    missing = (-codes.shape[0] % rows, -codes.shape[1] % columns)
    filled = np.pad(codes, ((0, missing[0]), (0, missing[1])))
    return filled.reshape(filled.shape[0] // rows, rows, filled.shape[1] // columns, columns).swapaxes(1, 2)


def _flat(blocks: Codes) -> Codes:
    return np.ascontiguousarray(blocks).reshape(-1, *blocks.shape[2:])


def _product(operation: Operation, operands: Operands, d: Codes) -> None:
    """One product of any size; operands and `d` are matrices."""
    ins = operation.instruction
    a = _blocks(operands.a, ins.m, ins.stored_k)
    b = _blocks(operands.b, ins.k, ins.n).swapaxes(0, 1)
    rows, steps = a.shape[:2]
    columns = b.shape[0]
    metadata = None if operands.metadata is None else _metadata_blocks(operands.metadata, ins, rows)
    scale_a = None if operands.scale_a is None else _flat(_blocks(operands.scale_a, ins.m, ins.scale_vec_size))
    scale_b = None if operands.scale_b is None else _flat(_blocks(operands.scale_b, ins.scale_vec_size, ins.n).swapaxes(0, 1))
    fragments = _prepare(ins, Operands(_flat(a), _flat(b), None, metadata, scale_a, scale_b))
    before = np.zeros(d.shape, d.dtype) if operands.c is None else operands.c
    c = _fragments(_flat(_blocks(before, ins.m, ins.n)), ins, "c")
    for start in range(0, rows, _GRID):
        stop = min(start + _GRID, rows)
        part = dict(fragments)
        for name in ("a", "metadata", "scale_a"):
            if name in part:
                part[name] = part[name][start * steps : stop * steps]
        after = _launch(operation, part, c[start * columns : stop * columns], (columns, stop - start), steps, (0, 1, 1, 0))
        blocks = gather(after, ins.operands["d"], kind=ins.kind).reshape(stop - start, columns, ins.m, ins.n)
        joined = blocks.swapaxes(1, 2).reshape((stop - start) * ins.m, columns * ins.n)
        lines = slice(start * ins.m, min(stop * ins.m, d.shape[0]))
        d[lines] = joined[: lines.stop - lines.start, : d.shape[1]]


def _metadata_blocks(words: Codes, ins: Instruction, rows: int) -> Codes:
    """Metadata of whole blocks; rows that fill up select valid places of zeros."""
    rule = pattern_of(ins)
    filled = np.pad(words, ((0, rows * ins.m - words.shape[0]), (0, 0)), constant_values=rule.words[0][0])
    return _flat(_blocks(filled, ins.m, ins.k // rule.chunk))


def _product_by_steps(operation: Operation, operands: Operands, d: Codes) -> None:
    """m8n8k4 with f16 does four products a warp: a step of k at a time, all blocks together."""
    ins = operation.instruction
    d[...] = 0 if operands.c is None else operands.c
    rows, columns = -(-d.shape[0] // ins.m), -(-d.shape[1] // ins.n)
    for k in range(0, operands.b.shape[0], ins.k):
        a = _blocks(operands.a[:, k : k + ins.k], ins.m, ins.k)[:, 0]
        b = _blocks(operands.b[k : k + ins.k], ins.k, ins.n)[0]
        c = _flat(_blocks(d, ins.m, ins.n))
        after = np.empty_like(c)
        _instructions(operation, Operands(np.repeat(a, columns, axis=0), np.tile(b, (rows, 1, 1)), c), after)
        joined = after.reshape(rows, columns, ins.m, ins.n).swapaxes(1, 2).reshape(rows * ins.m, columns * ins.n)
        d[...] = joined[: d.shape[0], : d.shape[1]]


class Silicon(Backend):
    """The GPU in the machine where it is the target; if not, calls raise a BackendError or a TargetError."""

    raw = raw

    def run(self, operation: Operation, operands: Operands, d: Codes, threads: int) -> None:  # noqa: ARG002 - the GPU has its own
        """`Backend.run`."""
        ins = operation.of_silicon().instruction
        if ins.op == "fma":
            raise BackendError(f"{ins}: backend='cupy' executes matrix instructions; backend='cupy-emulate' has the bits of this one")
        device.check_target(operation.target)
        if d.size == 0 or operands.depth == 0:
            d[...] = 0 if operands.c is None else operands.c
        elif (*d.shape[1:], operands.depth) == (ins.m, ins.n, ins.k):
            _instructions(operation, operands, d)
        else:
            whole = whole_k(ins, operands)
            for index in range(len(d)):
                product = whole.each(lambda codes: codes[index])  # noqa: B023
                (_product_by_steps if ins.tiles > 1 else _product)(operation, product, d[index])
