"""What bounds the micro-kernels: ``python -m bench.ports`` measures how many vector instructions of each kind this CPU does at a time, and
prints that beside the pipes of its core, with the table of all cores and the bounds of the micro-kernels on each."""

from __future__ import annotations

import click

from bench.cores import tables
from bench.loops import NAME, check, cycles_of_kinds
from bench.records import new_record
from bench.tables import kinds
from fastmma.study.speed.report import describe


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=9, help="Rounds of every measurement.")
def main(rounds: int) -> None:
    """Measure pipes; with FASTMMA_CPU=avx2 those of registers of 32 bytes."""
    check()
    record = new_record()._replace(kinds=cycles_of_kinds(rounds))
    click.echo("\n".join([f"{describe()}, {NAME}.", "", *kinds(record), "", *tables()]))


if __name__ == "__main__":
    main()
