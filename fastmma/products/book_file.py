"""The file of a plan book: read, and checked before anything is made of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import FastmmaError, OperandError
from fastmma.host.files import opened
from fastmma.host.npy import Arrays, arrays_in
from fastmma.host.strict_json import parsed
from fastmma.isa.formats import FORMATS
from fastmma.isa.table import multiply
from fastmma.products.choice import usual_instruction
from fastmma.products.presets import ENDS

NOT_RECORDED = 0xFFFF  # index of an entry, where a GPU was not asked; 0 is an order that no plan has
PLACES = ("kind", "m", "n", "k")
# what a kind and an entry may be made of
KINDS = ("product", "biased")
LAYOUTS = ("nn", "nt", "tn", "tt")
JOINS = {"f32": "ascending", "out": "workspace", "inplace": "in-place"}
OPCODE = "mma.sync.aligned.{shape}.row.col.f32.{fmt}.{fmt}.f32"

_LARGEST = 1 << 26  # bytes of an array; those of the book that ships have 200,000
_LONGEST = 200  # characters of a name
_MOST = 1 << 16  # parts, and k of a unit or a tile
_ABOUT = {"library": str, "through": str, "gpus": dict, "kinds": list, "entries": list}
_ENTRY = {"instruction": str, "first_tile": int, "split_k": int, "split_unit": int, "join": str, "ends": str}
_INSTRUCTION = re.compile(r"wgmma|m\d+n\d+k\d+", re.ASCII)
_TYPES = {"kind": np.uint8} | dict.fromkeys("mnk", np.uint32)


class Contents(NamedTuple):
    """The contents of a plan book: texts, the rows of its tables, and for each product its place in them."""

    library: str
    through: str
    gpus: dict[str, str]
    kinds: tuple[tuple[str, str, str], ...]
    entries: tuple[tuple[Any, ...], ...]
    places: dict[str, NDArray[Any]]
    found: dict[str, NDArray[np.uint16]]


def contents(path: Path) -> Contents:
    """Read a plan book.

    Raises
    ------
    OperandError
        If there is no such file, or anything in it is not what a plan book has there.
    """
    try:
        with opened(path) as file:
            arrays = arrays_in(file, path.name, bound=_LARGEST)
            about = _about(arrays)
            places = {name: _column(arrays, name, dtype) for name, dtype in _TYPES.items()}
            found = {gpu: _column(arrays, gpu, np.uint16) for gpu in about["gpus"]}
    except (ValueError, FastmmaError) as error:
        raise OperandError(str(error)) from None
    kinds, entries = (tuple(map(tuple, about[name])) for name in ("kinds", "entries"))
    _check_places(places, found, len(kinds), len(entries))
    _check_instructions(kinds, entries, places["kind"], found)
    return Contents(about["library"], about["through"], about["gpus"], kinds, entries, places, found)


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise OperandError(problem)


def _about(arrays: Arrays) -> dict[str, Any]:
    """The texts and tables, which are JSON."""
    about = parsed(_column(arrays, "about", np.uint8).tobytes())
    _check_types(about, _ABOUT, "what it says of itself")
    _require(all(map(_is_text, about["gpus"].values())), f"its GPUs must have names, not {about['gpus']!r:.80}")
    for kind in about["kinds"]:
        _require(isinstance(kind, list) and len(kind) == 3 and _is_kind(*kind), f"a kind of products cannot be {kind!r:.80}")
    for entry in about["entries"]:
        _require(isinstance(entry, list) and len(entry) == len(_ENTRY), f"an entry must have {', '.join(_ENTRY)}, and is {entry!r:.80}")
        _check_types(dict(zip(_ENTRY, entry, strict=True)), _ENTRY, f"entry {entry!r:.80}")
        name, first_tile, split_k, split_unit, join, ends = entry
        in_range = 0 <= first_tile < _MOST and 0 < split_k < _MOST and 0 <= split_unit < _MOST
        _require(in_range and bool(_INSTRUCTION.fullmatch(name)) and join in JOINS and ends in ENDS, f"an entry cannot be {entry!r:.80}")
    for name in ("kinds", "entries"):
        _require(len({*map(tuple, about[name])}) == len(about[name]) < NOT_RECORDED, f"its {name} must be few, and each there once")
    return about  # type: ignore[no-any-return]


def _check_types(row: Any, types: Mapping[str, type], what: str) -> None:
    """Raise OperandError unless a JSON object has entries of these types, and texts that can be shown."""
    _require(isinstance(row, dict), f"{what} must be an object, not {row!r:.40}")
    for name, kind in types.items():
        value = row.get(name)
        _require(type(value) is kind and (kind is not str or _is_text(value)), f"{name} of {what} cannot be {value!r:.80}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST and value.isprintable()


def _is_kind(kind: Any, fmt: Any, layout: Any) -> bool:
    known = isinstance(fmt, str) and fmt in FORMATS and usual_instruction(fmt, fmt, "f32", "sm_90a") is not None
    return kind in KINDS and known and layout in LAYOUTS


def _column(arrays: Arrays, name: str, dtype: type) -> NDArray[Any]:
    """One array, of one dimension."""
    _require(name in arrays, f"it has no array {name!r:.40}")
    head = arrays[name].head()
    right = head.dtype.newbyteorder("=") == dtype and len(head.shape) == 1
    _require(right, f"{name!r:.40} must be of type {np.dtype(dtype)} with one dimension, and is {head.dtype} of shape {head.shape}")
    return arrays[name]().astype(dtype, copy=False)


def _check_places(places: dict[str, NDArray[Any]], found: dict[str, NDArray[np.uint16]], kinds: int, entries: int) -> None:
    """Raise OperandError unless the columns are products in ascending order, each once, and places in the tables."""
    lengths = {name: len(column) for name, column in (places | found).items()}
    _require(len({*lengths.values()}) == 1, f"its columns must be of one length, and have {lengths!r:.200}")
    _require(bool((places["kind"] < kinds).all()), f"it has {kinds} kinds of products, and 'kind' names one more")
    for name in PLACES[1:]:
        _require(bool(places[name].all()), f"{name!r} must be at least 1")
    above = np.zeros(max(0, len(places["m"]) - 1), bool)
    alike = ~above
    for name in PLACES:
        column = places[name]
        above |= alike & (column[1:] > column[:-1])
        alike &= column[1:] == column[:-1]
    _require(bool(above.all()), "its products must be in ascending order, and each there once")
    for gpu, column in found.items():
        _require(bool(((column <= entries) | (column == NOT_RECORDED)).all()), f"it has {entries} entries, and {gpu!r:.40} names one more")


def _check_instructions(
    kinds: tuple[tuple[str, str, str], ...],
    entries: tuple[tuple[Any, ...], ...],
    kind: NDArray[np.uint8],
    found: dict[str, NDArray[np.uint16]],
) -> None:
    """Raise OperandError unless each entry's instruction takes the formats of the products that have it, and divides its first tile."""
    used = {pair for column in found.values() for pair in np.unique(kind.astype(np.uint32) << 16 | column).tolist()}
    for fmt, index in {(kinds[pair >> 16][1], pair & 0xFFFF) for pair in used}:
        if index in (0, NOT_RECORDED):
            continue
        name, first_tile, *_ = entry = entries[index - 1]
        try:
            ins = usual_instruction(fmt, fmt, "f32", "sm_90a") if name == "wgmma" else multiply(OPCODE.format(shape=name, fmt=fmt))
        except FastmmaError as error:
            raise OperandError(f"an entry of {fmt} cannot be {entry!r:.80}: {error}") from None
        _require(ins is not None and first_tile % ins.k == 0, f"an entry of {fmt} cannot be {entry!r:.80}, whose instruction has another k")
