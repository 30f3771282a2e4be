"""Programs of two devices, drawn from a seed, and what two H200 computed of them: `python -m tests.integrations.jax.two_devices`.

``h200_devices.npz`` has XLA's texts, 48 columns of a row of each result, as codes, and 1,024 sums of each dtype. No rule was found on them.
"""

from __future__ import annotations

import json
import lzma
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import fastmma.jax

SEED = 92
PLAIN = (((1,), (0,)), ((), ()))
KINDS = (("bfloat16", None), ("bfloat16", "float32"), ("float16", "float32"), ("float16", None), ("float32", "float32"))


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers of many magnitudes."""
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-4, 5, shape))
    return x.astype(np.float32).astype(dtype_of(dtype))


def draw_codes(rng: np.random.Generator, n: int, dtype: str) -> np.ndarray:
    """Random codes with NaN, infinities and subnormal numbers; the second half has neighbours of opposites of the first."""
    size, exponent = dtype_of(dtype).itemsize, {"float32": 24}.get(dtype, 11)
    codes = rng.integers(0, 1 << (8 * size), n, dtype=np.uint64).astype(f"u{size}")
    half, sign = codes[: n // 2], codes.dtype.type(1 << (8 * size - 1))
    chosen = rng.random(half.size) < 0.5
    near = half ^ sign ^ rng.integers(0, 64, half.size).astype(half.dtype)
    other, tiny = np.where(chosen, near, codes[n // 2 :]), rng.random(half.size) < 0.2
    kept = codes.dtype.type(int(sign) | ((1 << exponent) - 1))
    return np.concatenate([np.where(tiny, each & kept, each) for each in (half, other)]).view(dtype_of(dtype))


def layers() -> Iterator[tuple[str, Callable[..., Any], tuple[np.ndarray, ...]]]:
    """The layers with gradients: x, w and the cotangent."""
    rng = np.random.default_rng([SEED, 2])
    for index in range(12):
        rows, k, columns = (int(32 * rng.integers(1, high)) for high in (17, 49, 25))
        dtype, wanted = KINDS[index % len(KINDS)]
        precision = lax.DotAlgorithmPreset.TF32_TF32_F32 if dtype == "float32" else None
        product = partial(lax.dot_general, dimension_numbers=PLAIN, preferred_element_type=wanted, precision=precision)
        out = wanted or dtype
        arrays = draw(rng, (rows, k), dtype), draw(rng, (k, columns), dtype), draw(rng, (rows, columns), out)
        yield f"{rows}x{k}x{columns} {dtype} {out}", with_gradients(product), arrays


def with_gradients(product: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    def all_of(x: Any, w: Any, g: Any) -> tuple[Any, ...]:
        d, pull = jax.vjp(product, x, w)
        return (d, *pull(g))

    return all_of


def compare(recorded: dict[str, np.ndarray], texts: dict[str, str]) -> dict[str, Any]:
    """Return how many calls have which status, and the names of results that differ from the GPUs'."""
    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
    at = lambda *axes: NamedSharding(mesh, P(*axes))  # noqa: E731
    statuses: Counter[str] = Counter()
    other = []

    def check(name: str, function: Callable[..., Any], arrays: tuple[Any, ...], **options: Any) -> None:
        with fastmma.jax.emulate("H200", **options) as report:
            results = jax.tree.leaves(jax.block_until_ready(function(*arrays)))
        for line, count in report.lines():
            if line.operator in ("dot_general", "psum"):
                statuses[f"{line.operator} {line.status}"] += count
        for index, each in enumerate(map(np.asarray, results)):
            row = each[:1024] if each.ndim == 1 else each[max(1, len(each) // 4)][:48]
            if row.tobytes() != recorded[f"{name} | {index}"].tobytes():
                other.append(f"{name} | {index}")

    for index, dtype in enumerate(("float32", "bfloat16", "float16")):
        x = draw_codes(np.random.default_rng([SEED, 1, index, 8192]), 8192, dtype)
        total = jax.shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=False)
        check(f"psum {dtype}", jax.jit(total), (jnp.asarray(x),))
    rows_cut, k_cut = (at("x"), at(), at("x")), (at(None, "x"), at("x"), at())
    forms = {"tensor": (k_cut, (at(), k_cut[0], k_cut[1])), "data": (rows_cut, (rows_cut[2], rows_cut[0], rows_cut[1]))}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.txt"
        for name, function, arrays in layers():
            for form, (given, returned) in forms.items():
                if (whole := f"{form} {name}") in texts:
                    path.write_text(texts[whole])
                    placed = jax.jit(function, in_shardings=given, out_shardings=returned)
                    check(whole, placed, tuple(map(jnp.asarray, arrays)), plans=path, other="error")
    return {"statuses": dict(statuses), "other": other}


if __name__ == "__main__":
    with np.load(Path(__file__).with_name("h200_devices.npz")) as _file:
        _recorded = dict(_file)
    print(json.dumps(compare(_recorded, json.loads(lzma.decompress(_recorded.pop("texts").tobytes())))))
