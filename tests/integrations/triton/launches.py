"""Launches of the kernels of machine_kernels.py and fresh_kernels.py: what a GPU ran, and what is replayed here."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from tests.integrations.triton import fresh_kernels as fresh
from tests.integrations.triton import machine_kernels as found
from tests.integrations.triton import recorded_kernels as recorded

DTYPES: dict[str, Any] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "s8": np.dtype(np.int8),
    "s32": np.dtype(np.int32),
}
TRITON = {"f32": "fp32", "f16": "fp16", "bf16": "bf16", "e4m3": "fp8e4nv", "e5m2": "fp8e5", "s8": "i8", "s32": "i32"}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Array:
    """An argument: its format and shape, whether the kernel writes it, and whether it has values before."""

    format: str
    shape: tuple[int, ...]
    is_result: bool = False
    is_given: bool = True
    below: int = 0

    def drawn(self, rng: Any) -> Any:
        """Values: sums of integers, so that they are the same everywhere; integers below a bound if it has one."""
        dtype = DTYPES[self.format]
        if not self.is_given:
            return np.zeros(self.shape, dtype)
        if self.below:
            return rng.integers(0, self.below, self.shape).astype(dtype)
        values = (rng.integers(-(2**20), 2**20, (3, *self.shape)).sum(0) / 2**20).astype(np.float32)
        return (values * 40).astype(dtype) if self.format == "s8" else values.astype(dtype)


def given(fmt: str, *shape: int, below: int = 0) -> Array:
    return Array(fmt, shape, below=below)


def out(fmt: str, *shape: int) -> Array:
    return Array(fmt, shape, is_result=True, is_given=False)


def changed(fmt: str, *shape: int) -> Array:
    return Array(fmt, shape, is_result=True)


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel: arrays and scalars by name, constants of the compiler, grid and options."""

    name: str
    kernel: Any
    grid: tuple[int, ...]
    named: dict[str, Any]
    constants: frozenset[str]
    results: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def signature(self, name: str) -> str:
        value = self.named[name]
        if isinstance(value, np.ndarray):
            return "*" + TRITON[_NAMES[value.dtype]]
        return "fp32" if isinstance(value, float) else "i32"

    def is_constant(self, name: str) -> bool:
        """Whether the compiler knows the value: it takes an integer that is 1 for one of its own."""
        return name in self.constants or (isinstance(self.named[name], int) and self.named[name] == 1)

    def is_divisible(self, name: str) -> bool:
        value = self.named[name]
        return isinstance(value, np.ndarray) or (isinstance(value, int) and value % 16 == 0)


def launch(
    kernel: Any, grid: int, arguments: dict[str, Any], constants: dict[str, Any], note: str = "", warps: int = 4, **options: Any
) -> Launch:
    shapes = " ".join(
        "x".join(map(str, (one.format, *one.shape))) if isinstance(one, Array) else str(one)
        for one in (*arguments.values(), *constants.values())
    )
    name = f"{kernel.fn.__name__} {shapes} {warps}{note}"
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    values = {key: one.drawn(rng) if isinstance(one, Array) else one for key, one in arguments.items()}
    results = tuple(key for key, one in arguments.items() if isinstance(one, Array) and one.is_result)
    return Launch(name, kernel, (grid,), values | constants, frozenset(constants), results, {"num_warps": warps, **options})


