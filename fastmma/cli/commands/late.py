"""A command of click's whose work is imported when it runs, so that help and mistakes in options cost nothing else."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

import click

# where a command's work is not the function of its name in the module of its name in `fastmma.cli`
_ELSEWHERE: Final = {"list": ("listing", "list_instructions"), "agree": ("invariance", "agree")}

# what multiplies by NumPy, too: for others a thread of OpenBLAS on each core only takes time to start
_WITH_BLAS: Final = {"gemm", "study", "bench"}


class LateCommand(click.Command):
    """A declaration of options; the function of the command's name in `fastmma.cli` takes their values.

    Parameters
    ----------
    check : callable, optional
        Takes the values by name, and raises an error if they do not go together.
    """

    def __init__(self, *arguments: Any, check: Callable[[Mapping[str, Any]], None] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.check = check

    def get_help(self, ctx: click.Context) -> str:
        """Return the help; examples, which click keeps as they are, go on in another line where the terminal is too narrow."""
        from fastmma.cli.terminal import folded, width

        columns = width()
        lines = super().get_help(ctx).splitlines()
        return "\n".join(part for line in lines for part in folded(line, columns, " " * (len(line) - len(line.lstrip()) + 2)))

    def invoke(self, ctx: click.Context) -> Any:
        """Check the values, then import the function and call it."""
        if self.check is not None:
            self.check(ctx.params)
        name = self.name or ""
        if name not in _WITH_BLAS:
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        module, function = _ELSEWHERE.get(name, (name, name))
        call = getattr(import_module(f"fastmma.cli.{module}"), function)
        if not gc.isenabled():  # as `fastmma.__main__` starts
            gc.freeze()
            gc.enable()
        return ctx.invoke(call, **ctx.params)
