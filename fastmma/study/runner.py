"""Running a study: case after case, each record on disk before the next begins; or cases on the workers of an executor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.memory import check_fits
from fastmma.host.threads import thread_count
from fastmma.study.grid import CASE_FIELDS, Case, Grid
from fastmma.study.metrics import METRICS, Metrics, are_metrics
from fastmma.study.presets import Preset, preset_of
from fastmma.study.products import OUTPUT, evidence, multiplied
from fastmma.study.records import Record, Results, Store
from fastmma.study.tensors import Tensor, read
from fastmma.study.workbench import Workbench
from fastmma.study.workers import Executor, check_executor, spread

COLUMNS: tuple[str, ...] = ("case", *CASE_FIELDS, "instruction", "evidence", "exact", "mse_a", "mse_b", *METRICS)
Study = Grid | Case | Preset | str | Iterable[Grid | Case]
Progress = Callable[[int, int, Case], None]
_WIDEST = 4  # bytes of an element that is drawn, and of a result
_SMALLEST, _LARGEST = (
    float.fromhex("0x1p-200"),
    float.fromhex("0x1p200"),
)  # magnitudes, beyond those of float32, whose products and squares are within float64
_BLOCK = 64  # rows of the product that are compared at a time


def _label(tensor: Tensor) -> str:
    return f"{tensor.source} {tensor.digest}"


def _measure(case: Case, bench: Workbench, threads: int) -> Record:
    source, operands, ins = bench.originals(case), bench.operands(case), case.instruction
    result = multiplied(ins, case.target, case.promote_every, case.split_k, case.arithmetic, operands.a, operands.b, threads)
    metrics = Metrics(OUTPUT)
    for start in range(0, len(source.rows), _BLOCK):
        block = slice(start, start + _BLOCK)
        metrics.add(result[np.ix_(source.rows[block], source.columns)].astype(np.float64), operands.product[block], source.product[block])
    record: Record = {
        "case": case.key,
        **asdict(case),
        "instruction": ins and ins.opcode,
        "evidence": evidence(ins, case.target, case.arithmetic),
    }
    record |= {"exact": operands.exact, "mse_a": operands.mse[0], "mse_b": operands.mse[1], **metrics.summary()}
    return {name: record[name] for name in COLUMNS}


def _is_of(record: Record, case: Case) -> bool:
    """Whether a record on disk is what a study writes for the case, and not what something else made of it."""
    ins = case.instruction
    known = asdict(case) | {"instruction": ins and ins.opcode, "evidence": evidence(ins, case.target, case.arithmetic)}
    return (
        are_metrics(record)
        and type(record["exact"]) is bool
        and all(record[name] is None or type(record[name]) is float for name in ("mse_a", "mse_b"))
        and all(type(record[name]) is type(value) and record[name] == value for name, value in known.items())
    )


def _parts(study: Any) -> Iterable[Any]:
    if isinstance(study, str):
        return preset_of(study).grids
    if isinstance(study, Preset):
        return study.grids
    return study if isinstance(study, Iterable) and not isinstance(study, np.ndarray) else (study,)


def _folder(output: Any) -> Path:
    try:
        return Path(output)
    except TypeError:
        raise OperandTypeError(f"output must be the path of a folder, not {type(output).__name__}") from None


def _check_range(tensor: Tensor) -> None:
    values = tensor.values
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    if largest and not _SMALLEST <= largest <= _LARGEST:
        raise OperandError(f"{tensor.source}: its largest magnitude is {largest:.3g}, whose squares are beyond float64: scale the tensor")


def _loaded(tensors: Any) -> list[Tensor]:
    """The tensors, read where they are files; one need not be in a list."""
    several = isinstance(tensors, Iterable) and not isinstance(tensors, Tensor | str | Path | np.ndarray)
    found = [each if isinstance(each, Tensor) else read(each) for each in (tensors if several else (tensors,))]
    for tensor in found:
        if tensor.values.dtype == np.float64:
            _check_range(tensor)
    return found


def cases_of(study: Study, *tensors: Tensor) -> list[Case]:
    """The cases of a study, with operands from files: weights first, then activations.

    Raises
    ------
    OperandError, OperandTypeError
        If there is none, or the tensors do not multiply.
    """
    if len(tensors) > 2:
        raise OperandError(f"a study takes at most two tensors, weights (N, K) and activations (M, K), not {len(tensors)}")
    changed: dict[str, Any] = {}
    for (name, extent), tensor in zip((("weights", "n"), ("activations", "m")), tensors, strict=False):
        changed |= {name: _label(tensor), extent: tensor.values.shape[0], "k": tensor.values.shape[1]}
    if len({tensor.values.shape[1] for tensor in tensors}) > 1:
        shapes = " and ".join(f"{tensor.source} {tensor.values.shape}" for tensor in tensors)
        raise OperandError(f"{shapes} have different K, their last dimension")
    cases: dict[Case, None] = {}
    for part in _parts(study):
        if not isinstance(part, Grid | Case):
            raise OperandTypeError(f"a study consists of Grids and Cases, or is a preset, not {type(part).__name__}")
        for case in part.cases() if isinstance(part, Grid) else [part]:
            if not tensors and (case.weights or case.activations):
                raise OperandError("the tensors of a case with files must be given with it")
            cases[replace(case, **changed)] = None
    if not cases:
        raise OperandError("the study has no cases: every choice of a grid needs at least one value")
    return list(cases)


@public_call
def run(
    study: Study,
    output: str | Path | None = None,
    *,
    tensors: Tensor | str | Path | Sequence[Tensor | str | Path] = (),
    threads: int | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Results:
    """Compute what is missing of a study and return all of it.

    Parameters
    ----------
    study : Grid or Case, or several, or a preset or its name
    output : folder, optional
        Where ``results.jsonl`` and ``results.csv`` grow by one record as soon as it is computed. Cases whose records are there already
        are not computed again, so that a study that was stopped, however it was stopped, goes on where it was.
    tensors : Tensor, str or Path, or two of them
        Operands from files (see `fastmma.study.read`): the weights (N, K), as a linear layer stores them, and then perhaps the
        activations (M, K). What is not given is drawn from the distributions.
    threads : int, optional
        Of the emulated products; all cores by default, or ``FASTMMA_NUM_THREADS``. Results do not depend on it. The exact products are
        NumPy's, with the threads of its BLAS.
    progress : callable, optional
        Called with the number of finished cases, that of all cases, and the case that begins; with an executor, the case that ended.
    executor : concurrent.futures.Executor, optional
        Whose workers compute the cases, in any order: of threads or processes, or the executors of Dask, loky and mpi4py. Each case then
        takes one of the worker's threads, if `threads` does not say otherwise, and is sent the tensors that it needs.

    Returns
    -------
    Results
        A list with one dict a case, in the order of the study: its configuration, the ``instruction`` (None for IEEE f32), how well its
        arithmetic is known (``evidence``), whether the product of the rounded operands that it was compared with is exact (``exact``), the
        operands' mean squared errors over their mean squares (``mse_a``, ``mse_b``), and the metrics of `fastmma.study.Metrics`.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError
        All are `fastmma.FastmmaError`, and raised before the first case is computed, but for tensors with a NaN that a format has not
        and for a disk that fills up. With an executor, they name the case; BackendError: a worker was lost, or failed in another way. What
        other cases were then computed is in the folder.

    Notes
    -----
    The whole product is emulated; what is compared with exact products is a sample (`Case.sample`). Metrics keep ten digits.

    Examples
    --------
    >>> grid = Grid(formats=("e4m3",), targets=("sm_90a", "sm_120a"), shapes=((32, 32, 1024),))
    >>> hopper, blackwell = run(grid)
    >>> hopper["exact"], hopper["accumulation_error"] > 100 * blackwell["accumulation_error"]
    (True, True)
    >>> hopper["quantisation_error"] == blackwell["quantisation_error"]
    True
    """
    count = thread_count(1 if threads is None and executor is not None else threads)
    if executor is not None:
        check_executor(executor)
    if progress is not None and not callable(progress):
        raise OperandTypeError(f"progress must be a callable, not {type(progress).__name__}")
    loaded = _loaded(tensors)
    cases = cases_of(study, *loaded)
    for case in cases:
        check_fits(_WIDEST * (case.m * case.k + case.n * case.k + case.m * case.n), f"study: a product of {case.m} x {case.n} x {case.k}")
    folder = None if output is None else _folder(output)
    sources = {_label(tensor): tensor.values for tensor in loaded}
    with nullcontext() if folder is None else Store(folder, COLUMNS) as store:
        if executor is not None:
            return _on_workers(executor, cases, sources, count, store, progress)
        bench, results = Workbench(sources, count), Results()
        for done, case in enumerate(cases):
            if progress is not None:
                progress(done, len(cases), case)
            record = _stored(store, case)
            if record is None:
                record = _measure(case, bench, count)
                if store is not None:
                    store.add(record)
            results.append(record)
    return results


def _stored(store: Store | None, case: Case) -> Record | None:
    """The record of a case that was computed before."""
    record = None if store is None else store.get(case.key)
    return record if record is not None and _is_of(record, case) else None


@public_call
def _measured(case: Case, tensors: dict[str, Any], threads: int) -> Record:
    """The record of one case, on a worker."""
    return _measure(case, Workbench(tensors, threads), threads)


def _on_workers(
    executor: Executor, cases: list[Case], sources: dict[str, Any], threads: int, store: Store | None, progress: Progress | None
) -> Results:
    """The records of cases that the workers of an executor compute, in the order of the study."""
    found = {case: record for case in cases if (record := _stored(store, case)) is not None}

    def arguments(case: Case) -> tuple[Any, ...]:
        return {name: sources[name] for name in (case.weights, case.activations) if name}, threads

    def finished(case: Case, record: Record) -> None:
        found[case] = record
        if store is not None:
            store.add(record)
        if progress is not None:
            progress(len(found), len(cases), case)

    spread(executor, _measured, [case for case in cases if case not in found], arguments, finished)
    return Results(found[case] for case in cases)
