"""Operands on which orders and arithmetics differ: a few large, small and cancelling products, where steps and parts meet."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.agreement.problem import Problem
from fastmma.agreement.run import Operands
from fastmma.isa.codes import encode, from_codes
from fastmma.isa.formats import FORMATS, Format
from fastmma.isa.sparsity import PATTERNS
from fastmma.scaling.schemes import scheme_of
from fastmma.verification.inputs import INTEGER_PAIRS, PAIRS, codes

Values = NDArray[Any]
_MOST_DENSE = 512  # places of k that are all drawn
_LARGEST = 1000  # exponent of a product, which float64 holds
_FULL = float.fromhex("0x1.3333333333333p-3")  # 0.15: share of rows with a run of products that are alike, but for some
_CANCELLING = float.fromhex("0x1.999999999999ap-3")  # 0.2: share of rows with one product beside two that cancel
FULL = 5  # of eight turns, that whose sums are as large as can be
_LOWEST = 2, 6  # those whose products are the smallest there are, and some bits above
_FEW = 3  # products of a row of the smallest
_EDGES = (1.0, 1.0, 1.0, 1.5)


class Hints(NamedTuple):
    """What two forms are about: where steps and parts begin, and by how many bits terms may lie apart."""

    depth: int  # places of k; of sparse A, of those that are stored
    edges: tuple[int, ...]
    distances: tuple[int, ...]
    halves: tuple[int, ...]  # exponents of half the smallest number of what sums are rounded to
    size: int = 32  # rows, and columns, of what is drawn at once
    whole: int = 0  # k of sparse A, stored or not; else 0
    cuts: tuple[int, ...] = ()  # where parts begin that are added to each other


def draw(problem: Problem, hints: Hints, rng: np.random.Generator, turn: int) -> Operands:
    """Draw operands of some rows and columns, by turns structured and by a distribution of `fastmma.verification.inputs`."""
    a, b = FORMATS[problem.a], FORMATS[problem.b]
    shape = (hints.size, hints.depth), (hints.whole or hints.depth, hints.size)
    if a.kind != "float":
        kinds = INTEGER_PAIRS[turn % len(INTEGER_PAIRS)]
        first, second = (
            _elements(codes(fmt, kind, shape[at][0] * shape[at][1], rng).reshape(shape[at]), fmt)
            for at, (fmt, kind) in enumerate(zip((a, b), kinds, strict=True))
        )
        return Operands(first, second, _others(problem, hints, rng, kinds[1], None))
    if turn % 4 == 3 and hints.depth <= _MOST_DENSE:
        kinds = PAIRS[turn // 4 % len(PAIRS)]
        first, second = (
            _elements(codes(fmt, kinds[0], shape[at][0] * shape[at][1], rng).reshape(shape[at]), fmt) for at, fmt in enumerate((a, b))
        )
        return Operands(first, second, _others(problem, hints, rng, kinds[1], None))
    draws = {FULL: _full, _LOWEST[0]: _lowest, _LOWEST[1]: _lowest}
    first, second, largest = draws.get(turn % 8, _structured)(a, b, hints, rng)
    return Operands(_rounded(first, a), _rounded(second, b), _others(problem, hints, rng, "", largest))


def _elements(found: Values, fmt: Format) -> Values:
    return from_codes(found, fmt)


def _rounded(values: Values, fmt: Format) -> Values:
    return from_codes(encode(np.clip(values, fmt.min, fmt.max), fmt), fmt)


def _structured(a: Format, b: Format, hints: Hints, rng: np.random.Generator) -> tuple[Values, Values, Values]:
    """Rows of few products whose exponents lie some distances below the largest, and columns that shift them."""
    size, depth = hints.size, hints.depth
    mild = rng.random() < 0.5  # numbers near 1, of which nothing overflows
    shifts = _columns(b, hints, rng)
    shifts = np.clip(shifts, -6, 6) if mild else shifts
    signs = np.where(rng.random(shifts.shape) < 0.5 * (rng.random(size) < 0.5), -1, 1)
    second = np.ldexp(_mantissas(b, shifts.shape, rng), shifts) * signs
    second[:, (rng.random(size) < 0.4) & (shifts == 0).all(0)] = 1.0  # so that a row's numbers are its products
    low, high = a.emin - a.mantissa_bits + b.emin - b.mantissa_bits, a.emax + b.emax
    first, largest = np.zeros((size, depth)), np.zeros(size, int)
    for row in range(size):
        alone, full = bool(hints.cuts) and rng.random() < _CANCELLING, rng.random() < _FULL
        places = _three(hints, rng) if alone else _run(hints, rng) if full else _support(hints, rng)
        near = int(rng.integers(-12, 13))
        halves = [each + int(rng.integers(0, 3)) for each in hints.halves]
        base = near if mild else int(rng.choice([high - 1, 0, low + 30, int(rng.integers(low, high + 1)), *halves]))
        largest[row] = min(max(base, low), high, _LARGEST)
        if alone:
            values, largest[row] = _cancelling(a, low, high, len(places), rng)
        elif full:
            values = _alike(a, int(largest[row]), len(places), hints, rng)
        else:
            values = _products(a, int(largest[row]), low, len(places), hints, rng)
        exponents = np.clip(np.frexp(values)[1] - 1 - shifts[places, row % size], a.emin - a.mantissa_bits, a.emax)
        first[row, places] = np.ldexp(np.frexp(values)[0] * 2, exponents)
    first[0] = 0  # where c is alone
    return first, second, largest


def _products(fmt: Format, base: int, low: int, count: int, hints: Hints, rng: np.random.Generator) -> Values:
    """Draw a few products: the largest of an exponent, others some bits below, two of which may cancel, or nearly."""
    far = np.where(rng.random(count) < 0.6, rng.choice(hints.distances, count), rng.integers(0, 60, count))
    far = np.where(rng.random(count) < 0.1, base - low, far)  # the smallest product
    far[rng.integers(count)] = 0
    signs = np.where(rng.random(count) < 0.5, -1.0, 1.0)
    if count > 1 and rng.random() < 0.6:
        signs[:2] = 1.0, -1.0
    values: Values = np.ldexp(signs * _mantissas(fmt, count, rng), base - far)
    if count > 2 and rng.random() < 0.7:
        one, other = rng.choice(count, 2, replace=False)
        values[one] = np.ldexp(np.frexp(values[one])[0], base + 1)
        values[other] = -values[one] if rng.random() < 0.5 else np.ldexp(np.frexp(values[other])[0], base + 1)
    return values


def _run(hints: Hints, rng: np.random.Generator) -> NDArray[np.int_]:
    """Neighbouring places, from an edge or to one."""
    width, edge = int(rng.choice([2, 3, 4, 8, 15, 16, 31, 32])), int(rng.choice(hints.edges))
    first = edge if rng.random() < 0.5 else edge + 1 - width
    return np.arange(max(first, 0), min(first + width, hints.depth))


def _alike(fmt: Format, base: int, count: int, hints: Hints, rng: np.random.Generator) -> Values:
    """Draw products of one sign and exponent, whose sum has more bits than they have, and one or two some bits below."""
    values = np.full(count, np.ldexp(float(_mantissas(fmt, 1, rng)[0]), base))
    for place in rng.choice(count, min(count, int(rng.integers(1, 3))), replace=False):
        far = int(rng.choice(hints.distances)) - int(rng.integers(0, 6))
        values[place] = np.ldexp(float(_mantissas(fmt, 1, rng)[0]) * rng.choice([-1.0, 1.0]), base - max(far, 0))
    return values * float(rng.choice([-1.0, 1.0]))


def _three(hints: Hints, rng: np.random.Generator) -> NDArray[np.int_]:
    """Places of three products, each in some part or at its end."""
    found = rng.choice(hints.cuts, 3) + rng.choice([-1, 0, 0, 1], 3)
    return rng.permutation(np.unique(np.clip(found, 0, hints.depth - 1)))


def _cancelling(fmt: Format, low: int, high: int, count: int, rng: np.random.Generator) -> tuple[Values, int]:
    """Draw two large products that cancel, and one that a sum with either loses."""
    far = int(rng.integers(8, 32))
    base = int(min(max(low + far, int(rng.integers(-4, 5))), high, _LARGEST))
    values = np.ldexp(_mantissas(fmt, count, rng), [base, base, base - far][:count])
    values[1:2] = -values[0]
    return values * rng.choice([-1.0, 1.0]), base


def _full(a: Format, b: Format, hints: Hints, rng: np.random.Generator) -> tuple[Values, Values, Values]:
    """Rows and columns of large elements of one sign, of which some are others: the largest sums that there are."""
    size, depth = hints.size, hints.depth
    values = []
    for fmt, shape in ((a, (size, depth)), (b, (hints.whole or depth, size))):
        own = np.ldexp(_mantissas(fmt, shape, rng), rng.integers(fmt.emin - fmt.mantissa_bits, fmt.emax + 1, shape))
        top = min(fmt.max, 2.0**15)
        values.append(np.where(rng.random(shape) < rng.choice([0.02, 0.1, 0.4]), own, top))
    return values[0], values[1], np.full(size, min(a.emax, 15) + min(b.emax, 15))


def _lowest(a: Format, b: Format, hints: Hints, rng: np.random.Generator) -> tuple[Values, Values, Values]:
    """Rows of few products, one of which is the smallest, others some distances above; columns that lift all of them by some bits."""
    size, depth = hints.size, hints.depth
    unit = a.emin - a.mantissa_bits
    first, largest = np.zeros((size, depth)), np.zeros(size, int)
    lifted = rng.choice([0, 0, 0, 1, 2, 3, 8, 16], size)
    second = np.ldexp(1.0, np.clip(b.emin - b.mantissa_bits + lifted, None, b.emax))
    for row in range(size):
        places = _support(hints, rng)[:_FEW]
        above = np.where(rng.random(len(places)) < 0.5, rng.choice(hints.distances, len(places)), rng.integers(0, 12, len(places)))
        above[0] = rng.choice([0, 0, 1])
        signs = rng.choice([-1.0, 1.0], len(places))
        first[row, places] = signs * np.ldexp(np.where(rng.random(len(places)) < 0.6, 1.0, _mantissas(a, len(places), rng)), unit + above)
        largest[row] = unit + b.emin - b.mantissa_bits + above.max()
    return first, np.broadcast_to(second, (hints.whole or depth, size)).copy(), largest


def _columns(fmt: Format, hints: Hints, rng: np.random.Generator) -> NDArray[np.int_]:
    """Exponents of the columns' elements: all alike, or each its own."""
    if hints.whole:  # which of them a row's elements meet, its metadata say
        return np.full((hints.whole, hints.size), np.clip(0, fmt.emin, fmt.emax))
    low, high = fmt.emin - fmt.mantissa_bits, fmt.emax
    alike = np.broadcast_to(rng.integers(low, high + 1, hints.size), (hints.depth, hints.size))
    zeros = np.clip(np.zeros_like(alike), low, high)
    own = rng.integers(low, high + 1, (hints.depth, hints.size))
    kind = rng.integers(0, 4, hints.size)
    return np.where(kind <= 1, zeros, np.where(kind == 2, alike, own))


