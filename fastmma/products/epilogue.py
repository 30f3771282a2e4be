"""The epilogue of scaled products: what becomes of their f32 sums, in the order that a plan says."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Codes
from fastmma.backends.engine import Backend
from fastmma.host.arrays import as_array
from fastmma.host.errors import FastmmaError, OperandError, OperandTypeError
from fastmma.isa.codes import encode
from fastmma.isa.formats import FORMATS
from fastmma.kernels.params import Step
from fastmma.products.plan import MULTIPLIERS, ROUND, AccumulationPlan

_ADDENDS = ("float32", "bfloat16", "float16")
_ONE = 0x3F800000


class Epilogue(NamedTuple):
    """The epilogue of a plan, and who computes it. Its operands are f32 codes (..., rows, columns) that broadcast to the products."""

    plan: AccumulationPlan
    backend: Backend
    threads: int

    def operands(self, alpha: Any, c: Any, bias: Any, shape: tuple[int, ...], *global_scales: np.float32 | None) -> dict[str, Codes]:
        """What the caller gave, checked, for products of a shape; alpha is ``(alpha * global_scale_a) * global_scale_b``.

        Raises
        ------
        OperandError, OperandTypeError
        """
        given = {
            "alpha": self._alpha(alpha, [scale for scale in global_scales if scale is not None]),
            "c": self._addend("c", c, shape),
            "bias": self._addend("bias", bias, shape[-1:]),
        }
        return {name: codes for name, codes in given.items() if codes is not None}

    def _alpha(self, alpha: Any, factors: list[np.float32]) -> Codes | None:
        """A factor of all sums, or None if there is nothing to multiply by."""
        if type(alpha) is float and alpha == 1 and not factors:
            return None
        try:
            value = encode(alpha, FORMATS["f32"])
        except FastmmaError:
            value = np.zeros(2, np.uint32)
        if value.ndim:
            raise OperandTypeError(f"scaled_matmul: alpha must be a real number, not {alpha!r}")
        if not factors and value == _ONE:
            return None
        self._check_step("alpha")
        return self._computed(value.reshape(1, 1), [Step("multiply", np.full((1, 1), factor, np.float32)) for factor in factors])

    def _addend(self, name: str, value: Any, shape: tuple[int, ...]) -> Codes | None:
        """c or a bias."""
        if value is None:
            return None
        array = as_array(value, f"scaled_matmul: {name}")
        if array.dtype.name not in _ADDENDS:
            raise OperandTypeError(f"scaled_matmul: {name} must have dtype {', '.join(_ADDENDS)}, not {array.dtype}")
        if array.shape != shape:
            raise OperandError(f"scaled_matmul: {name} must have shape {shape}, not {array.shape}")
        self._check_step(name)
        return np.atleast_2d(np.ascontiguousarray(array.astype(np.float32)).view(np.uint32))

    def _check_step(self, name: str) -> None:
        """Raise OperandError where the plan has no place for an operand that was given."""
        if name not in [part for step in self.plan.epilogue for part in step.split("+")]:
            raise OperandError(f"scaled_matmul: the plan's epilogue {self.plan.epilogue} has no step for {name}")

    def scales(self, scale_a: NDArray[np.float32], scale_b: NDArray[np.float32]) -> dict[str, Codes]:
        """The scales of rows, of columns and of tensors."""
        found = {name: np.ascontiguousarray(scales).view(np.uint32) for name, scales in (("scale_a", scale_a), ("scale_b", scale_b))}
        if "scale_ab" in self.plan.epilogue:
            both, factor = np.broadcast_arrays(found["scale_a"], scale_b)
            found["scale_ab"] = self._computed(both, [Step("multiply", _flat(factor, both.shape))])
        return found

    def apply(self, sums: Codes, operands: dict[str, Codes], shape: tuple[int, ...]) -> Codes:
        """Codes of the results, of products of a shape, out of sums (T, M, N) that may be overwritten."""
        steps = [Step("convert from s32")] if self.plan.operation.instruction.dtype == "s32" else []
        rows = sums.reshape(math.prod(shape[:-1]), shape[-1])
        finished = self.backend.apply(rows, steps + self._steps(operands, shape), self.threads)
        return self.backend.narrow(finished, self.plan.out, self.threads).reshape(shape)

    def _steps(self, operands: dict[str, Codes], shape: tuple[int, ...]) -> list[Step]:
        """The plan's steps as operations on the rows of all products; a step is left out where the caller did not give its operand."""
        rounding = [Step(f"round to {self.plan.out}")] if self.plan.out != "f32" else []
        steps: list[Step] = []
        rounded = False
        for step in self.plan.epilogue:
            if step == ROUND:
                steps += rounding
                rounded = True
                continue
            names = [name for name in step.split("+") if name in operands]
            values = [self._computed(operands[name], rounding) if rounded else operands[name] for name in names]
            factors = [_flat(codes, shape).view(np.float32) for codes in values]
            if len(factors) == 2:
                steps.append(Step("fma", *factors))
            elif factors:
                steps.append(Step("multiply" if names[0] in MULTIPLIERS else "add", *factors))
            if factors and rounded:
                steps += rounding
        return steps

    def _computed(self, codes: Codes, steps: list[Step]) -> Codes:
        """A copy of an operand on which operations were done."""
        rows = _flat(codes, codes.shape).copy()
        return self.backend.apply(rows, steps, self.threads).reshape(codes.shape)


def _flat(values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Values as large as products of a shape, row after row: a view where all rows share one."""
    return np.broadcast_to(values, shape).reshape(math.prod(shape[:-1]), shape[-1])
