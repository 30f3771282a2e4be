"""A primitive of JAX that multiplies as a GPU does, for ``dot_general=`` of libraries such as Flax."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.interpreters import ad, batching, mlir

from fastmma.host.calls import named_keywords
from fastmma.host.errors import NotEmulatedError, OperandError
from fastmma.isa.gpus import TargetName
from fastmma.jax.arrangements import Dimensions
from fastmma.jax.calls import Call, describe, make_line, write_place
from fastmma.jax.calls import own_dot_general_p as dot_general_p
from fastmma.jax.compiled_programs import describe_order, follow_options
from fastmma.jax.internals import call_back, canonicalize_precision, count_devices, find_place
from fastmma.jax.products import find_followed, find_guess, plan_of, plan_text, product, product_options
from fastmma.jax.settings import Plans, Settings, settings_of


@named_keywords
def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Dimensions,
    precision: Any = None,
    preferred_element_type: Any = None,
    *,
    out_sharding: Any = None,
    target: TargetName = "sm_90a",
    f32: str | None = None,
    plans: Plans | None = None,
    other: str = "error",
) -> jax.Array:
    """Compute ``jax.lax.dot_general`` with the bits of a GPU's tensor cores, also under jit, grad, vmap and scan.

    Parameters
    ----------
    lhs, rhs, dimension_numbers, precision, preferred_element_type
        As in ``jax.lax.dot_general``. A precision that is a ``DotAlgorithmPreset`` names the formats of operands and sums.
    out_sharding : None
        Products on several devices are not emulated.
    target : str
        The GPU.
    f32 : {"tf32", None}
        The format in which float32 is multiplied if the precision is the default.
    plans : mapping, str or Path, optional
        ``{(M, N, K): parts of k or a GemmPlan}``, a file that ``fastmma record --cublas`` wrote, or XLA's text, as in
        `fastmma.jax.emulate`. Products that are not in it use one accumulator, with k ascending.
    other : {"error", "pass", "warn"}
        What to do with a product that no tensor core is known to compute: raise an error, or return XLA's own result, with a warning or
        without.

    Returns
    -------
    array

    Raises
    ------
    NotEmulatedError, TargetError, OperandError

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from functools import partial
    >>> x, w = jnp.ones((4, 64), jnp.bfloat16), jnp.ones((64, 8), jnp.bfloat16)
    >>> hopper = partial(dot_general, target="H100")
    >>> loss = lambda w: hopper(x, w, (((1,), (0,)), ((), ()))).sum()
    >>> float(jax.grad(loss)(w)[0, 0])
    4.0
    """
    if out_sharding is not None:
        raise OperandError("dot_general: products on several devices are not emulated: out_sharding must be None")
    dimensions = tuple(tuple(tuple(int(each) for each in side) for side in pair) for pair in dimension_numbers)
    wanted = None if preferred_element_type is None else np.dtype(preferred_element_type)
    settings = settings_of(target, f32, plans, other)
    parameters = {"dimension_numbers": dimensions, "precision": canonicalize_precision(precision), "preferred_element_type": wanted}
    found: jax.Array = dot_general_p.bind(jax.numpy.asarray(lhs), jax.numpy.asarray(rhs), settings=settings, **parameters)
    return found


def _result(lhs: Any, rhs: Any, parameters: dict[str, Any]) -> jax.ShapeDtypeStruct:
    """Shape and dtype of a product, checked as JAX checks them."""
    operands = (jax.ShapeDtypeStruct(each.shape, each.dtype) for each in (lhs, rhs))
    return jax.eval_shape(partial(jax.lax.dot_general, **parameters), *operands)


def _abstract(lhs: Any, rhs: Any, **parameters: Any) -> Any:
    found = _result(lhs, rhs, {name: value for name, value in parameters.items() if name != "settings"})
    return jax.core.ShapedArray(found.shape, found.dtype)


def _find_call(
    lhs: Any, rhs: Any, *, settings: Settings, devices: int, place: tuple[str, int] | None, **parameters: Any
) -> tuple[Call | None, Any]:
    """Return what computes a product, None where XLA does, and its result's shape and dtype."""
    result = _result(lhs, rhs, parameters)
    dimensions, precision = parameters["dimension_numbers"], parameters["precision"]
    try:
        followed = find_followed(settings, lhs, rhs, result, dimensions)
        plan = plan_of(settings, lhs, rhs, result, dimensions, precision, followed)
    except NotEmulatedError as unknown:
        settings.refuse(f"dot_general: {unknown}", place)
        return None, result
    guess = find_guess(settings, lhs, rhs, dimensions, devices, plan, followed)
    line = make_line("fastmma.jax.dot_general", describe(lhs, rhs), plan, plan_text(plan) + describe_order(followed.product), guess)
    options = (*product_options(lhs, rhs, result, dimensions, plan), *follow_options(followed.product))
    return Call(product, options, line, write_place(place)), result


