"""Flash attention of several sequences in one array, and in windows, against an H100 and an H200, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference import flash_sequences as recording

from fastmma.functions.attention import (
    Dropout,
    flash,
    flash_backward,
    flash_repeats,
    flash_sequences,
    flash_sequences_backward,
    flash_sequences_repeat,
)
from fastmma.functions.attention.window import Window, place_window
from fastmma.host.errors import OperandError
from fastmma.kernels.functions.bitcode import find_bitcode

CALLS = list(recording.recorded())
NAMES = "output", "logarithms", "dq", "dk", "dv"


def computed(call: recording.Call) -> tuple[list[recording.Array], bool]:
    """Compute the results of a call, and tell whether the gradient of the queries is fixed."""
    given, (q, k, v, grad) = call.given, recording.operands(call)
    settings: dict[str, Any] = {"causal": given["causal"], "window": given["window"] or (-1, -1)}
    deterministic = given.get("deterministic", call.kind in ("varlen_drop", "varlen_one"))
    if call.kind.startswith("varlen"):
        places = [np.cumsum([0, *each]).tolist() for each in (recording.lengths(call), given["keys"])]
        settings["scale"] = given.get("scale")
        settings["dropout"] = Dropout(given["p"], 1234, 4 * bool(given["offset"])) if "p" in given else None
        out, logs = flash_sequences(q, k, v, *places, **settings)
        gradients = flash_sequences_backward(grad, q, k, v, out, logs, *places, **settings, deterministic=deterministic)
        settings = {name: settings[name] for name in ("causal", "window")}
        return [out, logs, *gradients], flash_sequences_repeat(given["size"], *places, **settings, deterministic=deterministic)
    q, k, v, grad = (each.swapaxes(1, 2) for each in (q, k, v, grad))
    out, logs = flash(q, k, v, **settings)
    gradients = flash_backward(grad, q, k, v, out, logs, **settings, deterministic=deterministic)
    fixed = flash_repeats(q.shape, k.shape, **settings, deterministic=deterministic)
    return [out.swapaxes(1, 2), logs, *(each.swapaxes(1, 2) for each in gradients)], fixed


@pytest.mark.skipif(find_bitcode() is None, reason="libdevice is not on this machine")
@pytest.mark.parametrize("call", CALLS, ids=[f"{call.kind}-{number}" for number, call in enumerate(CALLS)])
def test_bits_are_those_of_the_gpus(call: recording.Call) -> None:
    results, fixed = computed(call)
    for name, result, expected in zip(NAMES, results, call.sums, strict=True):
        if name != "dq" or fixed:
            assert recording.checksum(result) == expected, name


def test_windows() -> None:
    """Against what a query sees, key by key."""
    for queries, keys, causal, left, right in ((9, 7, False, 2, 1), (5, 30, True, 4, -1), (30, 5, False, 3, -1), (40, 40, False, -1, 5)):
        window = place_window(queries, keys, causal, (left, right))
        distances = np.arange(keys) - np.arange(queries)[:, None] - (keys - queries)
        most = 0 if causal else right if right >= 0 else keys
        seen = (distances <= most) & ((distances >= -left) | (left < 0))
        np.testing.assert_array_equal(window.hides(np.arange(queries), 0, keys), ~seen)
        for start in range(0, keys, 4):
            rows = window.rows(queries, start, min(start + 4, keys))
            outside = np.delete(seen[:, start : start + 4], np.r_[rows], 0)
            assert not outside.any()
        assert window.blocks_of(queries, keys, 4) == max(len(set(np.flatnonzero(row) // 4)) for row in seen)
    assert place_window(8, 8, False, (8, 9)) == Window()


def test_what_is_refused() -> None:
    q = np.zeros((6, 2, 16), np.float16)
    for starts, key_starts in (((0, 6), (0, 3, 6)), ((0,), (0,)), ((0, 4, 2), (0, 3, 6))):
        with pytest.raises(OperandError, match="ascend"):
            flash_sequences(q, q, q, starts, key_starts)
    with pytest.raises(OperandError, match="place, head, head dimension"):
        flash_sequences(q[None], q, q, (0, 6), (0, 6))
