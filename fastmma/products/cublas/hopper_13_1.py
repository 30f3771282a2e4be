"""The kernels of cuBLASLt 13.1 on GPUs of compute capability 9.0: how each adds, as it was found on an H200 (13.1.0, through PyTorch 2.11).

How it was measured: 28,705 products, of which cuBLASLt was asked for its choice, and which then ran by that very algorithm. Rules were
found with operands whose products cancel in pairs, so that every rounding shows, and with sums of a large number, its negative and ones:
how many ones are left says in which order k are added. How often they hold on a GPU is in the table of that GPU. An H100 answered 17
custom options of products by vectors more: one order of 80 fitted half of their products each, and then the other half, 57 of 57.
"""

from __future__ import annotations

from fastmma.products.cublas.rows import HALF_SUMS, LaneRow, Seen, Segments, TileRow, ranges
from fastmma.products.lanes import Lanes

_HALVES = ("f16", "bf16")
_F32 = ("f32",)  # chains of fma: float32 is not rounded to tf32, also where TF32 is allowed
_FP8 = ("e4m3", "e5m2")
_CUTLASS = ((0, "in-place"), (1, "in-place"), (2, "ascending"), (4, "workspace"))
_ASCENDING = ((2, "ascending"),)
# stages by the k of their tiles, as their names in cublasLtMatmulStages_t say: 16x3, 32x1, 64x1, 128x1 and so on
_BY_16, _BY_32, _BY_64, _BY_128 = (3, 4, 5, 6, 27), (7, 8, 9, 10, 11, 12, 25), (13, 14, 15, 16, 18), (19, 20)


def _cutlass(algo: int, stages: tuple[int, ...], fmt: str, instruction: str, tile: int, ends: str, **more: object) -> TileRow:
    """Make a row of kernels of CUTLASS, which begin with what is left over of a tile of k."""
    in_place = "in-place add" if ends == "add" else "in-place fma"
    form = {"align": 16, "lined": True, "joins": _CUTLASS, "ends": ends, "in_place_ends": in_place} | more
    return TileRow(algo, stages, (fmt,), instruction, tile, **form)  # type: ignore[arg-type]


