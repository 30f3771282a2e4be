"""The records of a study as a report in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from fastmma.host.calls import public_call
from fastmma.study.answers import answer
from fastmma.study.distributions import DISTRIBUTIONS
from fastmma.study.grid import case_of
from fastmma.study.groups import deepest, grouped, series
from fastmma.study.layer_report import layer_sections
from fastmma.study.layered import layered
from fastmma.study.markdown import number, table_of
from fastmma.study.records import CSV, Record

# of the table that is read; all metrics are columns of the CSV file
_COLUMNS = {
    "relative_error": "error",
    "quantisation_error": "quantisation",
    "accumulation_error": "accumulation",
    "max_error": "largest / rms",
    "sqnr_db": "SQNR, dB",
    "left_out": "not finite",
}
_BY_DEPTH = {"accumulation_error": "accumulation", "relative_error": "error", "shrinkage": "shrinkage"}
_LEGEND = """\
With d the result, q the exact product of the rounded operands and x that of the original ones: *error* is ‖d - x‖ / ‖x‖ (Frobenius),
*quantisation* ‖q - x‖ / ‖x‖, *accumulation* ‖d - q‖ / ‖x‖, *SQNR* -20 log₁₀ of the error, *cosine* that of d and x; *ULP* are |d - q| in
units of the last place of f32 at q, q = 0 aside; *largest / rms* is the largest |d - q| over the root mean square of q; *bias* is the
mean of d - q, and *shrinkage* that of (q - d) sign(q), over the mean of |q|: truncation shows as shrinkage above zero. *MSE* are the
operands' own mean squared errors over their mean squares. *Not finite* results are left out.
A dash stands for what is not defined: nothing to compare, or no error at all.
"""


def summary(records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of a table to read, one row a record; K is a column where there are several."""
    depths = len({record["k"] for record in records}) > 1
    columns = {name: heading for name, heading in _COLUMNS.items() if name != "left_out" or any(record[name] for record in records)}
    headings = ["format", "accumulator", *(["K"] if depths else []), *columns.values()]
    rows = []
    for record in records:
        case = case_of(record)
        cells = [number(record[name]) for name in columns]
        rows.append([case.format, case.accumulator, *([str(case.k)] if depths else []), *cells])
    return headings, rows


def _by_depth(records: Sequence[Record], metric: str) -> str:
    depths = sorted({record["k"] for record in records})
    cells: dict[str, dict[int, str]] = {}
    for record in records:
        cells.setdefault(series(record), {})[record["k"]] = number(record[metric])
    rows = [[name, *(found.get(depth, "") for depth in depths)] for name, found in cells.items()]
    return table_of([_BY_DEPTH[metric], *(f"K = {depth}" for depth in depths)], rows)


def _how_exact(records: Sequence[Record]) -> str:
    exact = sum(record["exact"] for record in records)
    cases = [case_of(record) for record in records]
    sampled = sorted({case.sample for case in cases if case.sample < max(case.m, case.n)})
    bound = "K 2⁻⁵³ times the product of magnitudes"
    rest = "" if exact == len(records) else f" in the others they are float64 products, whose error is below {bound};"
    return (
        f"{len(records)} cases. The products that they are compared with are exact, up to one rounding to float64, in "
        f"{'all' if not rest else exact} of them;{rest} "
        f"those of the original operands are exact to float64's precision. "
        + (f"Of large products, {' or '.join(map(str, sampled))} random rows and columns are compared. " if sampled else "")
        + f"Seeds: {', '.join(str(seed) for seed in sorted({case.seed for case in cases}))}."
    )


_HASHES = (
    "Every record has the arithmetic in full, what is known of it, and SHA-256 of its operands and of the emulated product: "
    "the same operands give the same bits on every machine."
)


@public_call
def markdown(records: Sequence[Record], *, title: str, command: str = "", pictures: Sequence[tuple[str, str]] = ()) -> str:
    """The report.

    Parameters
    ----------
    records : sequence of dict
        As `fastmma.study.run` returns them.
    title : str
    command : str
        That makes the report again.
    pictures : sequence of (str, str)
        Titles and files of pictures, relative to the report.
    """
    shown = [f"![{name}]({file})\n" for name, file in pictures]
    parts = [f"# {title}\n", " ".join(answer(records)) + "\n", *shown[:1]]
    if command:
        parts.append(f"```sh\n{command}\n```\n")
    parts.append(_how_exact(records) + "\n")
    tables = layered(records)
    parts += layer_sections(tables) if tables else _sections(records)
    parts += ["## Pictures\n", *shown[1:]] if shown[1:] else []
    parts.append("## How to read this\n")
    parts.append(_LEGEND)
    parts += ["## How well the arithmetic is known\n", table_of(*_evidence(records))]
    versions = sorted({record["version"] for record in records})
    parts.append(f"Computed by fastmma {' and '.join(versions)}. {_HASHES}\n")
    return "\n".join(parts)


def _sections(records: Sequence[Record]) -> list[str]:
    """A section for each source of operands."""
    parts = []
    for source, found in grouped(records).items():
        drawn = not (found[0]["weights"] and found[0]["activations"])
        law = f": {DISTRIBUTIONS[found[0]['distribution']].law}" if drawn else ""
        parts.append(f"## {source}{law}\n")
        deep = deepest(found)
        parts.append(f"Products of {deep[0]['m']} x {deep[0]['n']} x {deep[0]['k']}; all metrics of all cases are in `{CSV}`.\n")
        parts.append(table_of(*summary(deep)))
        if len({record["k"] for record in found}) > 1:
            parts += [_by_depth(found, metric) for metric in _BY_DEPTH]
    return parts


def _evidence(records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: each arithmetic in full, and what is known of it."""
    rows: dict[tuple[str, ...], None] = {}
    for record in records:
        target = f"{record['target']} ({record['evidence']})"
        arithmetic = record["arithmetic_in_full"].replace(",", ", ")
        rows[target, record["instruction"] or "-", arithmetic, record["evidence_sources"][0]] = None
    return ["target", "instruction", "arithmetic", "known by"], [list(row) for row in rows]
