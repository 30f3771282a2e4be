"""The table of torch's operators that are emulated: each overload with its handler, and where its result goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from fastmma.host.errors import NotEmulatedError
from fastmma.torch import convolutions, grouped, products, scaled
from fastmma.torch.emulation import Emulation, tensors_text
from fastmma.torch.plans import InvalidError, UnknownError
from fastmma.torch.unfixed import PRODUCTS

aten = torch.ops.aten
Handler = Callable[..., Any]
NEW, OUT, IN_PLACE = "new", "out", "in place"


class Operator(NamedTuple):
    """An overload."""

    name: str
    handler: Handler
    form: str  # where the result goes


_HANDLERS: dict[str, Handler] = {
    "mm": products.mm,
    "mv": products.mv,
    "addmv": products.addmv,
    "addmm": products.addmm,
    "_addmm_activation": products.addmm_activation,
    "bmm": products.bmm,
    "baddbmm": products.baddbmm,
    "addbmm": products.addbmm,
    "convolution": convolutions.convolution,
    "convolution_backward": convolutions.convolution_backward,
    "_int_mm": products.int_mm,
    "_grouped_mm": products.grouped_mm,
    "_scaled_mm": scaled.scaled_mm,
    "_scaled_mm_v2": scaled.scaled_mm_v2,
    "_scaled_grouped_mm": grouped.scaled_grouped_mm,
    "_scaled_grouped_mm_v2": grouped.scaled_grouped_mm_v2,
}


def form_of(overload: Any) -> str:
    """Return where the result of an overload goes."""
    schema = overload._schema
    if any(argument.is_out for argument in schema.arguments):
        return OUT
    return IN_PLACE if schema.name.endswith("_") else NEW


def _overloads(name: str) -> list[Any]:
    """All overloads of an operator, those in place too."""
    packets = [getattr(aten, each) for each in (name, f"{name}_") if hasattr(aten, each)]
    return [getattr(packet, overload) for packet in packets for overload in packet.overloads()]


OPERATORS = {each: Operator(str(each), handler, form_of(each)) for name, handler in _HANDLERS.items() for each in _overloads(name)}
# products that are torch's own affair: what a GPU's libraries do with them is not known
UNKNOWN = {each: why for name, why in PRODUCTS.items() for each in _overloads(name) if each not in OPERATORS}


def called(run: Emulation, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], plain: Handler | None = None) -> Any:
    """The result of an operator of the table, with the GPU's bits or, where they are not known and the settings allow it, with torch's.

    Parameters
    ----------
    run : Emulation
    func : OpOverload
    args, kwargs
        Its own.
    plain : callable, optional
        torch's own kernel; by default the operator itself, which the mode that asks is not asked about.

    Raises
    ------
    NotEmulatedError
        If its bits are not known, and torch's are not wanted or do not exist.
    """
    operator = OPERATORS[func]
    try:
        return _placed(run, operator, func, args, kwargs)
    except UnknownError as unknown:
        why = str(unknown)
    except InvalidError as invalid:
        (plain or func)(*args, **kwargs)
        raise NotEmulatedError(f"{func}: {invalid}, which torch takes") from None
    return passed(run, func, args, kwargs, why, plain)


def passed(run: Emulation, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], why: str, plain: Handler | None = None) -> Any:
    """torch's own result, told in the report.

    Raises
    ------
    NotEmulatedError
    """
    run.passed(str(func), why, tensors_text(args))
    try:
        return (plain or func)(*args, **kwargs)
    except NotImplementedError as error:
        raise NotEmulatedError(f"{func}: {why}; and torch: {error}") from None


def _into(run: Emulation, out: Any) -> Emulation:
    """Return the emulation of products with such a result: a library may compute a transposed one the other way round."""
    return run if out.is_contiguous() else run.guessing("into a result whose rows have gaps or do not lie in whole")


def _placed(run: Emulation, operator: Operator, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result where the overload puts it."""
    if operator.form == NEW:
        return operator.handler(run, operator.name, *args, **kwargs)
    run = _into(run, args[0] if operator.form == IN_PLACE else kwargs["out"])
    if operator.form == IN_PLACE:
        result = operator.handler(run, operator.name, *args, **kwargs)
        if result.shape != args[0].shape:
            raise RuntimeError(f"{func}: output with shape {list(args[0].shape)} doesn't match the shape {list(result.shape)}")
        return args[0].copy_(result)
    rest = {name: value for name, value in kwargs.items() if name != "out"}
    out = kwargs["out"]
    result = operator.handler(run, operator.name, *args, **rest)
    if out.dtype is not result.dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {result.dtype}, but got {out.dtype} instead")
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)