# by the sizes of the workspaces that 190 choices needed, and the bits of 45; the costs are in tenths of a tile of 32 k
_SEGMENTS = Segments(
    filled={1: 132, 2: 132, 3: 117, 4: 120, 5: 110, 6: 102, 7: 105, 8: 120, 16: 112},
    costs={(64, 64): (220, 420), (64, 128): (193, 255)},
    other_costs=(50, 450),
    costs_after_waves=(10, 150),
    usual_cost=60,
    usual=(531, 824),
    unlike=frozenset({(2, (64, 128)), (6, (64, 256))}),
    as_is=("nn",),
)
_ANY = (0, 1 << 20)  # costs of which nothing is known: the workspace says the parts
_HALF_SEGMENTS = Segments(filled={1: 132}, costs={}, other_costs=_ANY, costs_after_waves=_ANY, depth=64)
# on 16-byte, 4-byte and 2-byte boundaries; the last ones in f16 do not end by an fma
_TILES = (
    TileRow(66, (35,), _HALVES, "wgmma", align=128, floors=True, leaves_out=True, joins=_ASCENDING, ends="badd", split_ends="add"),
    TileRow(
        66,
        (36,),
        _FP8,
        "wgmma",
        align=128,
        floors=True,
        leaves_out=True,
        joins=_ASCENDING,
        promote_every=128,
        ends="fp8",
        split_ends="fp8 parts",
    ),
    TileRow(41, (35,), _HALVES, "wgmma", ends="fma, gelu after"),
    TileRow(41, (35,), _HALVES, "wgmma", ends="fma, no bias", split_ends="fma, no bias", segments=_HALF_SEGMENTS),
    TileRow(42, (35,), _HALVES, "wgmma", ends=""),
    TileRow(42, (35,), _HALVES, "wgmma", ends="fma, no bias", split_ends="fma, no bias", segments=_HALF_SEGMENTS),
    *(
        _cutlass(23, stages, fmt, "m16n8k16", tile, "fma16")
        for fmt in _HALVES
        for stages, tile in ((_BY_32, 32), (_BY_64, 64), (_BY_128, 128))
    ),
    *(_cutlass(24, stages, "f16", "m16n8k16", tile, "add") for stages, tile in ((_BY_64, 64), (_BY_128, 128))),
    _cutlass(24, (0,), "f16", "m16n8k8", 32, "add"),
    _cutlass(24, (0,), "bf16", "m16n8k8", 32, "fma16"),
    _cutlass(24, (7,), "bf16", "m16n8k16", 32, "fma16"),
    *(_cutlass(12, (0,), fmt, "m16n8k8", 32, "fma16", most_k=1, joins=()) for fmt in _HALVES),
    TileRow(12, (0,), _F32, "fma", ends="unknown", most_k=1),
    *(_cutlass(21, (15, 16, 17, 18), fmt, "m16n8k16", 64, "unknown", joins=_CUTLASS[2:]) for fmt in _HALVES),
    *(_cutlass(21, stages, "tf32", "m16n8k8", tile, "fma") for stages, tile in ((_BY_16, 16), (_BY_32, 32))),
    *(_cutlass(23, stages, "tf32", "m16n8k8", tile, "add") for stages, tile in ((_BY_16, 16), (_BY_32, 32))),
    # sums in f16: parts and their sums are rounded to it
    *(
        _cutlass(algo, stages, HALF_SUMS, shape, tile, "half", split_ends="half", in_place_ends="half", joins=_CUTLASS[1:3])
        for algo in (21, 23, 24)
        for stages, shape, tile in (((0,), "m16n8k8", 32), (_BY_32, "m16n8k16", 32), (_BY_64, "m16n8k16", 64), (_BY_128, "m16n8k16", 128))
    ),
    TileRow(39, (35,), (HALF_SUMS,), "wgmma", ends="half"),
    # several parts are of recordings, which found them by their bits: no choice says them
    TileRow(43, (34,), ("tf32",), "wgmma", align=128, joins=_ASCENDING, ends="fma", split_ends="fma"),
    TileRow(43, (34,), ("tf32",), "wgmma", ends="fma", split_ends="fma", segments=_SEGMENTS),
    *(
        TileRow(63, stages, ("tf32",), "m16n8k8", align=4, dealt=dealt, joins=_ASCENDING, ends="fma", split_ends="fma")
        for stages, dealt in (((4, 6), 16), ((9, 10), 32))
    ),
    TileRow(63, (15, 16), ("tf32",), "m16n8k8", ends="fma"),
    TileRow(
        20,
        (26, 28),
        _F32,
        "fma",
        align=16,
        lined=True,
        joins=((1, "in-place"), *_ASCENDING),
        ends="add",
        in_place_ends="in-place add",
    ),
    TileRow(55, (31,), _F32, "fma", align=4, dealt=8, joins=_ASCENDING, ends="fma", split_ends="fma", customs=(0, 2)),
    TileRow(55, (31,), _F32, "fma", align=4, dealt=8, joins=((2, "second half"),), ends="fma", split_ends="fma", customs=(1,)),
    TileRow(
        10,
        (0,),
        _F32,
        "fma",
        align=32,
        floors=True,
        joins=((1, "in-place"),),
        ends="add",
        in_place_ends="in-place add, no bias",
        biased_ends="bias",
        most_k_unsaid=512,
    ),
    # sums of integers are exact, in whatever order
    *(
        TileRow(algo, (), ("s8",), "wgmma", joins=((0, "ascending"), (1, "ascending"), *_ASCENDING), most_workspace=1 << 62)
        for algo in (21, 23, 39)
    ),
)
# lanes by custom options, a thread's vectors one by one or adjacent up to 64 k; sums are added in halves, but where it says otherwise
_STRIDED = {
    2: (57, 95, 103),
    4: (41, 51, 59, 69, 77, 97, 111, 115),
    8: (33, 43, 53, 67, 107),
    16: (35, 55, 73, 81, 91, 101),
    32: (75, 83, 93),
}
_ADJACENT = {2: (48, 56, 94, 102), 4: (40, 50, 58, 68, 96, 110), 8: (42, 52, 66, 78, 98, 106, 112), 16: (72, 100), 32: (74, 82, 92)}
_ONE_BY_ONE = {7: Lanes(chunk=256), 0: Lanes(chunk=512)}
_ASCENDING_LANES = {11: 32, 12: 16, 13: 16, 14: 16}  # chunks
_ALL = (*_HALVES, *_F32)


def _vector(custom: int, lanes: Lanes, formats: tuple[str, ...] = _ALL, **more: object) -> LaneRow:
    """Make a row of kernels that multiply a matrix by a vector."""
    form = {"by_vector": True, "counts": "parts", "split_ends": "add-rounded"} | more
    return LaneRow(13, custom, lanes, formats, **form)  # type: ignore[arg-type]


