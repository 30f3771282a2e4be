"""The epilogue of products: what becomes of their sums, in the order that a plan says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Codes, Operands, cut
from fastmma.backends.engine import Backend
from fastmma.host.arrays import as_array
from fastmma.host.errors import FastmmaError, OperandError, OperandTypeError
from fastmma.isa.codes import encode, from_codes
from fastmma.isa.formats import FORMATS, Format
from fastmma.isa.gpus import keyword_hint
from fastmma.kernels.params import Promotion, Step
from fastmma.numerics.arithmetic import CANONICAL_NAN
from fastmma.operands.check import check_output
from fastmma.products.bound import Arguments
from fastmma.products.by_tile import ByTile
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.loop import accumulate
from fastmma.products.steps import ACTIVATIONS, BIASED_GELU, GELU, MULTIPLIERS, ROUND, SCALED_C, ZERO, joining, operands_of

Multiply = Callable[[slice, slice, Codes], None]  # writes sums of some products and of some of their rows

_ADDENDS = ("float32", "bfloat16", "float16")
_ONE = 0x3F800000
_LARGE = 1e38  # from about here on a number rounds to infinity, of which NumPy warns


def f32_code(value: Any, what: str) -> int:
    """The code of a real number rounded to f32, to nearest even.

    Raises
    ------
    OperandTypeError
    """
    if type(value) is float:  # to encode a number takes as long as a small product
        if value == 1:
            return _ONE
        if abs(value) < _LARGE:
            return int(np.float32(value).view(np.uint32))
    try:
        code = encode(value, FORMATS["f32"])
    except FastmmaError:
        code = np.zeros(2, np.uint32)
    if code.ndim:
        raise OperandTypeError(f"{what} must be a real number, not {value!r:.200}")
    return int(code)


def _converting(sums_format: str) -> list[Step]:
    """Return what makes f32 numbers of sums."""
    return [Step("convert from s32")] if sums_format == "s32" else []


class Epilogue(NamedTuple):
    """The epilogue of a plan, and who computes it. Its operands are f32 codes (..., rows, columns) that broadcast to the products."""

    what: str  # the call, for messages
    steps: tuple[str, ...]
    out: str  # the format of the result
    backend: Backend
    threads: int

    def operands(
        self, alpha: Any, beta: Any, c: Any, bias: Any, shape: tuple[int, ...], *global_scales: np.float32 | None
    ) -> dict[str, Codes]:
        """Return what the caller gave, checked, for products of a shape; alpha is ``(alpha * global_scale_a) * global_scale_b``.

        Raises
        ------
        OperandError, OperandTypeError
        """
        if beta is not None and c is None:
            raise OperandError(f"{self.what}: beta multiplies c, which is not given")
        factor = None if beta is None else f32_code(beta, f"{self.what}: beta")
        given = {
            "alpha": self._alpha(alpha, [scale for scale in global_scales if scale is not None]),
            "c": None if factor is not None and not factor & 0x7FFFFFFF else self._addend("c", c, shape),  # as BLAS: c is not read
            "bias": self._addend("bias", bias, shape[-1:]),
        }
        found = {name: codes for name, codes in given.items() if codes is not None}
        if "c" in found and factor not in (None, _ONE):
            value = np.full((1, 1), factor, np.uint32)
            if SCALED_C in self.steps:
                found["beta"] = value
            else:
                found["c"] = self._compute(
                    found["c"], [Step("multiply", _flat(value, found["c"].shape).view(np.float32), names=("c", "beta"))]
                )
        return found

    def _alpha(self, alpha: Any, factors: list[np.float32]) -> Codes | None:
        """A factor of all sums, or None if there is nothing to multiply by."""
        if type(alpha) is float and alpha == 1 and not factors:
            return None
        code = f32_code(alpha, f"{self.what}: alpha")
        if not factors and code == _ONE:
            return None
        self._check_step("alpha")
        known = self.backend.settings() is not None  # else someone may watch every step
        return (_scaled_alpha if known else _scaled_alpha.__wrapped__)(
            self.backend, code, *(int(factor.view(np.uint32)) for factor in factors)
        )

    def _addend(self, name: str, value: Any, shape: tuple[int, ...]) -> Codes | None:
        """c or a bias."""
        if value is None:
            return None
        array = value if self.backend.holds(value) else as_array(value, f"{self.what}: {name}")
        if array.dtype.name not in _ADDENDS:
            raise OperandTypeError(f"{self.what}: {name} must have dtype {', '.join(_ADDENDS)}, not {array.dtype}{keyword_hint(value)}")
        if array.shape != shape:
            raise OperandError(f"{self.what}: {name} must have shape {shape}, not {array.shape}")
        self._check_step(name)
        return np.atleast_2d(array.astype(np.float32, order="C").view(np.uint32))

    def _check_step(self, name: str) -> None:
        """Raise OperandError where the plan has no place for an operand that was given."""
        if name not in [operand for step in self.steps for operand in operands_of(step)]:
            raise OperandError(f"{self.what}: the plan's epilogue {self.steps} has no step for {name}")

    def scales(self, scale_a: NDArray[np.float32], scale_b: NDArray[np.float32]) -> dict[str, Codes]:
        """The scales of rows, of columns and of tensors."""
        whole = (scales if scales.flags.c_contiguous else scales.copy() for scales in (scale_a, scale_b))
        found = {name: scales.view(np.uint32) for name, scales in zip(("scale_a", "scale_b"), whole, strict=True)}
        if "scale_ab" in self.steps:
            both, factor = found["scale_a"], scale_b
            if both.shape != factor.shape:
                shape = np.broadcast_shapes(both.shape, factor.shape)
                both, factor = np.broadcast_to(both, shape), np.broadcast_to(factor, shape)
            found["scale_ab"] = self._compute(both, [Step("multiply", _flat(factor, both.shape), names=("scale_a", "scale_b"))])
        return found

    def results(self, multiply: Multiply, sums_format: Format, operands: dict[str, Codes], shape: tuple[int, ...], cut: bool) -> Codes:
        """Codes of the results, of products of a shape, out of the sums that `multiply` writes.

        Where it may be `cut`, some products or rows at a time are multiplied and finished, while their sums are in a cache.
        """
        steps = self.steps_of(sums_format.name, operands, shape)
        products, rows, columns = math.prod(shape[:-2]), *shape[-2:]
        results = self.backend.empty((products, rows, columns), FORMATS[self.out].code_dtype)
        as_they_are = self.out == "f32" and sums_format.name != "f16"
        blocks = _blocks(products, rows, columns, self.backend.rows_at_once if cut else None)
        held = None if as_they_are else self.backend.empty((max(results[block].size for block in blocks),), sums_format.code_dtype)
        for block in blocks:
            target = results[block]
            sums = target.view(sums_format.code_dtype) if held is None else held[: target.size].reshape(target.shape)
            multiply(*block, sums)
            wide = _from_halves(sums) if sums_format.name == "f16" else sums
            into = target.reshape(target.shape[0] * target.shape[1], columns)
            first = block[0].start * rows + block[1].start
            place = slice(first, first + len(into))
            source = into if as_they_are else wide.reshape(into.shape)
            self.backend.finish(source, [step.of_rows(place) for step in steps], self.out, self.threads, into)
        return results.reshape(shape)

    def steps_of(self, sums_format: str, operands: dict[str, Codes], shape: tuple[int, ...]) -> list[Step]:
        """The steps as operations on the rows of all products; a step is left out where the caller did not give its operand."""
        rounding = [Step(f"round to {self.out}")] if self.out != "f32" else []
        operations = _converting(sums_format)
        rounded = False
        for step in self.steps:
            if step == ROUND:
                operations += rounding
                rounded = True
                continue
            found = self._operation(step, operands, shape, rounding if rounded else [])
            operations += found
            if found and rounded:
                operations += rounding
        return operations

    def _operation(self, step: str, operands: dict[str, Codes], shape: tuple[int, ...], rounding: list[Step]) -> list[Step]:
        """One step, whose operands are rounded first; none where they are not given."""
        if step in ACTIVATIONS:
            return [Step(step)]
        if step == BIASED_GELU:
            return [*self._operation("bias", operands, shape, rounding), Step(GELU)]
        names = [name for name in operands_of(step) if name in operands]
        if step == SCALED_C and "beta" in operands:
            names.append("beta")
        values = [operands[name] for name in names]
        if rounding:
            values = [self._compute(operands[name], [each._replace(names=(name,)) for each in rounding]) for name in names]
        if values and step.endswith(f"+{ZERO}"):
            names, values = [*names, ZERO], [*values, np.zeros((1, 1), np.uint32)]
        factors = [_flat(codes, shape).view(np.float32) for codes in values]
        if len(factors) == 2:
            return [Step("accumulate" if step == SCALED_C else "fma", factors[0], factors[1], tuple(names))]
        return [Step("multiply" if names[0] in MULTIPLIERS else "add", factors[0], names=tuple(names))] if factors else []

    def _compute(self, codes: Codes, steps: list[Step]) -> Codes:
        """A copy of an operand on which operations were done."""
        rows = _flat(codes, codes.shape).copy()
        return self.backend.apply(rows, steps, self.threads).reshape(codes.shape)


@lru_cache(64)
def _scaled_alpha(backend: Backend, alpha: int, *factors: int) -> Codes:
    """The product of f32 codes, rounded after each multiplication; it is only read."""
    names = "alpha", "global_scale"
    steps = [Step("multiply", np.full((1, 1), factor, np.uint32).view(np.float32), names=names) for factor in factors]
    return backend.apply(np.full((1, 1), alpha, np.uint32), steps, 1)


def _from_halves(sums: Codes) -> Codes:
    """f16 sums as f32 codes; NaN is canonical."""
    with np.errstate(invalid="ignore"):  # AArch64 signals NaNs here
        wide = sums.view(np.float16).astype(np.float32)
    codes: Codes = wide.view(np.uint32)
    codes[np.isnan(wide)] = CANONICAL_NAN["f32"]
    return codes


def _flat(values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Values as large as products of a shape, row after row: a view where all rows share one."""
    return np.broadcast_to(values, shape).reshape(math.prod(shape[:-1]), shape[-1])


