"""Programs that JAX 0.11.2 compiled for an H200: with XLA's text as plans, their products have every bit of the GPU's results.

``h200_compiled.npz`` has the texts as XLA wrote them, and 48 columns of a row of each result, as codes: 20 layers with gradients, whose
sizes and operands were drawn, with kernels that XLA tuned by time and without. No rule was found on them.
"""

from __future__ import annotations

import itertools
import json
import lzma
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import fastmma  # noqa: E402
import fastmma.jax  # noqa: E402
from fastmma.jax.compiled_products import find_compiled_products  # noqa: E402
from fastmma.jax.compiled_programs import follow_options, follow_plan  # noqa: E402
from fastmma.jax.products import product  # noqa: E402
from fastmma.testing import assert_bits_equal  # noqa: E402

with np.load(Path(__file__).with_name("h200_compiled.npz")) as _file:
    RECORDED = dict(_file)
TEXTS: dict[str, str] = json.loads(lzma.decompress(RECORDED.pop("texts").tobytes()))
BY_CUBLAS = "XLA calls cublas, whose kernel"


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers of many magnitudes."""
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-4, 5, shape))
    return x.astype(np.float32).astype(getattr(ml_dtypes, dtype, dtype))


def layers() -> Iterator[tuple[str, tuple[np.ndarray, ...], str]]:
    """The layers: x, w and the cotangent, and the dtype of the result."""
    rng = np.random.default_rng([82, 5])
    for index in range(20):
        m, k, n = (int(16 * rng.integers(1, 97)) for _ in range(3))
        k += int(rng.integers(1, 16)) if index % 7 == 6 else 0
        dtype = ("bfloat16", "float16")[index % 2]
        out = "float32" if index % 3 else dtype
        yield f"dot {m}x{k}x{n} {dtype} {out}", (draw(rng, (m, k), dtype), draw(rng, (k, n), dtype), draw(rng, (m, n), out)), out


def with_gradients(out: str) -> Callable[..., tuple[Any, ...]]:
    def all_of(x: Any, w: Any, g: Any) -> tuple[Any, ...]:
        d, pull = jax.vjp(partial(jnp.dot, preferred_element_type=out), x, w)
        return (d, *pull(g))

    return all_of


def test_results_have_the_bits_of_an_h200(tmp_path: Path) -> None:
    path, found, other = tmp_path / "program.txt", {"emulated": 0, "assumed": 0}, []
    for (name, arrays, out), kind in itertools.product(layers(), ("default", "untuned")):
        path.write_text(TEXTS[f"{kind} | {name}"])
        with fastmma.jax.emulate("H200", plans=path, other="error") as report:
            results = jax.block_until_ready(jax.jit(with_gradients(out))(*map(jnp.asarray, arrays)))
        guessed = [line.how for line, _ in report.lines("assumed")]
        assert all(BY_CUBLAS in each and "as XLA's text says" in each for each in guessed)
        found = {status: count + getattr(report, status) for status, count in found.items()}
        for index, each in enumerate(map(np.asarray, results)):
            row, codes = each[max(1, len(each) // 4)][:48], RECORDED[f"{kind} | {name} | {index}"]
            if row.tobytes() != codes.tobytes():
                other.append((kind, name, index))
    assert found == {"emulated": 112, "assumed": 8}
    assert other == []


def test_what_is_read_of_a_text() -> None:
    """Parts of k that are padded, in pairs or one after another; the kernel's instruction; neighbours of widened operands."""
    read = find_compiled_products(TEXTS["default | dot 272x464x544 bfloat16 bfloat16"])
    read += find_compiled_products(TEXTS["default | dot 1216x704x528 float16 float32"])
    rows = {each.sizes: (each.parts, each.length, each.join, each.is_warpgroup, each.neighbours, each.result) for each in read}
    assert rows == {
        (1, 272, 544, 464): (4, 120, "pairwise", True, 1, "bfloat16"),
        (1, 272, 464, 544): (4, 136, "ascending", True, 1, "bfloat16"),
        (1, 464, 544, 272): (1, 272, "ascending", True, 1, "bfloat16"),
        (1, 1216, 528, 704): (1, 704, "ascending", True, 1, "float32"),
        (1, 704, 1216, 528): (1, 528, "ascending", True, 1, "float16"),
        (1, 704, 528, 1216): (4, 304, "ascending", False, 2, "float16"),
    }
    read = find_compiled_products(TEXTS["default | dot 1200x1072x528 float16 float16"])
    called = {each.sizes: (each.parts, each.length) for each in read if each.unknown}
    assert called == {(1, 1200, 528, 1072): (2, 536), (1, 1072, 528, 1200): (2, 600)}


def test_parts_that_two_groups_of_warps_add() -> None:
    """Eight parts: a group of warps has every second one, and adds its own in pairs first. One row of tf32 of an H200."""
    (found,) = (each for each in find_compiled_products(TEXTS["dealt"]) if each.parts == 8)
    assert (found.join, found.dealt, found.length, found.unknown) == ("pairwise", 2, 52, "")
    lhs, rhs = RECORDED["dealt | lhs"], RECORDED["dealt | rhs"]
    plan = fastmma.gemm_plan(lhs, rhs, target="H200", instruction="wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32")
    options: dict[str, Any] = {"dimensions": (((1,), (0,)), ((), ())), "plan": follow_plan(plan, found)}
    codes = RECORDED["dealt | codes"].view(np.float32)
    assert_bits_equal(product(lhs, rhs, **options, **dict(follow_options(found))), codes)
    assert (product(lhs, rhs, **options) != codes).any()


