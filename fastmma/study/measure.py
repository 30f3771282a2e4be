"""One case, from operands to a record, and what a record on disk has to hold to be that of a case."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from fastmma.host.calls import public_call
from fastmma.study.grid import CASE_FIELDS, Case
from fastmma.study.metrics import METRICS, Metrics, are_metrics
from fastmma.study.products import OUTPUT, Known, known, multiplied
from fastmma.study.records import Record
from fastmma.study.tensors import digest_of
from fastmma.study.workbench import Workbench

_HASHES = ("sha256_a", "sha256_b", "sha256_d")
COLUMNS: tuple[str, ...] = ("case", "layer", *CASE_FIELDS, *Known._fields, "exact", "mse_a", "mse_b", *METRICS, *_HASHES, "version")
_BLOCK = 64  # rows of the product that are compared at a time


def version() -> str:
    """That of fastmma, which stands above this room."""
    import sys

    return str(sys.modules["fastmma"].__version__)


def _known(case: Case) -> dict[str, Any]:
    """Return what a case alone decides of its record."""
    its = known(case.format, case.target, case.promote_every, case.split_k, case.arithmetic)
    return {"case": case.key, **asdict(case), **its._asdict()}


def measure(case: Case, layer: str, bench: Workbench, threads: int) -> Record:
    """The record of a case.

    Parameters
    ----------
    case : Case
    layer : str
        The name of the layer whose weights it has; empty where they are drawn.
    bench : Workbench
        That has its operands.
    threads : int
    """
    source, operands, ins = bench.originals(case), bench.operands(case), case.instruction
    result = multiplied(ins, case.target, case.promote_every, case.split_k, case.arithmetic, operands.a, operands.b, threads)
    metrics = Metrics(OUTPUT)
    for start in range(0, len(source.rows), _BLOCK):
        block = slice(start, start + _BLOCK)
        metrics.add(result[np.ix_(source.rows[block], source.columns)].astype(np.float64), operands.product[block], source.product[block])
    record: Record = _known(case) | {"layer": layer, "version": version()}
    record |= {"exact": operands.exact, "mse_a": operands.mse[0], "mse_b": operands.mse[1], **metrics.summary()}
    record |= dict(zip(_HASHES, (*source.digests, digest_of(result)), strict=True))
    return {name: record[name] for name in COLUMNS}


@public_call
def measured(case: Case, layer: str, tensors: dict[str, Any], threads: int) -> Record:
    """The record of one case, on a worker."""
    return measure(case, layer, Workbench(tensors, threads), threads)


def is_of(record: Record, case: Case, layer: str) -> bool:
    """Tell whether a record on disk is what a study writes for the case, and not what something else made of it.

    The version of fastmma that wrote it may be another: what its arithmetic was, the record says in full.
    """
    return (
        are_metrics(record)
        and type(record["exact"]) is bool
        and type(record["version"]) is str
        and all(_is_hash(record[name]) for name in _HASHES)
        and all(record[name] is None or type(record[name]) is float for name in ("mse_a", "mse_b"))
        and all(type(record[name]) is type(value) and record[name] == value for name, value in (_known(case) | {"layer": layer}).items())
    )


def _is_hash(value: Any) -> bool:
    return type(value) is str and len(value) == 64 and not set(value) - set("0123456789abcdef")
