"""A cache of small products, by shape and strides: everything is kept but addresses."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.engine import Backend
from fastmma.backends.fixed import Fixed, Form
from fastmma.host.threads import call_uninterrupted
from fastmma.isa.codes import from_codes
from fastmma.isa.formats import FORMATS
from fastmma.products.fixed import Addend, addend_of, ending_of
from fastmma.products.gemm_plan import GemmPlan

_FORMS, _PLANS = 16, 16  # that calls without a prepared product keep


class SmallProducts:
    """What computes small products by a plan: at most `most` forms are kept, each when it comes, or when it comes again."""

    def __init__(self, plan: GemmPlan, runner: Backend, threads: int, most: int, *, at_once: bool) -> None:
        self.plan, self._runner, self._threads, self._most, self._at_once = plan, runner, threads, most, at_once
        ins = plan.operation.instruction
        self._formats = ins.formats
        self._direct = plan.order.parts == 1 and plan.promote_every is None and not plan.first_tile
        self._kept: dict[Any, Fixed | None] = {}
        self._seen: set[Any] = set()
        self._out = FORMATS[plan.out] if plan.epilogue else ins.formats.d

    def multiply(
        self, a: NDArray[Any], b: NDArray[Any], c: Any = None, alpha: Any = 1.0, beta: Any = None, bias: Any = None, out: Any = None
    ) -> NDArray[Any] | None:
        """A product of a form that is kept, in `out` if there is one; None for any other, and for what is wrong."""
        addend = c if bias is None else bias
        key = (a.dtype, a.shape, a.strides, b.dtype, b.shape, b.strides, c is None, bias is None, type(alpha), alpha, type(beta), beta)
        if addend is not None:
            if type(addend) is not np.ndarray:
                return None
            key = *key, addend.dtype, addend.shape, addend.strides  # type: ignore[assignment]
        try:
            product = self._kept[key]
        except KeyError:
            if not self._at_once and self._is_new(key):
                return None
            if len(self._kept) >= self._most:
                self._kept.clear()
            # a signal handler may come with another form
            product = self._kept[key] = call_uninterrupted(self._form_of, a, b, c, alpha, beta, bias)
        except TypeError:  # a factor without a hash
            return None
        if product is None:
            return None
        shape = *a.shape[:-1], b.shape[-1]
        if out is not None and not self._fits(out, shape, (a, b, addend)):
            return None
        result = np.empty(shape, self._out.code_dtype) if out is None else out
        start, last = (addend, None) if not self.plan.epilogue else (None, addend)
        if not product(a, b, _address(result), start, 0 if last is None else _address(last)):
            return None
        return from_codes(result, self._out) if out is None else result

    def _fits(self, out: Any, shape: tuple[int, ...], operands: tuple[Any, ...]) -> bool:
        """Tell whether results can be written to `out` at once."""
        usual = type(out) is np.ndarray and out.dtype == self._out.dtype and out.shape == shape and out.flags.carray
        return usual and not any(given is not None and np.may_share_memory(out, given) for given in operands)

    def _is_new(self, key: Any) -> bool:
        """Tell whether a form has not come before, as far as that is known."""
        if key in self._seen:
            return False
        if len(self._seen) >= self._most:
            self._seen.clear()
        self._seen.add(key)
        return True

    def _form_of(self, a: NDArray[Any], b: NDArray[Any], c: Any, alpha: Any, beta: Any, bias: Any) -> Fixed | None:
        """Return what computes arrays like these, if there is something."""
        formats, adds_c = self._formats, self.plan.adds_c
        if a.dtype != formats.a.dtype or b.dtype != formats.b.dtype or type(alpha) is not float:
            return None
        if self.plan.epilogue:
            addend = None
            if bias is not None and c is None:
                addend = addend_of("bias", bias.dtype, bias.shape, bias.strides)
            elif bias is None and c is not None and adds_c and c.shape == (*a.shape[:-1], b.shape[-1]):
                addend = addend_of("c", c.dtype, c.shape, c.strides)
            known = (addend is not None or (c is None and bias is None)) and (bias is None or bias.shape == b.shape[-1:])
            if not known or alpha == 0 or beta == 0 or (beta is not None and c is None):
                return None
            return self.fixed(a.shape, a.strides, b.shape, b.strides, alpha, beta, addend)
        if bias is not None or beta is not None or alpha != 1:
            return None
        if c is not None and (c.dtype != formats.c.dtype or c.shape != (*a.shape[:-1], b.shape[-1]) or not c.flags.c_contiguous):
            return None
        return self.fixed(a.shape, a.strides, b.shape, b.strides, start=c is not None)

    def fixed(
        self,
        a_shape: tuple[int, ...],
        a_strides: tuple[int, ...],
        b_shape: tuple[int, ...],
        b_strides: tuple[int, ...],
        alpha: float = 1.0,
        beta: float | None = None,
        addend: Addend | None = None,
        *,
        start: bool = False,
    ) -> Fixed | None:
        """Return what computes small products of these shapes and strides in bytes from addresses alone, without looking at anything.

        None where there is nothing of the kind. Results are C-contiguous.
        """
        plan = self.plan
        matched = len(a_shape) == len(b_shape) and len(a_shape) in (2, 3) and a_shape[-1] == b_shape[-2] and a_shape[:-2] == b_shape[:-2]
        if not matched or not self._direct or (plan.cast and any(each.padding for each in (self._formats.a, self._formats.b))):
            return None
        products = math.prod(a_shape[:-2])
        (rows, depth), columns = a_shape[-2:], b_shape[-1]
        shape = (*a_shape[:-1], columns)
        if not products * rows * columns * depth:
            return None
        ending = None
        if plan.epilogue:
            ending = ending_of(plan, self._runner, shape, alpha, beta, addend)
            if ending is None:
                return None
        a, b = ((0, *strides)[-3:] for strides in (a_strides, b_strides))
        return self._runner.fixed(plan.operation, Form(products, rows, columns, depth, a, b, start), ending, self._threads)  # type: ignore[arg-type]


def multiply_cached(
    plan: GemmPlan,
    runner: Backend,
    threads: int,
    a: Any,
    b: Any,
    c: Any = None,
    alpha: Any = 1.0,
    beta: Any = None,
    bias: Any = None,
    out: Any = None,
) -> NDArray[Any] | None:
    """Multiply a small product of a form that is kept, into `out` if there is one; return None for any other, and for what is wrong."""
    settings = runner.settings()
    if settings is None or type(a) is not np.ndarray or type(b) is not np.ndarray:
        return None
    return _products(plan, runner, threads, settings).multiply(a, b, c, alpha, beta, bias, out)


@lru_cache(_PLANS)
def _products(plan: GemmPlan, runner: Backend, threads: int, settings: object) -> SmallProducts:  # noqa: ARG001 - a key
    return SmallProducts(plan, runner, threads, _FORMS, at_once=False)


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
