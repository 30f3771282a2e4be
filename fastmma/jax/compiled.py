"""Programs that a caller compiled ahead of time: those of before an emulation are counted, since it does not see into them."""

from __future__ import annotations

from collections.abc import Callable, MutableSet
from functools import wraps
from typing import Any

from fastmma.jax.calls import write_place
from fastmma.jax.internals import Compiled, Lowered, find_place
from fastmma.jax.report import Line, Report
from fastmma.products.report import UNSEEN

_LINE = Line("jax.stages.Compiled", UNSEEN, "", "was compiled outside of this emulation: compile it within")


def watch_compiled(report: Report, made: MutableSet[Any]) -> Callable[[], None]:
    """Count calls of compiled programs, but for those that are made from now on, and return what ends it.

    Parameters
    ----------
    report : Report
    made : set
        The programs that were made within the emulation.
    """
    initialize, compile_it, call = Lowered.__init__, Lowered.compile, Compiled.__call__

    @wraps(initialize)
    def initialize_and_keep(self: Any, *arguments: Any, **options: Any) -> None:
        initialize(self, *arguments, **options)
        made.add(self)

    @wraps(compile_it)
    def compile_and_keep(self: Any, *arguments: Any, **options: Any) -> Any:
        found = compile_it(self, *arguments, **options)
        if self in made:
            made.add(found)
        return found

    @wraps(call)
    def count_and_call(self: Any, *arguments: Any, **options: Any) -> Any:
        if self not in made:
            report.count(_LINE, write_place(find_place()))
        return call(self, *arguments, **options)

    def end() -> None:
        Lowered.__init__, Lowered.compile, Compiled.__call__ = initialize, compile_it, call

    Lowered.__init__, Lowered.compile, Compiled.__call__ = initialize_and_keep, compile_and_keep, count_and_call
    return end
