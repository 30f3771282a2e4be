"""``python -m bench.scaling``: products on up to 64 cores, by a model from measured pieces, beside what was measured.

A product is cut as the kernels cut it. Its macro tiles are dealt to equal cores, and each takes the time that products on one thread tell:
multiplying, packing its panel of B, and its call. Packing A, waking threads, reading A's panels from memory and the interpreter's lock
are added or bound it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

import click
import numpy as np

from bench.instructions import CPUS
from bench.records import Record, records
from bench.tables import kernel_of
from fastmma.backends.parts import cuts
from fastmma.host.threads import worth_waking
from fastmma.kernels.fused.packed import CHUNK_ROWS, MACRO_TILES_PER_THREAD, WAKING_ELEMENTS
from fastmma.kernels.macro_tiles import MacroTiles, cut

FAMILIES = ("f16, sm_90a", "f16, sm_80", "e4m3, sm_90a (wgmma)")
CORES = (1, 2, 4, 8, 16, 32, 64)
_CALLS = 2  # of `parallel_for` in a part: packing and macro tiles
_BESIDE = 4.5  # bytes of exponents and signs beside a packed value of A


class Pieces(NamedTuple):
    """Seconds of the pieces of a product on one thread: of a macro tile's call, an element of A, one of a panel of B, a multiply-add."""

    call: float
    left: float
    right: float
    multiply: float


class Times(NamedTuple):
    """The seconds of a product, and what they are."""

    multiplying: float  # with panels of B and calls, dealt to all cores alike
    packing: float
    waking: float
    waiting: float  # for the last macro tiles
    memory: float  # more than multiplying, where reading A's panels takes longer
    lock: float  # more than all this, where the calls of macro tiles take longer, one after another

    @property
    def all(self) -> float:
        """Their sum."""
        return sum(self)

    @property
    def worst(self) -> str:
        """What takes most beside multiplying."""
        return max(self._fields[1:], key=lambda name: float(getattr(self, name)))


