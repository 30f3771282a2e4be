"""The table of kernels: what each computes, on which CPUs, and the products for which it is taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fastmma.backends import holds
from fastmma.backends.parts import DEPTH
from fastmma.backends.quantities import ANY

# what a call asks for
CALLS = {
    "products": "products",
    "forms": "products whose shapes and strides came before",
    "registers": "registers of warps",
    "stored": "sparse A as it is stored",
    "promotions": "sums from zero that join a total",
    "instructions": "instructions one by one",
}

# what computes the results that a kernel leaves out
FALLBACKS = {"": "-", "next": "the next rows", "exact": "rows without a fallback"}

WAKING = 50_000_000  # picoseconds to wake a thread, which calls do one after the other: n pay where one thread takes n * n times as long


class Route(NamedTuple):
    """A kernel, and when it is taken.

    `ranges` are alternatives: each bounds some of `QUANTITIES`, from least to most, and a problem has to be within all bounds of one.
    Results that a kernel leaves out are computed by its `fallback`.
    """

    name: str
    call: str  # one of `CALLS`
    kernel: str  # the module, below fastmma/kernels, or else below fastmma
    tiles: str  # the table of kernels/tiles.py whose rows name CPU features; empty where any CPU will do
    methods: tuple[str, ...]
    scaled: bool | None  # whether it takes scales; None: with or without
    holds: holds.Holds
    ranges: tuple[Mapping[str, tuple[int, int]], ...] = ({"products": (0, ANY)},)
    cost: int = 0  # picoseconds a multiply-add at a size that it is taken for, on one core with AVX-512; to be compared, not relied on
    fallback: str = "next"  # one of `FALLBACKS`
    macro_tile: int = 0  # multiply-adds that are computed apart, where a product is cut


_FUSED, _BOTH = ("fused",), ("fused", "grouped")
_FROM_ZERO, _FROM_C = ("f32-fma", "f32-fma-pairs"), ("f32-fma-from-c",)
# one product, or more than one instruction of k: batches of single instructions are another matter
_MATRICES = ({"products": (1, 1), "work": (1, ANY)}, {"instructions": (2, ANY), "work": (1, ANY)})
_LARGE = tuple({**each, "work": (1 << 16, ANY), "rows": (4, ANY), "columns": (4, ANY)} for each in _MATRICES)
_LARGE_SHORT = tuple({**each, "bits of an exponent": (0, 5)} for each in _LARGE)  # exponents of products fit into bytes
# beyond it the Python of a product of any size takes a hundredth of its time
_SMALL_GROUPS = tuple({**each, "c": (0, 0), "rows": (0, 1024), "work": (1, 1 << 26)} for each in _MATRICES)
_GROUPS_ON_AMX = tuple({**each, "work": (1 << 18, ANY), "rows": (16, ANY), "columns": (16, ANY), "k": (64, ANY)} for each in _MATRICES)
_SMALL_GROUPS_ON_AMX = tuple({**each, "c": (0, 0), "work": (1 << 18, 1 << 26), "k": (64, 4096)} for each in _GROUPS_ON_AMX)
_BLOCKS_OF_TILES = ({"work": (1 << 23, ANY), "rows": (64, ANY), "columns": (16, ANY), "k": (16, ANY)},)
_MANY_BITS = ({"work": (1 << 33, ANY), "rows": (512, ANY), "columns": (512, ANY), "k": (512, ANY)},)
_SOME = {"products": (1, ANY), "work": (1, ANY)}
_SINGLE = ({"products": (2, ANY), "instructions": (0, 1)},)
_MANY = ({"products": (2, ANY)},)
_SOME_SINGLE = ({**_SINGLE[0], "work": (1, ANY)},)
_WHOLE_K = {"parts of k": (1, 1)}
_FEW = {"threads": (1, 1), "results of all": (1, 1 << 16), "products": (0, 1 << 10)}
_ONE_PRODUCT = {"products": (1, 1), **_WHOLE_K}
_ONE_SUM = {**_ONE_PRODUCT, "epilogues": (0, 0)}
_PANELS = {**_ONE_PRODUCT, "threads": (1, 1), "results of all": (1, 1 << 20), "codes of a panel": (1, 1 << 20)}
_THIN = (
    {"bytes of a code in place": (2, 4), "lines": (1, 8), "codes in place": (1 << 20, ANY), "results across": (64, ANY), "k": (64, ANY)},
    {
        "bytes of a code in place": (1, 1),
        "register tiles of lines": (1, 1),
        "codes in place": (1 << 22, ANY),
        "results across": (64, ANY),
        "k": (64, ANY),
    },
    {
        "bytes of a code in place": (2, 4),
        "register tiles of lines": (1, 2),
        "codes in place": (1 << 24, ANY),
        "results across": (64, ANY),
        "k": (64, ANY),
    },
)

# the first row that a CPU has the features for, that holds a problem's arithmetic, and in whose ranges it is, computes it
ROUTES = (
    Route(
        "panels of a form",
        "forms",
        "fused/fixed_panels.py",
        "FUSED",
        _FUSED,
        False,
        holds.PANELS_OF_FORM,
        (
            {**_PANELS, "work": (1 << 24, 1 << 30), "rows": (128, 1 << 11), "columns": (128, ANY), "k": (256, ANY)},
            # the next row takes no more
            {**_PANELS, "work": ((1 << 25) + 1, 1 << 30), "rows": (16, 1 << 11)},
            {**_PANELS, "work": (1 << 24, 1 << 30), "rows": (16, 1 << 11), "results of all": ((1 << 17) + 1, 1 << 20)},
        ),
        cost=52,
    ),
    Route(
        "blocks of a form",
        "forms",
        "fused/fixed.py",
        "FUSED",
        _FUSED,
        False,
        holds.FORM,
        ({**_WHOLE_K, "threads": (1, 1), "work of all": (1, 1 << 25), "results of all": (1, 1 << 17), "products": (0, 1 << 10)},),
        cost=66,
    ),
    Route(
        "bytes on AMX of a form",
        "forms",
        "integer/amx.py",
        "AMX",
        ("integer",),
        False,
        holds.BYTES,
        # more threads would not help
        ({**_ONE_SUM, "results of all": (1, 1 << 20), "codes of a panel": (1, 1 << 20), "work": (1, 1 << 27)},),
        fallback="",
        cost=1,
    ),
    Route(
        "bytes of a form",
        "forms",
        "integer/int8.py",
        "BYTES",
        ("integer",),
        False,
        holds.BYTES,
        ({**_FEW, **_ONE_SUM, "codes of a panel": (0, 1 << 17)},),
        fallback="",
        cost=5,
    ),
    Route(
        "chains of a form",
        "forms",
        "fma/fixed.py",
        "CHAINS",
        _FROM_C,
        False,
        holds.STEPS_OF_ONE,
        ({"threads": (1, 1), "work of all": (1, 1 << 25), "results of all": (1, 1 << 19), "products": (0, 1 << 10)},),
        fallback="",
        cost=19,
    ),
    Route(
        "groups on AMX of a form",
        "forms",
        "scaled/amx_small_groups.py",
        "AMX_BF16",
        _BOTH,
        True,
        holds.GROUPS_ON_AMX,
        _SMALL_GROUPS_ON_AMX,
        cost=6,
    ),
    Route("groups of a form", "forms", "scaled/small_groups.py", "GROUPS", _BOTH, True, holds.GROUPS, _SMALL_GROUPS, cost=14),
    Route("registers", "registers", "fused/batch.py", "FUSED", _FUSED, False, holds.REGISTERS, cost=66),
    Route(
        "sparse panels",
        "stored",
        "fused/sparse_kernel.py",
        "FUSED",
        _FUSED,
        False,
        holds.SPARSE,
        ({"rows": (16, ANY), "columns": (64, ANY), "stored work": (1 << 22, ANY)},),
        cost=130,
    ),
    Route(
        "panels of sums",
        "promotions",
        "fused/packed.py",
        "FUSED",
        _FUSED,
        False,
        holds.PROMOTED,
        ({"k": (1, ANY), "k of a sum": (1, DEPTH)},),
        cost=66,
    ),
    Route("reference", "instructions", "numerics/reference.py", "", _BOTH, None, holds.REFERENCE, fallback="", cost=2_000_000),
    Route("thin", "products", "fused/thin.py", "THIN", _FUSED, False, holds.IN_PLACE, _THIN, fallback="exact", cost=110),
    Route(
        "blocks",
        "products",
        "fused/batch.py",
        "FUSED",
        _FUSED,
        False,
        holds.BLOCKS,
        ({"products": (1, ANY), "work": (1, 1 << 21)},),
        cost=66,
    ),
    Route(
        "macro tiles in blocks",
        "products",
        "fused/batch.py",
        "FUSED",
        _FUSED,
        False,
        holds.BLOCKS,
        (
            {**_SOME, "work": (1, 1 << 24)},
            {**_SOME, "k": (1, 64)},
            {**_SOME, "rows": (16, 32)},
            {**_SOME, "rows": (1, 32), "bytes of a code of B": (1, 1)},
        ),
        macro_tile=1 << 22,
        cost=63,
    ),
    Route("thin, widened", "products", "fused/thin.py", "THIN", _FUSED, False, holds.WIDENED, _THIN, fallback="exact", cost=110),
    Route("panels", "products", "fused/packed.py", "FUSED", _FUSED, False, holds.LANES, _MATRICES, fallback="exact", cost=52),
    Route("panels of halves", "products", "fused/packed.py", "FUSED", _FUSED, False, holds.HALVES, _MATRICES, fallback="exact", cost=74),
    Route(
        "scaled tiles", "products", "scaled/tiles.py", "FUSED", _BOTH, True, holds.SCALED_TILES, _SOME_SINGLE, fallback="exact", cost=130
    ),
    Route(
        "tiles of groups",
        "products",
        "scaled/group_tiles.py",
        "GROUPS",
        _BOTH,
        True,
        holds.GROUP_TILES,
        _SOME_SINGLE,
        fallback="exact",
        cost=140,
    ),
    Route(
        "groups on AMX",
        "products",
        "scaled/amx_groups.py",
        "AMX_BF16",
        _BOTH,
        True,
        holds.GROUPS_ON_AMX,
        _GROUPS_ON_AMX,
        cost=4,
    ),
    Route(
        "small groups",
        "products",
        "scaled/small_groups.py",
        "GROUPS",
        _BOTH,
        True,
        holds.GROUPS,
        _SMALL_GROUPS,
        cost=14,
    ),
    Route("groups", "products", "scaled/groups.py", "GROUPS", _BOTH, True, holds.GROUPS, _MATRICES, fallback="exact", cost=15),
    Route(
        "scaled panels", "products", "scaled/products.py", "FUSED", _BOTH, True, holds.SCALED_PANELS, _MATRICES, fallback="exact", cost=65
    ),
    Route("scaled portable tiles", "products", "fused/portable.py", "", _BOTH, True, holds.ENVELOPE, _SINGLE, fallback="", cost=350),
    Route("scaled portable", "products", "fused/portable.py", "", _BOTH, True, holds.ENVELOPE, fallback="", cost=170),
    Route("portable tiles", "products", "fused/portable.py", "", _FUSED, False, holds.ENVELOPE, _SINGLE, fallback="", cost=330),
    Route("portable", "products", "fused/portable.py", "", _FUSED, False, holds.ENVELOPE, fallback="", cost=170),
    Route("general in a window", "products", "general/window.py", "", _BOTH, None, holds.WINDOW, fallback="", cost=760),
    Route("general", "products", "general/digits.py", "", _BOTH, None, holds.GENERAL, fallback="", cost=1100),
    Route(
        "short steps in lanes",
        "products",
        "fused/window_lanes.py",
        "WINDOWS",
        _FUSED,
        False,
        holds.STEP_LANES,
        _LARGE_SHORT,
        cost=100,
    ),
    Route("steps in lanes", "products", "fused/window_lanes.py", "WINDOWS", _FUSED, False, holds.STEP_LANES, _LARGE, cost=140),
    Route("exact steps in lanes", "products", "fused/window_lanes.py", "WINDOWS", _FUSED, False, holds.EXACT_STEP_LANES, _LARGE, cost=110),
    Route("windows", "products", "fused/windows.py", "", _FUSED, False, holds.WINDOWS, fallback="", cost=740),
    Route("exact sums", "products", "fused/exact.py", "", _FUSED, False, holds.EXACT_SUMS, fallback="", cost=1000),
    Route("tree panels", "products", "fma/chains.py", "CHAINS", ("f32-tree",), False, holds.ALL, _LARGE, cost=40),
    Route("trees", "products", "fma/trees.py", "", ("f32-tree",), False, holds.ALL, fallback="", cost=120),
    Route("f64 panels", "products", "fma/chains.py", "CHAINS", ("f64-fma",), False, holds.NEAREST, _LARGE, fallback="", cost=43),
    Route("f64 tiles", "products", "fma/f64.py", "", ("f64-fma",), False, holds.ALL, _SINGLE, fallback="", cost=300),
    Route("f64 chains", "products", "fma/f64.py", "", ("f64-fma",), False, holds.ALL, fallback="", cost=156),
    Route("f32 panels", "products", "fma/chains.py", "CHAINS", _FROM_ZERO, False, holds.ALL, _LARGE, fallback="", cost=19),
    Route("f32 tiles", "products", "fma/m8n8k4.py", "", _FROM_ZERO, False, holds.ALL, _SINGLE, fallback="", cost=1300),
    Route("f32 chains", "products", "fma/m8n8k4.py", "", _FROM_ZERO, False, holds.ALL, fallback="", cost=170),
    Route("f32 panels from c", "products", "fma/chains.py", "CHAINS", _FROM_C, False, holds.ALL, _LARGE, fallback="", cost=13),
    Route("f32 tiles from c", "products", "fma/f32.py", "", _FROM_C, False, holds.ALL, _MANY, fallback="", cost=75),
    Route("f32 chains from c", "products", "fma/f32.py", "", _FROM_C, False, holds.ALL, fallback="", cost=204),
    Route("tiles of bytes", "products", "integer/int8.py", "", ("integer",), False, holds.ALL, _SINGLE, fallback="", cost=68),
    Route("bytes on AMX", "products", "integer/amx.py", "AMX", ("integer",), False, holds.WRAPPED, _BLOCKS_OF_TILES, fallback="", cost=1),
    Route("bytes", "products", "integer/int8.py", "", ("integer",), False, holds.ALL, fallback="", cost=5),
    Route("tiles of bits", "products", "integer/b1.py", "", ("bit",), False, holds.ALL, _SINGLE, fallback="", cost=11),
    Route("bits on AMX", "products", "integer/amx.py", "AMX", ("bit",), False, holds.ALL, _MANY_BITS, fallback="", cost=1),
    Route("bits", "products", "integer/b1.py", "", ("bit",), False, holds.ALL, fallback="", cost=1),
)
