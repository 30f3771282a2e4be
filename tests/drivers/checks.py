"""What every drawn case must keep: the reference's bits, wherever operands and result lie, and no other memory touched."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import nullcontext
from typing import Any

import numpy as np
from reference import float_modes
from reference.paths import taking
from reference.schemes import agree, slowly

from drivers.arrangement import Array, Place, anywhere, drawn
from drivers.cases import Case, Generator, one_of
from fastmma import ScaledArray

FRACTIONS = 200  # elements that fractions quantise in a moment
FILL = 0xA5
KNOWN_MODES = float_modes.modes() if sys.platform == "linux" and float_modes.MACHINE in float_modes.REGISTERS else {}
MODES = [name for name in KNOWN_MODES if name != float_modes.DEFAULT]


def bits(result: Any) -> Array:
    """All bits of a result, as bytes."""
    if isinstance(result, ScaledArray):
        overall = np.float32(0 if result.global_scale is None else result.global_scale)
        return np.concatenate([bits(each) for each in (result.elements, result.scales, overall)])
    return np.ascontiguousarray(result).reshape(-1).view(np.uint8)


def plain(array: Array) -> Array:
    """A copy in C order and the machine's byte order."""
    return np.array(array, array.dtype.newbyteorder("="), order="C")


def expected(case: Case, operands: dict[str, Array]) -> tuple[Any, str]:
    """The result for plain operands by other code than what is checked, and by which."""
    if case.family == "quantize" and 0 < operands["x"].size <= FRACTIONS:
        found = case.run(operands, threads=1)
        arguments = {name: case.arguments[name] for name in ("scheme", "axis", "rule", "rounding")}
        agree(found, slowly(operands["x"], **arguments, seed=case.arguments.get("seed", 0)))
        return found, "checked by fractions"
    if case.takes_backend and case.small:
        return case.run(operands, backend="reference"), "checked by the reference"
    with taking("portable"):
        return case.run(operands, **({"threads": 1} if case.takes_threads else {})), "checked by portable kernels"


class Result:
    """Memory for a result, and the bytes around it, which must stay as they were."""

    def __init__(self, rng: Generator, case: Case, operands: dict[str, Array], memory: Place) -> None:
        self.operands = dict(operands)
        self.counted: tuple[str, ...] = ()
        self.out: Array | None = None
        if case.out is None or rng.random() < 0.4:
            return
        shape, dtype = case.out
        fill = np.full((*shape, np.dtype(dtype).itemsize), FILL, np.uint8).view(dtype).reshape(shape)
        if operands and rng.random() < 0.35 and (not case.inner or ("c" in operands and operands["c"].dtype == fill.dtype)):
            self._overlapping(rng, case, fill, memory)
        else:
            arrangement = drawn(rng, fill, is_result=True, inner=case.inner)
            held: list[Array] = []

            def kept(size: int) -> Array:
                held.append(memory(size))
                held[0][...] = FILL
                return held[0]

            self.out = arrangement.place(fill, kept)
            self._bytes, self.counted = held[0], ("out", *(f"out with {mark}" for mark in arrangement.counted))
        self._before, self._start = self._bytes.copy(), self.out.copy()

    def _overlapping(self, rng: Generator, case: Case, fill: Array, memory: Place) -> None:
        """A result that shares memory with an operand."""
        name = "c" if case.inner else one_of(rng, sorted(self.operands))
        values = plain(self.operands[name])
        if case.inner or (name == "c" and values.dtype == fill.dtype and rng.random() < 0.5):
            how = drawn(rng, fill, is_result=True, inner=case.inner)
            arrangements, places = (how, how), (0, 0)
        else:
            arrangements = drawn(rng, values, native=name in case.native, repeats=False), drawn(rng, fill, is_result=True)
            places = int(rng.integers(fill.nbytes + 1)) // 8 * 8, int(rng.integers(values.nbytes + 1)) // 8 * 8
        sizes = [arrangement.size(array) for arrangement, array in zip(arrangements, (values, fill), strict=True)]
        self._bytes = memory(max(place + size for place, size in zip(places, sizes, strict=True)))
        self._bytes[...] = FILL

        def at(start: int) -> Place:
            return lambda size: self._bytes[start : start + size]

        self.out = arrangements[1].place(fill, at(places[1]))
        self.operands[name] = arrangements[0].place(values, at(places[0]))
        self.counted = ("out", f"out over {name}")

    def check(self) -> None:
        """Raise AssertionError if something was written beside the result."""
        if self.out is not None:
            self.out[...] = self._start
            assert np.array_equal(self._bytes, self._before), "memory beside the result was written"


def check(
    rng: Generator, case: Case, counts: Counter[str], memory: Place = anywhere, known: tuple[Any, str] | None = None
) -> tuple[Any, str]:
    """Run a case with its operands and its result in any memory; give what `expected` says of it, which may be known."""
    arrangements = {
        # one lane's metadata is none of another's
        name: drawn(
            rng, array, native=name in case.native, repeats=not (name == "metadata" and case.family.startswith("warp")), inner=case.inner
        )
        for name, array in case.arrays.items()
    }
    operands = {name: arrangement.place(case.arrays[name], memory) for name, arrangement in arrangements.items()}
    result = Result(rng, case, operands, memory)
    before = {name: plain(array) for name, array in operands.items()}
    wanted, how = expected(case, before) if known is None else known
    more: dict[str, Any] = {} if result.out is None else {"out": result.out}
    if case.takes_threads:
        more["threads"] = int(rng.integers(1, 4))
    mode = one_of(rng, MODES) if MODES and rng.random() < 0.25 else ""
    for path in case.paths:
        with taking(path), float_modes.kept(mode) if mode else nullcontext():
            found = case.run(result.operands, **more)
        assert result.out is None or found is result.out
        assert np.array_equal(bits(found), bits(wanted)), f"other bits from the {path} kernels"
        for name, array in before.items():
            assert np.array_equal(bits(plain(operands[name])), bits(array)), f"{name} was changed by the {path} kernels"
        result.check()
    marks = {mark for arrangement in arrangements.values() for mark in arrangement.counted}
    if case.takes_threads:
        marks.add(f"threads {more['threads']}")
    if mode:
        marks.add("another floating-point mode")
    counts.update([case.family, how, *case.counted, *marks, *result.counted])
    return wanted, how
