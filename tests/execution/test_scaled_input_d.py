"""D scaled down before tcgen05.mma adds to it: exact powers of two, subnormal ones by the assumption that nothing is rounded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.tensor_memory_machine import PAIR, Machine, extras, instruction, simple

from fastmma import FORMATS, TargetError

FILE = Path(__file__).parents[1] / "numerics" / "tcgen05_goldens.json"
PROBES = [probe for probe in json.loads(FILE.read_text())["probes"] if probe["name"].startswith("scale-input-d")]


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_scaled_input_d(dtype: str) -> None:
    machine, where = simple(instruction("f16", dtype, "f16", "f16", 128, 16))
    fmt = FORMATS[dtype]
    values = np.array([1.5, -3.0, 0.0, -0.0, np.inf, 1024.0, -0.25, 7.0] * 256, fmt.dtype).reshape(128, 16)
    machine.given["c"] = values.view(fmt.code_dtype)
    machine.put_d()
    result = machine.run(*where, scale_input_d=5)
    machine.given["c"] = (values / fmt.dtype.type(32)).view(fmt.code_dtype)
    np.testing.assert_array_equal(result, machine.expected(machine.product()))
    with pytest.raises(TargetError, match="illegal with scale_input_d on sm_110a"):
        machine.run(*where, scale_input_d=1, target="sm_110a")


@pytest.mark.parametrize("probe", PROBES, ids=[probe["name"] for probe in PROBES])
@pytest.mark.parametrize(("m", "n", "more"), [(128, 16, {}), (64, 8, {}), (256, 16, PAIR)])
def test_what_an_exact_model_predicts(probe: dict[str, Any], m: int, n: int, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """One element that is shifted out of the normal numbers, among others that are not."""
    shift = probe["scale_input_d"]
    machine = Machine(instruction("f16", "f32", "bf16", "bf16", m, n, **more), 11)
    machine.given["a"][5], machine.given["b"][:, 3] = ([int(word, 16) >> 16 for word in probe[name].split()] for name in "ab")
    machine.given["c"][5, 3] = int(probe["c"], 16)
    b, a, d = machine.put_shared("b", 0), machine.put_shared("a", 0), machine.put_d()
    machine.given["c"] = (machine.given["c"].view(np.float32) / np.float32(2.0**shift)).view(np.uint32)
    result = machine.product()
    result[5, 3] = int(probe["predictions"]["exact shift of the exponent"], 16)
    for backend in ("numba", "reference"):
        np.testing.assert_array_equal(machine.run(d, a, b, scale_input_d=shift, backend=backend), machine.expected(result))
    monkeypatch.setenv("FASTMMA_STRICT", "1")
    with pytest.raises(TargetError, match="is no normal number of f32; how it is rounded is only assumed" if not more else "strict mode"):
        machine.run(d, a, b, scale_input_d=shift)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("kind", "dtype"), [("f16", "f32"), ("f16", "f16"), ("tf32", "f32")])
def test_subnormal_numbers_that_need_no_rounding(kind: str, dtype: str, sparse: bool) -> None:
    """Beside products that decide how the sum is aligned, they are added as D would be that held them."""
    machine, fmt, shift = Machine(instruction(kind, dtype, kind, kind, 64, 16, sparse=sparse), 12), FORMATS[dtype], 4
    rng = np.random.default_rng(13)
    numbers = rng.integers(1, 64, (64, 16)) * rng.choice([-1.0, 1.0], (64, 16)) * fmt.min_subnormal * 2**shift
    machine.given["c"] = numbers.astype(fmt.dtype).view(fmt.code_dtype)
    machine.given["a"][:, 0] = machine.given["b"][:] = np.array(1, FORMATS[kind].dtype).view(FORMATS[kind].code_dtype)
    b, a, d, more = machine.put_shared("b", 0), machine.put_a(16), machine.put_d(16), extras(machine, 16)
    machine.given["c"] = (numbers / 2**shift).astype(fmt.dtype).view(fmt.code_dtype)
    expected = machine.expected(machine.product(), 16)
    np.testing.assert_array_equal(machine.run(d, a, b, scale_input_d=shift, **more), expected)
