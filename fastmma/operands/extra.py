"""Operands besides A, B and C: metadata of sparse A, and scales of blocks; of matrices and out of registers."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from fastmma.host.arrays import as_array
from fastmma.host.errors import OperandError
from fastmma.host.integers import whole
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.operands.check import check_shape, codes_of
from fastmma.operands.scales import unpack_scales
from fastmma.operands.sparse import check_metadata, unpack_metadata


def _scale_codes(value: Any, name: str, ins: Instruction) -> NDArray[Any]:
    """Codes of scales given as elements (float8_e8m0fnu, or float8_e4m3fn for ue4m3, which has no sign)."""
    what = f"{ins}: {name}"
    fmt = ins.formats.scale
    assert fmt is not None
    codes = codes_of(value, fmt, what)
    if not fmt.signed and fmt.exponent_bits + fmt.mantissa_bits < fmt.bits and (codes >> 7).any():
        raise OperandError(f"{what} must not be negative: {fmt} has no sign")
    return codes


def extra_operands(ins: Instruction, metadata: Any, scale_a: Any, scale_b: Any, m: int, n: int, k: int) -> dict[str, NDArray[Any]]:
    """Metadata words and scales at matrix level, checked, for a product of these sizes; leading dimensions are free.

    Raises
    ------
    OperandError, OperandTypeError
    """
    extra: dict[str, NDArray[Any]] = {}
    _check_given(ins, metadata, scale_a, scale_b)
    if ins.sparse:
        rule, words = pattern_of(ins), as_array(metadata, f"{ins}: metadata")
        shape = (*words.shape[:-2], m, k // rule.chunk)
        extra["metadata"] = check_metadata(words, shape, rule, ordered=ins.ordered_metadata, what=f"{ins}: metadata")
    if ins.scale_vec_size:
        scales = -(-k * ins.scale_vec_size // ins.k)
        for name, value, tail in (("scale_a", scale_a, (m, scales)), ("scale_b", scale_b, (scales, n))):
            extra[name] = _scale_codes(value, name, ins)
            check_shape(extra[name], tail, f"{ins}: {name}")
    return extra


def register_operands(
    ins: Instruction,
    metadata: Any = None,
    selector: Any = 0,
    scale_a: Any = None,
    scale_b: Any = None,
    ids_a: tuple[Any, Any] = (0, 0),
    ids_b: tuple[Any, Any] = (0, 0),
) -> dict[str, NDArray[Any]]:
    """Metadata words and scales out of registers, checked, as a backend takes them; `ids` are byte and thread ids.

    Raises
    ------
    OperandError, OperandTypeError
    """
    _check_given(ins, metadata, scale_a, scale_b)
    check_unused(ins, selector, *ids_a, *ids_b)
    extra: dict[str, NDArray[Any]] = {}
    if ins.sparse:
        extra["metadata"] = unpack_metadata(ins, metadata, selector=selector)
    if ins.scale_vec_size:
        extra["scale_a"] = unpack_scales(ins, scale_a, "a", *ids_a)
        extra["scale_b"] = unpack_scales(ins, scale_b, "b", *ids_b).swapaxes(-1, -2)
    return extra


def check_unused(ins: Instruction, selector: Any, *ids: Any) -> None:
    """Raise OperandError unless selectors are 0 where the instruction takes no metadata, or no scales."""
    if not ins.sparse and whole(selector) != 0:
        raise OperandError(f"{ins}: selector must be 0 where A is dense, not {selector!r}")
    if not ins.scale_vec_size and set(map(whole, ids)) - {0}:
        raise OperandError(f"{ins}: there is no block scaling, so byte and thread ids must be 0")


def _check_given(ins: Instruction, metadata: Any, scale_a: Any, scale_b: Any) -> None:
    """Raise OperandError unless metadata and scales are given exactly where the instruction has them."""
    sparse, scaled = bool(ins.sparse), bool(ins.scale_vec_size)
    if (metadata is not None) == sparse and (scale_a is not None) == (scale_b is not None) == scaled:
        return
    wanted = (
        ("metadata", metadata, sparse, "sparse"),
        ("scale_a", scale_a, scaled, "block-scaled"),
        ("scale_b", scale_b, scaled, "block-scaled"),
    )
    for name, value, needed, reason in wanted:
        if needed and value is None:
            raise OperandError(f"{ins}: the instruction is {reason} and needs {name}")
        if not needed and value is not None:
            raise OperandError(f"{ins}: the instruction is not {reason} and takes no {name}")