class Model:
    """Products of a family on a CPU that was measured.

    Parameters
    ----------
    record : Record
    family : str
    bandwidth : float, optional
        Bytes a second of a machine of 64 cores; else those of the measured one, times the cores that it has more.
    """

    def __init__(self, record: Record, family: str, bandwidth: float | None = None) -> None:
        config = kernel_of(family).record(CPUS[record.registers])
        self.tile, self._bytes = (config.rows, config.panel), (config.left_bytes + _BESIDE) / config.panel
        self._record, self._bandwidth = record, bandwidth
        self.pieces = self._fit(record.parts[family])

    def _fit(self, parts: list[list[float]]) -> Pieces:
        rows = [[-(-n // self.tile[1]), m * k, n * k, m * n * k] for m, n, k, _ in parts]
        seconds = np.array([each[-1] for each in parts])
        weighed = np.array(rows) / seconds[:, None]
        found = np.zeros(4)
        free = np.ones(4, bool)
        while True:  # no piece takes less than nothing
            found[free] = np.linalg.lstsq(weighed[:, free], np.ones(len(rows)), rcond=None)[0]
            if (found >= 0).all():
                return Pieces(*found.tolist())
            free &= found > 0
            found[~free] = 0

    def _of_threads(self, measured: dict[str, float], cores: int, each: bool) -> float:
        """What was measured with so many threads; with more of them in proportion to their number, if `each` has its own."""
        known = {int(count): found for count, found in measured.items()}
        most = max(known)
        if cores <= most:
            return float(np.interp(cores, sorted(known), [known[count] for count in sorted(known)]))
        return known[most] * (cores / most if each else 1.0)

    def times(self, shape: tuple[int, int, int], cores: int) -> Times:
        """The seconds of a product."""
        parts = [self._of_part(*part, cores) for part in _parts(*shape)]
        return Times(*(sum(each) for each in zip(*parts, strict=True)))

    def _of_part(self, m: int, n: int, k: int, cores: int) -> Times:
        record, faster = self._record, self._of_threads(self._record.clocks, cores, False) / self._record.clocks["1"]
        call, left, right, multiply = (each / faster for each in self.pieces)
        tiles = cut(m, n, self.tile, cores, CHUNK_ROWS, MACRO_TILES_PER_THREAD)
        sizes = [(high, wide) for high, wide in _macro_tiles(tiles)]
        seconds = [call + wide * k * right + high * wide * k * multiply for high, wide in sizes]
        whole, dealt = sum(seconds) / cores, _dealt(seconds, cores)
        packers = worth_waking(cores, m * k // WAKING_ELEMENTS)
        waking = sum(self._of_threads(record.turns, count, True) for count in (packers, cores)) if cores > 1 else 0.0
        read = self._bandwidth if self._bandwidth and cores > 16 else self._of_threads(record.reading, cores, True)
        memory = max(0.0, sum(high * wide * k for high, wide in sizes) * self._bytes / read - dealt)
        return Times(whole, m * k * left / packers, waking, dealt - whole, memory, max(0.0, len(sizes) * call - dealt - memory))

    def needed(self, cores: int) -> float:
        """Bytes a second of A's panels, if nothing waits."""
        return cores * self._bytes / (self.pieces.multiply * self._record.clocks["1"] / self._of_threads(self._record.clocks, cores, False))


def _parts(m: int, n: int, k: int) -> Iterator[tuple[int, int, int]]:
    for part in cuts(1, m, n, k, 64):
        yield min(part.rows.stop, m) - part.rows.start, min(part.columns.stop, n) - part.columns.start, part.stop - part.start


def _macro_tiles(tiles: MacroTiles) -> Iterator[tuple[int, int]]:
    """Rows and columns of all macro tiles, in their order."""
    found: list[tuple[int, int]] = []
    tiles.run(1, _NOTHING, lambda tile, _memory: found.append((tile.last_row - tile.row, tile.last_column - tile.column)))
    yield from found


class _Nothing(dict[int, None]):
    def __missing__(self, worker: int) -> None:
        return None


_NOTHING = _Nothing()


def _dealt(seconds: list[float], cores: int) -> float:
    """The time in which equal cores do these, each the next one when it has done one."""
    free = [0.0] * cores
    for each in seconds:
        heapq.heapreplace(free, free[0] + each)
    return max(free)


def measured(record: Record) -> list[str]:
    """A Markdown table: what the model says of products that were measured on several threads, over that."""
    counts = [count for count in CORES if str(count) in record.clocks]
    lines = [
        f"| seconds by the model over measured ones | {' | '.join(f'{count} threads' for count in counts)} |",
        f"| --- |{' --- |' * len(counts)}",
    ]
    for family in FAMILIES:
        found = record.on_threads[family]
        n, model = int(found["n"]), Model(record, family)
        cells = " | ".join(f"{model.times((n, n, n), count).all / found['seconds'][str(count)]:.2f}" for count in counts)
        lines.append(f"| {record.core}: {family}, n = {n} | {cells} |")
    return lines


def table(record: Record, shapes: tuple[tuple[int, int, int], ...], bandwidth: float | None) -> list[str]:
    """A Markdown table: how many times as fast more cores are, what takes most of the rest on 64 of them, and the bandwidth they need."""
    counts = CORES[1:]
    lines = [
        f"| {record.core}, by the model: times one core | {' | '.join(map(str, counts))} | most lost on 64 | reads on 64, GB/s |",
        f"| --- |{' --- |' * (len(counts) + 2)}",
    ]
    for family in FAMILIES:
        model = Model(record, family, bandwidth)
        for shape in shapes:
            one = model.times(shape, 1).all
            cells = [f"{one / model.times(shape, count).all:.1f}" for count in counts]
            last = model.times(shape, 64)
            lost = f"{last.worst}, {100 * getattr(last, last.worst) / last.all:.0f} %"
            lines.append(f"| {family}, {' x '.join(map(str, shape))} | {' | '.join(cells)} | {lost} | {model.needed(64) / 1e9:.0f} |")
    return lines


SHAPES = ((4096, 4096, 4096), (512, 4096, 4096), (8192, 8192, 8192))


def pages(bandwidth: float | None = None) -> str:
    """The tables of all CPUs on which several threads were measured."""
    lines = [""]
    for record in records():
        if record.parts:
            lines += [*measured(record), "", *table(record, SHAPES, bandwidth), ""]
    return "\n".join(lines)


@click.command()
@click.option("--bandwidth", type=float, help="GB/s of a machine with more cores; else those of the measured one for each of its cores.")
def main(bandwidth: float | None) -> None:
    """Print what the model says, beside what was measured, and of up to 64 cores."""
    click.echo(pages(bandwidth and bandwidth * 1e9))


if __name__ == "__main__":
    main()
