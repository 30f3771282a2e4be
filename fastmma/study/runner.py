"""Running a study: case after case, each record on disk before the next begins; or cases on the workers of an executor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.memory import check_fits
from fastmma.host.threads import thread_count
from fastmma.study.grid import Case, Grid
from fastmma.study.measure import COLUMNS, is_of, measure, measured
from fastmma.study.pairs import Pair, pairs_of
from fastmma.study.presets import Preset, preset_of
from fastmma.study.records import Record, Results, Store
from fastmma.study.tensors import Tensor
from fastmma.study.weights import Layer
from fastmma.study.workbench import Workbench
from fastmma.study.workers import Executor, check_executor, spread

Study = Grid | Case | Preset | str | Iterable[Grid | Case]
Progress = Callable[[int, int, Case], None]
Operand = Tensor | Layer | str | Path
_WIDEST = 4  # bytes of an element that is drawn, and of a result
_SMALLEST, _LARGEST = (
    float.fromhex("0x1p-200"),
    float.fromhex("0x1p200"),
)  # magnitudes, beyond those of float32, whose products and squares are within float64


class _Job(NamedTuple):
    """The cases of one pair of operands."""

    pair: Pair
    cases: list[Case]


class _Call(NamedTuple):
    """A case whose tensors are read."""

    case: Case
    layer: str
    tensors: dict[str, NDArray[Any]]


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
    if values.dtype != np.float64:
        return
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    if largest and not _SMALLEST <= largest <= _LARGEST:
        raise OperandError(f"{tensor.source}: its largest magnitude is {largest:.3g}, whose squares are beyond float64: scale the tensor")


def cases_of(study: Study, pair: Pair) -> list[Case]:
    """The cases of a study for a pair of operands, which are not read.

    Raises
    ------
    OperandError, OperandTypeError
        If there is none.
    """
    changed: dict[str, Any] = {}
    for (name, extent), operand in zip((("weights", "n"), ("activations", "m")), pair, strict=True):
        if operand is not None:
            changed |= {name: operand.label, extent: operand.shape[0], "k": operand.shape[1]}
    cases: dict[Case, None] = {}
    for part in _parts(study):
        if not isinstance(part, Grid | Case):
            raise OperandTypeError(f"a study consists of Grids and Cases, or is a preset, not {type(part).__name__}")
        for case in part.cases() if isinstance(part, Grid) else [part]:
            if not changed and (case.weights or case.activations):
                raise OperandError("the tensors of a case with files must be given with it")
            cases[replace(case, **changed)] = None
    if not cases:
        raise OperandError("the study has no cases: every choice of a grid needs at least one value")
    return list(cases)


def _calls(jobs: Iterable[_Job]) -> Iterator[_Call]:
    """Case after case, each layer being read when its turn has come."""
    last: dict[int, Tensor] = {}  # by the operands' identities: activations may be those of every layer
    for pair, cases in jobs:
        last = {id(each): last.get(id(each)) or each.read() for each in pair if each is not None}
        for tensor in last.values():
            _check_range(tensor)
        weights, activations = (None if each is None else last[id(each)] for each in pair)
        tensors = {tensor.label: tensor.values for tensor in last.values()}
        for case in cases:
            read = replace(case, weights=weights.label if weights else "", activations=activations.label if activations else "")
            yield _Call(read, pair.name, tensors)


@public_call
def run(
    study: Study,
    output: str | Path | None = None,
    *,
    tensors: Operand | Sequence[Operand | Sequence[Operand]] = (),
    transposed: bool | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Results:
    """Compute the missing cases of a study and return all records.

    Parameters
    ----------
    study : Grid or Case, or several, or a preset or its name
    output : folder, optional
        Where ``results.jsonl`` and ``results.csv`` grow by one record as soon as it is computed. Cases whose records are there already
        are not computed again, so a study that was stopped in any way continues where it was.
    tensors : Tensor, Layer, str or Path, or two of them, or two lists of them
        Operands from files: the weights (N, K), as a linear layer stores them, and then perhaps the activations (M, K). What is not given
        is drawn from the distributions. Weights of several layers, such as ``"model.safetensors::*dense*"``, the folder of a model, or
        what `fastmma.study.layers` returns, make a study of all of them, in which every layer is read when its turn has come; activations
        are then one tensor for all, or tensors that are named like the layers.
    transposed : bool, optional
        Whether files have weights as (K, N); by default as the ``config.json`` beside a file says.
    threads : int, optional
        Of the emulated products; all cores by default, or ``FASTMMA_NUM_THREADS``. Results do not depend on it. The exact products are
        NumPy's, with the threads of its BLAS.
    progress : callable, optional
        Called with the number of finished cases, the number of all cases, and the case that begins (with an executor, the one that ended).
    executor : concurrent.futures.Executor, optional
        Whose workers compute the cases, in any order: of threads or processes, or the executors of Dask, loky and mpi4py. Each case then
        takes one of the worker's threads, if `threads` does not say otherwise, and is sent the tensors that it needs.

    Returns
    -------
    Results
        A list with one dict a case, in the order of the study: the name of its ``layer``, its configuration, the ``instruction`` (None for
        IEEE f32), the accumulation ``plan`` and the ``arithmetic_in_full``, how well it is known and on what that stands (``evidence``,
        ``evidence_sources``), whether the product of the rounded operands that it was compared with is exact (``exact``), the operands'
        mean squared errors over their mean squares (``mse_a``, ``mse_b``), the metrics of `fastmma.study.Metrics`, SHA-256 of the operands
        before they were rounded and of the emulated product (``sha256_a``, ``sha256_b``, ``sha256_d``), and the ``version`` of fastmma.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError
        All are `fastmma.FastmmaError`. They are raised before the first case is computed, except if a tensor has a NaN that a format does
        not have, a file of layers changes, or the disk fills up. With an executor, they name the case, and a BackendError says that a
        worker was lost or failed in another way. The folder has the cases that were computed by then.

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
    pairs = pairs_of(tensors, transposed)
    parts = list(_parts(study))
    jobs = [_Job(pair, cases_of(parts, pair)) for pair in pairs]
    total = sum(len(job.cases) for job in jobs)
    for case in (case for job in jobs for case in job.cases):
        check_fits(_WIDEST * (case.m * case.k + case.n * case.k + case.m * case.n), f"study: a product of {case.m} x {case.n} x {case.k}")
    folder = None if output is None else _folder(output)
    with nullcontext() if folder is None else Store(folder, COLUMNS) as store:
        if executor is not None:
            return _on_workers(executor, _calls(jobs), total, count, store, progress)
        bench, results = Workbench({}, count), Results()
        for done, (case, layer, tensors_of_case) in enumerate(_calls(jobs)):
            if progress is not None:
                progress(done, total, case)
            record = _find_stored(store, case, layer)
            if record is None:
                record = measure(case, layer, bench.with_tensors(tensors_of_case), count)
                if store is not None:
                    store.add(record)
            results.append(record)
    return results


def _find_stored(store: Store | None, case: Case, layer: str) -> Record | None:
    """The record of a case that was computed before."""
    record = None if store is None else store.get(case.key)
    return record if record is not None and is_of(record, case, layer) else None


def _on_workers(
    executor: Executor, calls: Iterable[_Call], total: int, threads: int, store: Store | None, progress: Progress | None
) -> Results:
    """The records of cases that the workers of an executor compute, in the order of the study."""
    order: dict[Case, None] = {}
    found: dict[Case, Record] = {}

    def missing() -> Iterator[tuple[Case, tuple[Any, ...]]]:
        for case, layer, tensors in calls:
            order[case] = None
            record = _find_stored(store, case, layer)
            if record is None:
                yield case, (layer, {name: tensors[name] for name in (case.weights, case.activations) if name}, threads)
            else:
                found[case] = record

    def finished(case: Case, record: Record) -> None:
        found[case] = record
        if store is not None:
            store.add(record)
        if progress is not None:
            progress(len(found), total, case)

    spread(executor, measured, missing(), finished)
    return Results(found[case] for case in order)
