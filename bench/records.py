"""What was measured of each CPU: a file for each in bench/records, and the tables of docs/speed.md that come from them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench import measured
from bench.cores import CORES, Core, this_core
from bench.loops import NAME, cycles_of_kinds
from fastmma.kernels.tiles import AMX, first_fit
from fastmma.study.speed.report import describe

FOLDER = Path(__file__).parent / "records"


class Record(NamedTuple):
    """What was measured of a CPU.

    Attributes
    ----------
    core, registers : str
        A core of `bench.cores` and its registers, "" for an unknown one.
    machine : str
        Processor, cores, and versions.
    amx : bool
        Whether bytes were multiplied on AMX.
    kinds : dict
        Cycles of instructions, as `bench.loops.cycles_of_kinds` has them.
    products : dict
        Of products on one thread: multiply-adds, seconds and cycles.
    clocks, reading, turns : dict
        By numbers of threads: cycles a second, bytes a second, and seconds until all have done their part.
    on_threads, parts, layers : dict
        Of products on several threads, on one thread in several shapes, and of linear layers: sizes and seconds.
    """

    core: str
    registers: str
    machine: str
    amx: bool
    kinds: dict[str, list[float]]
    products: dict[str, dict[str, float]]
    clocks: dict[str, float]
    reading: dict[str, float]
    turns: dict[str, float]
    on_threads: dict[str, dict[str, Any]]
    parts: dict[str, list[list[float]]]
    layers: dict[str, list[float]]

    @property
    def row(self) -> Core | None:
        """The core's row of the table."""
        return next((core for core in CORES if (core.name, core.cpu) == (self.core, self.registers)), None)

    @property
    def title(self) -> str:
        """The core and its registers."""
        return f"{self.core or self.machine}, {self.registers}"

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.title.lower().replace(', ', '_').replace(' ', '_').replace('-', '')}.json"

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        text = json.dumps(json.loads(json.dumps(self._asdict()), parse_float=lambda digits: float(f"{float(digits):.5g}")), indent=1)
        lines = re.sub(r"\[[^][{}]*\]", lambda found: " ".join(found[0].split()).replace("[ ", "[").replace(" ]", "]"), text)
        path.write_text(f"{lines}\n", encoding="utf-8")


def read(path: Path) -> Record:
    """Read a record."""
    return Record(**json.loads(path.read_text(encoding="utf-8")))


def records() -> list[Record]:
    """Read all of them."""
    return [read(path) for path in sorted(FOLDER.glob("*.json"))]


def new_record() -> Record:
    """Make a record of this CPU of which nothing is measured."""
    core = this_core(NAME)
    return Record("" if core is None else core.name, NAME, describe(), first_fit(AMX) is not None, *({} for _ in range(8)))


def measure(quick: bool, rounds: int, alone: bool) -> Iterator[Record]:
    """Measure this CPU, `alone` on one thread: a record again and again, of ever more."""
    record, few = new_record(), max(1, rounds // 2)
    yield (record := record._replace(kinds=cycles_of_kinds(rounds)))
    yield (record := record._replace(products=measured.products(quick, rounds)))
    if not alone:
        yield (record := record._replace(clocks=measured.clocks(rounds), turns=measured.turns(rounds)))
        yield (record := record._replace(reading=measured.reading(quick, few)))
        yield (record := record._replace(on_threads=measured.on_threads(quick, few)))
        yield (record := record._replace(parts=measured.parts(quick, few)))
        yield record._replace(layers=measured.linear_layers(quick, rounds))
