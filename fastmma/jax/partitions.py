"""Cuts of products among several devices: read from the program of XLA's partitioner, before what is emulated is compiled."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from fastmma.jax.internals import Location, partitioned_program, spans_devices

_TAG = "fastmma_product_"
_INSTRUCTION = re.compile(r"%([\w.-]+) = \w+\[([\d,]*)\]\S* ([\w-]+)\(([^)]*)\)(.*)")
_DIMENSIONS = re.compile(r"(lhs|rhs)_(contracting|batch)_dims=\{([\d,]*)\}")
_JOINS = ("all-reduce", "reduce-scatter")


@dataclass(frozen=True)
class Cut:
    """The part of one product that each device multiplies.

    Attributes
    ----------
    lhs, rhs : tuple of int
        The shapes of its operands.
    dimensions : tuple
        Those that are contracted and those of the batch, for either operand, as `jax.lax.dot_general` has them.
    joined : str
        The operation by which devices add their results: ``"all-reduce"`` or ``"reduce-scatter"``, empty where they do not.
    """

    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    dimensions: tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]
    joined: str


@dataclass
class Lowering:
    """One lowering of a program: natively, to see what the partitioner makes of its products, or then with what is known of them.

    Attributes
    ----------
    is_native : bool
    cuts : mapping
        By the number of a product, in the order in which they are lowered.
    count : int
        Products so far.
    """

    is_native: bool
    cuts: Mapping[int, Cut] = field(default_factory=dict)
    count: int = 0


_current: ContextVar[Lowering | None] = ContextVar("fastmma_jax_lowering", default=None)


@contextmanager
def _lowering(made: Lowering) -> Iterator[None]:
    token = _current.set(made)
    try:
        yield
    finally:
        _current.reset(token)


def is_native() -> bool:
    """Tell whether a program is lowered as XLA would, to see how it is partitioned."""
    current = _current.get()
    return current is not None and current.is_native


def take_cut(lower: Callable[[], Any]) -> tuple[Cut | None, Any]:
    """Return how the next product is cut, if that is known, or lower it natively under a name of its own."""
    current = _current.get()
    if current is None:
        return None, None
    number, current.count = current.count, current.count + 1
    if not current.is_native:
        return current.cuts.get(number), None
    with Location.name(f"{_TAG}{number}_"):
        return None, lower()


def lower_with_cuts(lower: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Lower a program; one of several devices is lowered and compiled natively first.

    Parameters
    ----------
    lower : callable
        JAX's own function, with its arguments.
    """
    if not spans_devices(arguments, options) or _current.get() is not None:
        return lower(*arguments, **options)
    with _lowering(Lowering(True)):
        text = _partition(lower, *arguments, **options)
    with _lowering(Lowering(False, find_cuts(text))):
        return lower(*arguments, **options)


def _partition(lower: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """Return the program of one device after XLA's partitioner; nothing if XLA does not compile it natively."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            partitioned_program(lower, arguments, options, folder)
        except (jax.errors.JaxRuntimeError, NotImplementedError, ValueError):
            return ""
        return "\n".join(path.read_text() for path in Path(folder).glob("*after_spmd-partitioning*"))


def find_cuts(text: str) -> dict[int, Cut]:
    """Find the products in the program of one device.

    Examples
    --------
    >>> text = '''%p = bf16[16,64]{1,0} parameter(0)
    ... %q = bf16[64,8]{1,0} parameter(1)
    ... %dot = bf16[16,8]{1,0} dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="fastmma_product_0_"}
    ... ROOT %all-reduce = bf16[16,8]{1,0} all-reduce(%dot), channel_id=1'''
    >>> find_cuts(text)[0].lhs, find_cuts(text)[0].joined
    ((16, 64), 'all-reduce')
    """
    found = [match.groups() for match in _INSTRUCTION.finditer(text)]
    shapes = {name: _numbers(shape) for name, shape, *_ in found}
    joins = {operand.strip().lstrip("%"): operation for _, _, operation, operand, _ in found if operation in _JOINS}
    cuts: dict[int, list[Cut]] = {}
    for name, _, operation, operands, rest in found:
        tag = re.search(rf"{_TAG}(\d+)_", rest)
        if operation != "dot" or tag is None:
            continue
        lhs, rhs = (shapes[operand.strip().lstrip("%")] for operand in operands.split(","))
        sides = {(side, kind): _numbers(numbers) for side, kind, numbers in _DIMENSIONS.findall(rest)}
        contracted, batch = (tuple(sides.get((side, kind), ()) for side in ("lhs", "rhs")) for kind in ("contracting", "batch"))
        cut = Cut(lhs, rhs, ((contracted[0], contracted[1]), (batch[0], batch[1])), joins.get(name, ""))
        cuts.setdefault(int(tag[1]), []).append(cut)
    return {number: several[0] for number, several in cuts.items() if len(set(several)) == 1}


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",") if each)
