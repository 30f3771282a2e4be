"""The report of a study of several layers: what was found, formats in order, and every layer."""

from __future__ import annotations

from collections.abc import Sequence

from fastmma.study.conclusion import conclusion, percent
from fastmma.study.layered import Layered
from fastmma.study.markdown import number, table_of

Table = tuple[list[str], list[list[str]]]


def layer_table(table: Layered) -> Table:
    """Headings and rows: the relative errors of every layer, formats in order, and their medians."""
    ranked = table.ranked()
    headings = ["layer", "N x K", *ranked]
    rows = []
    for layer in table.layers:
        found = [table.cells.get((layer, name)) for name in ranked]
        sizes = {f"{record['n']} x {record['k']}" for record in found if record}
        rows.append([layer, ", ".join(sorted(sizes)), *(percent(record["relative_error"]) if record else "" for record in found)])
    rows.append(["median", "", *(percent(table.middle(name)) for name in ranked)])
    return headings, rows


def format_table(table: Layered) -> Table:
    """Headings and rows: medians of the metrics over the layers, a row a format, those first that lose least."""
    headings = ["format" if table.common else "format, accumulator", "error", "SQNR, dB", "largest error", "in layer"]
    headings += ["accumulation", "MSE of A", "MSE of B"]
    rows = []
    for name in table.ranked():
        errors = {layer: record["relative_error"] for layer, record in table.of_series(name) if record["relative_error"] is not None}
        worst = max(errors, key=lambda layer: errors[layer]) if errors else ""
        medians = [number(table.middle(name, metric)) for metric in ("accumulation_error", "mse_a", "mse_b")]
        largest = percent(errors[worst]) if errors else "-"
        rows.append([name, percent(table.middle(name)), number(table.middle(name, "sqnr_db")), largest, worst, *medians])
    return headings, rows


def caption(table: Layered, what: str) -> str:
    """Return what a table shows, and of which operands."""
    return f"{what}: {table.title}" + (f"; {table.common}" if table.common else "")


def layer_sections(tables: Sequence[Layered]) -> list[str]:
    """The parts of a report in Markdown, for each kind of activations."""
    parts = []
    for table in tables:
        parts.append(f"## {table.title}\n")
        parts.append("".join(f"- {sentence}\n" for sentence in conclusion(table)[1:]))
        parts += [caption(table, "Medians over the layers, formats in order") + ".\n", table_of(*format_table(table))]
        parts += [caption(table, "Relative error ‖d - x‖ / ‖x‖ of every layer") + ".\n", table_of(*layer_table(table))]
    return parts
