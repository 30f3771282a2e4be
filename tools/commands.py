"""The reference of the command line, printed from the commands themselves: text, example, options and exit statuses of each."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import click

from fastmma.cli.app import COMMANDS, STATUSES, app


def _text(command: click.Command) -> str:
    """Return the help of a command as Markdown: its paragraphs, in lines that fit the page."""
    paragraphs = [textwrap.fill(" ".join(each.split()), 120, break_on_hyphens=False) for each in (command.help or "").split("\n\n")]
    return "\n\n".join(paragraphs)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    """List the options, a row each: how it is written, and what it does with its default."""
    for each in command.get_params(context):
        found = each.get_help_record(context) if isinstance(each, click.Option) else None
        if found is not None and "--help" not in each.opts:
            written, meaning = (" ".join(part.split()) for part in found)
            yield f"| `{written.replace(' RANGE', '')}` | {meaning.replace('<', '&lt;')} |"


def section(name: str) -> str:
    """Print one command."""
    context = click.Context(app, info_name="fastmma", show_default=True)
    command = app.get_command(context, name)
    if command is None:
        raise KeyError(name)
    inner = click.Context(command, info_name=name, parent=context)
    usage = re.sub(r"\s+", " ", " ".join(command.collect_usage_pieces(inner)))
    ends = "; ".join(f"{status} if {when}" for status, when in STATUSES.get(name, {}).items())
    lines = [f"### {name}", "", _text(command), "", "```sh", COMMANDS[name].example, "```", ""]
    lines += [f"`fastmma {name} {usage}`", "", "| option | meaning |", "| --- | --- |", *_options(command, inner), ""]
    lines += [f"Exit status: 0; {ends}{'; ' if ends else ''}2 after an error.", ""]
    return "\n".join(lines)


def reference() -> str:
    """Print all commands, in the order of `fastmma --help`."""
    return "\n".join(map(section, COMMANDS))
