"""The file of a plan book: products and what cuBLASLt chooses for each, checked before anything is made of it.

It is an ``.npz`` archive. ``about`` is JSON: the GPU, the library, its version, how it was asked, and a list of kinds. Each row of
``choices`` has the nine attributes of a choice, its workspace (-1 where nothing depends on it), and how many samples had the bits of its
order; 0 says that the order is not known. The columns ``kind``, ``n``, ``k``, ``m`` and ``choice`` have a row for each product.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import FastmmaError, OperandError
from fastmma.host.files import opened, written
from fastmma.host.npy import Arrays, arrays_in
from fastmma.host.strict_json import parsed

PLACES = ("kind", "n", "k", "m")
ATTRIBUTES = 9
WORKSPACE, SAMPLES = ATTRIBUTES, ATTRIBUTES + 1  # columns of the choices
LAYOUTS = ("nn", "nt", "tn", "tt")
ADDENDS = ("", "bias", "bias as c")  # the last where PyTorch adds a bias as c, for want of a kernel with a bias
LARGEST_SIZE = (1 << 32) - 1
_LARGEST = 1 << 27  # bytes of an array
_LONGEST = 300  # characters of a text
_MOST_KINDS = 1 << 16
_UNSAID = 0xFFFFFFFF  # no attribute is above cuBLASLt's value of one that an algorithm does not have
_ABOUT = ("gpu", "library", "version", "how")
_TYPES = {"kind": np.uint16, "choice": np.uint32} | dict.fromkeys("mnk", np.uint32)


class Type(NamedTuple):
    """A type of products, as books name it."""

    fmt: str  # of both operands
    out: str  # the format of the result, as PyTorch has it
    fast: bool = False  # whether 8-bit floats are not promoted


TYPES = {
    "bf16": Type("bf16", "bf16"),
    "f16": Type("f16", "f16"),
    "tf32": Type("tf32", "f32"),
    "f32": Type("f32", "f32"),
    "e4m3": Type("e4m3", "bf16"),
    "e4m3fast": Type("e4m3", "bf16", fast=True),
}


class Kind(NamedTuple):
    """A kind of products.

    Attributes
    ----------
    type : str
        One of `TYPES`.
    layout : str
        Of a and b: n where rows are contiguous, t where columns are.
    out : str
        The format of the result; empty where it was found to make no difference.
    addend : str
        One of `ADDENDS`.
    stack : int
        How many products are computed at once.
    """

    type: str
    layout: str
    out: str = ""
    addend: str = ""
    stack: int = 1


class Contents(NamedTuple):
    """The contents of a plan book."""

    gpu: str
    library: str
    version: str
    how: str
    kinds: tuple[Kind, ...]
    choices: NDArray[np.int64]
    columns: dict[str, NDArray[Any]]


def read_contents(path: Path) -> Contents:
    """Read a plan book.

    Raises
    ------
    OperandError
        If there is no such file, or anything in it is not what a plan book has there.
    """
    try:
        with opened(path) as file:
            arrays = arrays_in(file, path.name, bound=_LARGEST)
            texts, kinds = _read_about(arrays)
            choices = _read_array(arrays, "choices", np.int64, 2)
            columns = {name: _read_array(arrays, name, dtype, 1) for name, dtype in _TYPES.items()}
    except (ValueError, FastmmaError) as error:
        raise OperandError(str(error)) from None
    _check_choices(choices)
    _check_columns(columns, len(kinds), len(choices))
    return Contents(texts["gpu"], texts["library"], texts["version"], texts["how"], kinds, choices, columns)


def write_contents(path: Path, contents: Contents) -> None:
    """Write a plan book, whose products are put in order.

    Raises
    ------
    OperandError
        If the folder or the disk does not take it.
    """
    about = {name: getattr(contents, name) for name in _ABOUT} | {"kinds": contents.kinds}
    order = np.lexsort([contents.columns[name] for name in reversed(PLACES)])
    arrays = {name: contents.columns[name].astype(dtype)[order] for name, dtype in _TYPES.items()}
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    with written(path) as file:
        np.savez_compressed(file, allow_pickle=False, about=text, choices=contents.choices.astype(np.int64), **arrays)


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise OperandError(problem)


def _read_array(arrays: Arrays, name: str, dtype: type, dimensions: int) -> NDArray[Any]:
    _require(name in arrays, f"it has no array {name!r}")
    head = arrays[name].head()
    right = head.dtype.newbyteorder("=") == dtype and len(head.shape) == dimensions
    said = f"of type {np.dtype(dtype)} with {dimensions} dimensions, and is {head.dtype} of shape {head.shape}"
    _require(right, f"{name!r} must be {said}")
    return arrays[name]().astype(dtype, copy=False)


def _read_about(arrays: Arrays) -> tuple[dict[str, str], tuple[Kind, ...]]:
    """Read the texts and the kinds, which are JSON."""
    about = parsed(_read_array(arrays, "about", np.uint8, 1).tobytes())
    _require(isinstance(about, dict), f"what it says of itself must be an object, not {about!r:.40}")
    texts = {name: about.get(name) for name in _ABOUT}
    for name, value in texts.items():
        shown = isinstance(value, str) and 0 < len(value) <= _LONGEST and value.isprintable()
        _require(shown, f"{name} of what it says of itself cannot be {value!r:.80}")
    rows = about.get("kinds")
    _require(isinstance(rows, list) and len(rows) <= _MOST_KINDS, "its kinds of products must be a list, and few")
    for row in rows:
        _require(isinstance(row, list) and len(row) == len(Kind._fields), f"a kind of products must have {', '.join(Kind._fields)}")
        _require(_is_kind(*row), f"a kind of products cannot be {row!r:.80}")
    kinds = tuple(Kind(*row) for row in rows)
    _require(len({*kinds}) == len(kinds), "its kinds of products must be there once each")
    return texts, kinds


def _is_kind(kind: Any, layout: Any, out: Any, addend: Any, stack: Any) -> bool:
    texts = all(isinstance(each, str) for each in (kind, layout, out, addend)) and type(stack) is int
    known = texts and kind in TYPES and layout in LAYOUTS and addend in ADDENDS
    return known and out in ("", "bf16", "f16", "f32") and 1 <= stack < _UNSAID


def _check_choices(choices: NDArray[np.int64]) -> None:
    """Raise OperandError unless every row is a choice."""
    _require(choices.shape[1] == SAMPLES + 1, f"'choices' must have {SAMPLES + 1} columns, and has {choices.shape[1]}")
    least = np.zeros(SAMPLES + 1, np.int64)
    least[[2, WORKSPACE]] = -1  # of a split of k that is not said, and of no workspace
    _require(bool((choices >= least).all()), "'choices' has numbers below 0")
    _require(bool((choices[:, :ATTRIBUTES] < _UNSAID).all()), f"'choices' has attributes from {_UNSAID} on")


def _check_columns(columns: dict[str, NDArray[Any]], kinds: int, choices: int) -> None:
    """Raise OperandError unless the columns are products in ascending order, each once, and places in the tables."""
    lengths = {name: len(column) for name, column in columns.items()}
    _require(len({*lengths.values()}) == 1, f"its columns must be of one length, and have {lengths!r:.200}")
    for name, count in (("kind", kinds), ("choice", choices)):
        _require(bool((columns[name] < count).all()), f"it has {count} {name}s, and {name!r} names one more")
    for name in "mnk":
        _require(bool(columns[name].all()), f"{name!r} must be at least 1")
    above = np.zeros(max(0, lengths["m"] - 1), bool)
    alike = ~above
    for name in PLACES:
        column = columns[name]
        above |= alike & (column[1:] > column[:-1])
        alike &= column[1:] == column[:-1]
    _require(bool(above.all()), "its products must be in ascending order, and each there once")
