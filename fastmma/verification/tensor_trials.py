"""Trials of tcgen05.mma: matrices put into images of shared memory and Tensor Memory, and the addresses that go with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.execution.tcgen05 import operands as places
from fastmma.isa.formats import Format
from fastmma.isa.fragments import container_bits
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.isa.tcgen05.instruction import largest
from fastmma.isa.tcgen05.matrix_descriptor import MatrixDescriptor
from fastmma.isa.tcgen05.tensor_memory import COLUMNS, LANES
from fastmma.verification.stream import Stream

Codes = NDArray[Any]
_UNIT = 16  # bytes of k that lie together
_D, _METADATA, _SCALE_A, _SCALE_B = 0, 300, 310, 320  # columns
_CORE_BYTES = 128  # of 8 lines of a unit


def tried(target: str) -> tuple[Instruction, ...]:
    """The instructions that are tried on a target: every kind and types on one CTA, dense and sparse."""
    return largest(target)


def _bytes_of_k(ins: Instruction, fmt: Format, k: int) -> int:
    return k * container_bits(fmt, ins.kind) // 8


def _descriptor(start: int, bytes_of_k: int) -> MatrixDescriptor:
    """K-major without swizzle: the units of 8 lines follow each other."""
    return MatrixDescriptor(start, leading=_CORE_BYTES, stride=bytes_of_k // _UNIT * _CORE_BYTES)


def arguments(ins: Instruction) -> dict[str, int]:
    """Addresses and descriptors of a trial."""
    a, b = _bytes_of_k(ins, ins.formats.a, ins.stored_k), _bytes_of_k(ins, ins.formats.b, ins.k)
    found = {"d": _D, "a": _descriptor(0, a).encode(), "b": _descriptor(ins.m * a, b).encode()}
    if ins.sparse:
        found["metadata"] = _METADATA
    if ins.scale_vec_size:
        found |= {"scale_a": _SCALE_A, "scale_b": _SCALE_B}
    return found


def _pack(codes: Codes, fmt: Format, bits: int) -> NDArray[np.uint8]:
    """Lines (count, outer, k) as bytes; narrow elements fill the first bytes of a unit where their containers have 8 bits."""
    if fmt.bits >= 8:
        return np.ascontiguousarray(codes).view(np.uint8)
    held = 8 * _UNIT // bits
    spread = codes[..., None] >> np.arange(fmt.bits, dtype=codes.dtype) & 1
    units = spread.reshape(*codes.shape[:-1], codes.shape[-1] // held, held * fmt.bits).astype(np.uint8)
    filled = np.pad(np.packbits(units, axis=-1, bitorder="little"), [(0, 0)] * (codes.ndim) + [(0, _UNIT - held * fmt.bits // 8)])
    return filled.reshape(*codes.shape[:-1], -1)


def _memory(ins: Instruction, found: dict[str, Codes], given: dict[str, int]) -> NDArray[np.uint8]:
    packed = {}
    for name, codes in (("a", found["a"]), ("b", found["b"].swapaxes(-1, -2))):
        fmt: Format = getattr(ins.formats, name)
        packed[name] = _pack(codes, fmt, container_bits(fmt, ins.kind))
    size = -(-sum(each[0].size for each in packed.values()) // 512) * 512
    memory = np.zeros((len(found["a"]), size), np.uint8)
    for name, each in packed.items():
        memory[:, MatrixDescriptor.decode(given[name]).offsets(each.shape[1], each.shape[2], 8)] = each
    return memory


def _scale_words(ins: Instruction, count: int, stream: Stream) -> NDArray[np.uint32]:
    """Words (count, 128, 12) of scales, the same in every 32 lanes: mostly near 1, now and then at the ends of the format."""
    fmt = ins.formats.scale
    if fmt is None:
        raise ValueError(f"{ins} takes no scales")
    shape = (count, 32, 12, 4)
    near, last = fmt.bias << fmt.mantissa_bits, (1 << fmt.exponent_bits + fmt.mantissa_bits) - 1
    usual = stream.integers(max(0, near - 20), min(near + 20, last), shape)
    rare = stream.choice(np.array([0, 1, last - 1, last]), shape)
    codes = np.where(stream.integers(0, 64, shape) == 0, rare, usual).astype(np.uint8)
    return np.tile(np.ascontiguousarray(codes).view("<u4")[..., 0], (1, LANES // 32, 1))


def _metadata_words(ins: Instruction, count: int, stream: Stream) -> NDArray[np.uint32]:
    """Words (count, 128, 2) whose every nibble is valid."""
    rule = pattern_of(ins)
    words = np.array([word for word, _ in rule.words[: rule.ordered]], np.uint32)
    drawn = stream.choice(words, (count, LANES, 2, 8)) << (4 * np.arange(8, dtype=np.uint32))
    return np.asarray(np.bitwise_or.reduce(drawn, axis=-1), np.uint32)


def placed(ins: Instruction, given: dict[str, int], found: dict[str, Codes], stream: Stream) -> dict[str, Codes]:
    """Images of memory and of Tensor Memory with matrices (count, rows, columns) of codes, where the arguments say."""
    count = len(found["a"])
    tmem = np.zeros((count, LANES, COLUMNS), np.uint32)
    cells = places.matrix_cells(ins.operands["d"].layout, ins, given["d"], f"{ins}: d")
    places.write_accumulators(tmem, cells, found["c"], ins, np.zeros(2 * LANES, np.bool_))
    if ins.sparse:
        tmem[..., _METADATA : _METADATA + 2] = _metadata_words(ins, count, stream)
    if ins.scale_vec_size:
        words = _scale_words(ins, count, stream)
        tmem[..., _SCALE_A : _SCALE_A + 4], tmem[..., _SCALE_B : _SCALE_B + 8] = words[..., :4], words[..., 4:]
    return {"tmem": tmem, "memory": _memory(ins, found, given)}
