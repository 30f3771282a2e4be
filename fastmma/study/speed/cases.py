"""The products whose speed is told: by ``fastmma bench``, and in the tables of a checkout's benchmarks."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from fastmma.study.speed.products import ScaledProduct, Shape, TimedProduct, product_of

FAMILY, SQUARE, THIN, GPU = "family", "square", "thin", "gpu"


class Case(NamedTuple):
    """A product.

    Attributes
    ----------
    title : str
        The name of its line in tables, and of its benchmark group.
    family, target : str
        As `product_of` takes them.
    tables : tuple of str
        Where it is measured: in the tables of families, of squares of several sizes, of thin products, and
        of the emulator on a GPU.
    shape, quick : (int, int, int)
        M, N and K of the table of families, and of a run that only checks that everything works.
    finished : bool
        Whether a bias is added, and the result rounded to bfloat16.
    """

    title: str
    family: str
    target: str
    tables: tuple[str, ...] = (FAMILY,)
    shape: Shape = (1536, 1536, 1536)
    quick: Shape = (128, 128, 128)
    finished: bool = False

    @property
    def product(self) -> TimedProduct | ScaledProduct:
        """What is measured."""
        found = product_of(self.family, self.target)
        return replace(found, finished=True) if self.finished and isinstance(found, TimedProduct) else found


CASES = (
    Case("f16, sm_90a", "f16", "sm_90a", (FAMILY, SQUARE, THIN, GPU)),
    Case("f16, sm_90a, with a bias, rounded to bf16", "f16", "sm_90a", finished=True),
    Case("bf16, sm_90a", "bf16", "sm_90a", (FAMILY, THIN)),
    Case("f16, sm_80", "f16", "sm_80", (FAMILY, GPU)),
    Case("tf32, sm_90a", "tf32", "sm_90a", (FAMILY, THIN, GPU)),
    Case("e4m3, sm_90a (wgmma)", "e4m3", "sm_90a", (FAMILY, SQUARE, THIN, GPU)),
    Case("e4m3, sm_120a", "e4m3", "sm_120a", (FAMILY, GPU)),
    Case("e4m3, sm_100a (tcgen05)", "e4m3", "sm_100a"),
    Case("f64, sm_90a", "f64", "sm_90a", (FAMILY, GPU)),
    Case("s8, sm_90a", "s8", "sm_90a", (FAMILY, SQUARE, THIN, GPU)),
    Case("s8, sm_100a (tcgen05)", "s8", "sm_100a"),
    Case("b1, sm_90a, K = 8192", "b1", "sm_90a", shape=(1536, 1536, 8192), quick=(128, 128, 512)),
    Case("f16, sm_90a, M = 16", "f16", "sm_90a", shape=(16, 4096, 4096), quick=(16, 256, 256)),
    Case("fp8 1x128 x 128x128, sm_90a, promoted", "fp8_1x128", "sm_90a"),
    Case("NVFP4, sm_120a", "nvfp4", "sm_120a", (FAMILY, SQUARE, GPU)),
    Case("MXFP4, sm_120a", "mxfp4", "sm_120a", (GPU,)),
    Case("MXFP8, sm_120a", "mxfp8", "sm_120a", (GPU,)),
    Case("NVFP4, sm_100a (tcgen05)", "nvfp4", "sm_100a"),
    Case("MXFP8, sm_100a (tcgen05)", "mxfp8", "sm_100a"),
)


def cases(table: str) -> tuple[Case, ...]:
    """List the products of a table."""
    return tuple(case for case in CASES if table in case.tables)
