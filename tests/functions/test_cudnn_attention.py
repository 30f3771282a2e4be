"""cuDNN's attention against an H200: outputs, logarithms of sums, and gradients, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference import cudnn_attention as recording

from fastmma.functions.attention import Dropout, cudnn, cudnn_backward, cudnn_repeats
from fastmma.host.errors import NotEmulatedError, OperandError, OperandTypeError


def name_of(call: recording.Call) -> str:
    sizes = f"{call['batch']}x{call['heads']}/{call['key_heads']} {call['queries']}x{call['keys']} {call['dimension']} {call['dtype']}"
    return f"{sizes} causal={call['causal']} bias={call['bias']} dropout={call['dropout']} {call['seed']}.{call['index']}"


@pytest.mark.parametrize(("call", "expected"), [pytest.param(*each, id=name_of(each[0])) for each in recording.recorded()])
def test_bits_are_those_of_an_h200(call: recording.Call, expected: dict[str, NDArray[np.uint32]]) -> None:
    q, k, v, grad_out = (recording.draw(call, name) for name in "qkvg")
    settings: dict[str, Any] = {"causal": call["causal"], "scale": call["scale"], "bias": recording.bias(call)}
    settings["dropout"] = Dropout(*call["dropout"]) if call["dropout"] else None
    out, logs = cudnn(q, k, v, **settings)
    found = {"y": out, "lse": logs.reshape(-1, 1)}
    if "dk" in expected:
        gradients = cudnn_backward(grad_out, q, k, v, out, logs, **settings)
        found |= dict(zip(("dq", "dk", "dv"), gradients, strict=True))
    assert ("dq" in expected) == ("dk" in expected and cudnn_repeats(k.shape))
    for name, sums in expected.items():
        np.testing.assert_array_equal(recording.checksums(found[name]), sums, name)


def test_what_is_not_known_is_refused() -> None:
    one, many = np.zeros((1, 2, 1, 16), np.float16), np.zeros((1, 2, 257, 16), np.float16)
    with pytest.raises(NotEmulatedError, match="up to 256 keys"):
        cudnn(one, many, many)
    with pytest.raises(NotEmulatedError, match="64 heads"):
        cudnn(one.repeat(33, 1), one, one)
    with pytest.raises(OperandError, match="above zero"):
        cudnn(many, many, many, scale=0.0)
    with pytest.raises(OperandError, match="up to 256"):
        cudnn(many, many, np.zeros((1, 2, 257, 8), np.float16))
    with pytest.raises(OperandError, match="do not fit"):
        cudnn_backward(one, many, many, many, many, np.zeros((1, 2, 257), np.float32))
    with pytest.raises(OperandTypeError):
        cudnn(many.astype(np.float32), many, many)
