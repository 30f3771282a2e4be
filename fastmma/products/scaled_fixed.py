"""Small products of block-scaled matrices that a compiled kernel computes in one go, with what multiplies all sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.engine import Backend
from fastmma.backends.fixed import FixedScaled
from fastmma.host.addresses import maker_of_results
from fastmma.numerics.lookup import is_strict
from fastmma.operands.check import takes_results
from fastmma.products.epilogue import Epilogue, f32_code
from fastmma.products.plan import AccumulationPlan
from fastmma.products.repeated import MOST, PLAIN, CallForm
from fastmma.scaling import ScaledArray

_ONE = np.float32(1)
_ALPHA = "alpha"


@lru_cache(256)
def _own(plan: AccumulationPlan, backend: Backend) -> int:
    """The k of a scale where a plan does nothing but add and multiply all sums by a number; else 0."""
    ins, order = plan.operation.instruction, plan.order
    as_they_are = plan.scales == "instruction" and plan.promote_every is None and plan.widened == ("", "")
    if not as_they_are or order.parts != 1 or order.first_tile or plan.out != "f32" or ins.dtype != "f32":
        return 0
    finish = Epilogue("scaled_matmul", plan.epilogue, plan.out, backend, 1)
    steps = finish.steps_of("f32", {_ALPHA: np.zeros((1, 1), np.uint32)}, (1, 1))
    return ins.k // ins.scale_vec_size if [(step.operation, step.names) for step in steps] == [("multiply", (_ALPHA,))] else 0


class ScaledForm(NamedTuple):
    """Multiply small block-scaled matrices of some shapes by one plan."""

    fixed: FixedScaled
    finish: Epilogue
    shape: tuple[int, int]
    new_results: Callable[[], NDArray[np.float32]]

    def multiply(self, a: ScaledArray, b: ScaledArray, alpha: Any, out: NDArray[Any] | None = None) -> NDArray[Any] | None:
        """Multiply matrices, into `out` if there is one; None where the kernel does not do it in one go, or not into such an array.

        Raises
        ------
        OperandTypeError
            If `alpha` is no number.
        """
        given = a.elements, b.elements, a.scales, b.scales
        if out is None:
            result = self.new_results()
        elif takes_results(out, self.shape, np.float32, given):
            result = out
        else:
            return None
        scales = (None if each is None else each.tobytes() for each in (a.global_scale, b.global_scale))
        factor = _factor(self.finish, f32_code(alpha, f"{self.finish.what}: alpha"), *scales)
        return result if self.fixed(*given, result, factor) else None


@lru_cache(256)
def _factor(finish: Epilogue, alpha: int, *scales: bytes | None) -> np.float32:
    """The number by which an epilogue multiplies all sums, of the code of alpha and the bytes of global scales."""
    given = [None if each is None else np.frombuffer(each, np.float32)[0] for each in scales]
    values = finish.operands(np.array([alpha], np.uint32).view(np.float32)[0], None, None, None, (1, 1), *given)
    return values[_ALPHA].view(np.float32)[0, 0] if _ALPHA in values else _ONE


def scaled_form(plan: AccumulationPlan, a: ScaledArray, b: ScaledArray, backend: Backend, threads: int) -> ScaledForm | None:
    """Find what multiplies small matrices of these shapes; None where no kernel does it in one go."""
    if len(a.elements.shape) != 2 or len(b.elements.shape) != 2:
        return None
    (rows, depth), columns, own = a.elements.shape, b.elements.shape[1], _own(plan, backend)
    blocks = own and -(-depth // own)
    if not blocks or a.scales.shape != (rows, blocks) or b.scales.shape != (blocks, columns):
        return None
    fixed = backend.fixed_scaled(plan.operation, (rows, columns, depth), threads)
    if fixed is None:
        return None
    finish, shape = Epilogue("scaled_matmul", plan.epilogue, plan.out, backend, threads), (rows, columns)
    return ScaledForm(fixed, finish, shape, maker_of_results(shape, np.dtype(np.float32)))


def form_of_call(a: Any, b: Any, alpha: Any, runner: Backend, threads: int, plan: Any, choices: Iterable[Any]) -> CallForm | None:
    """Describe all of a call without addends that its plan and its kernel depend on; None where there may be two of one description.

    A plan that is given is known by its identity.
    """
    values, settings = tuple(choices), runner.settings()
    kinds = tuple(map(type, values))
    if settings is None or type(a) is not ScaledArray or type(b) is not ScaledArray or type(alpha) is not float:
        return None
    if not PLAIN.issuperset(kinds) or "native" in values:
        return None
    left, right = ((each.scheme, each.axis, each.elements.shape, each.scales.shape) for each in (a, b))
    return left, right, runner, settings, threads, is_strict(), kinds, values, id(plan)


def form_that_came(call: CallForm) -> ScaledForm | None:
    """Return what computed a product of this form before."""
    known = _known.get(call)
    return None if known is None else known[0]


def remember(call: CallForm, form: ScaledForm, plan: Any) -> None:
    """Keep what computes products of this form, and the plan that was given, whose identity is its own as long as it lives."""
    if len(_known) >= MOST:
        _known.clear()
    _known[call] = form, plan


_known: dict[CallForm, tuple[ScaledForm, Any]] = {}
