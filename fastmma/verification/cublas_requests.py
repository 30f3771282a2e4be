"""Products that cuBLASLt is asked about: those of linear layers, forwards and backwards, and those of a file of shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from fastmma.host.errors import OperandError
from fastmma.host.files import content
from fastmma.products.cublas.book_file import LAYOUTS, TYPES, Kind
from fastmma.products.cublas.rows import Product

_LARGEST = 1 << 26  # bytes of a file of shapes
_MOST = (1 << 31) - 1  # of a dimension, as cuBLASLt has them
_SIZE = re.compile(r"\d{1,10}", re.ASCII)
_RANGE = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", re.ASCII)
_COLUMNS = ("M", "N", "K", "type", "layout")
_EIGHT_BITS = 16  # N and K of 8-bit floats are multiples of this
USUAL_ROWS = "1-128,192-8192:64"


class Request(NamedTuple):
    """A product that a library is asked about; m, n and layout are those of row-major a and b."""

    type: str
    layout: str
    m: int
    n: int
    k: int
    biased: bool = False
    stack: int = 1

    @property
    def product(self) -> Product:
        """The product, as tables know it."""
        kind = TYPES[self.type]
        return Product(kind.fmt, self.layout, self.m, self.n, self.k, kind.out, self.stack > 1)

    @property
    def kind(self) -> Kind:
        """The kind, as books have it."""
        return Kind(self.type, self.layout, TYPES[self.type].out, "bias" if self.biased else "", self.stack)

    @property
    def is_possible(self) -> bool:
        """Tell whether the library multiplies such operands: those of 8 bits have contiguous k, in multiples of 16."""
        return TYPES[self.type].fmt != "e4m3" or (self.layout == "nt" and not (self.n % _EIGHT_BITS or self.k % _EIGHT_BITS))

    def __str__(self) -> str:
        return f"{'biased ' if self.biased else ''}{self.product}"


class Layer(NamedTuple):
    """A linear layer: N outputs of K inputs."""

    n: int
    k: int


def requests_of_layers(layers: Iterable[Layer], rows: Iterable[int], types: Iterable[str]) -> list[Request]:
    """Return the products of layers: forward with and without a bias, and both gradients.

    Examples
    --------
    >>> for request in requests_of_layers([Layer(4096, 1024)], [16], ["bf16"]):
    ...     print(request)
    bf16 nt of M = 16, N = 4096, K = 1024
    biased bf16 nt of M = 16, N = 4096, K = 1024
    bf16 nn of M = 16, N = 1024, K = 4096
    bf16 tn of M = 4096, N = 1024, K = 16
    """
    layers, rows = list(layers), list(rows)
    found: dict[Request, None] = {}
    for kind in types:
        narrow = TYPES[kind].fmt == "e4m3"  # whose operands are transposed before they are multiplied
        for n, k in layers:
            for m in rows:
                each = [Request(kind, "nt", m, n, k), Request(kind, "nt", m, n, k, biased=True)]
                each.append(Request(kind, "nt" if narrow else "nn", m, k, n))
                each.append(Request(kind, "nt" if narrow else "tn", n, k, m))
                found |= dict.fromkeys(request for request in each if request.is_possible)
    return list(found)


def read_rows(text: str) -> list[int]:
    """Read numbers of rows: single ones, ranges, and ranges with a step.

    Raises
    ------
    OperandError

    Examples
    --------
    >>> read_rows("1-3,8,16-64:16")
    [1, 2, 3, 8, 16, 32, 48, 64]
    """
    found: set[int] = set()
    for part in text.split(","):
        spelled = _RANGE.fullmatch(part.strip())
        first, last, step = (int(each) if each else 0 for each in spelled.groups()) if spelled else (0, 0, 0)
        last, step = last or first, step or 1
        if not 1 <= first <= last <= _MOST or (last - first) // step > 1 << 20:
            raise OperandError(f"rows must be numbers from 1, ranges (1-128) or ranges with a step (64-8192:64), not {part!r:.80}")
        found.update(range(first, last + 1, step))
    return sorted(found)


def read_shapes(path: Path) -> list[Request]:
    """Read a file of shapes: each line has M, N, K, the type and the layout, then ``bias`` and the number of products in a stack, if any.

    Fields are parted by commas or spaces; a heading, empty lines, and what follows a ``#`` are left out.

    Raises
    ------
    OperandError
        If there is no such file, or a line of it is none of a product.
    """
    try:
        text = content(path, _LARGEST).decode()
    except UnicodeDecodeError:
        raise OperandError(f"{path}: is no text in UTF-8") from None
    found = dict.fromkeys(_lines(path, text))
    if not found:
        raise OperandError(f"{path}: has no shapes; a line is, for example, 16 4096 4096 bf16 nt")
    return list(found)


def _lines(path: Path, text: str) -> Iterator[Request]:
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.partition("#")[0].replace(",", " ").split()
        if fields and [each.lower() for each in fields[:3]] != ["m", "n", "k"]:
            try:
                yield _request(fields)
            except OperandError as error:
                raise OperandError(f"{path}, line {number}: {error}") from None


def _request(fields: list[str]) -> Request:
    if len(fields) < len(_COLUMNS):
        raise OperandError(f"a shape has {' '.join(_COLUMNS)} [bias] [batch], not {' '.join(fields)!r:.80}")
    m, n, k = (_size(name, text) for name, text in zip(_COLUMNS, fields[:3], strict=False))
    kind, layout, *rest = fields[3:]
    if kind not in TYPES:
        raise OperandError(f"the type must be one of {', '.join(TYPES)}, not {kind!r:.40}")
    if layout not in LAYOUTS:
        raise OperandError(f"the layout must be one of {', '.join(LAYOUTS)}, not {layout!r:.40}")
    biased = bool(rest) and rest[0] == "bias"
    rest = rest[biased:]
    if len(rest) > 1:
        raise OperandError(f"a shape ends with bias and the batch, not {' '.join(rest)!r:.80}")
    found = Request(kind, layout, m, n, k, biased, _size("batch", rest[0]) if rest else 1)
    if not found.is_possible:
        raise OperandError(f"cuBLASLt multiplies {kind} in layout nt, with N and K in multiples of {_EIGHT_BITS}, not {found}")
    return found


def _size(name: str, text: str) -> int:
    if not _SIZE.fullmatch(text) or not 1 <= int(text) <= _MOST:
        raise OperandError(f"{name} must be a number from 1, not {text!r:.40}")
    return int(text)
