"""The emulations that are entered: the innermost decides what JAX compiles, for the whole process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakSet

import jax

from fastmma.host import forks
from fastmma.jax.compiled import watch_compiled
from fastmma.jax.equations import count_equations
from fastmma.jax.internals import lower_equations, lower_program, register, replace_lowering_of_equations, replace_lowering_of_programs
from fastmma.jax.kernels import mark_kernels
from fastmma.jax.partitions import is_native, lower_with_cuts
from fastmma.jax.report import Report, set_current

_changing = forks.shared_lock(outermost=True)
_entered: list[Emulation] = []
_undo: list[Callable[[], None]] = []


@dataclass(eq=False)
class Emulation:
    """The settings of an emulation, and the report of it.

    Attributes
    ----------
    report : Report
    rules : mapping
        Lowerings by primitive.
    change_interpreter : callable
        Has JAX's interpreter of Mosaic GPU kernels multiply as a GPU does, and returns what undoes that; None where it is not imported yet.
    refuse : callable
        Takes why a product is not emulated and its place; raises or warns if a caller wants it.
    made : set
        The programs that were compiled ahead of time within.
    """

    report: Report
    rules: Mapping[Any, Callable[..., Any]]
    change_interpreter: Callable[[], Callable[[], None] | None]
    refuse: Callable[[str, tuple[str, int] | None], None]
    made: WeakSet[Any] = field(default_factory=WeakSet)


def enter(emulation: Emulation) -> None:
    """Make an emulation the innermost."""
    with _changing:
        _entered.append(emulation)
        _apply()


def leave(emulation: Emulation) -> None:
    """End an emulation; the last that is still entered decides again."""
    with _changing:
        _entered.remove(emulation)
        _apply()


def _apply() -> None:
    """Put JAX's own lowerings back, and then those of the innermost emulation in their places; forget what was compiled."""
    while _undo:
        _undo.pop()()
    set_current(None)
    if _entered:
        innermost = _entered[-1]
        changed: list[Any] = []

        def change_interpreter() -> None:
            undo = None if changed else innermost.change_interpreter()
            if undo is not None:
                changed.append(undo)
                _undo.append(undo)

        def lower(context: Any, jaxpr: Any, *arguments: Any, **options: Any) -> Any:
            marked = mark_kernels(jaxpr, tuple(context.platforms))
            change_interpreter()
            if not is_native():
                count_equations(innermost.report, jaxpr.eqns, tuple(context.platforms), options.get("outer_traceback"), innermost.refuse)
            return lower_equations(context, marked, *arguments, **options)

        set_current(innermost.report)
        replace_lowering_of_equations(lower)
        _undo.append(lambda: replace_lowering_of_equations(lower_equations))
        replace_lowering_of_programs(partial(lower_with_cuts, lower_program))
        _undo.append(lambda: replace_lowering_of_programs(lower_program))
        _undo.extend(register(primitive, rule) for primitive, rule in innermost.rules.items())
        _undo.append(watch_compiled(innermost.report, innermost.made))
    jax.clear_caches()
