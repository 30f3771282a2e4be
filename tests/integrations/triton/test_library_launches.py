"""Liger's and FLA's own kernels, forward and backward: what an H200 left in memory, and what their executed PTX leaves here.

The kernels were compiled by Triton 3.9 from liger-kernel 0.8.5 (Copyright LinkedIn, BSD 2-Clause) and flash-linear-attention 0.6.0
(Copyright Songlin Yang and Yu Zhang, MIT).
"""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from tests.reference.triton_libraries import CASES
from tests.reference.triton_libraries_recording import KEPT, digest, execute

with np.load(KEPT) as _built:
    LAUNCHES = json.loads(str(_built["launches"]))


@pytest.mark.parametrize("number", range(len(LAUNCHES)), ids=lambda number: f"{LAUNCHES[number]['case']}-{LAUNCHES[number]['kernel']}")
def test_a_launch_leaves_what_an_h200_left(number: int) -> None:
    launch = LAUNCHES[number]
    with np.load(KEPT) as built:
        ptx, cubin = (built[launch[name]].tobytes() for name in ("ptx", "cubin"))
        left, _ = execute(launch, ptx.decode(), cubin, [built[name] for name in launch["given"]])
    assert [digest(one) for one in left] == launch["left"]


def test_all_operations_of_both_libraries_are_recorded() -> None:
    of_page = {f"{case.library}: {case.name}" for case in CASES if case.library in ("Liger", "FLA")}
    assert {launch["case"] for launch in LAUNCHES} == of_page