def norms(rows: int, sizes: tuple[tuple[int, int, int], ...], formats: tuple[str, ...]) -> Iterator[Launch]:
    for index, (n, size, warps) in enumerate(sizes):
        fmt = formats[index % len(formats)]
        x, y, w, b = given(fmt, rows, n), out(fmt, rows, n), given("f32", n), given("f32", n)
        f, g = given("f32", rows, n), out("f32", rows, n)
        one, two = {"n": n}, {"n": n, "eps": 1e-5}
        constants = {"N": size}
        yield launch(found.sum_of_squares, rows, {"x": x, "y": out("f32", rows), **one}, constants, warps=warps)
        yield launch(found.moments, rows, {"x": x, "mean": out("f32", rows), "var": out("f32", rows), **one}, constants, warps=warps)
        yield launch(found.layer_norm, rows, {"x": x, "w": w, "b": b, "y": y, "stats": out("f32", rows, 2), **two}, constants, warps=warps)
        yield launch(found.layer_norm_in_blocks, rows, {"x": x, "w": w, "b": b, "y": g, **two}, {"N": size // 4}, warps=warps)
        yield launch(found.rms_norm, rows, {"x": x, "w": w, "y": y, **two}, constants, warps=warps)
        yield launch(found.gemma_norm, rows, {"x": x, "w": w, "y": g, **two, "offset": 1.0}, constants, warps=warps)
        yield launch(found.rms_norm_backward, rows, {"x": x, "dy": f, "w": w, "dx": g, **two}, constants, warps=warps)
        yield launch(found.layer_norm_backward, rows, {"x": x, "dy": f, "w": w, "dx": g, **two}, constants, warps=warps)
        yield launch(found.softmax, rows, {"x": x, "y": y, **one}, constants, warps=warps)
        yield launch(found.softmax_backward, rows, {"y": f, "dy": f, "dx": g, "scale": 0.37, **one}, constants, warps=warps)
        yield launch(
            found.online_softmax, rows, {"x": f, "most": out("f32", rows), "total": out("f32", rows), **one}, {"N": size // 4}, warps=warps
        )
        target = given("s32", rows, below=n)
        yield launch(found.cross_entropy, rows, {"x": x, "target": target, "loss": out("f32", rows), **one}, constants, warps=warps)
        yield launch(found.cross_entropy_backward, rows, {"x": f, "target": target, "dx": g, "scale": 0.25, **one}, constants, warps=warps)
        yield launch(found.swiglu, rows, {"a": x, "b": x, "c": y, **one}, constants, warps=warps)
        yield launch(found.swiglu_backward, rows, {"dc": f, "a": f, "b": f, "da": g, "db": g, **one}, constants, warps=warps)
        yield launch(found.quantised, rows, {"x": x, "y": g, "s": out("f32", rows), **one}, constants, warps=warps)


def whole_rows(rows: int, sizes: tuple[tuple[int, int], ...], formats: tuple[str, ...]) -> Iterator[Launch]:
    for index, (n, warps) in enumerate(sizes):
        fmt = formats[index % len(formats)]
        x, total, constants = given(fmt, rows, n), out("f32", rows), {"N": n}
        yield launch(found.moments_of_whole_rows, rows, {"x": x, "mean": total, "var": total}, constants, warps=warps)
        yield launch(found.dot_by_sum, rows, {"x": x, "y": x, "z": total}, constants, warps=warps)


SUMS = ("xy+x", "xx+yy", "xxy", "sx", "-xy", "x-sy", "|xy|", "xx and x", "where", "2x", "differences")
ELEMENTWISE = ("ab+c", "c-ab", "ab-c", "ab+bc", "ab-bc", "bc-ab", "-ab+c", "abc+a", "horner", "lerp", "mix", "twice", "kept", "three")
ELEMENTWISE += ("four", "balanced", "chosen", "chosen sum", "2a+b", "norm", "differences")


def sums(rows: int, n: int, warps: tuple[int, ...]) -> Iterator[Launch]:
    for index, how in enumerate(SUMS):
        arguments = {"x": given("f32", rows, n), "y": changed("f32", rows, n), "z": out("f32", rows), "s": 1.3}
        yield launch(found.sums_of, rows, arguments, {"N": n, "HOW": how}, warps=warps[index % len(warps)])


def tiles(cases: tuple[tuple[int, int, int, str], ...]) -> Iterator[Launch]:
    for m, n, warps, fmt in cases:
        for axis in (0, 1, 2):
            for how in ("squares", "row", "column", "plain", "both"):
                shape = {"row": (n,), "column": (m,)}.get(how, (m, n))
                z = out("f32", (n, m, 1)[axis])
                arguments = {"x": given(fmt, m, n), "y": given(fmt, *shape), "z": z}
                yield launch(found.matrix_sums, 1, arguments, {"M": m, "N": n, "AXIS": axis, "HOW": how}, warps=warps)


def elementwise(n: int, formats: tuple[str, ...], warps: int) -> Iterator[Launch]:
    for fmt in formats:
        for how in ELEMENTWISE:
            if fmt != "f32" and how == "norm":
                continue
            arguments = {"x": changed(fmt, 2, n), "y": given(fmt, 2, n), "z": given(fmt, 2, n), "d": out(fmt, 2, n)}
            yield launch(found.elementwise, 2, arguments, {"N": n, "HOW": how}, warps=warps)
    for how in ("sa+b", "a-ks", "a*(ks+k)", "all"):
        arguments = {"x": given("f32", 2, n), "y": given("f32", 2, n), "d": out("f32", 2, n), "s": 0.7}
        yield launch(found.elementwise_of_scalar, 2, arguments, {"N": n, "HOW": how}, warps=warps)


def others(m: int, n: int, warps: int, fmt: str) -> Iterator[Launch]:
    for how in ("total", "each"):
        arguments = {"a": given(fmt, 2 * m, 4 * n), "x": given(fmt, 4 * n), "y": out("f32", 2 * m), "K": 4 * n}
        yield launch(found.matvec, 2, arguments, {"M": m, "BK": n, "HOW": how}, warps=warps)
    tile, f = given(fmt, m, n), given("f32", m, n)
    yield launch(found.centred_rows, 1, {"x": tile, "w": given("f32", n), "y": out("f32", m, n)}, {"M": m, "N": n}, warps=warps)
    arguments = {"x": f, "w": given("f32", m), "b": given("f32", m), "y": out("f32", m, n)}
    yield launch(found.group_norm, 1, arguments, {"M": m, "N": n}, warps=warps)
    yield launch(found.softmax_of_rows, 1, {"x": f, "y": out("f32", m, n)}, {"M": m, "N": n}, warps=warps)
    arguments = {"q": given(fmt, m, 2 * n), "cos": given("f32", m, n), "sin": given("f32", m, n), "o": out("f32", m, 2 * n)}
    yield launch(found.rope, m, arguments, {"HALF": n}, warps=warps)
    yield launch(found.gelu, m, {"x": tile, "y": out("f32", m, n)}, {"N": n}, warps=warps)
    moments = {name: changed("f32", m, n) for name in ("m", "v")}
    arguments = {"p": changed("f32", m, n), "g": f, **moments, "lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
    yield launch(found.adam, m, arguments, {"N": n}, warps=warps)
    for delta in (False, True):
        rows = {name: given(fmt, 12, size) for name, size in (("q", m), ("k", m), ("v", n))}
        arguments = {**rows, "g": given("f32", 12), "o": out("f32", 12, n), "T": 12}
        yield launch(found.recurrence, 1, arguments, {"DK": m, "DV": n, "DELTA": delta}, warps=warps)


def dots(
    shapes: tuple[tuple[int, int, int, int], ...], kinds: tuple[tuple[str, str | None], ...], hows: tuple[str, ...]
) -> Iterator[Launch]:
    for m, n, block, warps in shapes:
        for fmt, precision in kinds:
            for how in hows:
                k = 3 * block
                arguments = {"a": given(fmt, m, k), "b": given(fmt, k, n), "c": given("f32", m + 1, n), "d": out("f32", m, n), "K": k}
                yield launch(found.dots, 1, arguments, {"M": m, "N": n, "BK": block, "HOW": how, "P": precision, "Z": 0.6}, warps=warps)


def single_dots(m: int, n: int, k: int, warps: int, kinds: tuple[tuple[str, str | None], ...]) -> Iterator[Launch]:
    for fmt, precision in kinds:
        for how in ("plain", "scaled operand", "exp", "transposed", "plus", "squares", "chained"):
            if how == "exp" and fmt != "f32":
                continue
            arguments = {"a": given(fmt, m, k), "b": given(fmt, k, n), "c": given("f32" if how != "chained" else fmt, max(m, n), n)}
            arguments["d"] = out("f32", m, n)
            yield launch(found.one_dot, 1, arguments, {"M": m, "N": n, "K": k, "HOW": how, "P": precision}, warps=warps)


def products(m: int, n: int, d: int, warps: int, fmt: str) -> Iterator[Launch]:
    for axis in (0, 1):
        size = (n, m)[axis]
        arguments = {"a": given(fmt, m, d), "b": given(fmt, d, n), "d": out("f32", size), "s": out("f32", size)}
        yield launch(found.dot_and_sums, 1, arguments, {"M": m, "N": n, "K": d, "AXIS": axis}, warps=warps)
    arguments = {
        "q": given(fmt, 2 * m, d),
        "k": given(fmt, 3 * n, d),
        "v": given(fmt, 3 * n, d),
        "o": out("f32", 2 * m, d),
        "n": 3 * n,
        "scale": 0.18,
    }
    yield launch(found.attention, 2, arguments, {"M": m, "N": n, "D": d}, warps=warps)
    arguments = {"a": given(fmt, 3, m, d), "b": given(fmt, 3, d, n), "d": out("f32", 3, m, n)}
    yield launch(recorded.batched, 1, {**arguments}, {"B": 1, "M": m, "N": n, "K": d}, warps=warps)


PRECISE = (("f32", "tf32"), ("f32", "tf32x3"), ("f32", "bf16x3"), ("f32", "bf16x6"), ("f32", "ieee"))
PLAIN = (("f16", None), ("bf16", None), ("e4m3", None), ("e5m2", None))


def first() -> Iterator[Launch]:
    """Launches on which rules may be found."""
    yield from norms(6, ((1000, 1024, 4), (768, 1024, 8), (250, 256, 1), (2048, 2048, 2)), ("f32", "bf16", "f16", "f32"))
    yield from whole_rows(6, ((256, 1), (512, 4), (1024, 8), (64, 4), (2048, 2), (4096, 4)), ("f32", "f32", "bf16", "f32", "f16"))
    yield from sums(4, 1024, (4, 1, 8))
    yield from tiles(((16, 64, 4, "f32"), (64, 32, 4, "bf16"), (8, 256, 8, "f16"), (32, 32, 1, "f32")))
    yield from elementwise(512, ("f32", "f16", "bf16"), 4)
    yield from others(16, 64, 4, "f32")
    yield from others(32, 128, 8, "bf16")
    yield from dots(((64, 64, 32, 4), (16, 32, 64, 4)), PRECISE, ("dot", "add", "start", "scale", "bias"))
    yield from dots(((64, 32, 32, 4), (32, 16, 32, 2)), PLAIN, ("dot", "add", "scale", "scaled bias", "rows and columns", "relu"))
    yield from single_dots(64, 64, 32, 4, PRECISE)
    yield from single_dots(32, 32, 32, 1, (("f16", None), ("f32", "tf32x3"), ("f32", "bf16x6")))
    yield from products(64, 64, 32, 4, "f16")
    yield from products(16, 32, 64, 4, "bf16")


def held_back() -> Iterator[Launch]:
    """Launches on which rules are judged: other shapes, warps and types, and kernels that are in no other set."""
    yield from norms(5, ((513, 1024, 2), (1536, 2048, 4), (120, 128, 4), (4096, 4096, 8)), ("bf16", "f32", "f32", "f16"))
    yield from whole_rows(5, ((128, 2), (2048, 1), (512, 8), (8192, 4), (1024, 1)), ("f16", "f32", "f32", "bf16"))
    yield from sums(3, 2048, (2, 8, 4))
    yield from tiles(((32, 64, 2, "f16"), (4, 512, 4, "f32"), (128, 16, 8, "f32")))
    yield from elementwise(2048, ("f32", "bf16", "f16"), 2)
    yield from others(32, 32, 2, "f16")
    yield from others(64, 64, 4, "f32")
    yield from dots(((128, 32, 32, 4), (32, 64, 32, 2), (64, 16, 64, 8)), PRECISE, ("dot", "add", "scaled bias", "rows and columns"))
    yield from dots(((128, 64, 64, 8), (16, 64, 32, 1)), PLAIN, ("dot", "add", "scale", "bias", "relu"))
    yield from single_dots(128, 32, 64, 8, (("f32", "tf32x3"), ("f32", "bf16x3"), ("bf16", None)))
    yield from single_dots(16, 64, 32, 2, (("f32", "bf16x6"), ("f32", "tf32x3"), ("f16", None), ("f32", "ieee")))
    yield from products(128, 32, 64, 8, "bf16")
    yield from products(32, 64, 32, 2, "f16")
    for n, size, warps, fmt in ((1000, 1024, 4, "bf16"), (384, 512, 2, "f32"), (2048, 2048, 8, "f16")):
        x, f, g, w = given(fmt, 4, n), given("f32", 4, n), out("f32", 4, n), given("f32", n)
        constants = {"N": size}
        yield launch(fresh.fused_add_norm, 4, {"x": x, "res": x, "w": w, "y": g, "out": g, "n": n, "eps": 1e-6}, constants, warps=warps)
        yield launch(fresh.squared_error, 4, {"x": f, "y": f, "loss": out("f32", 4), "dx": g, "n": n}, constants, warps=warps)
        yield launch(fresh.geglu, 4, {"a": x, "b": x, "c": g, "n": n}, constants, warps=warps)
        yield launch(fresh.kl_divergence, 4, {"p": f, "q": f, "loss": out("f32", 4), "n": n}, constants, warps=warps)
        x, total = given(fmt, 4, size), out("f32", 4)
        yield launch(fresh.l2_norm, 4, {"x": x, "y": out(fmt, 4, size), "rs": total, "eps": 1e-6}, constants, warps=warps)
        yield launch(fresh.cosine, 4, {"x": x, "y": x, "z": total}, constants, warps=warps)
        f, g = given("f32", 4, size), changed("f32", 4, size)
        yield launch(fresh.complex_product, 2, {"a": f, "b": f, "c": out("f32", 4, size)}, constants, warps=warps)
        yield launch(fresh.by_helper, 4, {"x": x, "y": x, "z": out(fmt, 4, size)}, constants, warps=warps)
        yield launch(fresh.momentum, 4, {"p": g, "g": f, "m": g, "lr": 0.01, "mu": 0.9, "decay": 0.1}, constants, warps=warps)
    for m, n, warps, fmt in ((16, 64, 4, "f32"), (32, 128, 8, "bf16"), (64, 32, 1, "f16")):
        rows, column = given(fmt, 4 * m, n), out("f32", n)
        constants = {"M": m, "N": n}
        yield launch(fresh.l2_norm_of_rows, 3, {"x": rows, "y": out("f32", 4 * m, n), "eps": 1e-6, "T": 3 * m - 5}, constants, warps=warps)
        yield launch(fresh.variance_of_columns, 1, {"x": rows, "mean": column, "var": column, "T": 4 * m}, constants, warps=warps)
        wide, total = given(fmt, 4 * m, 2 * n), out("f32", 2 * n)
        yield launch(fresh.weight_gradient, 2, {"x": wide, "dy": wide, "dw": total, "db": total, "T": 4 * m}, constants, warps=warps)
        a, b = given("f32", m, 32), given("f32", 16, 32)
        yield launch(fresh.pairwise_distance, 1, {"x": a, "y": b, "z": out("f32", m, 16)}, {"M": m, "N": 16, "D": 32}, warps=warps)
    for m, d, warps, fmt in ((64, 64, 4, "bf16"), (16, 32, 2, "f16")):
        rows = given(fmt, 4 * m, d)
        arguments = {"q": rows, "k": rows, "v": rows, "o": out("f32", 4 * m, d), "T": 4 * m}
        yield launch(fresh.linear_attention, 1, arguments, {"M": m, "D": d}, warps=warps)
    for m, k, hidden, warps, fmt, precision in (
        (64, 32, 64, 4, "f32", "tf32x3"),
        (16, 64, 32, 4, "f32", "bf16x3"),
        (64, 64, 64, 4, "bf16", None),
    ):
        arguments = {
            "x": given(fmt, m, k),
            "w": given(fmt, k, hidden),
            "b": given("f32", hidden),
            "u": given(fmt, hidden, k),
            "y": out("f32", m, k),
        }
        yield launch(fresh.mlp, 1, arguments, {"M": m, "K": k, "H": hidden, "P": precision}, warps=warps)


def fresh_ones() -> Iterator[Launch]:
    """Launches of kernels, shapes and seeds that were drawn when all rules were made."""
    yield from norms(3, ((777, 1024, 8), (640, 1024, 1), (96, 128, 2), (3000, 4096, 4)), ("f16", "f32", "f32", "bf16"))
    yield from whole_rows(3, ((256, 4), (1024, 2), (128, 4), (128, 1)), ("f32", "bf16", "f32", "f16"))
    yield from sums(2, 512, (1, 2, 4))
    yield from tiles(((64, 64, 8, "bf16"), (2, 128, 1, "f32"), (32, 8, 4, "f32")))
    yield from elementwise(256, ("f32", "f16", "bf16"), 1)
    yield from others(8, 128, 4, "bf16")
    yield from others(64, 16, 1, "f32")
    yield from dots(((64, 128, 32, 8), (16, 16, 32, 1)), PRECISE, ("add", "start", "scale", "relu"))
    yield from dots(((64, 16, 128, 4), (128, 16, 32, 8)), PLAIN, ("start", "scaled bias", "rows and columns", "relu"))
    yield from single_dots(64, 32, 16, 4, (("f32", "bf16x6"), ("f32", "tf32x3"), ("f16", None)))
    yield from products(64, 128, 64, 4, "bf16")
    for fmt in ("f32", "f16", "bf16"):
        for how in ("only", "added", "sum"):
            for constant in (37.0, 255.0, 0.3, 111):
                arguments = {"x": given(fmt, 2, 256), "y": out("f32", 2, 256)}
                yield launch(fresh.divided_by_constants, 2, arguments, {"N": 256, "C": constant, "HOW": how})
    for n, size, warps, fmt in ((1000, 1024, 4, "f32"), (512, 512, 8, "bf16"), (200, 256, 1, "f16")):
        x, f, g, row = given(fmt, 4, n), given("f32", 4, n), out("f32", 4, n), out("f32", 4)
        block, one = {"N": size}, {"N": size // 2}
        yield launch(fresh.poly_norm, 4, {"x": x, "w": given("f32", 4), "y": g, "n": n, "eps": 1e-6}, block, warps=warps)
        yield launch(fresh.divergence, 4, {"p": f, "q": f, "loss": row, "dx": g, "beta": 0.3, "n": n}, block, warps=warps)
        yield launch(fresh.total_variation, 4, {"p": f, "q": f, "loss": row, "n": n}, one, warps=warps)
        arguments = {"x": x, "w": given("f32", 4), "b": given("f32", 4), "y": g, "stats": out("f32", 4, 2), "n": n, "eps": 1e-5}
        yield launch(fresh.group_norm_in_blocks, 4, arguments, one, warps=warps)
        arguments = {"dy": given(fmt, 4, 2 * size), "cos": given(fmt, 4, size), "sin": given(fmt, 4, size), "dx": out(fmt, 4, 2 * size)}
        yield launch(fresh.rotary_backward, 4, arguments, {"HALF": size}, warps=warps)
        arguments = {
            "x": given("s8", 4, size),
            "s": given("f32", 4, size // 32),
            "z": given("f32", 4, size // 32),
            "y": out("f32", 4, size),
        }
        yield launch(fresh.dequantised_rows, 4, arguments, {"N": size, "G": 32}, warps=warps)
        arguments = {"x": given(fmt, n), "w": given(fmt, 4), "y": out("f32", n), "n": n}
        yield launch(fresh.convolution, 4, arguments, {"N": size // 4, "WIDTH": 4}, warps=warps)
    for m, n, warps, fmt in ((16, 64, 4, "f32"), (32, 32, 2, "bf16")):
        arguments = {"x": given(fmt, 4 * m, 2 * n), "mean": out("f32", 2 * n), "var": out("f32", 2 * n), "T": 4 * m}
        yield launch(fresh.batch_statistics, 2, arguments, {"M": m, "N": n}, warps=warps)
    for m, d, warps, fmt in ((64, 64, 4, "bf16"), (16, 32, 4, "f16")):
        rows = given(fmt, 3 * m, d)
        arguments = {"q": rows, "k": rows, "v": rows, "beta": given("f32", 3 * m), "o": out("f32", 3 * m, d), "T": 3 * m}
        yield launch(fresh.chunked_delta, 1, arguments, {"M": m, "D": d}, warps=warps)
        tile, wide = given(fmt, m, d), given(fmt, 96, d)
        arguments = {"q": tile, "k": wide, "v": wide, "do": tile, "lse": given("f32", m), "delta": given("f32", m)}
        arguments |= {"dq": out("f32", m, d), "n": 96, "scale": 0.21}
        yield launch(fresh.attention_backward, 1, arguments, {"M": m, "N": 32, "D": d}, warps=warps)


def launches() -> Iterator[Launch]:
    yield from first()
    yield from held_back()
    yield from fresh_ones()
