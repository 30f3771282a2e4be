"""identify finds the plan that a product was computed with, and says how far others agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from reference.command_line import run

import fastmma
from fastmma import gemm, identify

RNG = np.random.default_rng(5)
A, B = (RNG.standard_normal(shape).astype(np.float16) for shape in ((40, 1209), (1209, 24)))
BF16 = ml_dtypes.bfloat16
C = RNG.standard_normal((40, 24)).astype(np.float16)
BIAS = RNG.standard_normal(24).astype(np.float16)
K8, K16 = (f"mma.sync.aligned.m16n8k{k}.row.col.f32.f16.f16.f32" for k in (8, 16))
TF32 = "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32"


def fp8(x: NDArray[Any]) -> NDArray[Any]:
    return x.astype(ml_dtypes.float8_e4m3fn)


@pytest.mark.parametrize(
    ("a", "b", "options", "sought"),
    [
        (A, B, {}, {}),
        (A, B, {"target": "sm_80"}, {}),
        (A, B, {"target": "sm_80", "accumulator": "f16"}, {}),
        (A, B, {"split_k": 7, "preset": "cublas"}, {}),
        (A, B, {"instruction": K8, "target": "sm_80", "split_k": 2}, {}),
        (fp8(A), fp8(B), {"promote_every": 128}, {}),
        (fp8(A), fp8(B), {"target": "sm_89"}, {}),
        (A.astype(np.float32), B.astype(np.float32) / 3, {"instruction": TF32, "cast": True}, {}),
        (A.astype(BF16), B.astype(BF16), {"bias": BIAS, "alpha": 0.3, "out_dtype": BF16}, {"bias": BIAS, "alpha": 0.3}),
        (A, B, {"c": C, "beta": 0.7, "alpha": 0.3, "out_dtype": np.float32}, {"c": C, "beta": 0.7, "alpha": 0.3}),
        (A, B, {"c": C.astype(np.float32)}, {"c": C.astype(np.float32)}),
        (A * 60, B * 60, {"split_k": 3, "join": "workspace", "join_dtype": "f16", "out_dtype": np.float16}, {}),
        (A, B, {"split_k": 3, "join": "in-place", "join_dtype": "bf16", "out_dtype": BF16}, {}),
    ],
)
def test_a_plan_is_found_that_gives_every_bit(a: Any, b: Any, options: dict[str, Any], sought: dict[str, Any]) -> None:
    d = gemm(a, b, options.pop("c", None), **options)
    match = identify(d, a, b, **sought)[0]
    assert (match.share, match.elements) == (1, d.size)
    given = {name: value for name, value in sought.items() if match.plan.epilogue and (name != "c")}
    again = gemm(a, b, sought.get("c"), plan=match.plan, **given)
    np.testing.assert_array_equal(again.view(np.uint8), d.view(np.uint8))
    assert str(match).startswith(f"100 % of {d.size} elements: ")
    assert match.plan.promote_every == options.get("promote_every")


def test_what_is_left_over_first_and_the_first_plans_are_the_usual_ones() -> None:
    plan = fastmma.GemmPlan("sm_90a", K16, first_tile=64)
    found = identify(gemm(A, B, plan=plan), A, B)
    assert found[0].plan == plan
    one = identify(gemm(A[:, :16], B[:16]), A[:, :16], B[:16])[0]
    assert (one.plan.instruction, one.plan.split_k) == ("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16", 1)
    assert "mma k16 on sm_100a" in one.alike


def test_shares_where_no_plan_gives_every_bit() -> None:
    d = gemm(A[:, :512], B[:512])
    wrong = d.copy()
    wrong[::13] += 1
    found = identify(wrong, A[:, :512], B[:512], targets=["H100", "A100"], most=3)
    assert [match.share for match in found] == sorted((match.share for match in found), reverse=True)
    assert found[0].share == pytest.approx(1 - 4 / 40)
    assert (found[0].plan.target, len(found)) == ("sm_90a", 3)
    nan = d.copy()
    nan[:] = np.nan
    assert identify(nan, np.full_like(A, np.nan), B)[0].share == 1


def test_refusals() -> None:
    d = gemm(A, B)
    with pytest.raises(fastmma.OperandError, match="are not"):
        identify(d.T, A, B)
    with pytest.raises(fastmma.OperandError, match="bias must have shape"):
        identify(d, A, B, bias=BIAS[1:])
    with pytest.raises(fastmma.OperandError, match="c must have shape"):
        identify(d, A, B, c=C[1:])
    with pytest.raises(fastmma.OperandTypeError, match="no instruction multiplies"):
        identify(d, A.astype(np.int64), B)
    with pytest.raises(fastmma.OperandTypeError, match="in which no product results"):
        identify(d.astype(np.complex64), A, B)
    with pytest.raises(fastmma.TargetError):
        identify(d, A, B, targets="sm_1")


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = A.astype(BF16), B.astype(BF16)
    d = gemm(a, b, split_k=2, preset="cublas", out_dtype=BF16, bias=BIAS.astype(BF16))
    paths = []
    for name, array in (("d", d), ("a", a), ("b", b), ("bias", BIAS.astype(BF16))):
        np.save(tmp_path / f"{name}.npy", array)
        paths.append(str(tmp_path / f"{name}.npy"))
    options = ["--type", "bf16", "--result", "bf16", "--bias", paths[3]]
    status, out, _ = run("identify", *paths[:3], *options, "--json", capsys=capsys)
    rows = json.loads(out)
    assert (status, rows[0]["share"], rows[0]["out"]) == (0, 1.0, "bf16")
    status, out, _ = run("identify", *paths[:3], *options, "--target", "T4", capsys=capsys)
    assert (status, "no plan that is tried gives every bit" in out) == (1, True)
    status, _, err = run("identify", *paths[:3], capsys=capsys)
    assert (status, "--type or --result must say" in err) == (2, True)
