"""The form of an element: every operation that its sum takes, over the places of k, without any operand's value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

Places = tuple[int, ...]  # of k; of sparse A, of what is stored
PADDING = -1  # the place of zeros that fill an instruction


@dataclass(frozen=True)
class StepRule:
    """The rule by which a fused step adds its terms: numbers of `fastmma.Arithmetic` that decide its bits.

    A number that cannot show is `NO_FLOOR`, "exact", 0 or empty.
    """

    sums: str
    method: str
    align_bits: int
    align_rounding: str
    emax_floor: int
    keep_bits: int
    rounding: str
    group: int = 1
    widened: str = ""
    native_c: bool = False
    c_joins: str = "terms"
    join_bits: int = 0
    flush_inputs: bool = False
    flush_results: bool = False
    negative_zero: bool = False
    flush_before: bool = False  # whether the value before counts as an input: it is the c of an instruction

    @cached_property
    def _hash(self) -> int:
        numbers = self.sums, self.method, self.align_bits, self.align_rounding, self.emax_floor, self.keep_bits, self.rounding
        return hash((*numbers, self.group, self.widened, self.c_joins, self.join_bits, self.negative_zero))

    def __hash__(self) -> int:
        return self._hash

    @property
    def is_exact(self) -> bool:
        """Tell whether a step loses nothing, neither by alignment nor by its rounding."""
        return self.align_rounding == self.rounding == "exact" and not (self.flush_inputs or self.flush_results)


class Node:
    """A value: an operation on others."""

    def __add__(self, other: Node) -> Node:
        """Add a value by an f32 add, as lanes do."""
        return add("f32", self, other)


@dataclass(frozen=True)
class Start(Node):
    """The value before the first product: ``"0"``, ``"-0"``, or ``"c"``, which the caller gives."""

    name: str = "0"


@dataclass(frozen=True)
class Steps(Node):
    """Fused steps, one after the other, the value so far being a term of each; a step without places has no other."""

    before: Node
    steps: tuple[tuple[StepRule, Places], ...]


@dataclass(frozen=True)
class Chain(Node):
    """Chain of IEEE fma in a format."""

    before: Node
    fmt: str
    mode: str
    places: Places


@dataclass(frozen=True)
class Sum(Node):
    """Sum of values by IEEE adds to nearest, from the first on: ``((first + second) + third) + ...``."""

    fmt: str
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Exact(Node):
    """The exact sum of products; a zero is +0."""

    places: Places


@dataclass(frozen=True)
class Integers(Node):
    """Sum of integers modulo 2**32; saturated after each of the steps, if there are any. Bits are joined by an operation."""

    places: Places
    before: Node
    operation: str
    saturated: tuple[Places, ...] = ()


@dataclass(frozen=True)
class Rounded(Node):
    """A value rounded to a narrower format."""

    fmt: str
    value: Node


@dataclass(frozen=True)
class Promoted(Node):
    """Partial sums that join a total from zero, with the scales of their chunks of k."""

    rule: str
    parts: tuple[tuple[int, Node], ...]  # the chunk's number, and the partial sum


@dataclass(frozen=True)
class Ended(Node):
    """Steps of an epilogue on a value; `c` is what is added, if that is no operand."""

    steps: tuple[str, ...]
    out: str
    value: Node
    c: Node | None = None


def add(fmt: str, first: Node, second: Node) -> Node:
    """Join two values by an IEEE add."""
    head = first.parts if isinstance(first, Sum) and first.fmt == fmt else (first,)
    return Sum(fmt, (*head, second))


def moved(form: Any, by: int) -> Any:
    """Return a form whose places of k are others, so many further."""
    if isinstance(form, Node):
        return replace(form, **{each.name: moved(getattr(form, each.name), by) for each in fields(form)})  # type: ignore[type-var, arg-type]
    if isinstance(form, tuple):
        return tuple(moved(each, by) for each in form)
    return form + by if isinstance(form, int) and form != PADDING else form


def walk(form: Node) -> Iterator[Any]:
    """Yield all values of a form."""
    waiting: list[Any] = [form]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += [value for value in (getattr(each, name, None) for name in ("before", "value", "c")) if value is not None]
        waiting += [part[1] for part in each.parts] if isinstance(each, Promoted) else getattr(each, "parts", ())


def rules(form: Node) -> set[StepRule]:
    """Gather the rules of all fused steps."""
    return {rule for node in walk(form) if isinstance(node, Steps) for rule, _ in node.steps}