def _mantissas(fmt: Format, shape: Any, rng: np.random.Generator) -> Values:
    """Significands from 1 to 2: mostly edges."""
    ulp = 2.0**-fmt.mantissa_bits
    edges = np.array([*_EDGES, 1 + ulp, 2 - ulp])
    drawn = 1 + rng.integers(0, 1 << min(fmt.mantissa_bits, 62), shape) * ulp
    single = 1 + np.ldexp(1.0, -rng.integers(min(1, fmt.mantissa_bits), fmt.mantissa_bits + 1, shape))  # one bit somewhere
    kind = rng.random(shape)
    return np.asarray(np.where(kind < 0.7, rng.choice(edges, shape), np.where(kind < 0.85, np.minimum(single, 2 - ulp), drawn)))


def _support(hints: Hints, rng: np.random.Generator) -> NDArray[np.int_]:
    """Places of a few products: near an edge, near two, or anywhere."""
    depth = hints.depth
    count = int(rng.choice([1, 2, 3, 3, 4, 6]))
    kind = rng.random()
    if kind < 0.1 and depth <= _MOST_DENSE:
        return np.arange(depth)
    near = np.array(hints.edges)
    if kind < 0.75:
        anchors = rng.choice(near, 1 if kind < 0.4 else count)
        width = int(rng.choice([1, 2, 4, 8, 16, 32]))
        found = anchors + rng.integers(-width, width + 1, count)
    else:
        found = rng.integers(0, depth, count)
    return rng.permutation(np.unique(np.clip(found, 0, depth - 1)))


