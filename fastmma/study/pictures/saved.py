"""The pictures of a study, and their files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastmma.host.calls import public_call
from fastmma.host.figures.style import SUFFIXES, styled
from fastmma.host.figures.style import save as save_figure
from fastmma.study.pictures.answer import draw_answer
from fastmma.study.pictures.bars import sqnr, ulp_histogram
from fastmma.study.pictures.heat import heat_map
from fastmma.study.pictures.lines import accumulation_against_depth, error_against_align_bits, error_against_depth
from fastmma.study.pictures.strips import strips
from fastmma.study.records import Record

# figures of a page each; one that has nothing to show has none; reports begin with the first that has
PICTURES: dict[str, tuple[str, Callable[[Sequence[Record]], list[Any]]]] = {
    "answer": ("The answer", draw_answer),
    "formats": ("The relative errors of all layers under each format", strips),
    "layers": ("The relative error of every layer", heat_map),
    "error_against_k": ("Relative error against K", error_against_depth),
    "accumulation_against_k": ("Accumulation error against K", accumulation_against_depth),
    "sqnr": ("Signal to quantisation noise", sqnr),
    "ulp_histogram": ("Errors in units of the last place", ulp_histogram),
    "error_against_align_bits": ("Accumulation error against alignment bits", error_against_align_bits),
}


@public_call
def save(records: Sequence[Record], folder: Path) -> list[tuple[str, str]]:
    """Write all pictures as PNG, SVG and PDF, but those that have nothing to show, and return their titles and the names of the PNG files.

    What is too long for a page goes on in further files, numbered from 2.

    Raises
    ------
    BackendError
        If matplotlib is not installed.
    """
    drawn = []
    with styled():
        for name, (title, draw) in PICTURES.items():
            for page, figure in enumerate(draw(records), 1):
                stem = name if page == 1 else f"{name}_{page}"
                for suffix in SUFFIXES:
                    save_figure(figure, folder / f"{stem}{suffix}")
                drawn.append((title, f"{stem}{SUFFIXES[0]}"))
    return drawn
