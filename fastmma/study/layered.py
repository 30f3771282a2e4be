"""Records of several layers as a table, layers by formats and accumulators, for each kind of activations."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastmma.study.distributions import DISTRIBUTIONS
from fastmma.study.grid import case_of
from fastmma.study.records import Record
from fastmma.study.tensors import SEPARATOR


@dataclass(frozen=True)
class Layered:
    """The layers of a model with the same activations, or activations of the same kind.

    Attributes
    ----------
    weights, activations : str
        Where they are from.
    layers, series : tuple of str
        Names of rows and of columns: layers in the order of the study, formats with their accumulators as far as there are several.
    common : str
        What all columns share: the accumulator, or the format.
    cells : dict of (layer, series) to record
    """

    weights: str
    activations: str
    layers: tuple[str, ...]
    series: tuple[str, ...]
    common: str
    cells: dict[tuple[str, str], Record]

    @property
    def title(self) -> str:
        """Where the operands are from."""
        return f"{len(self.layers)} layers of {self.weights}; {self.activations}"

    def of_series(self, series: str) -> list[tuple[str, Record]]:
        """The layers that a column has, and their records."""
        return [(layer, self.cells[layer, series]) for layer in self.layers if (layer, series) in self.cells]

    def middle(self, series: str, metric: str = "relative_error") -> float | None:
        """The median of a metric over the layers of a column; None where it is never defined."""
        found = [record[metric] for _, record in self.of_series(series) if record[metric] is not None]
        return float(np.median(found)) if found else None

    def ranked(self) -> list[str]:
        """The columns, those first whose median error is least; last what has none."""
        medians = {series: self.middle(series) for series in self.series}
        return sorted(self.series, key=lambda series: float("inf") if medians[series] is None else medians[series] or 0.0)


def file_of(label: str) -> str:
    """The file of a tensor, by the name that a case has for it."""
    return label.rpartition(" ")[0].partition(SEPARATOR)[0]


def activations_of(record: Record) -> str:
    """Return where the activations of a record are from, in words."""
    if record["activations"]:
        return f"activations from {file_of(record['activations'])}"
    law = DISTRIBUTIONS[record["distribution"]].law
    return f"activations drawn: {law}, {record['m']} rows"


def series_names(records: Sequence[Record]) -> tuple[str, Callable[[Record], str]]:
    """Return what all records share of format and accumulator, and the name of what is left: both, if nothing is shared or all is."""
    cases = [case_of(record) for record in records]
    formats, accumulators = {case.format for case in cases}, {case.accumulator for case in cases}
    if len(accumulators) == 1:
        return accumulators.pop(), lambda record: case_of(record).format
    if len(formats) == 1:
        return formats.pop(), lambda record: case_of(record).accumulator
    return "", lambda record: f"{case_of(record).format}, {case_of(record).accumulator}"


def _place(records: Sequence[Record]) -> str:
    """The file of all weights, or what their files' names begin with."""
    files = sorted({file_of(record["weights"]) for record in records})
    return files[0] if len(files) == 1 else os.path.commonpath(files) or files[0]


def layered(records: Sequence[Record]) -> list[Layered]:
    """The tables of a study, one for each kind of activations and each seed; none where there are fewer than two layers."""
    if len({record["weights"] for record in records if record["weights"]}) < 2:
        return []
    names = _names(records)
    common, name_of = series_names(records)
    seeds = {record["seed"] for record in records}
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        if record["weights"]:
            seed = f", seed {record['seed']}" if len(seeds) > 1 else ""
            groups.setdefault((activations_of(record) + seed,), []).append(record)
    tables = []
    for (activations,), found in groups.items():
        cells = {(names[record["weights"]], name_of(record)): record for record in found}
        rows, columns = (tuple(dict.fromkeys(key[place] for key in cells)) for place in (0, 1))
        tables.append(Layered(_place(found), activations, rows, columns, common, cells))
    return tables


def _names(records: Sequence[Record]) -> dict[str, str]:
    """A name for each layer: that of its module, or of its tensor where several modules have the same."""
    labels = {record["weights"]: record["layer"] for record in records if record["weights"]}
    several = len(set(labels.values())) < len(labels)
    return {label: label.rpartition(" ")[0] if several else name for label, name in labels.items()}
