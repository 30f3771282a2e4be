"""Trials: an opcode with everything that it takes, drawn reproducibly and executed by any backend, so that backends can be compared."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.execution import tcgen05, warp, warpgroup
from fastmma.host.calls import public_call
from fastmma.isa.descriptor import Descriptor
from fastmma.isa.instruction import Instruction, Movement
from fastmma.isa.scales import scale_selectors
from fastmma.isa.sparsity import pattern_of, selectors
from fastmma.isa.table import instruction
from fastmma.operands.registers import scatter, stored_dtype
from fastmma.operands.scales import pack_scales
from fastmma.verification import inputs, scenes, tensor_trials
from fastmma.verification.stream import Stream

Registers = NDArray[Any]
_LINE_BYTES = 16
# bytes beyond what a movement touches, which must not change
_MARGIN = 64


@dataclass(frozen=True)
class Trial:
    """Executions of one opcode.

    Attributes
    ----------
    opcode : str
    operands : dict of str to array
        Registers, memory, addresses, metadata and scales by the names of the public calls' parameters, one execution after the other along
        the first dimension.
    arguments : dict of str to int
        Selectors, descriptors and other immediates, the same in all executions.
    labels : tuple of str
        What the values of each execution were drawn from.
    """

    opcode: str
    operands: dict[str, Registers]
    arguments: dict[str, int] = field(default_factory=dict)
    labels: tuple[str, ...] = ()

    @property
    def instruction(self) -> Instruction | Movement:
        """The opcode's row."""
        return instruction(self.opcode)

    def run(self, target: str, backend: str) -> Registers:
        """Return what the opcode gives: registers of d, registers loaded, or memory stored to."""
        ins = self.instruction
        call = _CALLS[ins.op]
        # a descriptor of A is an argument, its registers are an operand; both are the parameter a
        given: dict[str, Any] = {**self.operands, **self.arguments}
        where = {"target": target} if "target" in inspect.signature(call).parameters else {}
        return call(ins, **given, **where, backend=backend)


_CALLS: dict[str, Callable[..., Registers]] = {
    "mma": warp.mma,
    "wmma": warp.mma,
    "v_mfma": warp.mma,
    "wgmma": warpgroup.mma,
    "tcgen05": tcgen05.mma,
    "ldmatrix": warp.ldmatrix,
    "stmatrix": warp.stmatrix,
    "movmatrix": warp.movmatrix,
    "wmma.load": warp.wmma_load,
    "wmma.store": warp.wmma_store,
}


class _Parameters(NamedTuple):
    """The names of what a call can be given, of what it must be, and of what is an integer, beside the opcode and where it runs."""

    possible: frozenset[str]
    needed: frozenset[str]
    integers: frozenset[str]


@lru_cache(64)
def _parameters(op: str) -> _Parameters:
    _, *rest = inspect.signature(_CALLS[op]).parameters.values()
    names = [each for each in rest if each.name not in ("target", "backend", "threads")]
    return _Parameters(
        frozenset(each.name for each in names),
        frozenset(each.name for each in names if each.default is each.empty),
        frozenset(each.name for each in names if "int" in str(each.annotation).split(" | ")),
    )


def argument_names(ins: Instruction | Movement) -> frozenset[str]:
    """The names of what an opcode's call can be given."""
    return _parameters(ins.op).possible


def takes(trial: Trial) -> bool:
    """Tell whether the opcode's call can be given the operands and arguments of a trial, each of them once, and no array for an integer."""
    call, arrays, given = _parameters(trial.instruction.op), trial.operands.keys(), {*trial.operands, *trial.arguments}
    return call.needed <= given <= call.possible and not arrays & (call.integers | trial.arguments.keys())


_MOST_OF_SCENES = 10  # bits: those of f16 and TF32


