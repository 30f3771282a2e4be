"""``fastmma explain``: why an element has its bits, of matrices in files or of the registers of one instruction."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fastmma.cli.choices import changed, choices_of
from fastmma.cli.operands import read_more
from fastmma.cli.registers import Given, words_of
from fastmma.cli.table import print_text
from fastmma.execution.plan import MmaPlan
from fastmma.explanation.explain import explain as explain_product
from fastmma.explanation.explain import explain_operands
from fastmma.explanation.explanation import Explanation
from fastmma.host.errors import OperandError
from fastmma.isa.gpus import target_named
from fastmma.isa.table import multiply

Range = tuple[int, int] | None

_SHOWN: dict[str, Callable[[Explanation, Range], str]] = {
    "text": lambda found, k: str(found) if k is None else found.text(k),
    "markdown": lambda found, k: found.markdown(k),
    "json": lambda found, _: found.json(),
}


def explain(
    files: tuple[Path, ...],
    row: int,
    col: int,
    target: str,
    against: str | None,
    types: str | None,
    dtype: str | None,
    instruction: str | None,
    plan: str | None,
    a: str | None,
    b: str | None,
    c: str | None,
    metadata: str | None,
    scale_a: str | None,
    scale_b: str | None,
    selector: int,
    computation: int,
    k: str | None,
    fmt: str,
    as_json: bool,
    picture: Path | None,
) -> None:
    """Explain why an element of a product has its bits: each term, what alignment takes from it, each sum and each rounding."""
    if fmt not in _SHOWN:
        raise click.BadParameter(f"there is no format {fmt!r}; there are {', '.join(_SHOWN)}")
    words = {"a": a, "b": b, "c": c, "metadata": metadata, "scale_a": scale_a, "scale_b": scale_b}
    given = {name: words_of(text, name) for name, text in words.items() if text is not None}
    if bool(files) == bool(given):
        raise OperandError("give files, or the operands of an --instruction in hexadecimal (--a, --b), and not both")
    if given:
        if instruction is None or {plan, types, dtype} != {None}:
            raise OperandError("operands in hexadecimal are those of one --instruction, without other choices than --target")
        found = _of_words(instruction, given, row, col, computation, selector, target)
        if against is not None:
            found = replace(found, against=_of_words(instruction, given, row, col, computation, selector, against))
    else:
        target, choice = target_named(target), (instruction, types, dtype)
        ins, arrays, more = read_more(files, choice, target)
        options: dict[str, Any] = {"instruction": ins, "target": target, "c": arrays.get("c"), **more}
        options |= {} if plan is None else choices_of(plan)
        other = None if against is None else changed(against, options, choice, arrays)
        found = explain_product(arrays["a"], arrays["b"], row, col, against=other, **options)
    chosen = _range(k)
    if picture is not None:
        found.picture(picture, chosen)
    shown = _SHOWN["json" if as_json else fmt](found, chosen).rstrip("\n")
    if fmt == "text" and not as_json:
        print_text(shown)
    else:
        click.echo(shown)


def _range(text: str | None) -> Range:
    """``"FIRST:STOP"`` as two numbers."""
    if text is None:
        return None
    matched = re.fullmatch(r"(\d{1,10}):(\d{1,10})", text, re.ASCII)
    if matched is None:
        raise OperandError(f"--k takes FIRST:STOP, such as 64:128, not {text!r}")
    return int(matched[1]), int(matched[2])


def _of_words(opcode: str, words: dict[str, list[int]], row: int, col: int, computation: int, selector: int, target: str) -> Explanation:
    plan = MmaPlan(target_named(target), multiply(opcode).opcode)
    operands = Given(plan.operation.instruction, words, row, col, computation, selector).operands()
    return replace(explain_operands(plan, operands, 0, 0), row=row, col=col)
