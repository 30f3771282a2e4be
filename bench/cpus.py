"""``python -m bench.cpus``: measure this CPU, keep that in bench/records, and bring the tables of all CPUs in docs/speed.md up to date.

With ``FASTMMA_CPU=avx2`` its registers of 32 bytes are measured. ``--tables`` measures nothing.
"""

from __future__ import annotations

from pathlib import Path

import click

from bench.cores import tables
from bench.loops import check
from bench.records import FOLDER, measure, new_record, records
from bench.scaling import pages
from bench.tables import every_cpu
from tools.pages import fill


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=7, help="Rounds of every measurement.")
@click.option("--quick", is_flag=True, help="Small sizes: only checks that everything runs.")
@click.option("--alone", is_flag=True, help="One thread only.")
@click.option("--tables", "only_tables", is_flag=True, help="Measure nothing.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep what is measured in this file, and leave docs as they are.")
def main(rounds: int, quick: bool, alone: bool, only_tables: bool, out: Path | None) -> None:
    """Measure this CPU, keep the record, and write the tables of every CPU."""
    if not only_tables:
        check()
        path = out or FOLDER / new_record().file
        for record in measure(quick, rounds, alone):
            record.save(path)
    if out is None:
        fill("cpus", every_cpu(records()))
        fill("cores", "\n".join(["", *tables(), "", ""]))
        fill("scaling", pages())


if __name__ == "__main__":
    main()