def labels_of(ins: Instruction | Movement) -> tuple[str, ...]:
    """The distributions and scenes that an opcode's values can be drawn from."""
    if isinstance(ins, Movement):
        return ("bits",)
    fmt = ins.formats.a
    if fmt.kind != "float":
        return tuple("/".join(pair) for pair in inputs.INTEGER_PAIRS)
    pairs = tuple("/".join(pair) for pair in inputs.PAIRS)
    # scenes list all significands of a format
    return pairs if fmt.mantissa_bits > _MOST_OF_SCENES else pairs + tuple(scenes.SCENES)


def variants(ins: Instruction | Movement) -> tuple[dict[str, int], ...]:
    """The arguments that an opcode is to be tried with: every sparsity selector, and the selectors of block scales one after the other."""
    if isinstance(ins, Movement) or ins.op == "tcgen05":
        return ({},)
    chosen: list[dict[str, int]] = [{"selector": selector} for selector in selectors(ins)] if ins.sparse else [{}]
    if ins.scale_vec_size:
        ids = [
            {f"byte_id_{operand}": byte, f"thread_id_{operand}": thread}
            for operand in "ab"
            for byte in scale_selectors(ins, operand).byte_id
            for thread in scale_selectors(ins, operand).thread_id
        ]
        chosen = [{**first, **more} for first in chosen for more in ids]
    return tuple(chosen)


def _matrices(ins: Instruction, label: str, count: int, stream: Stream) -> dict[str, Registers]:
    """Codes of a, b and c, (count, rows, columns) each."""
    if label in scenes.SCENES:
        return scenes.matrices(ins, label, count, stream)
    multiplicands, accumulators = label.split("/")
    shapes = {"a": (ins.atype, ins.m, ins.stored_k), "b": (ins.btype, ins.k, ins.n), "c": (ins.ctype, ins.m, ins.n)}
    return {
        name: inputs.codes(fmt, accumulators if name == "c" else multiplicands, count * rows * columns, stream).reshape(
            count, rows, columns
        )
        for name, (fmt, rows, columns) in shapes.items()
    }


def _fragments(matrices: Registers, ins: Instruction, name: str) -> Registers:
    operand = ins.operands[name]
    codes = matrices.astype(stored_dtype(operand), copy=False)
    tiles = operand.layout.tiles
    return scatter(codes.reshape(-1, tiles, *codes.shape[1:]) if tiles > 1 else codes, operand, kind=ins.kind)


def metadata_registers(ins: Instruction, count: int, stream: Stream) -> NDArray[np.uint32]:
    """Valid metadata in every lane, also in those that the selector does not choose."""
    rule = pattern_of(ins)
    words = np.array([word for word, _ in rule.words[: rule.ordered if ins.ordered_metadata else None]], dtype=np.uint32)
    drawn = stream.choice(words, (count, ins.lanes, 8)) << (4 * np.arange(8, dtype=np.uint32))
    return np.asarray(np.bitwise_or.reduce(drawn, axis=-1), dtype=np.uint32)


def _scale_registers(ins: Instruction, operand: str, count: int, arguments: dict[str, int], stream: Stream) -> NDArray[np.uint32]:
    fmt = ins.formats.scale
    if fmt is None:
        raise ValueError(f"{ins} takes no scales")
    rows = ins.m if operand == "a" else ins.n
    shape = (count, rows, ins.scale_vec_size)
    near = fmt.bias << fmt.mantissa_bits
    low, high = max(0, near - 20), min(near + 20, (1 << fmt.exponent_bits + fmt.mantissa_bits) - 1)
    codes = stream.integers(low, high, shape)
    rare = stream.choice(
        np.array([0, 1, (1 << fmt.exponent_bits + fmt.mantissa_bits) - 2, (1 << fmt.exponent_bits + fmt.mantissa_bits) - 1]), shape
    )
    mixed = np.where(stream.integers(0, 64, shape) == 0, rare, codes).astype(np.uint8)
    return pack_scales(ins, mixed, operand, arguments.get(f"byte_id_{operand}", 0), arguments.get(f"thread_id_{operand}", 0))


