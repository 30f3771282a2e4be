"""Models, attention and functions with their gradients, on seeds that no rule was made from: what is called emulated has an H200's bits."""

from __future__ import annotations

from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from reference import whole_layers  # noqa: E402

from fastmma.functions import libdevice  # noqa: E402

pytestmark = pytest.mark.skipif(libdevice.release() is None, reason="no libdevice whose release is known")
EACH = 5  # one of so many cases: all of them take a minute


def test_what_is_emulated_has_an_h200s_bits() -> None:
    some = list(whole_layers.every_case())[::EACH]
    table, wrong = whole_layers.compare(cases=some)
    assert not wrong
    total = Counter[str]()
    for count in table.values():
        total.update(count._asdict())
    assert total["results"] > 800
    assert total["right"] == total["claimed"] > 0.75 * total["results"]
    assert total["equal"] > 0.97 * total["results"]