_LANES = (
    LaneRow(11, 0, Lanes(2, 0, chunk=256, tree="ascending"), _ALL, ("nn",), ends="lanes-scaled", scaled="a"),
    LaneRow(11, 0, Lanes(16, chunk=16, tree="ascending"), _ALL, ("nt",), ends="lanes-scaled", scaled="a"),
    LaneRow(11, 1, Lanes(4, 0, chunk=128, tree="ascending"), _ALL, ("nn",), ends="lanes-scaled", scaled="a"),
    LaneRow(16, 0, Lanes(), _HALVES),
    LaneRow(56, 0, Lanes(), ("f16",)),
    LaneRow(14, 0, Lanes(128, 2, apart=True), _ALL, contiguous=True, by_vector=True, counts="blocks"),
    LaneRow(14, 0, Lanes(128, 1, apart=True), _ALL, contiguous=False, by_vector=True, counts="blocks"),
    *(_vector(custom, Lanes(lanes)) for lanes, customs in _STRIDED.items() for custom in customs),
    *(_vector(custom, Lanes(lanes, 64, shrinks=True)) for lanes, customs in _ADJACENT.items() for custom in customs),
    *(_vector(custom, lanes, ends="lanes-scaled", scaled="vector") for custom, lanes in _ONE_BY_ONE.items()),
    *(
        _vector(custom, Lanes(16, chunk=chunk, tree="ascending"), ends="lanes-scaled", scaled="vector")
        for custom, chunk in _ASCENDING_LANES.items()
    ),
    _vector(1, Lanes(2, 0), most_k=128),
    _vector(5, Lanes(32, 0, chunk=16, tree="ascending"), _HALVES),
    # gemvNSP: so many lanes as long as its threads fill no more than 132 multiprocessors
    _vector(10, Lanes(32, 4), _HALVES, most_results=8448),
    _vector(10, Lanes(32, 4), _F32, most_results=128),
)
ROWS: tuple[TileRow | LaneRow, ...] = (*_TILES, *_LANES)
# what was found on an H200 alone: lanes for more results, so that 1,056 blocks of 256 threads hold them all, and a biased deep K
_FEWER = ((9504, 26), (10560, 24), (12672, 20), (14784, 12), (16896, 16))
OF_H200: tuple[TileRow | LaneRow, ...] = (
    _vector(10, Lanes(24, 4), _F32, most_results=8448),
    *(_vector(10, Lanes(lanes, 4), _HALVES, most_results=most) for most, lanes in _FEWER),
    TileRow(35, (18,), ("f16",), "m16n8k16", align=2, dealt=64, joins=_ASCENDING, ends="unknown", split_ends="bias", customs=(2,)),
)

# 35 million answers of an H200 and 46 million of an H100, for products of 1 to 262,144 rows, columns and k, with and without a bias, and
# stacks, have these values
_NVJET = (
    "7 10 12-38 40 42 47-50 52 54 59-62 64 66 71 73 75 80-83 85 87 92-95 97 99 104-107 109 111 116 118 124-127 129 131 134-137 139 141 "
    "143-146 148 151-152 154 157-160 162 164-167 170-171 173 178-179 181 183-186 188-189 191 193-197 200-202 204-205 208-209 211-212 "
    "214-218 220-221 223-224 226-227 229-230 235-236 239-240 243-244 247-248 251 255 259 263 266 268 270 272 274 276 278 312-336 338 340 "
    "342 345 347 349 352 354 356 359 361 363 393-417 419 421 423 448-460 463 465 467 470 486-502 537-548 573-581"
)
_MOST = 1024  # parts; 961 is the largest split that was answered
SEEN = {
    10: Seen(ranges("10-11"), most_parts=132, unsaid=(0,)),
    11: Seen(unsaid=(-1,)),
    12: Seen(),
    13: Seen(most_parts=_MOST),
    14: Seen(most_parts=_MOST),
    16: Seen(),
    20: Seen(ranges("14-18 20 23-24"), most_parts=_MOST),
    21: Seen(ranges("5 11 15 17-21 23-24"), most_parts=_MOST),
    23: Seen(ranges("5 11 15 17-21 23-24"), most_parts=_MOST),
    24: Seen(ranges("5 11 15 17-18 20 23-24"), most_parts=_MOST),
    35: Seen(ranges("11"), least_parts=9, most_parts=9),
    41: Seen(ranges("15 17-21"), ranges("2"), unsaid=(-1,)),
    42: Seen(ranges("15 21"), ranges("2"), unsaid=(-1,)),
    43: Seen(ranges("15 17-21 23-24"), ranges("2-25 27-28 30-33 35 37-39 41 43-51"), most_parts=2, unsaid=(-1,)),
    55: Seen(ranges("11-21 23-24"), most_parts=_MOST),
    56: Seen(ranges("11-12 14-16")),
    63: Seen(ranges("11-13 15 17 19-20 34"), most_parts=132),
    66: Seen(ranges(_NVJET), ranges("2-9"), most_parts=132),
}
