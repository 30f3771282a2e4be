"""``fastmma explain``: why an element has its bits, of matrices in files or of the registers of one instruction."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fastmma.cli import parameters
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

EXAMPLES = """
Matrices are read as `fastmma gemm` reads them; an .npz file may hold bias, metadata, scale_a and scale_b, too. Without files, --a and --b
are the operands of one --instruction in hexadecimal: either the codes that meet in the element, that is a row of A, a column of B and one
accumulator c, or all registers of the warp (of the four warps of a wgmma), as a debugger shows them: those of lane 0, then those of lane
1, and so on. --row and --col choose the element. Where both are as many numbers, they are registers if one of them exceeds a code. @FILE
reads the numbers from a file.

Examples:

\b
fastmma explain a.npy b.npy --row 3 --col 5 --target H100
fastmma explain a.npy b.npy --row 3 --col 5 --target sm_90a --against sm_80
fastmma explain a.npy b.npy --row 3 --col 5 --plan split_k=2,out_dtype=bf16 --against split_k=4 --format json
fastmma explain --instruction mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 --target sm_80
    --a 3ff0000000000000,0,0,4000000000000000 --b 3ff0000000000000,0,0,3cb0000000000000
fastmma explain --instruction mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 --target sm_80
    --a @a.hex --b @b.hex --c @c.hex --row 9 --col 2 --picture d.svg
"""
_SHOWN: dict[str, Callable[[Explanation, Range], str]] = {
    "text": lambda found, k: str(found) if k is None else found.text(k),
    "markdown": lambda found, k: found.markdown(k),
    "json": lambda found, _: found.json(),
}


@click.command(epilog=EXAMPLES)
@click.argument("files", nargs=-1, type=parameters.PATH)
@click.option("--row", type=click.IntRange(min=0), default=0, help="Row of the element of D.")
@click.option("--col", type=click.IntRange(min=0), default=0, help="Column of the element of D.")
@parameters.target
@click.option("--against", help="What to compare with: another GPU, or other choices as in --plan.")
@click.option("--type", "types", help="Format of A and B in files, such as f16 or e4m3,e5m2.")
@parameters.accumulate
@parameters.instruction
@parameters.plan
@click.option("--a", help="Codes of a row of A, or all registers of A.")
@click.option("--b", help="Codes of a column of B, or all registers of B.")
@click.option("--c", help="The code of the accumulator, or all registers of C; 0 by default.")
@click.option("--metadata", help="Sparse A: the words of the row, or the registers of all lanes.")
@click.option("--scale-a", help="Block scaling: the codes of the row's scales, or the registers of all lanes.")
@click.option("--scale-b", help="Block scaling: the codes of the column's scales, or all registers.")
@click.option("--selector", type=int, default=0, help="Sparsity selector of registers of metadata.")
@click.option("--computation", type=int, default=0, help="Which of the four computations of m8n8k4 in registers.")
@click.option("--k", metavar="FIRST:STOP", help="Show the steps of these k, in full.")
@click.option("--format", "fmt", default="text", help="text, markdown or json.")
@parameters.as_json
@click.option("--picture", type=parameters.PATH, help="Draw the bits of all terms to this .svg, .png, .pdf or .tex file.")
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
    """Explain why an element of a product has its bits: each term, what alignment takes from it, each sum and each rounding.

    FILES are a.npy b.npy [c.npy], or one .npz file with a, b and other operands.
    """
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
