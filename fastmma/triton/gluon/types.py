"""Types of the compiler's intermediate code: numbers, pointers, tensors, memory descriptors and tensor descriptors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fastmma.isa.formats import format_of
from fastmma.triton.formats import BY_MLIR

_SHAPE = re.compile(r"^((?:\d+x)*)(.*)$")
_INTEGERS = {"i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "index": np.int64}


@dataclass(frozen=True)
class Type:
    """One type.

    Attributes
    ----------
    kind : {"scalar", "tensor", "memory", "descriptor", "token"}
    element : str
        As it is printed: ``"f32"``, ``"i64"``, ``"!tt.ptr<f16>"``.
    shape : tuple of int
    layout : str
        The layout in full, empty where there is none.
    space : str
        Of a memory descriptor: ``"shared"`` or ``"tensor"``.
    allocated : tuple of int
        Of a memory descriptor, the shape of what it is a part of.
    """

    kind: str
    element: str
    shape: tuple[int, ...] = ()
    layout: str = ""
    space: str = ""
    allocated: tuple[int, ...] = ()

    @property
    def is_float(self) -> bool:
        """Tell whether elements are floating-point numbers."""
        return self.element.startswith(("f", "bf"))

    @property
    def is_pointer(self) -> bool:
        """Tell whether elements are addresses."""
        return self.element.startswith("!tt.ptr")

    @property
    def format(self) -> str:
        """The name that fastmma has for the element format; empty for integers and pointers."""
        element = BY_MLIR.get(self.element)
        return element.format if element is not None and self.is_float else ""

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type of an element."""
        if self.is_pointer:
            return np.dtype(np.int64)
        if self.element in _INTEGERS:
            return np.dtype(_INTEGERS[self.element])
        return np.dtype(format_of(BY_MLIR[self.element].format).dtype)

    @property
    def pointee(self) -> Type:
        """The type that a pointer leads to."""
        return Type("scalar", self.element[len("!tt.ptr<") : -1].partition(",")[0])

    @property
    def bits(self) -> int:
        """The width of an element."""
        return 1 if self.element == "i1" else self.dtype.itemsize * 8


def split_at_commas(text: str) -> list[str]:
    """Split at the commas outside of brackets.

    Examples
    --------
    >>> split_at_commas("a, f(b, c), [1, 2]")
    ['a', 'f(b, c)', '[1, 2]']
    """
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        if letter in "([{<":
            depth += 1
        elif letter in ")]}" or (letter == ">" and text[index - 1] != "-"):
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def _end_of(text: str, start: int) -> int:
    """Find the end of a bracket that opens at a place."""
    depth = 0
    for index in range(start, len(text)):
        if text[index] == "<":
            depth += 1
        elif text[index] == ">" and text[index - 1] != "-":
            depth -= 1
            if depth == 0:
                return index + 1
    raise ValueError(f"a bracket is not closed: {text}")


def expand_layout(text: str, aliases: dict[str, str]) -> str:
    """Write the names of layouts out."""
    while True:
        found = re.search(r"#(?!ttg\.|ttng\.)\w+", text)
        if found is None or found[0] not in aliases:
            return text
        text = text[: found.start()] + aliases[found[0]] + text[found.end() :]


def _parse_inner(kind: str, inner: str, aliases: dict[str, str]) -> Type:
    first, *rest = split_at_commas(inner)
    found = _SHAPE.match(first)
    assert found is not None
    shape = tuple(int(size) for size in found[1].split("x") if size)
    element = re.sub(r"^[su]i", "i", found[2])
    layout = expand_layout(rest[0], aliases) if rest else ""
    if kind != "memory":
        return Type(kind, element, shape, layout)
    space = "tensor" if rest[1:2] == ["#ttng.tensor_memory"] else "shared"
    sizes = [part for part in rest[2:] if re.fullmatch(r"\d+(x\d+)*", part)]
    allocated = tuple(int(size) for size in sizes[0].split("x")) if sizes else shape
    return Type(kind, element, shape, layout, space, allocated)


_STARTS = (
    ("tensor<", "tensor"),
    ("!ttg.memdesc<", "memory"),
    ("!tt.tensordesc<", "descriptor"),
    ("!ttng.tensordesc_im2col<", "descriptor"),
    ("<", "memory"),
)


def parse_types(text: str, aliases: dict[str, str]) -> list[Type]:
    """Parse all types in a text, in their order.

    Examples
    --------
    >>> [kind.shape for kind in parse_types("tensor<4x8xf32, #a>, i32", {"#a": "#ttg.blocked<{}>"})]
    [(4, 8), ()]
    """
    found, index = [], 0
    while index < len(text):
        for start, kind in _STARTS:
            if text.startswith(start, index):
                end = _end_of(text, index + len(start) - 1)
                found.append(_parse_inner(kind, text[index + len(start) : end - 1], aliases))
                index = end
                break
        else:
            if text.startswith("!tt.ptr<", index):
                end = _end_of(text, index + len("!tt.ptr"))
                found.append(Type("scalar", text[index:end]))
                index = end
            elif text.startswith("i128", index):  # the answer of cluster launch control, which is kept as it is
                found.append(Type("token", "i128"))
                index += len("i128")
            elif text.startswith("!ttg.async.token", index):
                found.append(Type("token", "token"))
                index += len("!ttg.async.token")
            else:
                word = re.compile(r"bf16|f8E4M3FN|f8E5M2|f\d+|i\d+|index").match(text, index)
                at_start = index == 0 or not (text[index - 1].isalnum() or text[index - 1] in "_#.")
                if word and at_start:
                    found.append(Type("scalar", word[0]))
                    index = word.end()
                else:
                    index += 2 if text.startswith("->", index) else 1
    return found
