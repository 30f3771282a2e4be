"""Calls of torch that multiply matrices, recorded on an H200 with PyTorch 2.11; their inputs are drawn again.

A call is a dictionary: its operator, sizes, formats, layouts (n where rows are contiguous, t where columns are), settings, and a seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reference import cancelling

PATH = Path(__file__).parent / "torch_calls.npz"
DTYPES = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "tf32": torch.float32,
    "f32": torch.float32,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "s8": torch.int8,
}
Call = dict[str, Any]
_NEXT = 1_000_003  # between the seeds of matrices in a stack
_BITS = {"bf16": 8, "f16": 11}


def recorded() -> Iterator[tuple[Call, NDArray[np.uint32]]]:
    """Calls with the elements of their results at the places that are kept, as f32 or s32 codes."""
    with np.load(PATH) as archive:
        calls, sizes, bits = json.loads(archive["calls"].tobytes()), archive["sizes"], archive["bits"]
    ends = np.cumsum(sizes)
    for call, size, end in zip(calls, sizes, ends, strict=True):
        yield call, bits[end - size : end]


def result(call: Call, device: str = "cpu") -> NDArray[np.uint32]:
    """Make a call with the settings of torch that it names, and return what `recorded` has of it."""
    matmul = torch.backends.cuda.matmul
    names = ("allow_tf32", "allow_fp16_accumulation", "allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction")
    before = {name: getattr(matmul, name) for name in names}
    matmul.allow_tf32 = call["fmt"] == "tf32" or bool(call.get("allow_tf32"))
    matmul.allow_fp16_accumulation = bool(call.get("f16acc"))
    matmul.allow_bf16_reduced_precision_reduction = matmul.allow_fp16_reduced_precision_reduction = call.get("reduced", True)
    try:
        found = _OPERATORS[call["op"]](call, device)
    finally:
        for name, value in before.items():
            setattr(matmul, name, value)
    wide = found.detach().cpu()
    array: NDArray[Any] = (wide if wide.dtype is torch.int32 else wide.float()).contiguous().numpy()
    return array.reshape(-1).view(np.uint32)


def _places(size: int, device: str) -> Tensor:
    return torch.from_numpy(cancelling.kept(size)).to(device)


def _matrix(vectors: NDArray[Any], size: int, fmt: str, turned: bool, device: str) -> Tensor:
    """(size, K), zeros but for the vectors at the rows that are kept."""
    places = _places(size, device)
    wide = torch.zeros((size, vectors.shape[1]), device=device)
    wide[places] = torch.from_numpy(vectors[: len(places)]).to(device)
    narrow = wide.to(DTYPES[fmt])
    return narrow.t().contiguous().t() if turned else narrow


def _operands(call: Call, device: str) -> tuple[Tensor, Tensor]:
    """a (..., M, K) and b (..., K, N)."""
    fmt, other, layout, batch = call["fmt"], call.get("fmt_b", call["fmt"]), call.get("layout", "nn"), call.get("batch", 0)
    found = []
    for index in range(max(batch, 1)):
        first, second = cancelling.vectors(fmt, other, call["k"], call["seed"] + _NEXT * index, small=bool(call.get("f16acc")))
        a, b = _matrix(first, call["m"], fmt, layout[0] == "t", device), _matrix(second, call["n"], other, layout[1] == "n", device)
        found.append((a, b.t()))
    if not batch:
        return found[0]
    a = torch.stack([x.t() if layout[0] == "t" else x for x, _ in found])
    b = torch.stack([y if layout[1] == "n" else y.t() for _, y in found])
    return a.transpose(1, 2) if layout[0] == "t" else a, b if layout[1] == "n" else b.transpose(1, 2)


def _added(call: Call, device: str) -> tuple[Tensor, Tensor]:
    """c (M, N) and a bias (N,), of the size of what is left of the sums."""
    rng, fmt = cancelling.generator(call["seed"], 77), call.get("addend_fmt") or call["fmt"]
    fmt = "bf16" if fmt in ("e4m3", "e5m2") else fmt
    bits, rows, columns = _BITS.get(fmt, 24), cancelling.kept(call["m"]), cancelling.kept(call["n"])
    c, bias = torch.zeros(call["m"], call["n"]), torch.zeros(call["n"])
    c[rows[:, None], columns] = torch.from_numpy(cancelling.numbers(rng, (len(rows), len(columns)), bits, 4, -6))
    bias[columns] = torch.from_numpy(cancelling.numbers(rng, (len(columns),), bits, 4, -6))
    return c.to(DTYPES[fmt]).to(device), bias.to(DTYPES[fmt]).to(device)


def _picked(d: Tensor) -> Tensor:
    """The elements that are kept."""
    if d.dim() < 2:
        return d.reshape(-1)[_places(d.numel(), str(d.device))]
    return d[..., _places(d.shape[-2], str(d.device))[:, None], _places(d.shape[-1], str(d.device))]


def _out(call: Call) -> torch.dtype | None:
    return DTYPES[call["out"]] if call.get("out") else None


def _mm(call: Call, device: str) -> Tensor:
    multiply = torch.bmm if call["op"] == "bmm" else torch.mm
    a, b = _operands(call, device)
    out = _out(call)
    return _picked(multiply(a, b) if out is None else multiply(a, b, out_dtype=out))


def _mv(call: Call, device: str) -> Tensor:
    a, b = _operands(call | {"n": 1}, device)
    if call["op"] == "mv":
        return _picked(torch.mv(a, b[:, 0]))
    y = _added(call | {"n": 1}, device)[0][:, 0]
    return _picked(torch.addmv(y, a, b[:, 0], alpha=call["alpha"], beta=call["beta"]))


def _addmm(call: Call, device: str) -> Tensor:
    a, b = _operands(call, device)
    c, bias = _added(call, device)
    factors = {"alpha": call.get("alpha", 1), "beta": call.get("beta", 1)}
    if call["op"] == "baddbmm":
        return _picked(torch.baddbmm(c.expand(call["batch"], -1, -1).contiguous(), a, b, **factors))
    if call["op"] == "relu":
        return _picked(torch._addmm_activation(bias, a, b, use_gelu=False, **factors))
    return _picked(torch.addmm(bias if call.get("bias") else c, a, b, **factors))


def _linear(call: Call, device: str) -> Tensor:
    a, b = _operands(call, device)
    return _picked(torch.nn.functional.linear(a, b.t(), _added(call, device)[1] if call.get("bias") else None))


def _scales(rng: np.random.Generator, shape: tuple[int, ...], device: str) -> Tensor:
    return torch.from_numpy((rng.integers(1 << 22, 1 << 24, shape) / (1 << 23)).astype(np.float32)).to(device)


def _scaled(call: Call, device: str) -> Tensor:
    a, b = _operands(call, device)
    rng = cancelling.generator(call["seed"], 5)
    first, second = ((1,), (1,)) if call["scaled"] == "tensor" else ((call["m"], 1), (1, call["n"]))
    scales = [_scales(rng, shape, device) for shape in (first, second)]
    scales = [scale.reshape(()) if call["scaled"] == "tensor" else scale for scale in scales]
    bias = _added(call, device)[1] if call["bias"] else None
    return _picked(torch._scaled_mm(a, b, *scales, bias=bias, out_dtype=_out(call), use_fast_accum=call["fast"]))


def _grouped(call: Call, device: str) -> Tensor:
    """Groups of rows of a (2d3d), of columns of b (3d2d), of k (2d2d), or none (3d3d); `groups` are their sizes."""
    kind, fmt, layout = call["kind"], call["fmt"], call.get("layout", "nt")
    parts = []
    for index, size in enumerate(call["groups"]):
        m, n, k = (size if kind == name else call[axis] for name, axis in (("2d3d", "m"), ("3d2d", "n"), ("2d2d", "k")))
        first, second = cancelling.vectors(fmt, fmt, k, call["seed"] + _NEXT * index)
        wide = (_matrix(each, rows, fmt, False, device).float() for each, rows in ((first, m), (second, n)))
        parts.append(tuple(wide))
    rows, columns = [a for a, _ in parts], [b for _, b in parts]
    by_k = int(kind == "2d2d")
    a = torch.cat(rows, by_k) if kind[:2] == "2d" else torch.stack(rows)
    b = torch.cat(columns, by_k).t() if kind[2:] == "2d" else torch.stack(columns).transpose(1, 2)
    a = a.transpose(-1, -2).contiguous().transpose(-1, -2) if layout[0] == "t" else a
    b = b.contiguous() if layout[1] == "n" else b
    a, b = a.to(DTYPES[fmt]), b.to(DTYPES[fmt])
    ends = None if kind == "3d3d" else torch.tensor(np.cumsum(call["groups"]), dtype=torch.int32, device=device)
    if call["op"] == "grouped":
        d = torch._grouped_mm(a, b, ends)
    else:
        rng = cancelling.generator(call["seed"], 5)
        scales = _scales(rng, (a.shape[0],), device), _scales(rng, (len(parts), call["n"]), device)
        d = torch._scaled_grouped_mm(a, b, *scales, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=call["fast"])
    found, start = [], 0
    for index, size in enumerate(call["groups"]):
        part = {"2d3d": d[start : start + size], "3d2d": d[..., start : start + size]}.get(kind)
        found.append(_picked(d[index] if part is None else part).reshape(-1))
        start += size
    return torch.cat(found)


_OPERATORS = {
    **dict.fromkeys(("mm", "bmm"), _mm),
    **dict.fromkeys(("mv", "addmv"), _mv),
    **dict.fromkeys(("addmm", "baddbmm", "relu"), _addmm),
    **dict.fromkeys(("grouped", "scaled_grouped"), _grouped),
    "linear": _linear,
    "scaled": _scaled,
}
