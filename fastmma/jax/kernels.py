"""Pallas kernels in JAX's plain interpreter: their products as Triton compiles them, from the accumulator on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive, Var

from fastmma.jax.internals import dot_general_p, is_of_jax

kernel_product_p = Primitive("fastmma_kernel_product")
_SUMS = ("float32", "int32")  # of which the accumulator is not rounded before something is added


def _abstract(lhs: Any, rhs: Any, *_: Any, **parameters: Any) -> Any:
    operands = (jax.ShapeDtypeStruct(each.shape, each.dtype) for each in (lhs, rhs))
    found = jax.eval_shape(lambda x, y: jax.lax.dot_general(x, y, **parameters), *operands)
    return jax.core.ShapedArray(found.shape, found.dtype)


kernel_product_p.def_abstract_eval(_abstract)


def multiply_natively(lhs: Any, rhs: Any, *sums: Any, **parameters: Any) -> Any:
    """Multiply and add as XLA does."""
    found = jax.lax.dot_general(lhs, rhs, **parameters)
    return sums[0] + found if sums else found


def mark_kernels(program: Any) -> Any:
    """Return a program in whose interpreted Pallas kernels each product, with the accumulator that it is added to, is one equation.

    Parameters
    ----------
    program : JAX's Jaxpr
    """
    marked = [_mark_kernel(each) if _is_interpreted(each) else each for each in program.eqns]
    return program if all(map(_is_same, marked, program.eqns)) else program.replace(eqns=marked)


def _is_interpreted(equation: Any) -> bool:
    return equation.primitive.name == "pallas_call" and is_of_jax(equation.primitive) and equation.params["interpret"] is True


def _mark_kernel(equation: Any) -> Any:
    return equation.replace(params={**equation.params, "jaxpr": _mark(equation.params["jaxpr"])})


def _mark(program: Any) -> Any:
    """Mark the products of a kernel, and of the programs in it."""
    if getattr(program, "jaxpr", program) is not program:  # a program with its constants; the two are one since JAX 0.11
        return program.replace(jaxpr=_mark(program.jaxpr))
    equations = [_mark_inside(each) for each in _inline(program)]
    uses = Counter(each for equation in equations for each in equation.invars if isinstance(each, Var))
    uses.update(each for each in program.outvars if isinstance(each, Var))
    products = {each.outvars[0]: each for each in equations if each.primitive is dot_general_p and _is_of_matrices(each)}
    folded: set[Any] = set()
    found = []
    for equation in equations:
        added = _find_added(equation, products, uses)
        if added is not None:
            product, sums = products[added], next(each for each in equation.invars if each is not added)
            folded.add(added)
            found.append(_replace(product, [*product.invars, sums], equation.outvars))
        elif any(each in products for each in equation.outvars):
            found.append(_replace(equation, equation.invars, equation.outvars))
        else:
            found.append(equation)
    return program.replace(eqns=[each for each in found if not folded.intersection(each.outvars)])


def _find_added(equation: Any, products: Any, uses: Any) -> Any:
    """Find the product that an equation adds to something, if nothing else takes it."""
    if equation.primitive.name not in ("add", "add_any") or equation.invars[0] is equation.invars[1]:
        return None
    shapes = {each.aval.shape for each in equation.invars}
    candidates = [each for each in equation.invars if not isinstance(each, Literal) and each in products and uses[each] == 1]
    if not candidates or len(shapes) > 1 or candidates[-1].aval.dtype.name not in _SUMS:
        return None
    return candidates[-1]


def _replace(product: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
    """Make the equation of a product that a kernel asks for."""
    kept = {name: product.params[name] for name in ("dimension_numbers", "precision", "preferred_element_type")}
    return product.replace(invars=list(operands), outvars=list(results), primitive=kernel_product_p, params=kept)


def _is_of_matrices(product: Any) -> bool:
    return product.params["dimension_numbers"][1] == ((), ()) and all(each.aval.ndim == 2 for each in product.invars)


def _mark_inside(equation: Any) -> Any:
    """Mark the programs that an equation runs: of loops and branches."""
    params = {name: _mark_parameter(value) for name, value in equation.params.items()}
    return equation if all(map(_is_same, params.values(), equation.params.values())) else equation.replace(params=params)


def _mark_parameter(value: Any) -> Any:
    if isinstance(value, Jaxpr | ClosedJaxpr):
        return _mark(value)
    if isinstance(value, tuple) and any(isinstance(each, Jaxpr | ClosedJaxpr) for each in value):
        return tuple(map(_mark_parameter, value))
    return value


def _is_same(one: Any, other: Any) -> bool:
    return one is other


def _inline(program: Any) -> list[Any]:
    """List the equations of a program with those of functions under jit in their places, as Triton sees them."""
    found: list[Any] = []
    for equation in program.eqns:
        inner = equation.params.get("jaxpr") if equation.primitive.name in ("jit", "pjit") else None
        if not isinstance(inner, ClosedJaxpr) or not _gives_own_results(inner):
            found.append(equation)
            continue
        names: dict[Any, Any] = dict(zip(inner.jaxpr.invars, equation.invars, strict=True))
        names |= dict(zip(inner.jaxpr.outvars, equation.outvars, strict=True))
        for one in _inline(inner.jaxpr):
            names |= {each: Var(each.aval) for each in one.outvars if each not in names}
            operands = [each if isinstance(each, Literal) else names[each] for each in one.invars]
            found.append(one.replace(invars=operands, outvars=[names[each] for each in one.outvars]))
    return found


def _gives_own_results(inner: Any) -> bool:
    """Tell whether each result of a function is that of another one of its equations."""
    made = {each for one in inner.jaxpr.eqns for each in one.outvars}
    results = inner.jaxpr.outvars
    return not inner.consts and all(isinstance(each, Var) and each in made for each in results) and len(set(results)) == len(results)
