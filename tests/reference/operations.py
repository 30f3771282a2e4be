"""Operations of every kind on operands that hold subnormal, special and tied numbers: each gives the digest of what it computed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from drivers.cases import matrices
from numpy.typing import NDArray

import fastmma
from fastmma import FORMATS, FastmmaError, Instruction, ScaledArray, decode, encode, scaling, sparse, study
from fastmma.isa.formats import format_of
from fastmma.numerics.lookup import arithmetic, fragment_evidence
from fastmma.products.choice import default_instruction
from fastmma.verification.explain import explain
from fastmma.verification.trials import draw, labels_of
from reference.products import elements, random_codes

Operation = tuple[str, Callable[[int], str]]
KINDS = ("bits", "special", "tiny", "near", "cancel")


def digest(*results: Any) -> str:
    """Of arrays' bits, and of whatever else."""
    found = hashlib.sha256()
    for each in results:
        if isinstance(each, ScaledArray):
            found.update(digest(each.elements, each.scales, each.global_scale).encode())
        elif isinstance(each, np.ndarray | np.generic | float):
            found.update(np.ascontiguousarray(each).view(np.uint8).tobytes())
        elif isinstance(each, tuple | list):
            found.update(digest(*each).encode())
        else:
            found.update(str(each).encode())
    return found.hexdigest()[:16]


def threaded(function: Callable[..., Any], *operands: Any, **options: Any) -> Callable[[int], str]:
    """A call that takes a number of threads."""
    return lambda threads: digest(function(*operands, **options, threads=threads))


def plain(function: Callable[..., Any], *operands: Any, **options: Any) -> Callable[[int], str]:
    """A call that takes none."""
    return lambda _threads: digest(function(*operands, **options))


def families(*, every: bool) -> Iterator[tuple[Instruction, str]]:
    """An instruction and a target for each way to compute; without `every`, for each method, accumulator and format of A and B."""
    seen: set[Any] = set()
    for ins in fastmma.instructions():
        if not isinstance(ins, Instruction) or (not every and (ins.atype != ins.btype or ins.satfinite or ins.n > 16)):
            continue
        for target in ins.targets:
            try:
                way = arithmetic(ins, target)
            except FastmmaError:
                continue
            key: Any = ins.op, ins.atype, ins.btype, ins.ctype, ins.dtype, bool(ins.sparse), ins.stype, ins.rounding, ins.kind
            key += (way, ins.alayout, ins.blayout, ins.satfinite, ins.ordered_metadata) if every else (way.method, way.widened)
            if key not in seen:
                seen.add(key)
                yield ins, target


def fragment_unknown(ins: Instruction, target: str) -> bool:
    """Whether the registers of a wmma are known on a target."""
    try:
        return not fragment_evidence(ins, target)
    except FastmmaError:
        return True


def products(rng: np.random.Generator, *, every: bool) -> Iterator[Operation]:
    """`gemm`, `matmul`, `mma`, and the calls on registers."""
    for ins, target in families(every=every):
        given = matrices(rng, ins, 9, 11, (3 if ins.k <= 64 else 2) * ins.k)
        options: dict[str, Any] = {"instruction": ins, "target": target}
        if ins.ctype == ins.dtype:
            yield f"gemm {ins} {target}", threaded(fastmma.gemm, **given, **options)
            without_c = {name: value for name, value in given.items() if name != "c"}
            choices: list[dict[str, Any]] = [{"promote_every": ins.k}, {"split_k": 2}, {"promote_every": ins.k, "split_k": 2}]
            for more in choices if every else [choices[int(rng.integers(3))]]:
                if FORMATS[ins.dtype].kind == "float":
                    yield f"gemm {ins} {target} {more}", threaded(fastmma.gemm, **without_c, **options, **more)
            if every:
                few = {name: value if name in ("b", "scale_b") else value[:2] for name, value in given.items()}
                yield f"gemm {ins} {target} reference", plain(fastmma.gemm, **few, **options, backend="reference")
        tile = matrices(rng, ins, ins.m, ins.n, ins.k)
        if ins.op != "wmma" or every:
            yield f"mma {ins} {target}", threaded(fastmma.mma, ins, **tile, target=target)
        if ins.op == "wmma" and fragment_unknown(ins, target):
            continue
        trial = draw(ins, labels_of(ins)[:: 1 if every else 7], 1, int(rng.integers(1 << 30)))
        call = fastmma.warpgroup.mma if ins.op == "wgmma" else fastmma.warp.mma
        yield f"registers {ins} {target}", threaded(call, ins, **trial.operands, **trial.arguments, target=target)
        if every and FORMATS[ins.atype].kind == "float":
            yield f"explain {ins} {target}", plain(explain, trial, target, 0, 1, 2)
    x, y = (elements(random_codes(rng, "f16", shape, "tiny"), "f16") for shape in ((2, 40), (40, 2)))
    yield "explain", plain(lambda: str(fastmma.explain(x, y, 1, 1, target="sm_90a", against="sm_80", alpha=1e-30)))
    for name in ("f32", "f64"):
        small = elements(random_codes(rng, name, (2, 9, 40), "tiny"), name)
        yield f"compare {name}", plain(lambda both=small: [told(fastmma.compare(*both)) for told in (str, repr)])
    for dtype in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float64):
        name = format_of(dtype).name
        a, b = (elements(random_codes(rng, name, shape, "special"), name) for shape in ((3, 1, 9, 40), (2, 40, 7)))
        yield f"matmul {name}", threaded(fastmma.matmul, a, b, target="sm_90a")
    wide = random_codes(rng, "f32", (9, 40), "bits").view(np.float32)
    for name in ("f16", "bf16", "tf32", "e4m3"):
        ins = default_instruction(name, name, "f32", "sm_90a")
        for backend in ("numba", "reference"):
            options = {"instruction": ins, "target": "sm_90a", "cast": True, "backend": backend}
            yield f"gemm cast {name} {backend}", threaded(fastmma.gemm, wide, wide.T, **options)


