"""Inline assembly in Gluon kernels."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from triton.experimental import gluon  # noqa: E402
from triton.experimental.gluon import language as gl  # noqa: E402

from fastmma.functions import special  # noqa: E402
from fastmma.host.errors import NotEmulatedError  # noqa: E402
from fastmma.triton import interpret  # noqa: E402


@gluon.jit
def of_each(x, y, TEXT: gl.constexpr, NAMES: gl.constexpr, PACK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([2], [32], [4], [0])
    i = gl.arange(0, 256, layout)
    v = gl.load(x + i)
    gl.store(y + i, gl.inline_asm_elementwise(TEXT, NAMES, [v, v], dtype=gl.float32, is_pure=True, pack=PACK))


def computed(text: str, pack: int = 1, **options: int) -> tuple[np.ndarray, np.ndarray, object]:
    x, y = torch.randn(256, generator=torch.Generator().manual_seed(3)), torch.zeros(256)
    names = ",".join(["=f"] * pack + ["f"] * 2 * pack)
    with interpret("H100") as report:
        of_each[(1,)](x, y, text, names, pack, num_warps=4, **options)
    return x.numpy(), y.numpy(), report


def test_the_special_function_unit() -> None:
    x, found, report = computed("{ .reg .f32 t; ex2.approx.ftz.f32 t, $1; fma.rn.f32 $0, t, $2, $2; }")
    power = special.ex2(x, flush=True).astype(np.float64)
    assert (found == (power * x + x).astype(np.float32)).mean() > 0.9  # but where float64 rounds twice
    report.assert_all_emulated()


def test_products_that_ptxas_may_fuse_are_assumed() -> None:
    x, found, report = computed("mul.f32 $0, $1, $2;")
    assert (found == x * x).all()
    assert len(report.lines("assumed")) == 1


@pytest.mark.parametrize(
    ("text", "pack", "said"),
    [
        ("vadd4.u32.u32.u32 $0, $1, $2, $1;", 1, r"test_assembly.py:\d+\): inline assembly: nothing here executes vadd4"),
        ("mul.f32 $0, $2, $4; mul.f32 $1, $3, $5;", 2, r"several elements at once"),
    ],
)
def test_what_is_refused_is_named(text: str, pack: int, said: str) -> None:
    with pytest.raises(NotEmulatedError, match=said):
        computed(text, pack)
