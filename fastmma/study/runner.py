"""Running a study: case after case, each record on disk before the next begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.errors import OperandError, OperandTypeError, reports_memory
from fastmma.study.distributions import distribution_of, generator
from fastmma.study.encoding import Encoded, encoded, formats_of
from fastmma.study.exact import Product, product
from fastmma.study.grid import CASE_FIELDS, Case, Grid
from fastmma.study.metrics import METRICS, Metrics, ratio
from fastmma.study.products import OUTPUT, evidence, multiplied
from fastmma.study.records import Record, Results, Store
from fastmma.study.tensors import Tensor, read
from fastmma.threads import thread_count

COLUMNS: tuple[str, ...] = ("case", *CASE_FIELDS, "evidence", "exact", "mse_a", "mse_b", *METRICS)
Progress = Callable[[int, int, Case], None]
_BLOCK = 256  # rows of the product that are compared at a time


class Originals(NamedTuple):
    """The operands before they are rounded, the rows that are compared, and the exact product there."""

    a: NDArray[Any]
    b: NDArray[Any]
    rows: NDArray[np.intp]
    exact: Product


class Operands(NamedTuple):
    """The operands as an instruction takes them, the exact product of the compared rows, and the operands' own errors."""

    a: Encoded
    b: Encoded
    exact: Product
    mse: tuple[float | None, float | None]


class _Bench:
    """What cases next to each other have in common, kept until the next that differs."""

    def __init__(self, tensors: Iterable[Tensor], threads: int) -> None:
        self.threads = threads
        self._tensors = {_label(tensor): tensor.values for tensor in tensors}
        self._originals: tuple[Any, Originals] | None = None
        self._operands: tuple[Any, Operands] | None = None

    def _operand(self, case: Case, name: str, file: str, rows: int) -> NDArray[Any]:
        if file:
            return self._tensors[file]
        return distribution_of(case.distribution).draw(generator(case.seed, name), (rows, case.k))

    def originals(self, case: Case) -> Originals:
        """The matrices of a case as drawn or read."""
        key = replace(case, format="f16", target="ieee-f32", promote_every=None, split_k=1)
        if self._originals is None or self._originals[0] != key:
            self._originals = None  # not both at once in memory
            a = self._operand(case, "a", case.activations, case.m)
            b = self._operand(case, "b", case.weights, case.n)
            rows = np.arange(case.m)
            if case.sample < case.m:
                rows = np.sort(generator(case.seed, "rows").choice(case.m, case.sample, replace=False))
            exact = _exact(a[rows].astype(np.float64), b.astype(np.float64), (24, 24) if a.dtype == b.dtype == np.float32 else (53, 53))
            self._originals = key, Originals(a, b, rows, exact)
        return self._originals[1]

    def operands(self, case: Case) -> Operands:
        """The matrices of a case as its formats hold them."""
        key = replace(case, target="ieee-f32", promote_every=None, split_k=1)
        if self._operands is None or self._operands[0] != key:
            self._operands = None
            source = self.originals(case)
            names = formats_of(case.format)
            a, b = encoded(source.a, names[0]), encoded(source.b, names[1])
            left, right = a.values(source.rows), b.values()
            exact = _exact(left, right, (a.significand_bits, b.significand_bits))
            exact = Product(exact.values * (a.factor * b.factor), exact.exact)
            mse = _error(left * a.factor, source.a[source.rows]), _error(right * b.factor, source.b)
            self._operands = key, Operands(a, b, exact, mse)
        return self._operands[1]


def _exact(a: NDArray[np.float64], b: NDArray[np.float64], bits: tuple[int, int]) -> Product:
    return product(a, b.T, bits)


def _error(values: NDArray[np.float64], original: NDArray[Any]) -> float | None:
    """Mean squared error over mean square, of what is finite."""
    use = np.isfinite(values) & np.isfinite(original)
    x = original[use].astype(np.float64)
    found = ratio(float(np.square(values[use] - x).sum()), float(np.square(x).sum()))
    return None if found is None else float(f"{found:.10g}")


def _label(tensor: Tensor) -> str:
    return f"{tensor.source} {tensor.digest}"


