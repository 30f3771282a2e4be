"""The style of pictures: made for a page of two columns, in letters that are read at that size, and the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar, cast

from fastmma.host.errors import OperandError
from fastmma.host.files import written
from fastmma.host.modules import optional

WIDTH, HEIGHT = 7.1, 9.2  # inches of a page's text
PNG_DPI = 300
SUFFIXES = (".png", ".svg", ".pdf")
INK, FAINT, EDGE, RULE, PAPER, BAND = "#1b1f24", "#a3a9b1", "#59636e", "#d8dce1", "#ffffff", "#eef1f4"
TITLE, TEXT, SMALL = 8.5, 7.5, 6.5  # points
# told apart by those who see few colours, too: after Okabe and Ito, with a dark violet and ink for their yellow and black
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5e3c8f", INK)
_PALEST = 70  # percent of white in a colour, and less
MARK = "#cf222e"  # what a picture points at
LESS, MORE = "#4b9cd3", "#e07b39"  # than the middle
# of a one and of a zero among the bits of a number, and of those that are lost
BITS = {"term": (COLOURS[0], "#c6deee"), "accumulator": (COLOURS[2], "#c2e6dc"), "sum": (INK, "#d0d4d9"), "lost": ("#b9bfc6", BAND)}
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
_Draw = TypeVar("_Draw", bound=Callable[..., Any])


class Look(NamedTuple):
    """The look of one series: its colour is no other's, and its marker differs from those of its neighbours."""

    color: str
    linestyle: Any
    marker: str


def _paler(colour: str, percent: int) -> str:
    """Mix a colour with so many percent of white."""
    channels = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{each + (255 - each) * percent // 100:02x}" for each in channels)


def distinct_colours(count: int) -> list[str]:
    """So many colours, none of them twice: those of `COLOURS`, then paler ones.

    Examples
    --------
    >>> distinct_colours(10)[8:], len(set(distinct_colours(80)))
    (['#59a3cc', '#e39659'], 80)
    """
    rounds = -(-count // len(COLOURS))
    return [_paler(colour, _PALEST * number // rounds) for number in range(rounds) for colour in COLOURS][:count]


def looks(names: Sequence[str]) -> dict[str, Look]:
    """A look for each name.

    Examples
    --------
    >>> len({look.color for look in looks([str(number) for number in range(32)]).values()})
    32
    """
    every = list(dict.fromkeys(names))
    return {
        name: Look(colour, _DASHES[i // len(COLOURS) % len(_DASHES)], _MARKERS[i % len(_MARKERS)])
        for i, (name, colour) in enumerate(zip(every, distinct_colours(len(every)), strict=True))
    }


def matplotlib() -> Any:
    """The library that draws.

    Raises
    ------
    BackendError
        If it is not installed.
    """
    return optional("matplotlib", "pictures need", "'fastmma[plots]'")


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the style.

    Raises
    ------
    BackendError
        If matplotlib is not installed.
    """
    with matplotlib().rc_context(_SETTINGS):
        yield


def in_style(draw: _Draw) -> _Draw:
    """A function that draws, which then does so in the style."""

    @wraps(draw)
    def drawn(*args: Any, **options: Any) -> Any:
        with styled():
            return draw(*args, **options)

    return cast(_Draw, drawn)


def save(figure: Any, path: Path) -> None:
    """Write a figure as what the name of the file says; PNG at 300 dots an inch.

    Raises
    ------
    OperandError
        If it says something else than PNG, SVG or PDF, or the file cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise OperandError(f"a picture is {', '.join(SUFFIXES)}, not {path.name}")
    if figure.get_layout_engine() is not None:  # found once, it takes longer than to draw
        with styled():
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
    with written(path) as file:
        write(figure, file, path.suffix)


def write(figure: Any, file: IO[bytes], suffix: str) -> None:
    """Write a figure into an open file as one of `SUFFIXES`."""
    with styled():
        figure.savefig(file, format=suffix.removeprefix("."), dpi=PNG_DPI, metadata=_METADATA[suffix])
