"""Measurements that are made together: one product of fastmma, and its peers beside it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product as combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.study.speed.measure import interleaved
from fastmma.study.speed.peers import PEERS, Peer
from fastmma.study.speed.products import ScaledProduct, Shape, TimedProduct, product_of

OURS = "fastmma"
# multiply-adds a second on one core with AVX-512, in units of 1e9: for the time that measurements will take
_USUAL = {"f16": 12, "bf16": 12, "tf32": 12, "e4m3": 18, "e5m2": 18, "f64": 15, "s8": 150, "b1": 900}
_USUAL_SCALED = 15
_START = 1.0  # seconds: of a measurement, until everything is compiled and loaded
_PEER = 0.2  # seconds: of a peer's call


class Job(NamedTuple):
    """One product, measured with its peers."""

    family: str
    target: str
    shape: Shape
    threads: int
    rounds: int
    peers: tuple[str, ...]

    @property
    def macs(self) -> int:
        """Multiply-adds of the product."""
        m, n, k = self.shape
        return m * n * k

    def seconds(self) -> float:
        """Return what it will take, roughly."""
        own = self.macs / (1e9 * _USUAL.get(self.family, _USUAL_SCALED) * self.threads)
        return _START + (self.rounds + 1) * (own + _PEER * len(self.peers))


class Measurement(NamedTuple):
    """The speed at which one library computed one product.

    Attributes
    ----------
    family, target, instruction : str
    m, n, k : int
        Of what was measured: a slow peer's is a part of the product.
    threads : int
    library : str
        ``"fastmma"``, or a peer's name.
    exact : bool
        Whether the library means to have the GPU's bits.
    seconds : float
        Median of the rounds.
    gmacs : float
        Multiply-adds a second, in units of 1e9.
    same_bits : float
        Share of the results that equal fastmma's.
    """

    family: str
    target: str
    instruction: str
    m: int
    n: int
    k: int
    threads: int
    library: str
    exact: bool
    seconds: float
    gmacs: float
    same_bits: float


def jobs_of(
    families: Iterable[str], targets: Iterable[str], shapes: Iterable[Shape], threads: Iterable[int], rounds: int, peers: Sequence[str]
) -> list[Job]:
    """Every combination, those of one number of threads together."""
    return [
        Job(family, target, shape, count, rounds, tuple(peers))
        for count, target, family, shape in combinations(threads, targets, families, shapes)
    ]


def measured(job: Job) -> list[Measurement]:
    """Measure one product and its peers, taking turns.

    Raises
    ------
    FastmmaError
    """
    product = product_of(job.family, job.target)
    run = product.run(job.shape)
    runs: dict[str, Any] = {OURS: partial(run, job.threads)}
    shapes, same = {OURS: job.shape}, {OURS: 1.0}
    exact = {OURS: True}
    ins = product.instruction()
    tile = max(64, ins.m), max(64, ins.n)
    for peer in PEERS:
        if peer.name not in job.peers or not peer.installed():
            continue
        shape = peer.shape(job.shape, tile)
        theirs = peer.product(product, shape)
        if theirs is not None:
            runs[peer.name], shapes[peer.name], exact[peer.name] = theirs, shape, peer.exact
            same[peer.name] = _share(product, shape, theirs())
    seconds = interleaved(runs, job.rounds, time.perf_counter)
    return [
        Measurement(
            job.family,
            product.target,
            ins.opcode,
            *shapes[name],
            job.threads,
            name,
            exact[name],
            seconds[name],
            shapes[name][0] * shapes[name][1] * shapes[name][2] / seconds[name] / 1e9,
            same[name],
        )
        for name in runs
    ]


def _share(product: TimedProduct | ScaledProduct, shape: Shape, found: NDArray[Any]) -> float:
    """Count the results that are fastmma's."""
    ours = product.run(shape)(1)
    return float(np.mean(np.asarray(ours, np.float64) == np.asarray(found, np.float64)))


def peers_of(names: Sequence[str]) -> tuple[Peer, ...]:
    """The peers of these names that are installed."""
    return tuple(peer for peer in PEERS if peer.name in names and peer.installed())
