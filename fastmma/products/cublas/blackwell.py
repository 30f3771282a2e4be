"""The kernels of cuBLASLt on a GB200, a B200 and a GB300, as bitequiv reports them: no product was compared here.

bitequiv (github.com/facebookexperimental/triton, `bitequiv/cublas_match`, 2026) asked these GPUs for choices, ran its own kernels by its
plans, and compared bytes: on sm_100, 99.891 % of the products that it has plans for are the library's, and all others are by this very
algorithm in parts. Its operands were row-major, and 8-bit floats row-major by column-major; results had 16 bits; there was no c, no bias,
and no fast accumulation. Its planner gives parts all k. Its later report says that 16-bit products in parts end before K where K // 64 is
a multiple of their number, which is above K % 64: 1,059 of 1,062 differences on a GB300 are so. K // parts rounded up to 64 ends there,
too; where that would leave out 64 k or more, or 8-bit floats any, nothing is reported that agrees with it.
"""

from __future__ import annotations

from fastmma.products.cublas.rows import Table, TileRow


def _nvjet(stages: int, fmt: str, layout: str, out: str, most_left_out: int) -> TileRow:
    """Make a row of the library's own kernels."""
    return TileRow(
        66,
        (stages,),
        (fmt,),
        "tcgen05",
        align=128,
        floors=True,
        leaves_out=True,
        joins=((2, "ascending"),),
        ends="unknown",
        split_ends="unknown",
        layouts=(layout,),
        outs=(out,),
        most_left_out=most_left_out,
    )


_ROWS = (_nvjet(35, "f16", "nn", "f16", 63), _nvjet(35, "bf16", "nn", "bf16", 63), _nvjet(36, "e4m3", "nt", "f16", 0))
# by GPU and version: those of the report
_REPORTED = (
    ("B200", "13.1", "GB200 and B200, 13.1.1"),
    ("GB200", "13.1", "GB200 and B200, 13.1.1"),
    ("B200", "12.8", "GB200 and B200, 12.8.5"),
    ("GB200", "12.8", "GB200 and B200, 12.8.5"),
    ("GB300", "13.1", "GB300, 13.1.1"),
)
# no rates, and no files that say what the library chooses
TABLES = tuple(
    Table(gpu, version, f"reported by bitequiv ({where}), not compared here", _ROWS, {}, {}, {}, "", "", "")
    for gpu, version, where in _REPORTED
)
