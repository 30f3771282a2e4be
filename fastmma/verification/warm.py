"""The calls whose kernels a cache should hold: those that tests and models make, one of each that compiles something of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.execution.tiles import mma
from fastmma.isa.codes import from_codes
from fastmma.isa.formats import FORMATS
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiplications
from fastmma.products.choice import usual_instruction
from fastmma.products.gemm import gemm
from fastmma.products.scaled import scaled_matmul
from fastmma.scaling import SCHEMES, quantize

_LARGE, _DEPTH, _SMALL = 264, 256, 32  # rows and columns that are computed in panels, their k, and those that are computed in blocks
_TILES = 64
_SCALED = ("mxfp8_e4m3", "mxfp4", "nvfp4", "fp8_tensor", "fp8_row", "fp8_1x128")  # the others share their kernels


class Call(NamedTuple):
    """A call: of which kind, for which target, with which format or scheme."""

    kind: str
    target: str
    name: str


def _operand(shape: tuple[int, ...], name: str, bad: bool) -> NDArray[Any]:
    """Ones, with an infinity (or a NaN) where that takes kernels of its own."""
    fmt = FORMATS[name]
    codes = np.zeros(shape, fmt.dtype if fmt.dtype.kind == "u" else f"u{fmt.dtype.itemsize}")
    if bad and fmt.kind == "float":
        codes.flat[0] = (1 << fmt.bits - 1) - 1
    return from_codes(codes, fmt)


def _instruction(call: Call) -> Instruction:
    found = usual_instruction(call.name, call.name, None, call.target)
    assert found is not None, f"{call.target} has no instruction for {call.name}"
    return found


def _of_a_warp(target: str, name: str) -> Instruction | None:
    """The deepest dense mma for a format."""
    of_warps = [ins for ins in multiplications(target, (name, name)) if ins.op == "mma" and not ins.sparse and not ins.stype]
    return max(of_warps, key=lambda ins: (ins.dtype == ins.ctype, ins.k, ins.formats.d.bits, not ins.satfinite), default=None)


def _product(call: Call, size: int, **options: Any) -> None:
    ins = _instruction(call)
    a, b = _operand((size, _DEPTH), call.name, True), _operand((_DEPTH, size), call.name, False)
    gemm(a, b, instruction=ins, target=call.target, threads=1, **options)


def _large(call: Call) -> None:
    _product(call, _LARGE)


def _small(call: Call) -> None:
    _product(call, _SMALL)


def _finish(call: Call) -> None:
    _product(call, _SMALL, bias=np.zeros(_SMALL, np.float32), out_dtype="bf16")


def _tiles(call: Call) -> None:
    ins = _of_a_warp(call.target, call.name)
    assert ins is not None, f"{call.target} has no mma for {call.name}"
    a, b = (_operand((_TILES, *shape), call.name, False) for shape in ((ins.m, ins.k), (ins.k, ins.n)))
    c = _operand((_TILES, ins.m, ins.n), ins.ctype, False)
    mma(ins, a, b, c, target=call.target)


def _scale(call: Call) -> None:
    a, b = (quantize(np.ones((_LARGE, _DEPTH), np.float32), call.name) for _ in range(2))
    scaled_matmul(a, b.T, target=call.target, threads=1)


# in the order in which they are compiled: what takes longest comes first
_KINDS: dict[str, Callable[[Call], None]] = {"large": _large, "scaled": _scale, "small": _small, "tiles": _tiles, "finished": _finish}


def _names(kind: str, target: str) -> list[str]:
    """The formats or schemes that a kind of call takes on a target."""
    formats = [name for name in FORMATS if usual_instruction(name, name, None, target) is not None]
    if kind == "scaled":
        return [name for name in _SCALED if {SCHEMES[name].element, "f16"} & set(formats)]
    if kind == "tiles":
        return [name for name in formats if _of_a_warp(target, name) is not None]
    if kind == "finished":
        return [name for name in formats if FORMATS[name].kind == "float" and name != "f64"]
    return formats


def calls(targets: Sequence[str]) -> list[Call]:
    """The calls for some targets, of what they have instructions for.

    Examples
    --------
    >>> [call.name for call in calls(["sm_70"]) if call.kind == "large"]
    ['f16']
    """
    return [Call(kind, target, name) for kind in _KINDS for target in targets for name in _names(kind, target)]


def run(call: Call) -> None:
    """Make a call, whose kernels are compiled unless the cache has them."""
    _KINDS[call.kind](call)
