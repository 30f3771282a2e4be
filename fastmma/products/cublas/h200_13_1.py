"""cuBLASLt 13.1 on an H200 (13.1.0, through PyTorch 2.11): how often its kernels added as `hopper_13_1` says, and what it answers.

The rates are of calls of PyTorch with other seeds, and of products whose like no rule was made from.
"""

from __future__ import annotations

from fastmma.products.cublas.hopper_13_1 import OF_H200, ROWS, SEEN
from fastmma.products.cublas.rows import HALF_SUMS, Table

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
    (21, HALF_SUMS): (68, 68),
    (23, HALF_SUMS): (46, 46),
    (24, HALF_SUMS): (145, 145),
    (23, "tf32"): (228, 228),
    (21, "tf32"): (942, 942),
    (42, "bf16"): (57, 57),
    (42, "f16"): (14, 14),
    (43, "tf32"): (127, 127),
    (35, "f16"): (107, 107),
    (56, "f16"): (200, 200),
    (63, "tf32"): (244, 244),
}
# kernels off the tensor cores add in one order whatever the format
_CHAINS = {11: (27, 27), 12: (1, 1), 13: (549, 549), 14: (74, 74), 16: (3, 3), 20: (464, 464), 55: (1133, 1133)}
_RATES |= {(algo, fmt): rate for algo, rate in _CHAINS.items() for fmt in (_F32 if algo in (20, 55) else (*_HALVES, *_F32))}
TABLE = Table(
    "H200",
    "13.1",
    "only products that the rule was made from were compared",
    (*ROWS, *OF_H200),
    _RATES,
    SEEN,
    segments={41: (63, 63), 42: (38, 38), 43: (2753, 2753)},
    parts="cublas_choices_h200_13_1.npz",
    answers="cublas_algorithms_h200_13_1.npz",
    trees="cublas_trees_h200_13_1.npz",
    cache=60 << 20,
    other_trees="cublas_other_trees_h200_13_1.npz",
)
