"""Pallas kernels in JAX's plain interpreter: their products as Triton compiles them, from the accumulator on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive, Var

from fastmma.host.errors import NotEmulatedError
from fastmma.jax.calls import write_place
from fastmma.jax.internals import dot_general_p, find_place, is_of_jax

kernel_product_p = Primitive("fastmma_kernel_product")
_INTERPRET = "pass interpret=InterpretGPUParams() or use force_gpu_interpret_mode(), of jax._src.pallas.mosaic_gpu.interpret.params"
_KERNELS = "pallas_call", "mpmd_map"  # the second is what plgpu.kernel makes
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


def mark_kernels(program: Any, platforms: tuple[str, ...]) -> Any:
    """Return a program in whose Pallas kernels for Triton each product, with the accumulator that it is added to, is one equation.

    A CPU interprets all of these kernels, also those of which the caller does not say so.

    Parameters
    ----------
    program : JAX's Jaxpr
    platforms : tuple of str
        For which it is compiled.

    Raises
    ------
    NotEmulatedError
        If a CPU cannot run a kernel, because it is another one.
    """
    marked = [_interpret_kernel(each, platforms == ("cpu",)) if _is_kernel(each) else each for each in program.eqns]
    return program if all(map(_is_same, marked, program.eqns)) else program.replace(eqns=marked)


def _is_kernel(equation: Any) -> bool:
    return equation.primitive.name in _KERNELS and is_of_jax(equation.primitive)


def _interpret_kernel(equation: Any, on_cpu: bool) -> Any:
    """Have JAX interpret a kernel for Triton; others must say so when they are traced."""
    interpret, options = equation.params["interpret"], equation.params.get("compiler_params")
    if interpret is not True and (interpret or not on_cpu):
        return equation
    written_for = type(options).__module__
    if interpret or (options is None and equation.primitive.name == "pallas_call") or "triton" in written_for:
        return equation.replace(params={**equation.params, "interpret": True, "jaxpr": _mark(equation.params["jaxpr"])})
    kind, advice = ("a TPU", "no GPU runs it") if ".mosaic." in written_for else ("Mosaic GPU", _INTERPRET)
    where = write_place(find_place(equation.source_info.traceback))
    raise NotEmulatedError(f"{equation.primitive.name}{where and f' at {where}'}: a kernel for {kind}: {advice}")


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
