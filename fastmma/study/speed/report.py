"""Measurements as tables, CSV, JSON and a picture."""

from __future__ import annotations

import csv
import io
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastmma.host.figures.panels import panels, title
from fastmma.host.figures.style import PAPER, SMALL, in_style, looks, save
from fastmma.study.speed.jobs import OURS, Measurement
from fastmma.verification.machine import LIBRARIES, installed, processor, vectors

HEADINGS = ("product", "target", "threads", "library", "bits", "measured", "seconds", "GMAC/s", "fastmma's bits")
_BAR = 0.2  # inches


def describe() -> str:
    """Processor, its widest vectors, cores, and the versions of what was measured."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = f"Python {platform.python_version()}, NumPy {installed('numpy')}, Numba {installed('numba')}"
    return f"{processor()}, {vectors()}, {cores} core{'s' if cores != 1 else ''}; {versions}"


def document(found: Sequence[Measurement], rounds: int, package_version: str) -> dict[str, Any]:
    """Everything, as JSON has it."""
    names = [name for names in LIBRARIES.values() for name in names] + ["mmasim", "mmaemu"]
    versions = {name: version for name in names if (version := installed(name))}
    about = {"fastmma": package_version, "machine": describe(), "rounds": rounds, "libraries": versions}
    return {**about, "measurements": [each._asdict() for each in found]}


def rows(found: Sequence[Measurement]) -> list[tuple[str, ...]]:
    """A line each, for people."""
    return [
        (
            each.family,
            each.target,
            str(each.threads),
            each.library,
            "exact" if each.exact else "not exact",
            f"{each.m} x {each.n} x {each.k}",
            f"{each.seconds:.3g}",
            f"{each.gmacs:.3g}",
            f"{100 * each.same_bits:.4g} %",
        )
        for each in found
    ]


def csv_text(found: Sequence[Measurement]) -> str:
    """A line each, with the names of the fields above."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Measurement._fields)
    writer.writerows(found)
    return text.getvalue()


@in_style
def draw(found: Sequence[Measurement], path: Path) -> None:
    """Bars of multiply-adds a second, a group for each product, to a PNG, SVG or PDF.

    Raises
    ------
    BackendError
        If matplotlib is not installed.
    OperandError
        If the file is none of them, or cannot be written.
    """
    look = looks([OURS, *(each.library for each in found if each.library != OURS)])
    figure, (panel,) = panels([0.9 + _BAR * len(found)])
    places, names, place = [], [], 0.0
    for i, each in enumerate(found):
        place += 0.5 if i and each.library == OURS else 0.0
        threads = f"{each.threads} thread{'s' if each.threads > 1 else ''}"
        panel.barh(place, each.gmacs, 0.8, color=look[each.library].color, hatch="" if each.exact else "////", edgecolor=PAPER)
        panel.annotate(
            f" {each.library}, {each.gmacs:.3g}{'' if each.exact else ', not exact'}", (each.gmacs, place), va="center", fontsize=SMALL
        )
        places.append(place)
        size = f"{each.m} x {each.n} x {each.k}"
        names.append(f"{each.family} on {each.target}\n{size}, {threads}" if each.library == OURS else "")
        place += 1.0
    panel.set_yticks(places, names)
    panel.tick_params(axis="y", length=0)
    panel.invert_yaxis()
    panel.set_xscale("log")
    panel.margins(x=0.3)
    panel.set_xlabel("multiply-adds a second, in units of 1e9")
    title(panel, f"Products on {describe()}")
    save(figure, path)