TRITON = """HloModule jit_f
%dot_computation (p: bf16[{m},{k}], q: bf16[{k},{n}]) -> {out}[{m},{n}] {{
  %p = bf16[{m},{k}]{{1,0}} parameter(0)
  %q = bf16[{k},{n}]{{1,0}} parameter(1)
  ROOT %dot.1 = {out}[{m},{n}]{{1,0}} dot(%p, %q), {dimensions}, metadata={{op_name="{scope}/dot_general"}}
}}

ENTRY %main (x: bf16[{m},{k}], w: bf16[{k},{n}]) -> {out}[{m},{n}] {{
  %x = bf16[{m},{k}]{{1,0}} parameter(0)
  %w = bf16[{k},{n}]{{1,0}} parameter(1)
  ROOT %fusion = {out}[{m},{n}]{{1,0}} fusion(%x, %w), kind=kCustom, calls=%dot_computation, backend_config={{{choices},"kind":"{kind}"}}
}}
"""
DIMENSIONS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
CHOICES = '"num_warps":"4","output_tiles":[{"sizes":["64","64"]}]'
KERNEL = "__triton_nested_gemm_fusion"


def text_of(m: int = 16, k: int = 64, n: int = 8, out: str = "f32", scope: str = "jit(f)", kind: str = KERNEL) -> str:
    return TRITON.format(m=m, k=k, n=n, out=out, scope=scope, kind=kind, dimensions=DIMENSIONS, choices=CHOICES)


def how_of(path: Path, target: str = "H100", out: str = "float32") -> tuple[str, str]:
    """The status of a product of 16 x 64 x 8, and how it is computed."""
    x, w = jnp.ones((16, 64), jnp.bfloat16), jnp.ones((64, 8), jnp.bfloat16)
    with fastmma.jax.emulate(target, plans=path) as report:
        jax.block_until_ready(jax.jit(partial(jnp.dot, preferred_element_type=out))(x, w))
    ((line, _),) = [*report.lines("emulated"), *report.lines("assumed")]
    return line.status, line.how


def test_a_folder_of_programs(tmp_path: Path) -> None:
    """As XLA writes it with --xla_dump_to; other files of it are not read."""
    (tmp_path / "module_0001.jit_f.sm_9.0_gpu_after_optimizations.txt").write_text(text_of())
    (tmp_path / "module_0002.jit_g.sm_9.0_gpu_after_optimizations.txt").write_text(text_of(m=32))
    (tmp_path / "module_0001.jit_f.before_optimizations.txt").write_text("HloModule")
    assert how_of(tmp_path)[0] == "emulated"


GUESSED = {
    "no such product": ([text_of(k=32)], "H100", "float32", "XLA's text has no such product"),
    "several": ([text_of(), text_of(kind="__other", scope="jit(g)")], "H100", "float32", "XLA's text has such products of several orders"),
    "not rounded": ([text_of()], "H100", "bfloat16", "XLA uses the sums before they are rounded to bfloat16"),
    "another kernel": ([text_of(kind="__other")], "H100", "float32", "XLA computes it in a fusion of the kind __other"),
    "another GPU": ([text_of()], "A100", "float32", "XLA's kernels are known for Hopper only"),
}


@pytest.mark.parametrize("name", GUESSED)
def test_what_a_text_does_not_tell_is_assumed(name: str, tmp_path: Path) -> None:
    texts, target, out, why = GUESSED[name]
    for number, text in enumerate(texts):
        (tmp_path / f"module_{number}.sm_9.0_gpu_after_optimizations.txt").write_text(text)
    status, how = how_of(tmp_path, target, out)
    assert status == "assumed"
    assert why in how


def test_the_scope_decides_among_several(tmp_path: Path) -> None:
    for number, (scope, kind) in enumerate((("jit(f)/layer", KERNEL), ("jit(f)/other", "__other"))):
        (tmp_path / f"module_{number}.sm_9.0_gpu_after_optimizations.txt").write_text(text_of(scope=scope, kind=kind))

    def f(x: Any, w: Any) -> Any:
        with jax.named_scope("layer"):
            return jnp.dot(x, w, preferred_element_type=jnp.float32)

    x, w = jnp.ones((16, 64), jnp.bfloat16), jnp.ones((64, 8), jnp.bfloat16)
    with fastmma.jax.emulate("H100", plans=tmp_path) as report:
        jax.block_until_ready(jax.jit(f)(x, w))
    report.assert_all_emulated()


REFUSED = {
    "StableHLO": ("module @jit_f {}", "no text of a program that XLA compiled"),
    "a CPU's": ("HloModule jit_f\nENTRY %main () -> f32[] {\n}\n", "no program that is compiled for a GPU"),
    "no product": ('HloModule jit_f\n"operation_queue_id"\n', "has no matrix product"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_texts_are_refused(name: str, tmp_path: Path) -> None:
    text, why = REFUSED[name]
    path = tmp_path / "program.txt"
    path.write_text(text)
    with pytest.raises(fastmma.OperandError, match=why), fastmma.jax.emulate("H100", plans=path):
        pass


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fastmma.OperandError, match="xla_dump_to"), fastmma.jax.emulate("H100", plans=tmp_path):
        pass
