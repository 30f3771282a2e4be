"""Panels on a page: their sizes, titles that are not cut, names at the ends of lines that keep apart, and what goes on on the next page."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from textwrap import wrap
from typing import Any, NamedTuple

from fastmma.host.figures.style import HEIGHT, PAPER, SMALL, TEXT, TITLE, WIDTH, Look

_ADVANCE = 0.58  # of a letter, in sizes of the font
_BOLD = 1.2  # of a bold letter, in advances of others
_LINE = 1.3  # of a line
_UNBROKEN = "\0"  # stands for a space at which no line ends
_SAMPLE = (1.035, 1.085)  # of a line beside its name, in widths of a panel


def inches(text: str, size: float = TEXT) -> float:
    """The width of a line of text, not less than it is."""
    return len(text) * size * _ADVANCE / 72


def line_height(size: float = TEXT) -> float:
    """Inches from one line of text to the next."""
    return size * _LINE / 72


def wrapped(text: str, width: float = WIDTH, size: float = TITLE) -> str:
    """A text in as many lines as it takes in that many inches, nothing of it being left out; names of files are broken where they must be.

    What stands between parentheses stays together.

    Examples
    --------
    >>> wrapped("activations from a file", 1.0).splitlines()
    ['activations', 'from a file']
    """
    together = re.sub(r"\([^()]*\)", lambda found: found[0].replace(" ", _UNBROKEN), text)
    lines = wrap(together, max(8, int(width / inches("x", size))), break_on_hyphens=False)
    return "\n".join(lines).replace(_UNBROKEN, " ") or text


def panels(heights: Sequence[float], width: float = WIDTH) -> tuple[Any, list[Any]]:
    """A figure of panels below each other, of so many inches each, outside pyplot's registry."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, sum(heights)), dpi=100, facecolor=PAPER, layout="constrained")
    return figure, list(figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0])


class Part(NamedTuple):
    """Rows of a panel that stand on one page."""

    panel: int
    first: int
    last: int
    of: int

    def __str__(self) -> str:
        """Return which rows these are, where they are not all; counted from 1."""
        return "" if self.last - self.first == self.of else f"{self.first + 1} to {self.last} of {self.of}"


def pages(rows: Sequence[int], row: float, around: float) -> list[list[Part]]:
    """Panels of so many rows on pages: one that is too long for a page goes on on the next, in parts of like length.

    Parameters
    ----------
    rows : sequence of int
        Of each panel.
    row, around : float
        Inches of a row, and of what is around the rows of a panel.

    Examples
    --------
    >>> [[(part.panel, str(part)) for part in page] for page in pages([4, 100, 3], 0.2, 1.0)]
    [[(0, '')], [(1, '1 to 34 of 100')], [(1, '35 to 67 of 100')], [(1, '68 to 100 of 100')], [(2, '')]]
    """
    most = max(1, int((HEIGHT - around) / row))
    found: list[list[Part]] = []
    room = 0.0
    for panel, count in enumerate(rows):
        parts = math.ceil(count / most)
        edges = [math.ceil(count * each / parts) for each in range(parts + 1)]
        for first, last in pairwise(edges):
            height = row * (last - first) + around
            if height > room:
                found.append([])
                room = HEIGHT
            found[-1].append(Part(panel, first, last, count))
            room -= height
    return found


def title(panel: Any, text: str, left: float = 0.8, width: float = WIDTH) -> None:
    """A title over as many lines as it takes beside that many inches on the left; names of files are no formulas."""
    panel.set_title(wrapped(text, max(2.0, width - left - 0.2) / _BOLD), parse_math=False, fontweight="bold")


def label_ends(panel: Any, ends: Sequence[tuple[str, float, float, Look]], height: float) -> None:
    """Names at the right of a panel, next to where their lines end, moved apart as far as they must be, each with a piece of its line.

    Parameters
    ----------
    panel : Axes
        Whose limits do not change afterwards.
    ends : sequence of (name, x, y, Look)
        In the units of the data.
    height : float
        Inches of the panel's frame, or less.
    """
    panel.autoscale_view()
    inner = panel.transData + panel.transAxes.inverted()
    ends = sorted(ends, key=lambda end: inner.transform(end[1:3])[1])
    least = line_height(SMALL) / height
    places = within(spread([float(inner.transform(end[1:3])[1]) for end in ends], least), least)
    for (name, x, y, look), place in zip(ends, places, strict=True):
        arrow = {"arrowstyle": "-", "color": look.color, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 3}
        panel.annotate("", (x, y), xytext=(_SAMPLE[0] - 0.005, place), textcoords="axes fraction", annotation_clip=False, arrowprops=arrow)
        sample = {"transform": panel.transAxes, "clip_on": False, "fillstyle": "none", **look._asdict()}
        panel.plot(_SAMPLE, (place, place), linewidth=1.0, **sample | {"marker": ""})
        panel.plot(sum(_SAMPLE) / 2, place, linestyle="", markersize=3.5, **{key: sample[key] for key in sample if key != "linestyle"})
        words = {"fontsize": SMALL, "color": look.color, "va": "center_baseline", "transform": panel.transAxes}
        panel.text(_SAMPLE[1] + 0.012, place, name, parse_math=False, **words)


def within(places: Sequence[float], least: float) -> list[float]:
    """Ascending places that are that far apart, moved between 0 and 1, as far as there is room.

    Examples
    --------
    >>> within([-0.1, 0.2, 0.9], 0.25)
    [0.0, 0.25, 0.9]
    """
    highest = [min(place, 1 - least * (len(places) - 1 - i)) for i, place in enumerate(places)]
    found: list[float] = []
    for place in highest:
        found.append(max(place, found[-1] + least if found else 0.0))
    return found


def spread(places: Sequence[float], least: float) -> list[float]:
    """Ascending places, moved as little as keeps neighbours that far apart: those that touch stay about their middle.

    Examples
    --------
    >>> spread([0.5, 0.5, 0.9], 0.2)
    [0.4, 0.6, 0.9]
    """
    groups: list[list[float]] = []  # sums of places, and counts
    for place in places:
        groups.append([place, 1])
        while len(groups) > 1:
            (below, fewer), (above, more) = groups[-2:]
            if above / more - below / fewer >= least * (fewer + more) / 2 - 1e-12:
                break
            groups[-2:] = [[below + above, fewer + more]]
    return [round(total / count + least * (i - (count - 1) / 2), 9) for total, count in groups for i in range(int(count))]
