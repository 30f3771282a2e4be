"""A book of convolutions for which an H200's cuDNN was asked: the names of the kernels that it took tell their orders.

A row of ``products/books/cudnn_convolutions_h200_9_19.csv`` is a convolution by sizes. Its last column has a letter of `ORDERS` for the
result and for the gradient of the input of each of `VARIANTS` (a format, and whether channels lie last), and a dot where the order is not
known: Winograd's and Fourier's algorithms, and kernels that cut k into parts. A kernel's name says how many channels it takes at a time
and whether tensor cores add. Checksums of fresh convolutions judged each kind of kernel; kinds of which one differed have a dot, too.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from fastmma.functions.convolution import Order
from fastmma.torch.convolution_rules import INPUT, RESULT

RATE = 406, 406  # fresh convolutions whose kernel's name gave the order, and which had every bit, of how many
VARIANTS = (
    ("bf16", False),
    ("f16", False),
    ("tf32", False),
    ("f32", False),
    ("bf16", True),
    ("f16", True),
    ("tf32", True),
)  # channels last
ORDERS = {
    "c": Order("crs", False),
    "a": Order("rsc", False),
    **{letter: Order("rsc", True, padded=True, chunk=chunk) for letter, chunk in zip("fgh", (16, 32, 64), strict=True)},
    **{letter: Order("rsc", True, padded=True, nearest=True, chunk=chunk) for letter, chunk in zip("FGH", (16, 32, 64), strict=True)},
    **{letter: Order("rsc", True, padded=True, chunk=chunk, turned=True) for letter, chunk in zip("pqr", (16, 32, 64), strict=True)},
}


class Sizes(NamedTuple):
    """A convolution of two dimensions, without groups and gaps, as a row has it."""

    images: int
    channels: int
    height: int
    width: int
    results: int
    rows: int
    columns: int
    stride: int
    padding_rows: int
    padding_columns: int


@cache
def _book() -> dict[Sizes, str]:
    text = files("fastmma.products").joinpath("books/cudnn_convolutions_h200_9_19.csv").read_text()
    return {Sizes(*map(int, sizes)): orders for *sizes, orders in list(csv.reader(text.splitlines()))[1:]}


def order_of(sizes: Sizes, of: str, fmt: str, *, last: bool) -> Order | None:
    """Find the order of a convolution in the book.

    Parameters
    ----------
    sizes : Sizes
    of : str
        `RESULT` or `INPUT`; there are no others in the book.
    fmt : {"bf16", "f16", "tf32", "f32"}
    last : bool
        Whether channels lie last, in all operands.

    Examples
    --------
    >>> print(order_of(Sizes(8, 256, 14, 14, 256, 3, 3, 1, 1, 1), RESULT, "bf16", last=False))
    mma, channels last, channels filled up, 64 channels at a time
    """
    orders = _book().get(sizes)
    if orders is None or of not in (RESULT, INPUT) or (fmt, last) not in VARIANTS:
        return None
    return ORDERS.get(orders[2 * VARIANTS.index((fmt, last)) + (of == INPUT)])
