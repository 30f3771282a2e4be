"""cuBLASLt 13.1 on an H100 SXM (13.1.0, through PyTorch 2.11): how often its kernels added as `hopper_13_1` says, and what it answers.

The rates are of products that this GPU ran by the algorithm that it answered, after all rules had been found on an H200.
"""

from __future__ import annotations

from fastmma.products.cublas.hopper_13_1 import ROWS, SEEN
from fastmma.products.cublas.rows import Table

_HALVES, _F32 = ("f16", "bf16"), ("f32",)
_RATES = {
    (66, "bf16"): (792, 792),
    (66, "f16"): (829, 829),
    (66, "e4m3"): (505, 505),
    (24, "bf16"): (558, 558),
    (24, "f16"): (738, 738),
    (23, "bf16"): (497, 497),
    (23, "f16"): (438, 438),
    (23, "tf32"): (298, 298),
    (21, "bf16"): (30, 30),
    (21, "f16"): (58, 58),
    (21, "tf32"): (297, 297),
    (43, "tf32"): (2371, 2371),
    (63, "tf32"): (362, 362),
    (41, "bf16"): (43, 43),
    (56, "f16"): (34, 34),
    (10, "f32"): (103, 103),
}
# kernels off the tensor cores add in one order whatever the format
_CHAINS = {11: (112, 112), 12: (60, 60), 13: (1348, 1348), 14: (90, 90), 16: (70, 70), 20: (288, 288), 55: (412, 412)}
_RATES |= {(algo, fmt): rate for algo, rate in _CHAINS.items() for fmt in (_F32 if algo in (20, 55) else (*_HALVES, *_F32))}
TABLE = Table(
    "H100",
    "13.1",
    "only a few products were compared",
    ROWS,
    _RATES,
    SEEN,
    segments={43: (2371, 2371)},
    parts="cublas_choices_h100_13_1.npz",
    answers="cublas_algorithms_h100_13_1.npz",
    trees="cublas_trees_h100_13_1.npz",
    cache=50 << 20,
)
