"""Operations of every kind on operands that hold subnormal, special and tied numbers: each gives the digest of what it computed."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from drivers.cases import OF_A_SEED, Case, drawn
from drivers.operations import operations as operations_of
from numpy.typing import NDArray

import fastmma
from fastmma import FORMATS, ScaledArray, decode, encode, scaling, sparse, study
from fastmma.products.choice import default_instruction
from fastmma.verification.explain import explain
from fastmma.verification.trials import draw, labels_of
from reference.products import elements, random_codes

Operation = tuple[str, Callable[[int], str]]


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


def drawn_cases(seed: int, *, every: bool) -> Iterator[Operation]:
    """Calls that take elements and give results, with every option."""
    for number, index in itertools.product(range(20 if every else 1), range(OF_A_SEED)):
        _, family, case = drawn(seed * 20 + number, index)

        def call(threads: int, case: Case = case) -> str:
            return digest(case.run(case.arrays, **({"threads": threads} if case.takes_threads else {})))

        yield f"{family} {seed * 20 + number} {index}", call
        if case.takes_backend and every:
            yield f"{family} {seed * 20 + number} {index} reference", plain(case.run, case.arrays, backend="reference")


def explanations(rng: np.random.Generator, *, every: bool) -> Iterator[Operation]:
    """`explain` and `compare`, and products of operands that are cast."""
    for method in ("fused", "grouped", "f64-fma", "f32-fma", "integer")[:: 1 if every else 2]:
        operation = operations_of(method)[0]
        trial = draw(operation.instruction, labels_of(operation.instruction)[:1], 1, int(rng.integers(1 << 30)))
        yield f"explain {method}", plain(explain, trial, operation.target, 0, 1, 2)
    x, y = (elements(random_codes(rng, "f16", shape, "tiny"), "f16") for shape in ((2, 40), (40, 2)))
    yield "explain", plain(lambda: str(fastmma.explain(x, y, 1, 1, target="sm_90a", against="sm_80", alpha=1e-30)))
    for name in ("f32", "f64"):
        small = elements(random_codes(rng, name, (2, 9, 40), "tiny"), name)
        yield f"compare {name}", plain(lambda both=small: [told(fastmma.compare(*both)) for told in (str, repr)])
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


def scaled(rng: np.random.Generator) -> Iterator[Operation]:
    """Global scales, and epilogues of scaled products."""
    for scheme, row in scaling.SCHEMES.items():
        if row.two_level:
            x = random_codes(rng, "f32", (6, 256), "near").view(np.float32) * np.float32(1e-20)
            yield f"global scale {scheme}", plain(replace, scaling.quantize(x, scheme), global_scale=0.1 * 2.0**-100)
    x, y = (random_codes(rng, "f32", shape, "near").view(np.float32) for shape in ((6, 256), (7, 256)))
    a, b = scaling.quantize(x, "fp8_1x128"), scaling.quantize(y, "fp8_128x128").T
    c, bias = (random_codes(rng, "f32", shape, "near").view(np.float32) for shape in ((6, 7), (7,)))
    for options in (
        {"alpha": 0.1, "c": c, "bias": bias},
        {"alpha": 1e-38, "out_dtype": "bf16", "split_k": 2},
        {"alpha": 1e-7, "out_dtype": "f16"},
        {"alpha": 0.3, "c": c, "backend": "reference"},
    ):
        yield f"scaled_matmul {list(options)}", threaded(fastmma.scaled_matmul, a, b, target="sm_90a", **options)


def _study(threads: int) -> list[Any]:
    """A study: distributions, quantisation, products, exact products, and metrics."""
    formats, distributions = ("e4m3", "bf16"), tuple(study.DISTRIBUTIONS)
    grid = study.Grid(formats=formats, targets=("sm_90a",), shapes=((4, 5, 64),), distributions=distributions, sample=3)
    return [list(record.items()) for record in study.run(grid, threads=threads)]


def operations(seed: int, *, every: bool) -> Iterator[Operation]:
    """All of them; a sample that takes seconds, or every one."""
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        yield from drawn_cases(seed, every=every)
        yield from explanations(rng, every=every)
        yield from conversions(rng)
        yield from scaled(rng)
    yield "study", threaded(_study)
