"""The style of pictures: made for a page of two columns, in letters that are read at that size, and the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple, TypeVar, cast

from fastmma.host.errors import BackendError, OperandError
from fastmma.host.files import written

WIDTH, COLUMN = 7.1, 3.45  # inches: of a page's text, and of one of its two columns
PNG_DPI = 300
SUFFIXES = (".png", ".svg", ".pdf")
INK, FAINT, EDGE, RULE, PAPER, BAND = "#1b1f24", "#a3a9b1", "#59636e", "#d8dce1", "#ffffff", "#eef1f4"
TITLE, TEXT, SMALL = 8.5, 7.5, 6.5  # points
# told apart by those who see few colours, too: after Okabe and Ito, with a dark violet and ink for their yellow and black
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5e3c8f", INK)
_DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h", "p", "d", "8", "*", "H", ".")
_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": TEXT,
    "text.color": INK,
    "axes.edgecolor": EDGE,
    "axes.labelcolor": INK,
    "axes.labelsize": TEXT,
    "axes.linewidth": 0.6,
    "axes.titlesize": TITLE,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 4.0,
    "lines.markeredgewidth": 0.9,
    "xtick.color": EDGE,
    "ytick.color": EDGE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # journals take no bitmaps for letters
    "svg.hashsalt": "fastmma",  # the same picture is the same file
}
# the day on which a picture was made would make another file of it
_METADATA: dict[str, dict[str, None]] = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
_ADVANCE = 0.58  # of a letter, in sizes of the font
_BOLD = 1.2  # of a bold letter, in advances of others
_LINE = 1.3  # of a line
_SAMPLE = (1.035, 1.085)  # of a line beside its name, in widths of a panel
_Draw = TypeVar("_Draw", bound=Callable[..., Any])


class Look(NamedTuple):
    """How one series is drawn: of 32, each differs from every other in colour or line, and from its neighbours in its marker."""

    color: str
    linestyle: Any
    marker: str


def looks(names: Sequence[str]) -> dict[str, Look]:
    """A look for each name.

    Examples
    --------
    >>> len(set(looks([str(number) for number in range(32)]).values()))
    32
    """
    count = len(COLOURS)
    return {
        name: Look(COLOURS[i % count], _DASHES[i // count % len(_DASHES)], _MARKERS[i % len(_MARKERS)])
        for i, name in enumerate(dict.fromkeys(names))
    }


def inches(text: str, size: float = TEXT) -> float:
    """The width of a line of text, not less than it is."""
    return len(text) * size * _ADVANCE / 72


def line_height(size: float = TEXT) -> float:
    """Inches from one line of text to the next."""
    return size * _LINE / 72


def wrapped(text: str, width: float = WIDTH, size: float = TITLE) -> str:
    """A text in as many lines as it takes in that many inches, nothing of it being left out; names of files are broken where they must be.

    Examples
    --------
    >>> wrapped("activations from a file", 1.0).splitlines()
    ['activations', 'from a file']
    """
    return "\n".join(wrap(text, max(8, int(width / inches("x", size))), break_on_hyphens=False)) or text


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the style.

    Raises
    ------
    BackendError
        If matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise BackendError("pictures need matplotlib: pip install 'fastmma[plots]'") from None
    settings: Any = _SETTINGS
    with matplotlib.rc_context(settings):
        yield


def in_style(draw: _Draw) -> _Draw:
    """A function that draws, which then does so in the style."""

    @wraps(draw)
    def drawn(*args: Any, **options: Any) -> Any:
        with styled():
            return draw(*args, **options)

    return cast(_Draw, drawn)


def panels(heights: Sequence[float], width: float = WIDTH) -> tuple[Any, list[Any]]:
    """A figure of panels below each other, of so many inches each, outside pyplot's registry."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, sum(heights)), dpi=100, facecolor=PAPER, layout="constrained")
    return figure, list(figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0])


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


def save(figure: Any, path: Path) -> None:
    """Write a figure as what the name of the file says; PNG at 300 dots an inch.

    Raises
    ------
    OperandError
        If it says something else than PNG, SVG or PDF, or the file cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise OperandError(f"a picture is {', '.join(SUFFIXES)}, not {path.name}")
    with styled():
        if figure.get_layout_engine() is not None:  # found once, it takes longer than to draw
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
    with styled(), written(path) as file:
        figure.savefig(file, format=path.suffix.removeprefix("."), dpi=PNG_DPI, metadata=_METADATA[path.suffix])
