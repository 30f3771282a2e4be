"""Large products are computed in parts, which cover everything once."""

from __future__ import annotations

import numpy as np
import pytest

from fastmma.backends import parts
from fastmma.backends.call import Operands


@pytest.mark.parametrize("depth", [0, 1, 7, 64, 65, 300])
@pytest.mark.parametrize("codes", [1, 100, 5000, 1 << 24])
def test_parts_cover_everything_once(codes: int, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "DEPTH", 64)
    monkeypatch.setattr(parts, "_CODES", codes)
    monkeypatch.setattr(parts, "_ELEMENTS", 1)
    for shape in ((1, 1, 1), (3, 5, 7), (1, 40, 90), (20, 2, 2), (2, 0, 3), (0, 4, 4)):
        d = np.zeros((*shape, max(depth, 1)), np.int8)
        before = np.zeros(shape, np.int64)
        operands = Operands(np.empty((shape[0], shape[1], depth)), np.empty((shape[0], depth, shape[2])), None)
        for part in parts.parts(operands, d[..., 0], 16):
            assert part.start % 16 == 0
            assert part.stop - part.start <= 64
            assert (before[part.results] == part.start).all()  # in ascending order
            before[part.results] = part.stop
            d[part.results][..., part.start : part.stop] += 1
        assert (d[..., :depth] == 1).all()