def _join(parts: Sequence[dict[str, Registers]]) -> dict[str, Registers]:
    return parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _extra(ins: Instruction, count: int, arguments: dict[str, int], stream: Stream) -> dict[str, Registers]:
    extra: dict[str, Registers] = {}
    if ins.sparse:
        extra["metadata"] = metadata_registers(ins, count, stream)
    if ins.scale_vec_size:
        extra |= {f"scale_{operand}": _scale_registers(ins, operand, count, arguments, stream) for operand in "ab"}
    return extra


def _draw_mma(ins: Instruction, arguments: dict[str, int], label: str, count: int, stream: Stream) -> dict[str, Registers]:
    found = _matrices(ins, label, count * ins.tiles, stream)
    return {name: _fragments(found[name], ins, name) for name in "abc"} | _extra(ins, count, arguments, stream)


def image(codes: Registers, descriptor: Descriptor, bits: int, size: int, *, mn_major: bool = False) -> NDArray[np.uint8]:
    """Memory images (count, size) that hold matrices of codes (count, outer, k) where a descriptor says; zero elsewhere."""
    count, outer, k = codes.shape
    if bits < 8:
        codes = np.packbits(codes, axis=-1, bitorder="little")
        places = descriptor.offsets(outer, k, bits, mn_major=mn_major)[:, :: 8 // bits]
        width = 1
    else:
        places, width = descriptor.offsets(outer, k, bits, mn_major=mn_major), bits // 8
    memory = np.zeros((count, size), np.uint8)
    raw = np.ascontiguousarray(codes).view(np.uint8).reshape(count, *places.shape, width)
    memory[:, places[..., None] + np.arange(width)] = raw
    return memory


def _draw_wgmma(ins: Instruction, arguments: dict[str, int], label: str, count: int, stream: Stream) -> dict[str, Registers]:
    found = _matrices(ins, label, count, stream)
    size = memory_size(ins, arguments)
    bits = {"a": ins.formats.a.bits, "b": ins.formats.b.bits}
    trans = {name: bool(arguments.get(f"imm_trans_{name}", 0)) for name in "ab"}
    b = Descriptor.decode(arguments["b"])
    memory = image(found["b"].swapaxes(-1, -2), b, bits["b"], size, mn_major=trans["b"])
    operands = {"d": _fragments(found["c"], ins, "d")}
    if "a" in arguments:
        memory |= image(found["a"], Descriptor.decode(arguments["a"]), bits["a"], size, mn_major=trans["a"])
    else:
        operands["a"] = _fragments(found["a"], ins, "a")
    return operands | {"memory": memory} | _extra(ins, count, arguments, stream)


def memory_size(ins: Instruction, arguments: dict[str, int]) -> int:
    """Bytes of shared memory that the descriptors of a wgmma reach, rounded up to 512."""
    reach = 0
    for name, outer, k, fmt in (("a", ins.m, ins.stored_k, ins.formats.a), ("b", ins.n, ins.k, ins.formats.b)):
        if name in arguments:
            places = Descriptor.decode(arguments[name]).offsets(outer, k, fmt.bits, mn_major=bool(arguments.get(f"imm_trans_{name}", 0)))
            reach = max(reach, int(places.max()) + max(1, fmt.bits // 8))
    return -(-reach // 512) * 512


def _draw_lines(move: Movement, _: dict[str, int], _label: str, count: int, stream: Stream) -> dict[str, Registers]:
    """ldmatrix and stmatrix: rows of 16 bytes at places of their own, in any order."""
    lines = 2 * move.num * move.lines
    places = np.argsort(stream.bits(count * lines).reshape(count, lines), axis=1)[:, : move.num * move.lines] * _LINE_BYTES
    addresses = np.zeros((count, 32), np.int64)
    addresses[:, : places.shape[1]] = places
    operands = {"memory": stream.integers(0, 256, (count, lines * _LINE_BYTES), np.uint8), "addresses": addresses}
    if move.op == "stmatrix":
        operands["registers"] = stream.integers(0, 1 << 32, (count, 32, move.registers), np.uint32)
    return operands


def _draw_movmatrix(_move: Movement, _: dict[str, int], _label: str, count: int, stream: Stream) -> dict[str, Registers]:
    return {"registers": stream.integers(0, 1 << 32, (count, 32), np.uint32)}


def _draw_wmma_move(move: Movement, arguments: dict[str, int], _label: str, count: int, stream: Stream) -> dict[str, Registers]:
    lines = move.rows if move.layout_in_memory == "row" else move.cols
    size = lines * arguments["stride"] * move.bits // 8 + _MARGIN
    operands = {"memory": stream.integers(0, 256, (count, size), np.uint8)}
    if move.op == "wmma.store":
        dtype = np.dtype(f"u{move.layout.register_bits // 8}")
        words = stream.bits(count * 32 * move.registers) >> np.uint64(64 - 8 * dtype.itemsize)
        operands["registers"] = words.astype(dtype).reshape(count, 32, move.registers)
    return operands


def _draw_tcgen05(ins: Instruction, arguments: dict[str, int], label: str, count: int, stream: Stream) -> dict[str, Registers]:
    return tensor_trials.placed(ins, arguments, _matrices(ins, label, count, stream), stream)


_DRAWS: dict[str, Callable[[Any, dict[str, int], str, int, Stream], dict[str, Registers]]] = {
    "mma": _draw_mma,
    "wmma": _draw_mma,
    "v_mfma": _draw_mma,
    "wgmma": _draw_wgmma,
    "tcgen05": _draw_tcgen05,
    "ldmatrix": _draw_lines,
    "stmatrix": _draw_lines,
    "movmatrix": _draw_movmatrix,
    "wmma.load": _draw_wmma_move,
    "wmma.store": _draw_wmma_move,
}


def default_arguments(ins: Instruction | Movement, stream: Stream) -> dict[str, int]:
    """Return what an opcode needs beside its operands: descriptors, signs of wgmma's multiplicands, strides of wmma's matrices."""
    if isinstance(ins, Movement):
        if not ins.op.startswith("wmma"):
            return {}
        least = ins.cols if ins.layout_in_memory == "row" else ins.rows
        step = 8 * min(ins.registers * ins.layout.register_bits // 8, _LINE_BYTES) // ins.bits
        return {"stride": least + step * int(stream.integers(0, 3, 1)[0])}
    if ins.op == "tcgen05":
        return tensor_trials.arguments(ins)
    if ins.op != "wgmma":
        return {}
    units = ins.k * ins.formats.b.bits // 128
    found = {"b": Descriptor(0, leading=128, stride=128 * units).encode()}
    if ins.dtype != "s32":
        signs = 1 - 2 * stream.integers(0, 2, 2)
        found |= {"imm_scale_a": int(signs[0]), "imm_scale_b": int(signs[1])}
    return found


@public_call
def draw(ins: Instruction | Movement, labels: Sequence[str], count: int, *key: int | str, **arguments: int) -> Trial:
    """Draw `count` executions of each label.

    Parameters
    ----------
    labels : sequence of str
        Of those that `labels_of` lists.
    *key : int or str
        The seed; opcode and arguments are part of it as well.
    **arguments : int
        Immediates, in place of the default ones.

    Examples
    --------
    >>> ins = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> draw(ins, ("mid/mid", "tie"), 2, 0).operands["a"].shape
    (4, 32, 4)
    """
    chosen = default_arguments(ins, Stream("arguments", *key, str(ins))) | arguments
    named = ",".join(f"{name}={value}" for name, value in sorted(chosen.items()))
    parts = [_DRAWS[ins.op](ins, chosen, label, count, Stream(*key, str(ins), named, label)) for label in labels]
    return Trial(str(ins), _join(parts), chosen, tuple(label for label in labels for _ in range(count)))


def elements(ins: Instruction | Movement, result: Registers) -> int:
    """Elements in what a trial gave."""
    bits = ins.bits if isinstance(ins, Movement) else ins.formats.d.bits
    return math.prod(result.shape) * result.dtype.itemsize * 8 // bits