def conversions(rng: np.random.Generator) -> Iterator[Operation]:
    """`encode`, `decode`, formats' limits, and compression of sparse matrices."""
    sources = [("f64", "bits"), ("f64", "tiny"), ("f64", "near"), ("f64", "special"), ("f32", "bits"), ("f16", "bits"), ("bf16", "bits")]
    values: list[NDArray[Any]] = [random_codes(rng, name, (300,), kind).view(FORMATS[name].dtype) for name, kind in sources]
    values += [rng.integers(-(1 << 62), 1 << 62, 300), rng.standard_normal(300).astype(np.longdouble) / 3]
    for name, fmt in FORMATS.items():
        yield f"decode {name}", plain(decode, random_codes(rng, name, (400,), "bits"), fmt)
        for i, value in enumerate(values):
            x = np.where(np.isnan(value), 0, value).astype(value.dtype) if fmt.kind != "float" or fmt.specials == "none" else value
            x = x if fmt.signed else np.abs(x)
            for rounding in ("rn", "rz"):
                saturate = fmt.kind != "float" or fmt.specials == "none"
                yield f"encode {name} {rounding} {i} {x.dtype}", plain(encode, x, fmt, rounding=rounding, saturate=saturate)
        if fmt.kind == "float":
            yield f"limits of {name}", plain(lambda fmt: (replace(fmt).max, replace(fmt).min_subnormal), fmt)
    for name in ("f16", "f32"):
        x = random_codes(rng, name, (6, 64), "tiny").view(FORMATS[name].dtype)
        yield f"compress {name}", plain(sparse.compress, x, prune=True)


def scaled(rng: np.random.Generator, *, every: bool) -> Iterator[Operation]:
    """`quantize`, `dequantize`, `scaled_matmul`."""
    for name in ("f16", "bf16", "f32", "f64"):
        for kind in ("tiny", "near", "cancel", "special", "bits") if every else ("tiny",):
            x = random_codes(rng, name, (5, 150), kind).view(FORMATS[name].dtype)
            for scheme, row in scaling.SCHEMES.items():
                for rule in row.rules:
                    for rounding in ("nearest", "zero", "stochastic") if every else ("nearest",):
                        options = {"rule": rule, "rounding": rounding, "seed": 7 if rounding == "stochastic" else None}
                        yield f"quantize {name} {kind} {scheme} {rule} {rounding}", threaded(scaling.quantize, x, scheme, **options)
    for scheme, row in scaling.SCHEMES.items():
        x = random_codes(rng, "f32", (6, 256), "near").view(np.float32) * np.float32(1e-20)
        q = scaling.quantize(x, scheme)
        for name in ("f16", "bf16", "f32", "f64"):
            yield f"dequantize {scheme} {name}", threaded(q.dequantize, name)
        if row.two_level:
            yield f"global scale {scheme}", plain(replace, q, global_scale=0.1 * 2.0**-100)
    c, bias = (random_codes(rng, "f32", shape, "near").view(np.float32) for shape in ((6, 7), (7,)))
    for left, right in [*((name, name) for name in scaling.SCHEMES), ("fp8_1x128", "fp8_128x128")]:
        x, y = (random_codes(rng, "f32", shape, "near").view(np.float32) for shape in ((6, 256), (7, 256)))
        a, b = scaling.quantize(x, left), scaling.quantize(y, right).T
        wanted: list[dict[str, Any]] = [
            {"alpha": 0.1, "c": c, "bias": bias},
            {"alpha": 1e-38, "out_dtype": "bf16", "split_k": 2},
            {"alpha": 1e-7, "out_dtype": "f16"},
        ]
        for target in ("sm_90a", "sm_120a"):
            for options in [*wanted, {"alpha": 0.3, "c": c, "backend": "reference"}] if every else wanted:
                try:
                    fastmma.scaled_matmul(a, b, target=target, **options)
                except FastmmaError:  # integers on GPUs without an instruction for them
                    continue
                yield (
                    f"scaled_matmul {left} {right} {target} {list(options)}",
                    threaded(fastmma.scaled_matmul, a, b, target=target, **options),
                )


def _study(threads: int) -> list[Any]:
    """A study: distributions, quantisation, products, exact products, and metrics."""
    formats, distributions = ("e4m3", "bf16"), tuple(study.DISTRIBUTIONS)
    grid = study.Grid(formats=formats, targets=("sm_90a",), shapes=((4, 5, 64),), distributions=distributions, sample=3)
    return [list(record.items()) for record in study.run(grid, threads=threads)]


def operations(seed: int, *, every: bool) -> Iterator[Operation]:
    """All of them; a sample that takes seconds, or every one."""
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        yield from products(rng, every=every)
        yield from conversions(rng)
        yield from scaled(rng, every=every)
    yield "study", threaded(_study)