def _run(lhs: Any, rhs: Any, *, settings: Settings, **parameters: Any) -> Any:
    """Compute at once."""
    call, result = _find_call(lhs, rhs, settings=settings, devices=1, place=find_place(), **parameters)
    return jax.lax.dot_general(lhs, rhs, **parameters) if call is None else jax.pure_callback(call, result, lhs, rhs)


def _lower(context: Any, *operands: Any, settings: Settings, **parameters: Any) -> Any:
    devices, place = count_devices(context), find_place(context.traceback)
    call, _ = _find_call(*context.avals_in, settings=settings, devices=devices, place=place, **parameters)
    if call is None:
        return mlir.lower_fun(partial(jax.lax.dot_general, **parameters), multiple_results=False)(context, *operands)
    return call_back(context, call, *operands)


def _transpose(cotangent: Any, x: Any, y: Any, *, swapped: bool, settings: Settings, **parameters: Any) -> Any:
    """The cotangent of x, where x times y (or y times x, if swapped) has one; as JAX transposes dot_general."""
    (x_k, y_k), (x_batch, y_batch) = parameters["dimension_numbers"] if not swapped else _mirror(parameters["dimension_numbers"])
    x_free = [each for each in range(x.aval.ndim) if each not in (*x_k, *x_batch)]
    y_free = [each for each in range(y.ndim) if each not in (*y_k, *y_batch)]
    start = len(x_batch) + (0 if swapped else len(x_free))
    of_y = tuple(range(start, start + len(y_free)))
    dimensions = ((of_y, tuple(y_free)), (tuple(range(len(x_batch))), tuple(y_batch)))
    found = dot_general_p.bind(cotangent, y, settings=settings, **{**parameters, "dimension_numbers": dimensions})
    order = [*x_batch, *x_free, *(x_k[place] for place in np.argsort(y_k))]
    return found.transpose(np.argsort(order).tolist()).astype(x.aval.dtype)


def _mirror(dimensions: Dimensions) -> Dimensions:
    (x_k, y_k), (x_batch, y_batch) = dimensions
    return (y_k, x_k), (y_batch, x_batch)


def _of_lhs(cotangent: Any, lhs: Any, rhs: Any, **parameters: Any) -> Any:
    return _transpose(cotangent, lhs, rhs, swapped=False, **parameters)


def _of_rhs(cotangent: Any, lhs: Any, rhs: Any, **parameters: Any) -> Any:
    return _transpose(cotangent, rhs, lhs, swapped=True, **parameters)


def _batch(operands: Sequence[Any], places: Sequence[int | None], *, settings: Settings, **parameters: Any) -> tuple[Any, int]:
    """One product for all: a dimension that both operands have is one more of the batch, that of one operand one more of its rows."""
    (lhs, rhs), (at, other) = operands, places
    (lhs_k, rhs_k), (lhs_batch, rhs_batch) = parameters["dimension_numbers"]
    ks, batches = (_shift(lhs_k, at), _shift(rhs_k, other)), (_shift(lhs_batch, at), _shift(rhs_batch, other))
    rows = lhs.ndim - len(lhs_k) - len(lhs_batch)  # with the new one, if it is the left operand's
    if at is not None and other is not None:
        batches, place = ((at, *batches[0]), (other, *batches[1])), 0
    elif at is not None:
        place = len(lhs_batch) + sum(each not in (*ks[0], *batches[0]) for each in range(at))
    else:
        assert other is not None
        place = len(lhs_batch) + rows + sum(each not in (*ks[1], *batches[1]) for each in range(other))
    found = dot_general_p.bind(lhs, rhs, settings=settings, **{**parameters, "dimension_numbers": (ks, batches)})
    return found, place


def _shift(dimensions: Sequence[int], new: int | None) -> tuple[int, ...]:
    """Dimensions of an operand that has a new one."""
    return tuple(each + (new is not None and each >= new) for each in dimensions)


dot_general_p.def_abstract_eval(_abstract)
dot_general_p.def_impl(_run)
ad.defbilinear(dot_general_p, _of_lhs, _of_rhs)
batching.primitive_batchers[dot_general_p] = _batch
mlir.register_lowering(dot_general_p, _lower, cacheable=False)
