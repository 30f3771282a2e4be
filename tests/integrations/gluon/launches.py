"""Launches of the kernels of kernels.py: what a GPU ran, and what is replayed here."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.integrations.gluon import kernels
from tests.integrations.triton.launches import DTYPES, Array, given, out

TORCH = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "s8": "int8",
    "s32": "int32",
}
_TRITON = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "e4m3": "float8e4nv", "e5m2": "float8e5", "s8": "int8", "s32": "int32"}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Tiled:
    """An argument that is a tensor descriptor: its array, the box that is copied at once, and how the CTAs of a cluster share it."""

    array: Array
    box: tuple[int, ...]
    cluster: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Launch:
    """A kernel with arguments, by name, as the kernel's signature has them."""

    kernel: Any
    grid: tuple[int, ...]
    named: dict[str, Any]
    options: dict[str, Any] = field(default_factory=lambda: {"num_warps": 4})
    draw: int = 0

    @property
    def name(self) -> str:
        """The name under which results are recorded."""
        parts = (self.kernel.fn.__name__, *(_text(value) for value in self.named.values()), self.options["num_warps"], self.draw)
        return " ".join(map(str, parts))

    def drawn(self) -> dict[str, Any]:
        """Arrays of the arguments that have any, by name: the same on every machine."""
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), self.draw])
        arrays = {name: value.array if isinstance(value, Tiled) else value for name, value in self.named.items()}
        return {name: value.drawn(rng) for name, value in arrays.items() if isinstance(value, Array)}

    @property
    def results(self) -> list[str]:
        """The names of what the kernel writes."""
        arrays = {name: value.array if isinstance(value, Tiled) else value for name, value in self.named.items()}
        return [name for name, value in arrays.items() if isinstance(value, Array) and value.is_result]

    def arguments(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """Arguments as the kernel takes them, from tensors of torch."""
        from triton.experimental.gluon import language as gl
        from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

        def made(name: str, value: Any) -> Any:
            if isinstance(value, Tiled):
                dtype, cluster = getattr(gl, _TRITON[value.array.format]), [list(vector) for vector in value.cluster]
                layout = gl.NVMMASharedLayout.get_default_for(list(value.box), dtype, cga_layout=cluster or None)
                return TensorDescriptor.from_tensor(arrays[name], list(value.box), layout)
            return arrays[name] if isinstance(value, Array) else value

        return {name: made(name, value) for name, value in self.named.items()}


def _text(value: Any) -> str:
    if isinstance(value, Tiled):
        return f"{_text(value.array)}/{'x'.join(map(str, value.box))}{value.cluster or ''}"
    return f"{value.format}{'x'.join(map(str, value.shape))}" if isinstance(value, Array) else str(value)


def tensor(array: Any) -> Any:
    """The same bits as a tensor of torch."""
    import torch

    bits = array.copy().view(f"{'u' if array.itemsize == 1 else 'i'}{array.itemsize}")
    return torch.from_numpy(bits).view(getattr(torch, TORCH[_NAMES[array.dtype]]))


def _product(fmt: str, m: int, n: int, k: int, columns: int, in_registers: bool, imprecise: int, warps: int, draw: int) -> Launch:
    sums = "s32" if fmt == "s8" else "f32"
    a, b = Tiled(given(fmt, m, k), (m, k)), Tiled(given(fmt, n, k), (n, k))
    c = Tiled(given(sums, m, n) if sums == "f32" else given(sums, m, n, below=1000), (m, n))
    named = {"a_desc": a, "b_desc": b, "c_desc": c, "d_desc": Tiled(out(sums, m, n), (m, n)), "IN_REGISTERS": in_registers}
    inner = {"f32": 8, "f16": 16, "bf16": 16}.get(fmt, 32)
    named |= {"COLUMNS": columns, "K": inner, "IMPRECISE": imprecise}
    return Launch(kernels.one_product, (1,), named, {"num_warps": warps}, draw)


def _tiles(
    kernel: Any, fmt: str, m: int, n: int, k: int, box: tuple[int, int, int], grid: tuple[int, ...], stages: int, draw: int
) -> Launch:
    a, b = Tiled(given(fmt, m, k), (box[0], box[2])), Tiled(given(fmt, k, n), (box[2], box[1]))
    named = {"a_desc": a, "b_desc": b, "c_desc": Tiled(out(fmt, m, n), box[:2])}
    if kernel is kernels.specialised:
        named["bias"] = given("f32", n)
    return Launch(kernel, grid, named | {"STAGES": stages}, {"num_warps": box[0] // 16}, draw)


def clustered(draw: int) -> list[Launch]:
    """List kernels of clusters: sums whose CTAs exchange before and after the warps, what they move, and what the TMA multicasts."""
    cut = ((0, 1), (0, 2), (0, 4), (0, 8))
    found = []
    for columns, cluster, warps in (
        (512, cut[:1], 4),
        (1024, cut[:2], 4),
        (2048, cut[:3], 4),
        (2048, cut[:3], 8),
        (1024, cut[:2], 8),
        (1024, cut[:2], 16),
        (4096, cut, 4),
        (1024, ((1, 0), *cut[:2]), 4),
    ):
        named = {"x": given("f32", 8, columns), "out": out("f32", 8, columns), "N": columns, "CLUSTER": cluster}
        found.append(Launch(kernels.cluster_softmax, (2,), named, {"num_warps": warps, "num_ctas": 2 ** len(cluster)}, draw))
    named = {"x": given("f32", 64, 64), "out": out("f32", 64, 64), "M": 64, "N": 64}
    named |= {"BY_ROWS": ((1, 0), (2, 0)), "BY_COLUMNS": ((0, 1), (0, 2))}
    found.append(Launch(kernels.cluster_transpose, (1,), named, {"num_warps": 4, "num_ctas": 4}, draw))
    for fmt, m, n, cluster, of_a, of_b, columns in (
        ("f16", 128, 64, ((1, 0),), ((1, 0),), ((0, 0),), 64),
        ("bf16", 128, 128, ((1, 0), (0, 1)), ((1, 0), (0, 0)), ((0, 0), (0, 1)), 64),
        ("f16", 64, 256, ((0, 1), (0, 2)), ((0, 0), (0, 0)), ((0, 1), (0, 2)), 64),
    ):
        a, b = Tiled(given(fmt, 2 * m, 256), (m, 64), of_a), Tiled(given(fmt, 256, n), (64, n), of_b)
        named = {"a_desc": a, "b_desc": b, "c_desc": Tiled(out(fmt, 2 * m, n), (m, n), cluster), "STEPS": 4, "CLUSTER": cluster}
        found.append(
            Launch(kernels.cluster_product, (2,), named | {"COLUMNS": columns}, {"num_warps": 4, "num_ctas": 2 ** len(cluster)}, draw)
        )
    return found


def launches() -> list[Launch]:
    """List all of them; draws other than 0 came after all rules were found."""
    found = []
    for draw in (0, 1):
        found += [
            Launch(
                kernels.scale_and_add,
                (3,),
                {"x": given("f32", 24, 512), "y": given("f32", 24, 512), "out": out("f32", 24, 512), "factor": 1.7, "N": 512},
                draw=draw,
            ),
            Launch(kernels.transpose, (1,), {"x": given("f32", 64, 32), "out": out("f32", 32, 64), "M": 64, "N": 32}, draw=draw),
            Launch(kernels.transpose, (1,), {"x": given("f16", 32, 128), "out": out("f16", 128, 32), "M": 32, "N": 128}, draw=draw),
        ]
        for fmt, m, n, k, columns, in_registers, imprecise, warps in (
            ("f16", 64, 64, 64, 64, False, 0, 4),
            ("f16", 64, 64, 64, 16, True, 0, 4),
            ("bf16", 128, 32, 128, 32, False, 0, 4),
            ("bf16", 128, 64, 64, 64, True, 0, 8),
            ("f32", 64, 32, 64, 32, False, 0, 4),
            ("f32", 64, 32, 32, 16, True, 0, 4),
            ("e4m3", 64, 64, 128, 64, False, 0, 4),
            ("e4m3", 64, 64, 256, 64, False, 64, 4),
            ("e5m2", 64, 32, 128, 32, False, 32, 4),
            ("e4m3", 64, 32, 256, 32, True, 128, 4),
            ("s8", 64, 64, 64, 64, False, 0, 4),
        ):
            found.append(_product(fmt, m, n, k, columns, in_registers, imprecise, warps, draw))
        found += [
            _tiles(kernels.pipelined, "f16", 200, 144, 304, (64, 64, 64), (3,), 3, draw),
            _tiles(kernels.pipelined, "bf16", 256, 192, 512, (128, 64, 64), (2,), 4, draw),
            _tiles(kernels.specialised, "f16", 128, 128, 320, (64, 64, 64), (2, 2), 2, draw),
            _tiles(kernels.specialised, "bf16", 192, 96, 208, (64, 32, 64), (3, 3), 3, draw),
        ]
        for fmt, width in (("f16", 2), ("bf16", 2), ("f32", 1)):
            named = {"a": given(fmt, 64, 64), "b": given(fmt, 64, 32), "c": out("f32", 64, 32), "M": 64, "N": 32, "K": 64, "WIDTH": width}
            found.append(Launch(kernels.small_product, (1,), named, draw=draw))
        found += [
            Launch(kernels.softmax, (4,), {"x": given("f32", 16, 512), "out": out("f32", 16, 512), "N": 512}, draw=draw),
            Launch(kernels.softmax, (4,), {"x": given("f32", 16, 64), "out": out("f32", 16, 64), "N": 64}, {"num_warps": 8}, draw),
        ]
        for fmt, rows, keys in (("f16", 64, 64), ("bf16", 64, 128)):
            named = {"q_desc": Tiled(given(fmt, 128, 64), (rows, 64)), "k_desc": Tiled(given(fmt, 256, 64), (keys, 64))}
            named |= {"v_desc": Tiled(given(fmt, 256, 64), (keys, 64)), "o_desc": Tiled(out(fmt, 128, 64), (rows, 64))}
            found.append(Launch(kernels.attention, (2,), named | {"scale": 0.18, "STEPS": 256 // keys}, draw=draw))
        found += clustered(draw)
    return found