def _others(problem: Problem, hints: Hints, rng: np.random.Generator, kind: str, largest: Values | None) -> dict[str, Any]:
    """Draw c, what the epilogue takes, metadata and scales."""
    size, found = hints.size, dict[str, Any]()
    if problem.start:
        found["c"] = _c(FORMATS[problem.start], size, rng, kind, largest)
    for name in sorted(problem.takes - {"beta"}):
        shape = {"c": (size, size), "bias": (size,), "alpha": ()}[name]
        found[name] = (rng.choice([1.0, -0.3, 3.0, 1.7, 0.0], shape) * np.ldexp(1.0, rng.integers(-12, 13, shape))).astype(np.float32)
        if name == "alpha":
            found[name] = float(rng.choice([1.0, 0.3, -1.7, 1 / 3]))
        if name == "c":
            found["beta"] = float(rng.choice([1.0, 0.3, -1.7]))
    if problem.sparse:
        row = PATTERNS[problem.sparse.split()[0]]
        words = np.array([word for word, _ in row.words[: row.ordered]], np.uint8)
        found["metadata"] = rng.choice(words, (size, hints.depth // row.stored))
    return found | _scales(problem, hints, rng)


def _c(fmt: Format, size: int, rng: np.random.Generator, kind: str, largest: Values | None) -> Values:
    """Draw c, at exponents near those of the products."""
    if fmt.kind != "float" or largest is None:
        return from_codes(codes(fmt, kind or "edges", size * size, rng).reshape(size, size), fmt)
    far = np.where(rng.random((size, size)) < 0.5, rng.integers(-3, 30, (size, size)), rng.integers(-2, 3, (size, size)))
    exponents = np.clip(largest[:, None] - far, fmt.emin - fmt.mantissa_bits, fmt.emax)
    exponents[0] = rng.integers(fmt.emin - fmt.mantissa_bits, fmt.emin + 3, size)
    values = np.ldexp(_mantissas(fmt, (size, size), rng), exponents) * rng.choice([-1.0, 1.0, 0.0, 0.0], (size, size))
    return _rounded(values, fmt)


def _scales(problem: Problem, hints: Hints, rng: np.random.Generator) -> dict[str, Any]:
    """Draw scales of the instruction's blocks of k, or of the schemes' blocks."""
    if not problem.scales:
        return {}
    size, depth = hints.size, hints.whole or hints.depth
    if " for " in problem.scales:
        stype, _, block, _ = problem.scales.split()
        fmt, count = FORMATS[stype], -(-depth // int(block))
        shapes: dict[str, tuple[tuple[int, ...], Format]] = {"scale_a": ((size, count), fmt), "scale_b": ((count, size), fmt)}
    else:
        rows = [scheme_of(name) for name in problem.scales.split(" and ")]
        blocks = rows[0].block((size, depth), 1), rows[1].block((depth, size), 0)
        extents = (size, depth), (depth, size)
        shapes = {
            f"scale_{name}": (tuple(-(-extent // each) for extent, each in zip(whole, block, strict=True)), row.scale_format)
            for name, whole, block, row in zip("ab", extents, blocks, rows, strict=True)
        }
    return {name: _drawn_scales(shape, fmt, rng, along=1 if name == "scale_a" else 0) for name, (shape, fmt) in shapes.items()}


def _drawn_scales(shape: tuple[int, ...], fmt: Format, rng: np.random.Generator, along: int) -> Values:
    """Draw scales of few bits or many; by turns all blocks of k have one, so that what cancels shows their roundings."""
    few = 1 + rng.integers(0, 8, shape) / 8
    values = few if rng.random() < 0.4 else 1 + rng.integers(0, 1 << fmt.mantissa_bits, shape) * 2.0**-fmt.mantissa_bits
    far = 20 if fmt.exponent_bits == 8 else 4
    values = np.ldexp(values if fmt.mantissa_bits else 1.0, rng.integers(-far, far + 1, shape) * rng.integers(0, 2))
    if rng.random() < 0.5:
        values = np.broadcast_to(values.take([0], along), shape) if all(shape) else values
    return _rounded(values, fmt)
