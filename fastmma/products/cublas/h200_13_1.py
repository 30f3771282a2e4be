"""cuBLASLt 13.1 on an H200 (13.1.0, through PyTorch 2.11): how often its kernels added as `hopper_13_1` says, and what it answers.

The rates are of calls of PyTorch with other seeds, and of products whose like no rule was made from.
"""

from __future__ import annotations

from fastmma.products.cublas.hopper_13_1 import ROWS
from fastmma.products.cublas.rows import Seen, Table, ranges

_HALVES, _F32 = ("f16", "bf16"), ("f32",)
# products of the right bits, and all that were compared: 6,954 calls of torch, and products whose like no rule was made from
_RATES = {
    (66, "bf16"): (2963, 2963),
    (66, "f16"): (2944, 2944),
    (66, "e4m3"): (354, 354),
    (24, "bf16"): (1316, 1316),
    (24, "f16"): (832, 832),
    (23, "bf16"): (190, 190),
    (23, "f16"): (132, 132),
    (21, "bf16"): (60, 60),
    (21, "f16"): (60, 60),
    (23, "tf32"): (228, 228),
    (21, "tf32"): (942, 942),
    (43, "tf32"): (127, 127),
    (63, "tf32"): (244, 244),
}
# kernels off the tensor cores add in one order whatever the format
_CHAINS = {11: (27, 27), 12: (1, 1), 13: (549, 549), 14: (74, 74), 16: (3, 3), 20: (464, 464), 55: (1133, 1133)}
_RATES |= {(algo, fmt): rate for algo, rate in _CHAINS.items() for fmt in (_F32 if algo in (20, 55) else (*_HALVES, *_F32))}
# 35 million answers for products of 1 to 262,144 rows, columns and k, with and without a bias, and stacks
_NVJET = (
    "7 10 12-38 40 42 47-50 52 54 59-62 64 66 71 73 75 80-83 85 87 92-95 97 99 104-107 109 111 116 118 124-127 129 131 134-137 139 141 "
    "143-146 148 151-152 154 157-160 162 164-167 170-171 173 178-179 181 183-186 188-189 191 193-197 200-202 204-205 208-209 211-212 "
    "214-218 220-221 223-224 226-227 229-230 235-236 239-240 243-244 247-248 251 255 259 263 266 268 270 272 274 276 278 312-336 338 340 "
    "342 345 347 349 352 354 356 359 361 363 393-417 419 421 423 448-460 463 465 467 470 486-502 537-548 573-581"
)
_MOST = 1024  # parts; 961 is the largest split that was answered
_SEEN = {
    10: Seen(ranges("10-11"), most_parts=132, unsaid=(0,)),
    11: Seen(unsaid=(-1,)),
    12: Seen(),
    13: Seen(most_parts=_MOST),
    14: Seen(most_parts=_MOST),
    16: Seen(),
    20: Seen(ranges("14-18 20 23-24"), most_parts=_MOST),
    21: Seen(ranges("11 15 17-21 23-24"), most_parts=_MOST),
    23: Seen(ranges("5 11 15 17-21 23-24"), most_parts=_MOST),
    24: Seen(ranges("5 11 15 17-18 20 23-24"), most_parts=_MOST),
    41: Seen(ranges("15 17-21"), ranges("2"), unsaid=(-1,)),
    43: Seen(ranges("15 17-21 23-24"), ranges("2-25 27-28 30-33 35 37-39 41 43-51"), most_parts=2, unsaid=(-1,)),
    55: Seen(ranges("11-21 23-24"), most_parts=_MOST),
    56: Seen(ranges("11-12 14-16")),
    63: Seen(ranges("11-13 15 17 19-20 34"), most_parts=132),
    66: Seen(ranges(_NVJET), ranges("2-9"), most_parts=132),
}
TABLE = Table(
    "H200",
    "13.1",
    "only products that the rule was made from were compared",
    ROWS,
    _RATES,
    _SEEN,
    segments=(698, 698),
    parts="cublas_choices_h200_13_1.npz",
    answers="cublas_algorithms_h200_13_1.npz",
    trees="cublas_trees_h200_13_1.npz",
)