def finish_products(
    plan: GemmPlan, arguments: Arguments, operands: Operands, shape: tuple[int, ...], runner: Backend, threads: int
) -> NDArray[Any]:
    """Multiply by a plan that has an epilogue, into `out` if there is one.

    Raises
    ------
    OperandError, OperandTypeError
    """
    out = arguments.out
    if out is not None:
        check_output(out, shape, FORMATS[plan.out], arguments.call)
    found = from_codes(finish_codes(plan, arguments, operands, shape, runner, threads), plan.out)
    if out is None:
        return found
    out[...] = found
    result: NDArray[Any] = out
    return result


def finish_codes(plan: GemmPlan, arguments: Arguments, operands: Operands, shape: tuple[int, ...], runner: Backend, threads: int) -> Codes:
    """The codes of `finish_products`, where the backend has its results."""
    finish = Epilogue(arguments.call, plan.epilogue, plan.out, runner, threads)
    c = arguments.c if plan.adds_c else None
    values = finish.operands(arguments.alpha, arguments.beta, c, arguments.bias, shape)
    return (_in_place if plan.in_place else _at_once)(plan, operands, shape, values, finish)


def _blocks(products: int, rows: int, columns: int, rows_at_once: int | None) -> list[tuple[slice, slice]]:
    """Products and rows that are computed together: rows of one product, or several products of few rows."""
    if rows_at_once is None or products * rows <= rows_at_once or not columns:
        return [(slice(0, products), slice(0, rows))]
    if products == 1 or rows >= rows_at_once:
        parts = -(-rows // rows_at_once)
        high = -(-rows // parts)
        return [
            (slice(product, product + 1), slice(top, min(top + high, rows))) for product in range(products) for top in range(0, rows, high)
        ]
    many = max(rows_at_once // rows, 1)
    return [(slice(first, min(first + many, products)), slice(0, rows)) for first in range(0, products, many)]


def _at_once(plan: GemmPlan, operands: Operands, shape: tuple[int, ...], values: dict[str, Codes], finish: Epilogue) -> Codes:
    """The sums of all parts of k, through the epilogue."""
    promotion = None if plan.promote_every is None else Promotion(plan.promote_every)

    def multiply(products: slice, rows: slice, sums: Codes) -> None:
        part = operands.products(products.start, products.stop).lines(rows, slice(None))
        accumulate(finish.backend, plan.operation, part, sums, promotion, plan.order, finish.threads)

    return finish.results(multiply, plan.operation.instruction.formats.d, values, shape, not isinstance(plan.split_k, ByTile))


def _in_place(plan: GemmPlan, operands: Operands, shape: tuple[int, ...], values: dict[str, Codes], finish: Epilogue) -> Codes:
    """Each part of k through the epilogue, the first with c and the bias, every other with the result of those before as its c."""
    ins, whole = plan.operation.instruction, replace(plan, split_k=1)
    result: Codes | None = None
    for _, _, cuts in plan.order.blocks(operands.a.shape[1], operands.b.shape[2], operands.depth):
        for start, stop in cuts:
            part, last = cut(ins, operands, start, stop)._replace(c=None if start else operands.c), (start, stop) == cuts[-1]
            if result is None:
                steps = plan.epilogue if last else tuple(step for step in plan.epilogue if step not in ACTIVATIONS)
                result = _at_once(whole, part, shape, values, finish._replace(steps=steps))
            else:
                before = {"c": _wide(result, plan.out)} | {name: codes for name, codes in values.items() if name == "alpha"}
                result = _at_once(whole, part, shape, before, finish._replace(steps=joining(plan.epilogue, last=last)))
    assert result is not None
    return result


def _wide(codes: Codes, fmt: str) -> Codes:
    """Codes of f32, bf16 or f16 as f32 codes, with at least two dimensions."""
    wide = _from_halves(codes) if fmt == "f16" else codes.astype(np.uint32) << np.uint32(16) if fmt == "bf16" else codes
    return np.atleast_2d(wide)
