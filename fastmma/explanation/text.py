"""An explanation as text and as Markdown: a line for each step, and a table of the terms of those that sum many."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fastmma.explanation.derivation import Derivation
from fastmma.explanation.steps import Dyadic, Step, Term, decoded, dyadic, special_of
from fastmma.isa.formats import FORMATS, Format

_ROUNDINGS = {
    "rn": "to nearest even",
    "rz": "toward zero",
    "rm": "down",
    "rp": "up",
    "ro": "to odd",
    "wrap": "modulo 2^32",
    "saturate": "with saturation",
}
_DIGITS = {8: 4, 16: 6, 32: 9, 64: 17}  # that tell the values of a format apart, by its bits


class Table(NamedTuple):
    """The terms of a step: headings, and a row of cells for each term that is not zero."""

    headings: list[str]
    rows: list[list[str]]


def hexadecimal(code: int, fmt: Format) -> str:
    """A code with all its digits."""
    return f"0x{code & ((1 << fmt.bits) - 1):0{-(-fmt.bits // 4)}x}"


def decimal(value: Dyadic, digits: int = 9) -> str:
    """A number in decimal, rounded where it is long."""
    if value.last >= 0 and value.significand.bit_length() + value.last < 64:
        return str(value.significand << value.last)
    try:
        found = math.ldexp(value.significand, value.last)
    except OverflowError:
        return str(value)
    return f"{found:.{digits}g}" if found or not value.significand else str(value)


def number_text(code: int, fmt: Format) -> str:
    """A code, its value in decimal, and as an integer times a power of two."""
    found = decoded(code, fmt)
    shown = hexadecimal(code, fmt)
    if found.special:
        return f"{shown} = {special_of(found)}"
    value = Dyadic(found.significand, found.last)
    digits = next(count for bits, count in _DIGITS.items() if fmt.bits <= bits)
    if not value.significand:
        return f"{shown} = {'-0' if found.negative else '0'}"
    return f"{shown} = {_both(value, digits)}"


def _both(value: Dyadic, digits: int = 9) -> str:
    """A value in decimal and, where that is another text, with its power of two in lowest terms."""
    powers, plain = str(dyadic(*value)), decimal(value, digits)
    return plain if plain == powers else f"{plain} = {powers}"


def _span(k: tuple[int, int]) -> str:
    return f"k {k[0]}" if k[1] == k[0] + 1 else f"k {k[0]}..{k[1] - 1}"


def heading(step: Step, number: int) -> str:
    """What a step does."""
    where = f"{_span(step.k)}: " if step.k[1] > step.k[0] else ""
    what = {"fused": "fused sum", "sum": "exact sum of integers"}.get(step.operation, step.operation)
    if step.operation not in ("fused", "sum") or step.stage == "split-k":
        what = _formula(step)
    aligned = "" if step.unit is None else f", emax {step.emax}, unit 2^{step.unit}"
    stage = "" if step.stage == "instruction" else f"{step.stage}: "
    return f"step {number}, {where}{stage}{what}{aligned}"


def _formula(step: Step) -> str:
    names = [term.name for term in step.terms]
    if step.operation == "fma":
        return f"fma, {names[0]} + {names[1]}"
    if step.operation == "relu":
        return f"max({names[0]}, 0)"
    if step.operation == "convert":
        return f"{names[0]} to {step.format}"
    return " + ".join(names) if step.operation in ("add", "sum") else names[0]


def ending(step: Step) -> list[str]:
    """The sum, what is dropped, and the result."""
    fmt = FORMATS[step.format]
    lines = []
    if step.operation == "relu":
        return [f"{number_text(step.code, fmt)} ({fmt})"]
    if step.total is None:
        lines.append("a special decides")
    elif step.operation in ("fused", "sum") or (step.dropped.significand and len(step.terms) > 1):
        lines.append(f"sum {_both(step.total)}")
    dropped = f", dropping {_both(step.dropped)}" if step.dropped.significand else ""
    rounded = f"rounded {_ROUNDINGS[step.rounding]}{dropped}: " if step.dropped.significand else ""
    return [*lines, f"{rounded}{number_text(step.code, fmt)} ({fmt})"]


def table(step: Step, formats: tuple[Format, Format, Format | None], parted: Sequence[int] = ()) -> Table:
    """The terms of a step; those whose k are in `parted` are marked."""
    a, b, scale = formats
    aligned = step.unit is not None
    scaled = any(term.scale_a is not None for term in step.terms)
    headings = ["k", f"a ({a})", f"b ({b})", *([f"scales ({scale})"] if scaled else []), "value"]
    headings += ["exponent", "kept", "lost"] if aligned else []
    rows = []
    for term in step.terms:
        if not term.significand and not term.special and term.k:
            continue
        mark = " <" if parted and set(term.k) & set(parted) else ""
        cells = [_ks(term) + mark, *_factors(term, a, b, FORMATS[step.format])]
        if scaled:
            assert scale is not None
            cells.append(" ".join(hexadecimal(each, scale) for each in (term.scale_a, term.scale_b) if each is not None))
        cells.append(term.special or str(Dyadic(term.significand, term.last if term.significand else 0)))
        if aligned:
            assert step.unit is not None
            assert term.kept is not None
            kept = term.kept.significand << max(0, term.kept.last - step.unit)
            cells += [str(term.exponent) if term.significand else "", f"{kept} u", _both(term.lost) if term.lost.significand else ""]
        rows.append(cells)
    return Table(headings, rows)


def _ks(term: Term) -> str:
    if not term.k:
        return term.name
    return str(term.k[0]) if len(term.k) == 1 else f"{term.k[0]}..{term.k[-1]}"


def _factors(term: Term, a: Format, b: Format, own: Format) -> tuple[str, str]:
    if not term.k:
        return " ".join(hexadecimal(code, own) for code in term.a), ""
    if len(term.k) == 1:
        return _factor(term.a[0], a), _factor(term.b[0], b)
    return " ".join(f"{code:x}" for code in term.a), " ".join(f"{code:x}" for code in term.b)


def _factor(code: int, fmt: Format) -> str:
    found = decoded(code, fmt)
    return f"{hexadecimal(code, fmt)} {found.special or decimal(Dyadic(found.significand, found.last), 5)}"


def zeros_text(step: Step) -> str:
    """How many products are zero, if any; they have no row."""
    if not _has_table(step):
        return ""
    zeros = sum(1 for term in step.terms if term.k and not term.significand and not term.special)
    return f"{zeros} product{'s' if zeros > 1 else ''} of zero" if zeros else ""


def _aligned_columns(found: Table) -> list[str]:
    widths = [max(map(len, column)) for column in zip(found.headings, *found.rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (found.headings, *found.rows)]


def _formats(shown: Derivation) -> tuple[Format, Format, Format | None]:
    formats = shown.operation.instruction.formats
    return formats.a, formats.b, formats.scale


def _tells(step: Step) -> bool:
    """Whether a step is shown: in a chain, the zeros that fill an instruction only where they change something."""
    filled = step.operation == "fma" and step.stage == "instruction" and not step.terms[0].k
    return not filled or step.code != step.terms[1].a[0]


def _has_table(step: Step) -> bool:
    return step.operation in ("fused", "sum")


def _operands_text(step: Step, formats: tuple[Format, Format, Format | None]) -> str:
    """The operands of an IEEE operation: products with their factors."""
    shown = []
    for term in step.terms:
        factors = f"{_factor(term.a[0], formats[0])} * {_factor(term.b[0], formats[1])} = " if term.k else ""
        shown.append(f"{term.name} {factors}{term.special or _both(Dyadic(term.significand, term.last))}")
    return ", ".join(shown)


def steps_text(shown: Derivation, steps: Sequence[Step], parted: Sequence[int] = ()) -> Iterator[str]:
    """Lines of some of the steps of an explanation."""
    places = {id(step): index for index, step in enumerate(shown.steps)}
    for step in filter(_tells, steps):
        yield heading(step, places[id(step)])
        if _has_table(step):
            yield from (f"  {line}" for line in _aligned_columns(table(step, _formats(shown), parted)))
        else:
            yield f"  {_operands_text(step, _formats(shown))}"
        zeros = zeros_text(step)
        yield from (f"  {line}" for line in ([zeros] if zeros else []) + ending(step))


def title(shown: Derivation) -> str:
    """The first line."""
    return f"d[{shown.row}, {shown.col}] = {number_text(shown.code, FORMATS[shown.format])} ({shown.format})"


def text(shown: Derivation) -> str:
    """Everything as text; beside another explanation, the steps up to the first difference as a table, and that one in full."""
    lines = [title(shown), str(shown.plan)]
    if shown.against is None:
        return "\n".join([*lines, *steps_text(shown, shown.steps)])
    other, difference = shown.against, shown.difference
    lines += ["", f"against {title(other)}", str(other.plan), "", *_aligned_columns(sums(shown))]
    if difference is None:
        return "\n".join([*lines, "", "no sum differs"])
    for each, steps in ((shown, difference.steps), (other, difference.other_steps)):
        lines += ["", f"first difference, {each.label}:", *steps_text(each, steps, difference.terms)]
    return "\n".join(lines)


def sums(shown: Derivation) -> Table:
    """The results of the steps of two explanations side by side; the first difference is marked."""
    other, difference = shown.against, shown.difference
    assert other is not None
    headings = ["", shown.label, other.label]
    marked = {id(step) for step in ((*difference.steps, *difference.other_steps) if difference else ())}
    columns: list[dict[tuple[str, int, int], tuple[str, bool]]] = []
    for each in (shown, other):
        column: dict[tuple[str, int, int], tuple[str, bool]] = {}
        counts: dict[tuple[str, int], int] = {}
        for step in each.steps:
            reached = step.stage, step.k[1]
            counts[reached] = counts.get(reached, 0) + 1
            column[(*reached, counts[reached])] = f"{hexadecimal(step.code, FORMATS[step.format])} ({step.format})", id(step) in marked
        columns.append(column)
    rows = []
    for key in dict.fromkeys([*columns[0], *columns[1]]):
        found = [column.get(key, ("", False)) for column in columns]
        name = "" if key[0] == "instruction" else f", {key[0]}"
        rows.append((key[1], [f"to k {key[1]}{name}", found[0][0], found[1][0] + (" <" if found[0][1] or found[1][1] else "")]))
    rows.sort(key=lambda row: row[0])
    return Table(headings, [cells for _, cells in rows])


def _markdown_table(found: Table) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (found.headings, ["---"] * len(found.headings), *found.rows)]


def markdown(shown: Derivation) -> str:
    """Everything as Markdown."""
    lines = [f"# {title(shown)}", "", "```text", str(shown.plan), "```", ""]
    if shown.against is None:
        lines += _markdown_steps(shown, shown.steps)
    else:
        difference = shown.difference
        lines += [f"Against {title(shown.against)}:", "", "```text", str(shown.against.plan), "```", "", *_markdown_table(sums(shown)), ""]
        if difference is None:
            lines += ["No sum differs.", ""]
        else:
            for each, steps in ((shown, difference.steps), (shown.against, difference.other_steps)):
                lines += [f"## First difference, {each.label}", "", *_markdown_steps(each, steps, difference.terms)]
    return "\n".join(lines)


def _markdown_steps(shown: Derivation, steps: Sequence[Step], parted: Sequence[int] = ()) -> Iterator[str]:
    places = {id(step): index for index, step in enumerate(shown.steps)}
    for step in filter(_tells, steps):
        yield from (f"### {heading(step, places[id(step)])}", "")
        if _has_table(step):
            yield from (*_markdown_table(table(step, _formats(shown), parted)), "")
        else:
            yield from (_operands_text(step, _formats(shown)), "")
        zeros = zeros_text(step)
        yield from ("; ".join([*([zeros] if zeros else []), *ending(step)]), "")
