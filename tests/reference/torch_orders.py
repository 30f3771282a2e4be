"""What PyTorch 2.11 computed on an H200 in kernels that add: reductions, softmax, norms, losses, scans, embeddings, optimizers.

Operands are drawn from seeds. Of each result there are checksums of blocks of 1024 codes, the last one filled up with zeros.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fastmma.functions import libdevice
from fastmma.functions.arithmetic import round_to, widen
from fastmma.functions.embedding import embedding_backward
from fastmma.functions.group_norm import group_norm, group_norm_backward
from fastmma.functions.losses import (
    binary_cross_entropy_with_logits,
    binary_cross_entropy_with_logits_backward,
    nll_loss,
    nll_loss_backward,
)
from fastmma.functions.norms import layer_norm, layer_norm_backward, rms_norm, rms_norm_backward
from fastmma.functions.optimizers import foreach_norm, step_adam, step_sgd
from fastmma.functions.reduce import reduce_logsumexp, reduce_max, reduce_mean, reduce_norm, reduce_sum, reduce_variance
from fastmma.functions.scans import cumulate_product, cumulate_sum
from fastmma.functions.softmax import softmax, softmax_backward

PATH = Path(__file__).parent / "torch_orders.npz"
SEED = 2
BLOCK = 1024  # codes of a checksum
DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}

Array = NDArray[Any]
Given = dict[str, Any]


class Call(NamedTuple):
    """A recorded call: its kind, what it was given, and the checksums of its results."""

    kind: str
    given: Given
    checksums: list[NDArray[np.uint32]]


class Draw:
    """Draws operands as they were drawn for the GPU."""

    def __init__(self, *seeds: Any) -> None:
        codes = [each if isinstance(each, int) else zlib.crc32(str(each).encode()) for each in (SEED, *seeds)]
        self.generator = np.random.Generator(np.random.PCG64(codes))

    def __call__(self, shape: Any, fmt: str, scale: float = 1.0) -> Array:
        return (self.generator.standard_normal(shape, np.float32) * np.float32(scale)).astype(DTYPES[fmt])


REDUCTIONS: dict[str, Callable[..., Array]] = {
    "sum": reduce_sum,
    "mean": reduce_mean,
    "amax": reduce_max,
    "var": reduce_variance,
    "std": lambda x, axes: reduce_variance(x, axes, root=True),
    "norm": lambda x, axes: reduce_norm(x, 2, axes),
    "norm1": lambda x, axes: reduce_norm(x, 1, axes),
    "logsumexp": reduce_logsumexp,
}
SCANS = {"cumsum": cumulate_sum, "cumprod": cumulate_product}


def _reduce(name: str, fmt: str, shape: list[int], axes: list[int], wide: bool) -> list[Array]:
    draw = Draw("sumf" if wide else name, fmt, str(tuple(shape)), str(tuple(axes)))
    x = draw(tuple(shape), fmt)
    return [reduce_sum(x, axes, dtype=np.float32) if wide else REDUCTIONS[name](x, tuple(axes))]


def _softmax(name: str, fmt: str, shape: list[int], axis: int, result: str) -> list[Array]:
    size = shape[0] if axis == 0 else shape[1]
    draw = Draw("softmax0" if axis == 0 else "softmaxf" if result != fmt else name, fmt, size)
    x, log = draw(tuple(shape), fmt, 3.0), name == "log_softmax"
    grad = draw(tuple(shape), result)
    if fmt == "bf16" and result == "f32":  # of which torch makes float32 first
        y = softmax(widen(x), axis)
        return [y, round_to(softmax_backward(grad, y, axis), x.dtype)]
    y = softmax(x, axis, log=log, dtype=DTYPES[result])
    return [y, softmax_backward(grad, y, axis, log=log, dtype=x.dtype)]


def _norm(name: str, fmt: str, rows: int, columns: int) -> list[Array]:
    draw = Draw(name, fmt, rows, columns)
    x, w, b = draw((rows, columns), fmt, 2.0), draw((columns,), fmt), draw((columns,), fmt)
    grad = draw((rows, columns), fmt)
    shape, plain = (columns,), name.endswith("plain")
    if name.startswith("layer"):
        y, mean, rstd = layer_norm(x, shape, *((None, None) if plain else (w, b)), 1e-5)
        gradients = layer_norm_backward(grad, x, shape, mean, rstd, None if plain else w)
        return [y, *gradients] if plain else [y, *gradients, mean, rstd]
    y, rstd = rms_norm(x, shape, None if plain else w, None if plain else 1e-6)
    return [y, *rms_norm_backward(grad, x, shape, rstd, None if plain else w)]


def _group_norm(fmt: str, shape: list[int], groups: int) -> list[Array]:
    draw = Draw("group_norm", fmt, str(tuple(shape)))
    x, w, b = draw(tuple(shape), fmt, 2.0), draw(shape[1], fmt), draw(shape[1], fmt)
    y, mean, rstd = group_norm(x, w, b, groups, 1e-5)
    return [y, *group_norm_backward(draw(tuple(shape), fmt), x, mean, rstd, w)]


def _cross_entropy(reduction: str, fmt: str, rows: int, columns: int) -> list[Array]:
    draw = Draw("ce", reduction, fmt, rows, columns)
    x, target = draw((rows, columns), fmt, 3.0), draw.generator.integers(0, columns, rows)
    if reduction == "ignore":
        target[::3] = -100
    how = "mean" if reduction == "ignore" else reduction
    logarithms = softmax(x, 1, log=True)
    loss, count = nll_loss(logarithms, target, how)
    gradient = nll_loss_backward(draw(loss.shape, fmt), logarithms, target, how, count)
    return [loss, softmax_backward(gradient, logarithms, 1, log=True)]


def _with_logits(fmt: str, rows: int, columns: int) -> list[Array]:
    draw = Draw("binary_cross_entropy_with_logits", fmt, rows, columns)
    x, y = draw((rows, columns), fmt), draw((rows, columns), fmt)
    target = round_to(np.float32(1) / (np.float32(1) + libdevice.call("expf", -widen(y))), x.dtype)
    loss = binary_cross_entropy_with_logits(x, target, "mean")
    return [loss, binary_cross_entropy_with_logits_backward(draw((), fmt), x, target, "mean")]


def _scan(name: str, fmt: str, shape: list[int], axis: int) -> list[Array]:
    return [SCANS[name](Draw(name, fmt, str(tuple(shape)))(tuple(shape), fmt), axis)]


def _embedding(fmt: str, count: int, rows: int, columns: int) -> list[Array]:
    draw = Draw("embedding", fmt, count, rows, columns)
    indices = draw.generator.integers(0, rows, count)
    weight = draw((rows, columns), fmt)
    return [weight[indices], embedding_backward(draw((count, columns), fmt), indices, rows)]


def _clip(fmt: str, foreach: bool) -> list[Array]:
    draw, shapes = Draw("clip", fmt), ((33, 170), (1000,), (7,), (300, 300))
    for shape in shapes:
        draw(shape, fmt, 0.5)
    grads = [draw(shape, fmt, 0.3) for shape in shapes]
    norms = foreach_norm(grads) if foreach else [reduce_norm(each, 2) for each in grads]
    norm = reduce_norm(np.stack(norms), 2)
    dtype = norm.dtype
    factor = widen(round_to(np.float32(1) / widen(round_to(widen(norm) + np.float32(1e-6), dtype)), dtype))
    return [norm, *(round_to(widen(each) * np.minimum(factor, np.float32(1)), dtype) for each in grads)]


OPTIMIZERS: dict[str, Given] = {
    "adamw": {"lr": 3e-3, "weight_decay": 0.1, "decoupled": True},
    "adam": {"lr": 1e-3, "weight_decay": 0.0, "decoupled": False},
    "adam_l2": {"lr": 1e-3, "weight_decay": 0.01, "decoupled": False},
    "sgd": {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "nesterov": False},
    "sgd_m": {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-2, "nesterov": False},
    "sgd_n": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0, "nesterov": True},
}


def _optimize(name: str, fmt: str) -> list[Array]:
    draw, options = Draw(name, fmt), OPTIMIZERS[name]
    params = [draw(shape, fmt, 0.5) for shape in ((33, 17), (100,), (7,))]
    moments = [[np.zeros_like(each)] * (3 if name == "adam_l2" else 2) for each in params]
    for step in range(1, 5):
        for index, param in enumerate(params):
            grad = draw(param.shape, fmt, 0.3)
            if name.startswith("adam"):
                first, second, *largest = moments[index]
                more = {"max_exp_avg_sq": largest[0]} if largest else {}
                found = step_adam(param, grad, first, second, step, betas=(0.9, 0.999), eps=1e-8, **options, **more)
            else:
                buffer = moments[index][0] if options["momentum"] else None
                found = step_sgd(param, grad, buffer, dampening=0.0, first=step == 1, **options)
            params[index], moments[index] = found[0], list(found[1:])
    return params


KINDS: dict[str, Callable[..., list[Array]]] = {
    "reduce": _reduce,
    "softmax": _softmax,
    "norm": _norm,
    "group_norm": _group_norm,
    "cross_entropy": _cross_entropy,
    "with_logits": _with_logits,
    "scan": _scan,
    "embedding": _embedding,
    "clip": _clip,
    "optimizer": _optimize,
}


def run(call: Call) -> list[Array]:
    """Compute what a call returns."""
    return KINDS[call.kind](**call.given)


def checksums(array: Array) -> NDArray[np.uint32]:
    """The checksums of an array's codes."""
    codes = np.ascontiguousarray(array).reshape(-1).view(np.uint16 if array.itemsize == 2 else np.uint32)
    blocks = np.concatenate([codes, np.zeros(-codes.size % BLOCK, codes.dtype)]).reshape(-1, BLOCK)
    return np.array([zlib.crc32(block.tobytes()) for block in blocks], np.uint32)


def recorded() -> list[Call]:
    """All calls."""
    with np.load(PATH) as archive:
        calls, sums = json.loads(archive["calls"].tobytes()), archive["checksums"]
    found, place = [], 0
    for kind, given, counts in calls:
        parts = []
        for count in counts:
            parts.append(sums[place : place + count])
            place += count
        found.append(Call(kind, given, parts))
    return found