def _measure(case: Case, bench: _Bench) -> Record:
    source, operands = bench.originals(case), bench.operands(case)
    result = multiplied(case.format, case.target, case.promote_every, case.split_k, operands.a, operands.b, bench.threads)
    metrics = Metrics(OUTPUT)
    for start in range(0, len(source.rows), _BLOCK):
        block = slice(start, start + _BLOCK)
        metrics.add(result[source.rows[block]].astype(np.float64), operands.exact.values[block], source.exact.values[block])
    record: Record = {"case": case.key, **asdict(case), "evidence": evidence(case.format, case.target), "exact": operands.exact.exact}
    record |= {"mse_a": operands.mse[0], "mse_b": operands.mse[1], **metrics.summary()}
    return {name: record[name] for name in COLUMNS}


def cases_of(study: Grid | Case | Iterable[Grid | Case], *tensors: Tensor) -> list[Case]:
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
    parts = [study] if isinstance(study, Grid | Case) else list(study)
    cases: dict[Case, None] = {}
    for part in parts:
        if not isinstance(part, Grid | Case):
            raise OperandTypeError(f"a study consists of Grids and Cases, not {type(part).__name__}")
        for case in part.cases() if isinstance(part, Grid) else [part]:
            if not tensors and (case.weights or case.activations):
                raise OperandError("the tensors of a case with files must be given with it")
            cases[replace(case, **changed)] = None
    if not cases:
        raise OperandError("the study has no cases: every choice of a grid needs at least one value")
    return list(cases)


@reports_memory
def run(
    study: Grid | Case | Iterable[Grid | Case],
    output: str | Path | None = None,
    *,
    tensors: Sequence[Tensor | str | Path] = (),
    threads: int | None = None,
    progress: Progress | None = None,
) -> Results:
    """Compute what is missing of a study and return all of it.

    Parameters
    ----------
    study : Grid or Case, or several
    output : folder, optional
        Where ``results.jsonl`` and ``results.csv`` grow by one record as soon as it is computed. Cases whose records are there already
        are not computed again, so that a study that was stopped, however it was stopped, goes on where it was.
    tensors : sequence of Tensor, str or Path
        Operands from files (see `fastmma.study.read`): the weights (N, K), as a linear layer stores them, and then perhaps the
        activations (M, K). What is not given is drawn from the distributions.
    threads : int, optional
        All cores by default, or ``FASTMMA_NUM_THREADS``. Results do not depend on it.
    progress : callable, optional
        Called with the number of finished cases, that of all cases, and the case that begins.

    Returns
    -------
    Results
        A list with one dict a case, in the order of the study: its configuration, how well the arithmetic is known (``evidence``), whether
        the product it was compared with is exact (``exact``), the operands' mean squared errors over their mean squares (``mse_a``,
        ``mse_b``), and the metrics of `fastmma.study.Metrics`.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError
        All are `fastmma.FastmmaError`, and raised before the first case is computed.

    Notes
    -----
    The whole product is emulated; the rows that are compared with exact products are a sample (`Case.sample`). Metrics keep ten digits.

    Examples
    --------
    >>> grid = Grid(formats=("e4m3",), targets=("sm_90a", "sm_120a"), shapes=((32, 32, 1024),))
    >>> hopper, blackwell = run(grid)
    >>> hopper["exact"], hopper["accumulation_error"] > 100 * blackwell["accumulation_error"]
    (True, True)
    >>> hopper["quantisation_error"] == blackwell["quantisation_error"]
    True
    """
    count = thread_count(threads)
    loaded = [each if isinstance(each, Tensor) else read(each) for each in tensors]
    cases = cases_of(study, *loaded)
    bench, results = _Bench(loaded, count), Results()
    if output is None:
        for done, case in enumerate(cases):
            if progress is not None:
                progress(done, len(cases), case)
            results.append(_measure(case, bench))
        return results
    with Store(Path(output), COLUMNS) as store:
        for done, case in enumerate(cases):
            if progress is not None:
                progress(done, len(cases), case)
            record = store.get(case.key)
            if record is None:
                record = _measure(case, bench)
                store.add(record)
            results.append(record)
    return results
