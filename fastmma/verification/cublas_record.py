"""Recording a plan book: what cuBLASLt would run for products on the GPU in this machine, and samples that confirm the orders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import FastmmaError, OperandError
from fastmma.isa.formats import FORMATS
from fastmma.products.cublas.book_file import Contents, write_contents
from fastmma.products.cublas.choice import Choice
from fastmma.products.cublas.rows import Table
from fastmma.products.cublas.tables import nearest_table
from fastmma.products.library_gpu import library_gpu
from fastmma.verification.cublas_requests import Request
from fastmma.verification.cublas_samples import compute_sample, draw_sample, have_same_bits, kept, operands

Progress = Callable[[int, int], None]
_MOST_SAMPLES = 3  # of a kind of choices
_LARGEST = 1 << 27  # elements of the matrices of a sample
_NO_ALGORITHM = Choice(0)
_LINE = 128  # bytes of k that kernels may cut parts at


class Asker(Protocol):
    """What answers and computes; `fastmma.verification.cublaslt.CublasLt` is the real one."""

    gpu: str
    capability: tuple[int, int]
    version: str

    @property
    def how(self) -> str:
        """Say how it is asked."""
        ...

    def ask(self, request: Request) -> Choice | None:
        """Ask for the choice of a product."""
        ...

    def run(self, request: Request, a: NDArray[Any], b: NDArray[Any], bias: NDArray[Any] | None) -> tuple[Choice, NDArray[Any]]:
        """Compute a product by the algorithm that is chosen."""
        ...


class Outcome(NamedTuple):
    """What became of a recording: how many products were asked about, and how many have an order that samples confirmed."""

    products: int
    confirmed: int
    kinds: int
    kinds_confirmed: int
    samples: int


def order_kind(request: Request, choice: Choice) -> tuple[Any, ...]:
    """Return what the order of a choice may depend on, but for sizes and how many parts of k there are.

    Examples
    --------
    >>> one, other = (order_kind(Request("bf16", "nt", m, 64, 4096), Choice(66, tile=m, stages=35)) for m in (16, 32))
    >>> one == other
    True
    """
    said = "one" if choice.split_k == 1 else "several" if choice.split_k > 1 else "unsaid"
    tiles = (choice.tile, choice.cluster) if said == "unsaid" else ()
    scheme = () if said == "one" else (choice.reduction, request.k * FORMATS[request.product.fmt].dtype.itemsize % _LINE == 0)
    which = choice.algo, choice.stages, choice.custom, choice.inner, said, tiles, scheme
    return request.type, request.layout, request.biased, request.stack > 1, request.product.is_by_vector, which


def record_cublas(path: Path, requests: Sequence[Request], asked: Asker, *, progress: Progress | None = None) -> Outcome:
    """Ask cuBLASLt for its choices, confirm what they mean, and write a plan book.

    Parameters
    ----------
    path : Path
        The ``.npz`` file to be written: the variable ``FASTMMA_PLAN_BOOK`` names it, or ``plans=``.
    requests : sequence of Request
    asked : Asker
        The library and the GPU.
    progress : callable, optional
        Called with the number of products and kinds done, and their total.

    Returns
    -------
    Outcome

    Raises
    ------
    OperandError
        If the folder or the disk does not take the file, or there is nothing to ask.
    BackendError
        If the library or the driver fails.
    """
    if not requests:
        raise OperandError("there are no products to be recorded")
    tell = progress or (lambda _done, _total: None)
    choices: dict[Request, Choice] = {}
    for done, request in enumerate(dict.fromkeys(requests), 1):
        choices[request] = asked.ask(request) or _NO_ALGORITHM
        if done % 1000 == 0:
            tell(done, len(requests))
    groups = defaultdict[tuple[Any, ...], list[Request]](list)
    for request, choice in choices.items():
        groups[order_kind(request, choice)].append(request)
    table, counts = nearest_table(library_gpu(asked.gpu), asked.version), dict[tuple[Any, ...], int]()
    for done, (kind, members) in enumerate(groups.items(), 1):
        counts[kind] = _confirm(members, choices, table, asked)
        tell(len(choices) + done, len(choices) + len(groups))
    rows = {request: (*astuple(choice), counts[order_kind(request, choice)]) for request, choice in choices.items()}
    _write(path, rows, asked)
    known = sum(row[-1] > 0 for row in rows.values())
    return Outcome(len(rows), known, len(groups), sum(count > 0 for count in counts.values()), sum(counts.values()))


def _confirm(members: list[Request], choices: dict[Request, Choice], table: Table, asked: Asker) -> int:
    """Count the samples of a kind that have the bits of the plan; none where one of them differs, or there is no plan."""
    small = sorted((_elements(each), each) for each in members if _elements(each) <= _LARGEST)
    if not small or choices[small[0][1]] is _NO_ALGORITHM:
        return 0
    places = sorted({round(place) for place in np.linspace(0, len(small) - 1, _MOST_SAMPLES)})
    for request in (small[place][1] for place in places):
        sample = draw_sample(request)
        try:
            planned = compute_sample(request, sample, choices[request], table, asked.capability)
            choice, d = asked.run(request, *operands(request, sample))
        except FastmmaError:  # there is no plan, or the GPU has no memory
            return 0
        if choice != choices[request] or not have_same_bits(d[np.ix_(kept(request.m), kept(request.n))], planned):
            return 0
    return len(places)


def _elements(request: Request) -> int:
    return request.stack * (request.m * request.k + request.k * request.n + request.m * request.n)


def _write(path: Path, rows: dict[Request, tuple[Any, ...]], asked: Asker) -> None:
    kinds = {kind: index for index, kind in enumerate(dict.fromkeys(request.kind for request in rows))}
    plain = {request: tuple(-1 if value is None else value for value in row) for request, row in rows.items()}
    choices = {row: index for index, row in enumerate(dict.fromkeys(plain.values()))}
    columns = {name: np.array([getattr(request, name) for request in rows], np.uint32) for name in "mnk"}
    columns["kind"] = np.array([kinds[request.kind] for request in rows], np.uint32)
    columns["choice"] = np.array([choices[row] for row in plain.values()], np.uint32)
    table = np.array(list(choices), np.int64)
    write_contents(path, Contents(asked.gpu, "cuBLASLt", asked.version, asked.how, tuple(kinds), table, columns))
