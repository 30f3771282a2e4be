"""``fastmma invariance`` and ``fastmma agree``: which numbers of rows, and which GPUs, have the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fastmma.agreement.gpus import compare_gpus
from fastmma.agreement.invariance import invariance as find
from fastmma.agreement.table import plans_of, reasons_of, rows_of, verdicts
from fastmma.cli.table import print_json, print_markdown, print_text
from fastmma.host.errors import OperandError
from fastmma.verification.cublas_requests import read_rows

_DIFFERS, _UNKNOWN = 1, 3
_MOST_ROWS = 1 << 16


def invariance(
    n: int,
    k: int,
    types: str,
    target: str,
    rows: str,
    layout: str,
    preset: str,
    bias: bool,
    least_rate: float,
    stack: int,
    ranks: int,
    cut: str,
    all_reduce: str,
    as_json: bool,
) -> None:
    """Tell which numbers of rows of a layer share their bits; the exit status is 1 if some differ, and 3 if some are not known."""
    options = {"dtype": types, "layout": layout, "preset": preset, "bias": bias, "least_rate": least_rate}
    options |= {"stack": stack, "ranks": ranks, "cut": cut, "all_reduce": all_reduce}
    found = find(n, k, target=target, rows=_rows(rows), **options)  # type: ignore[arg-type]
    if as_json:
        groups = [[[each.start, each.stop] for each in group] for group in found.groups]
        print_json({"n": n, "k": k, "type": found.dtype, "gpu": found.gpu, "groups": groups, "unknown": _pairs(found.unknown)})
    else:
        print_text(str(found))
    _leave(found.is_invariant)


def agree(
    gpu: str | None,
    other: str | None,
    model: Path | None,
    layer: tuple[str, ...],
    types: str,
    rows: str,
    layout: str,
    preset: str,
    bias: bool,
    least_rate: float,
    table: bool,
    as_json: bool,
) -> None:
    """Tell whether two GPUs have the same bits for a model's layers; the exit status is 1 if some differ, and 3 if some are not known."""
    if table:
        _print_gpus(types)
        return
    assert gpu is not None
    assert other is not None
    options = {"dtype": types, "layout": layout, "preset": preset, "bias": bias, "least_rate": least_rate}
    counts = _rows(rows)
    found = []
    for n, k in _layers(model, layer):
        one, second = (find(n, k, target=name, rows=counts, **options) for name in (gpu, other))  # type: ignore[arg-type]
        found.append(compare_gpus(one, second))
        if not as_json:
            print_text(str(found[-1]))
            shown = next((verdict for verdict in found[-1].verdicts if verdict.equal is False), None)
            if shown is not None:
                print_text(f"    {shown}".replace("\n", "\n    "))
    if as_json:
        print_json(
            [{"n": each.n, "k": each.k, **{name: _pairs(getattr(each, name)) for name in ("same", "differ", "unknown")}} for each in found]
        )
    equal = {each.equal for each in found}
    _leave(False if False in equal else None if None in equal else True)


def _print_gpus(types: str) -> None:
    """Print the table of GPUs by GPUs, and below it operands on which some differ."""
    plans = plans_of(types)
    found = verdicts(plans)
    print_markdown(("GPU", "arithmetic", "known", *plans), [tuple(row) for row in rows_of(plans, found)])
    for name, second, verdict in reasons_of(found):
        click.echo(f"\n{name} (p) and {second} (q):\n\n```\n{verdict}\n```")


def _leave(equal: bool | None) -> None:
    if equal is not True:
        raise click.exceptions.Exit(_DIFFERS if equal is False else _UNKNOWN)


def _pairs(ranges: tuple[range, ...]) -> list[list[Any]]:
    return [[each.start, each.stop] for each in ranges]


def _rows(text: str) -> list[int]:
    found = read_rows(text)
    if len(found) > _MOST_ROWS:
        raise OperandError(f"--rows names {len(found):,} numbers of rows; at most {_MOST_ROWS:,} are looked up")
    return found


def _layer(text: str) -> tuple[int, int]:
    n, _, k = text.partition("x")
    if not (n.isdecimal() and k.isdecimal() and int(n) and int(k)):
        raise OperandError(f"--layer takes outputs by inputs, such as 4096x14336, not {text!r}")
    return int(n), int(k)


def _layers(model: Path | None, named: Sequence[str]) -> list[tuple[int, int]]:
    found = [_layer(text) for text in named]
    if model is not None:
        from fastmma.study.linear_layers import linear_layers

        found += linear_layers(model)
    return found
