"""``python -m bench.published``: three published facts reproduced by accuracy studies, and the time of a large one."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import click
import numpy as np

from fastmma import study
from fastmma.study.speed.report import describe
from tools.pages import fill


@dataclass(frozen=True)
class Quantiser:
    """What a paper reports of a format: the mean squared error over N(0, 1), and where it does."""

    format: str
    label: str
    mse: float
    source: str
    factor: float = 1.0  # that the numbers are multiplied by first


QUARTET = "Quartet (arXiv 2505.14669), table 2"
QUARTET_2 = "Quartet II (arXiv 2601.22813), table 1"
QUANTISERS = (
    Quantiser("mxfp4", "MXFP4, OCP's floor", 13.7e-3, QUARTET),
    Quantiser("mxfp4", "MXFP4, OCP's floor, of 3/4 of the numbers", 13.7e-3, QUARTET, 0.75),
    Quantiser("nvfp4", "NVFP4, blocks of 16", 9.0e-3, QUARTET_2),
    Quantiser("nvfp4_16x16", "NVFP4, blocks of 16 x 16", 12.4e-3, QUARTET_2),
)


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    names = list(headings)
    return [f"| {' | '.join(cells)} |" for cells in (names, ["---"] * len(names), *rows)]


def _percent(value: float) -> str:
    return f"{100 * value:.2g} %"


def promotion(size: int, depths: tuple[int, ...]) -> list[str]:
    """Hopper's fp8 as K grows, and promotion."""
    rows = []
    for k in depths:
        grid = study.Grid(("e4m3",), ("sm_90a",), ((size, size, k),), ("normal", "positive"), (None, 128), sample=size)
        plain, promoted, positive, cured = study.run(grid)
        cells = [plain["accumulation_error"], plain["max_error"], promoted["max_error"], positive["max_error"], cured["max_error"]]
        rows.append([str(k), *map(_percent, cells)])
    headings = ["K", "N(0, 1): Frobenius", "largest / rms", "promoted every 128", "uniform [0, 1): largest / rms", "promoted every 128"]
    return _table(headings, rows)


def block_formats(size: int, depth: int) -> list[str]:
    """MXFP4 and NVFP4 on normal data."""
    rows = []
    for row in QUANTISERS:
        drawn = (row.factor * study.DISTRIBUTIONS["normal"].draw(np.random.default_rng(seed), (size, depth)) for seed in range(2))
        tensors = [study.Tensor(f"{row.factor} N(0, 1)", str(seed), x.astype(np.float32)) for seed, x in enumerate(drawn)]
        (record,) = study.run(study.Case(row.format, "sm_120a", size, size, depth, sample=size), tensors=tensors)
        mse = (record["mse_a"] + record["mse_b"]) / 2
        product = f"{_percent(record['relative_error'])}, {record['sqnr_db']:.1f} dB"
        rows.append(
            [row.label, f"{1e3 * row.mse:.1f}e-3", f"{1e3 * mse:.1f}e-3", f"{100 * (mse / row.mse - 1):+.1f} %", product, row.source]
        )
    return _table(["format", "published MSE", "MSE here", "difference", "error of the product", "published in"], rows)


def truncation(size: int, depths: tuple[int, ...]) -> list[str]:
    """Tensor cores' f32 sums against IEEE's, on sums that grow."""
    headings = ["f16, uniform in [0, 1)", *(f"K = {k}" for k in depths)]
    rows = []
    for target in ("sm_70", "sm_80", "sm_90a", study.IEEE):
        grid = study.Grid(("f16",), (target,), tuple((size, size, k) for k in depths), ("positive",))
        records = study.run(grid)
        for metric in ("shrinkage", "accumulation_error"):
            name = metric.replace("_", " ")
            rows += [[f"{target}: {name}", *(f"{record[metric]:.1e}" for record in records)]]
    return _table(headings, rows)


def large(size: int) -> str:
    """The time of a large study, of which the best of three counts."""
    study.run(study.Case("nvfp4", "sm_120a", 64, 64, 128))
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        study.run(study.Case("nvfp4", "sm_120a", size, size, size))
        seconds.append(time.perf_counter() - began)
    return (
        f"A study of one NVFP4 product of {size} x {size} x {size} on sm_120a, quantisation included: {min(seconds):.1f} s, kernels loaded."
    )


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes: only checks that everything runs.")
@click.option("--write", is_flag=True, help="Put the tables into the pages in docs.")
def published(
    quick: bool,
    write: bool,
) -> None:
    """Reproduce what is published, and say how close it comes."""
    size, depths = (16, (64, 256)) if quick else (1024, (1024, 4096, 16384))
    sections = [promotion(size, depths), block_formats(size, 4096 // (16 if quick else 1)), truncation(min(size, 256), depths)]
    text = "".join("\n".join(section) + "\n\n" for section in sections) + f"{large(64 if quick else 4096)}\nOn {describe()}.\n"
    click.echo(text)
    if write:
        fill("published", text)


if __name__ == "__main__":
    published()
