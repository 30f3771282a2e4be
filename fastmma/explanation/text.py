"""An explanation as text and as Markdown: a line for each step, and a table of the terms of those that sum many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastmma.explanation.derivation import Derivation
from fastmma.explanation.numbers import Table, aligned, both, decimal, hexadecimal, markdown_table, number_text, span
from fastmma.explanation.overview import overview, sums
from fastmma.explanation.steps import Dyadic, Step, Term, decoded
from fastmma.isa.formats import FORMATS, Format
from fastmma.kernels.params import FORMULAS

_ROUNDINGS = {
    "rn": "to nearest even",
    "rz": "toward zero",
    "rm": "down",
    "rp": "up",
    "ro": "to odd",
    "wrap": "modulo 2^32",
    "saturate": "with saturation",
}


def heading(step: Step, number: int) -> str:
    """Return what a step does."""
    where = f"{span(step.k)}: " if step.k[1] > step.k[0] else ""
    what = {"fused": "fused sum", "sum": "exact sum of integers"}.get(step.operation, step.operation)
    if step.operation not in ("fused", "sum") or step.stage == "split-k":
        what = _formula(step)
    window = "" if step.unit is None else f", emax {step.emax}, unit 2^{step.unit}"
    stage = "" if step.stage == "instruction" else f"{step.stage}: "
    return f"step {number}, {where}{stage}{what}{window}"


def _formula(step: Step) -> str:
    names = [term.name for term in step.terms]
    if not names:
        return f"{step.operation} zeros"
    if step.operation == "fma":
        return f"fma, {names[0]} + {names[1]}"
    if step.operation == "relu":
        return f"max({names[0]}, 0)"
    if step.operation in FORMULAS:
        return f"{step.operation} of {names[0]}"
    if step.operation == "convert":
        return f"{names[0]} to {step.format}"
    return " + ".join(names) if step.operation in ("add", "sum") else names[0]


def ending(step: Step) -> list[str]:
    """The sum, what is dropped, and the result."""
    fmt = FORMATS[step.format]
    lines = []
    if step.operation in ("relu", *FORMULAS):
        return [f"{number_text(step.code, fmt)} ({fmt})"]
    if step.total is None:
        lines.append("a special decides")
    elif step.operation in ("fused", "sum") or (step.dropped.significand and len(step.terms) > 1):
        lines.append(f"sum {both(step.total)}")
    dropped = f", dropping {both(step.dropped)}" if step.dropped.significand else ""
    rounded = f"rounded {_ROUNDINGS[step.rounding]}{dropped}: " if step.dropped.significand else ""
    return [*lines, f"{rounded}{number_text(step.code, fmt)} ({fmt})"]


def table(step: Step, formats: tuple[Format, Format, Format | None], parted: Sequence[int] = ()) -> Table:
    """The terms of a step; those whose k are in `parted` are marked."""
    a, b, scale = formats
    windowed = step.unit is not None
    scaled = any(term.scale_a is not None for term in step.terms)
    headings = ["k", f"a ({a})", f"b ({b})", *([f"scales ({scale})"] if scaled else []), "value"]
    headings += ["exponent", "kept", "lost"] if windowed else []
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
        if windowed:
            assert step.unit is not None
            assert term.kept is not None
            kept = term.kept.significand << max(0, term.kept.last - step.unit)
            cells += [str(term.exponent) if term.significand else "", f"{kept} u", both(term.lost) if term.lost.significand else ""]
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
    """Return how many products are zero, if any; they have no row."""
    if not _has_table(step):
        return ""
    zeros = sum(1 for term in step.terms if term.k and not term.significand and not term.special)
    return f"{zeros} product{'s' if zeros > 1 else ''} of zero" if zeros else ""


def _formats(shown: Derivation) -> tuple[Format, Format, Format | None]:
    formats = shown.operation.instruction.formats
    return formats.a, formats.b, formats.scale


def _tells(step: Step) -> bool:
    """Tell whether a step is shown: of the zeros that fill an instruction, fma of a chain where they change something, no products."""
    if step.operation == "multiply" and not step.terms:
        return False
    filled = step.operation == "fma" and step.stage == "instruction" and not step.terms[0].k
    return not filled or step.code != step.terms[1].a[0]


def _has_table(step: Step) -> bool:
    return step.operation in ("fused", "sum")


def _operands_text(step: Step, formats: tuple[Format, Format, Format | None]) -> str:
    """The operands of an IEEE operation: products with their factors."""
    shown = []
    for term in step.terms:
        factors = f"{_factor(term.a[0], formats[0])} * {_factor(term.b[0], formats[1])} = " if term.k else ""
        shown.append(f"{term.name} {factors}{term.special or both(Dyadic(term.significand, term.last))}")
    return ", ".join(shown)


def steps_text(shown: Derivation, steps: Sequence[Step], parted: Sequence[int] = ()) -> Iterator[str]:
    """Lines of some of the steps of an explanation."""
    places = {id(step): index for index, step in enumerate(shown.steps)}
    for step in filter(_tells, steps):
        yield heading(step, places[id(step)])
        if _has_table(step):
            yield from (f"  {line}" for line in aligned(table(step, _formats(shown), parted)))
        else:
            yield f"  {_operands_text(step, _formats(shown))}"
        zeros = zeros_text(step)
        yield from (f"  {line}" for line in ([zeros] if zeros else []) + ending(step))


def title(shown: Derivation) -> str:
    """The first line."""
    return f"d[{shown.row}, {shown.col}] = {number_text(shown.code, FORMATS[shown.format])} ({shown.format})"


def within(shown: Derivation, k: tuple[int, int] | None) -> Sequence[Step]:
    """The steps that take in any k of a range, from the first to one past the last, or have come to one of them; all for None."""
    if k is None:
        return shown.steps
    first, stop = k
    return [
        step for step in shown.steps if (step.k[0] < stop and step.k[1] > first if step.k[1] > step.k[0] else first < step.k[1] <= stop)
    ]


def text(shown: Derivation, k: tuple[int, int] | None = None) -> str:
    """The steps of a range of k, or all, as text; beside another explanation the results as a table, and the first difference in full."""
    lines = [title(shown), str(shown.plan)]
    if shown.against is None:
        return "\n".join([*lines, *steps_text(shown, within(shown, k))])
    other, difference = shown.against, shown.difference
    lines += ["", f"against {title(other)}", str(other.plan), "", *aligned(sums(shown))]
    if difference is None:
        return "\n".join([*lines, "", "no sum differs"])
    for each, steps in ((shown, difference.steps), (other, difference.other_steps)):
        lines += ["", f"first difference, {each.label}:", *steps_text(each, steps, difference.terms)]
    return "\n".join(lines)


def short_text(shown: Derivation) -> str:
    """A line for each step."""
    return "\n".join([title(shown), str(shown.plan), *aligned(overview(shown))])


def markdown(shown: Derivation, k: tuple[int, int] | None = None) -> str:
    """The steps of a range of k, or all, as Markdown."""
    lines = [f"# {title(shown)}", "", "```text", str(shown.plan), "```", ""]
    if shown.against is None:
        lines += _markdown_steps(shown, within(shown, k))
    else:
        difference = shown.difference
        lines += [f"Against {title(shown.against)}:", "", "```text", str(shown.against.plan), "```", "", *markdown_table(sums(shown)), ""]
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
            yield from (*markdown_table(table(step, _formats(shown), parted)), "")
        else:
            yield from (_operands_text(step, _formats(shown)), "")
        zeros = zeros_text(step)
        yield from ("; ".join([*([zeros] if zeros else []), *ending(step)]), "")
