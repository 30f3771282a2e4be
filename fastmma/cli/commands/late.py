"""A command of click's whose work is imported when it runs, so that help and mistakes in options cost nothing else."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import click

# where a command's work is not the function of its name in the module of its name in `fastmma.cli`
_ELSEWHERE: Final = {"list": ("listing", "list_instructions"), "agree": ("invariance", "agree")}


class LateCommand(click.Command):
    """A declaration of options; the function of the command's name in `fastmma.cli` takes their values."""

    def invoke(self, ctx: click.Context) -> Any:
        """Import the function and call it."""
        name = self.name or ""
        module, function = _ELSEWHERE.get(name, (name, name))
        return ctx.invoke(getattr(import_module(f"fastmma.cli.{module}"), function), **ctx.params)
