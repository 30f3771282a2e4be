"""Functions that torch's CUDA kernels compute between products: of each element by a formula, sums by `fastmma.torch.reductions`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastmma import kernels
from fastmma.functions import libdevice, softmax
from fastmma.host.errors import NotEmulatedError
from fastmma.host.threads import with_threads
from fastmma.torch import draws, formulas, lists, loss_formulas, quotients, reductions
from fastmma.torch.arrays import DTYPES, as_numpy, to_numpy
from fastmma.torch.formulas import BITS, Formula
from fastmma.torch.norms import ALIGNED, PlacedNorm, place_layer_norm
from fastmma.torch.operators import IN_PLACE, NEW, OUT, form_of
from fastmma.torch.sums import SUMS, PlacedSum, place_sum

if TYPE_CHECKING:
    from fastmma.kernels.functions.apply import Applied

FLOATS = tuple(BITS)
_EXTRA = {"log_sigmoid_forward": lambda result: (result, result.new_empty(0))}  # which return what a GPU leaves empty
ROWS = formulas.ROWS | quotients.ROWS | loss_formulas.ROWS
# names of functions that are a formula of their arguments, and nothing else; and of formulas that some numbers have, and others have not
_PLACED = (frozenset(formulas.ROWS) | frozenset(quotients.ROWS)) - frozenset(loss_formulas.ROWS) - frozenset(_EXTRA)
_SOFTMAX = {"_softmax": False, "_log_softmax": True}
_LAYER_NORM = "native_layer_norm"
_BY_NUMBERS = frozenset({"floor_divide"})
DONE = object()  # the result of what only changes its arguments


def _glu_backward(given: dict[str, Any], threads: int | None) -> Tensor | None:
    first, second = given["self"].chunk(2, given["dim"])
    names = ("glu_backward_of_first", "glu_backward_of_second")
    formulas = [Formula(name, (given["grad_output"], first, second)) for name in names]
    if not all(map(_fits, formulas)):
        return None
    return torch.cat([_computed(each, first.dtype, threads) for each in formulas], given["dim"])


# of several results, or pieces
WHOLE: dict[str, Callable[[dict[str, Any], int | None], Any]] = {"glu_backward": _glu_backward}


NAMES = frozenset(ROWS) | frozenset(WHOLE) | frozenset(reductions.ROWS) | lists.NAMES


class _Overload(NamedTuple):
    """Facts of an overload that hold for all calls: torch takes long to tell them."""

    name: str
    form: str
    draws: bool
    arguments: tuple[tuple[str, Any], ...]  # names and defaults
    out: str  # the argument where the result goes; empty where there is none


@functools.lru_cache(4096)
def _overload(func: Any) -> _Overload:
    schema, form = func._schema, form_of(func)
    out = "self" if form == IN_PLACE else next((each.name for each in schema.arguments if each.is_out), "")
    arguments = tuple((each.name, each.default_value) for each in schema.arguments)
    return _Overload(schema.name.partition("::")[2].removesuffix("_"), form, draws.draws(func), arguments, out)


def _arguments(overload: _Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Name all arguments of a call, those by default too."""
    found = dict(overload.arguments)
    found.update(zip(found, args, strict=False))
    found.update(kwargs)
    return found


def _fits(formula: Formula) -> bool:
    """Tell whether all operands are real floats on this machine, at most one of which has no dimension."""
    plain = all(each.device.type == "cpu" and each.layout is torch.strided and each.dtype in FLOATS for each in formula.operands)
    return plain and not any(each.is_neg() or each.is_nested for each in formula.operands)


def _result_dtype(formula: Formula, tensors: list[Tensor]) -> torch.dtype:
    """Find the format of a result: tensors without dimensions count where all are so, and numbers that were made tensors do not."""
    if len(formula.operands) == 1:
        return formula.operands[0].dtype
    given = [each for each in formula.operands if any(each is tensor for tensor in tensors)] or formula.operands
    counted = [each for each in given if each.dim()] or given
    return functools.reduce(torch.promote_types, (each.dtype for each in counted))


def _in_one_format(formula: Formula, tensors: list[Tensor], dtype: torch.dtype) -> Formula:
    """Round tensors without dimensions to the format of the others, as kernels do that load them."""
    wide = [any(each is one for one in tensors) and each.dtype.itemsize > dtype.itemsize for each in formula.operands]
    if not any(wide):
        return formula
    operands = (each.to(dtype) if is_wide else each for each, is_wide in zip(formula.operands, wide, strict=True))
    return formula._replace(operands=tuple(operands))


# of one, two and three operands: torch's functions that make a result as all functions of each element do
_LAYOUTS: tuple[Callable[..., Tensor], ...] = (torch.neg, torch.add, torch.addcmul)


def _order(operands: tuple[Tensor, ...], shape: tuple[int, ...]) -> list[int] | None:
    """List the dimensions of a result from the slowest one on, as torch lays it out in memory; None where it is contiguous."""
    if len(operands) > len(_LAYOUTS) or all(each.is_contiguous() for each in operands):
        return None
    shapes = (torch.empty_strided(each.shape, each.stride(), device="meta") for each in operands)
    strides = _LAYOUTS[len(operands) - 1](*shapes).stride()
    return sorted(range(len(shape)), key=lambda dim: (-strides[dim], dim))


def _laid_out(operands: tuple[Tensor, ...], dtype: torch.dtype) -> tuple[tuple[Tensor, ...], Tensor, list[int] | None]:
    """Return operands and a result of contiguous memory for them, and the order of its dimensions in torch's, if they are turned."""
    shapes = {each.shape for each in operands}
    shape = operands[0].shape if len(shapes) == 1 else np.broadcast_shapes(*shapes)  # torch's own takes as long as a small function
    order = _order(operands, shape)
    if order is not None:
        operands = tuple(each.expand(shape).permute(order) if each.dim() else each for each in operands)
    result = torch.empty(shape if order is None else [shape[dim] for dim in order], dtype=dtype)
    return operands, result, None if order is None else [order.index(dim) for dim in range(len(shape))]


def _computed(formula: Formula, dtype: torch.dtype, threads: int | None) -> Tensor:
    """Compute a formula."""
    operands, result, turned = _laid_out(formula.operands, dtype)
    arrays = [to_numpy(each) for each in operands]
    kernels.functions.apply.apply(formula.name, *arrays, parameters=formula.parameters, out=as_numpy(result), threads=threads)
    return result if turned is None else result.permute(turned)


class Placed(NamedTuple):
    """A formula whose operands are arguments of a call, or tensors that hold one of its numbers.

    Attributes
    ----------
    applied : Applied
    operands : tuple of int or Tensor
        Places among arguments.
    shape, stride : tuple of int
        Of the result.
    dtype : torch.dtype
    in_place : bool
        Whether the result goes into the first argument.
    """

    applied: Applied
    operands: tuple[int | Tensor, ...]
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    in_place: bool

    def compute(self, args: tuple[Any, ...], result: Tensor, threads: int | None) -> Tensor:
        """Compute a call into memory for its result."""
        addresses = [(args[each] if isinstance(each, int) else each).data_ptr() for each in self.operands]
        self.applied.run(addresses, result.data_ptr(), threads)
        return args[0].copy_(result) if self.in_place else result


def places_of(args: tuple[Any, ...]) -> dict[int, int]:
    """Return the places of tensors among arguments, by their identities; none if one is there again, and another one between."""
    tensors = [(id(each), number) for number, each in enumerate(args) if isinstance(each, Tensor)]
    found = dict(tensors)
    return found if len(list(itertools.groupby(each for each, _ in tensors))) == len(found) else {}


class PlacedRows(NamedTuple):
    """A softmax of contiguous rows along the last dimension.

    Attributes
    ----------
    normalizer : Normalizer
    shape, stride : tuple of int
        Of the result.
    dtype : torch.dtype
    """

    normalizer: softmax.Normalizer
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def compute(self, args: tuple[Any, ...], result: Tensor, threads: int | None) -> Tensor | None:
        """Compute a call into memory for its result; return None where its address decides how a GPU adds."""
        x = args[0]
        if x.storage_offset() * x.itemsize % ALIGNED:
            return None
        self.normalizer.run(x.data_ptr(), result.data_ptr(), threads)
        return result


def _place_rows(log: bool, given: dict[str, Any]) -> PlacedRows | None:
    x: Tensor = given["self"]
    if not x.dim() or not x.numel() or given["dim"] not in (-1, x.dim() - 1) or not x.is_contiguous() or x.shape[-1] < softmax.SHORT:
        return None
    dtype = torch.float32 if given["half_to_float"] else x.dtype
    shape = x.numel() // x.shape[-1], x.shape[-1]
    found = softmax.Normalizer(shape, DTYPES[x.dtype], DTYPES[dtype], inner=1, log=log)
    return PlacedRows(found, tuple(x.shape), x.stride(), dtype)


def place(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Placed | PlacedRows | None:
    """Find what computes calls like one that `compute` computed; None where operands are copied, or numbers in them decide the formula."""
    overload = _overload(func)
    given, tensors = _arguments(overload, args, kwargs), [each for each in args if isinstance(each, Tensor)]
    name, in_place = overload.name, overload.form == IN_PLACE
    if name in _SOFTMAX and overload.form == NEW:
        return _place_rows(_SOFTMAX[name], given)
    if name not in _PLACED or overload.draws or overload.form == OUT or not all(each.dim() and each.numel() for each in tensors):
        return None
    formula = ROWS[name](given)
    assert formula is not None
    numbers = places_of(args)
    operands = tuple(numbers.get(id(each), each) for each in formula.operands)
    dtype = _result_dtype(formula, tensors)
    laid_out, result, turned = _laid_out(formula.operands, dtype)
    derived = any(isinstance(each, Tensor) and each.dim() for each in operands)
    if formula.name in _BY_NUMBERS or derived or not all(each.is_contiguous() for each in laid_out):
        return None
    kinds = tuple((DTYPES[each.dtype], tuple(each.shape)) for each in laid_out)
    found = kernels.functions.apply.applied(formula.name, formula.parameters, kinds, DTYPES[dtype])
    result = result if turned is None else result.permute(turned)
    return None if found.rows.repeated else Placed(found, operands, tuple(result.shape), result.stride(), dtype, in_place)


def _reduced(name: str, given: dict[str, Any], tensors: list[Tensor], threads: int | None) -> Any:
    """Compute a sum, or what contains one; None where its order is not known."""
    plain = all(each.device.type == "cpu" and each.layout is torch.strided and not each.is_nested for each in tensors)
    if not plain or any(each.is_floating_point() and each.dtype not in FLOATS for each in tensors):
        return None
    try:
        return with_threads(threads, reductions.ROWS[name], given)
    except NotEmulatedError:
        return None


class Reduced(NamedTuple):
    """A sum, or what contains one, with arguments of a call that are no tensors.

    Attributes
    ----------
    name : str
    overload : _Overload
    kwargs : dict
    """

    name: str
    overload: _Overload
    kwargs: dict[str, Any]

    def compute(self, args: tuple[Any, ...], threads: int | None) -> Any:
        """Compute a call of the same form; None where its order is not known."""
        libdevice.required_release()
        try:
            return with_threads(threads, reductions.ROWS[self.name], _arguments(self.overload, args, self.kwargs))
        except NotEmulatedError:
            return None


def reduction(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Reduced | PlacedNorm | PlacedSum | None:
    """Find what computes calls like one that `compute` computed; None where it is no sum whose arguments all tell its form."""
    overload = _overload(func)
    is_sum = overload.name in reductions.ROWS and overload.name not in ROWS
    if not is_sum or overload.draws or overload.form != NEW or any(isinstance(each, complex) for each in args):
        return None
    if overload.name == _LAYER_NORM:
        placed = place_layer_norm(_arguments(overload, args, kwargs), places_of(args))
        if placed is not None:
            return placed
    if overload.name in SUMS:
        given = _arguments(overload, args, kwargs)
        summed = place_sum(overload.name, given, reductions.axes_of(given)) if args and args[0] is given["self"] else None
        if summed is not None:
            return summed
    return Reduced(overload.name, overload, dict(kwargs))


def compute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], threads: int | None = None) -> Any:
    """Compute a function of each element with the bits of a GPU; None where its formula is not known, or a text that says why not."""
    overload = _overload(func)
    given = _arguments(overload, args, kwargs)
    values = given.values()
    tensors = [each for each in values if isinstance(each, Tensor)]
    if any(isinstance(each, complex) for each in values):
        return None
    name, form = overload.name, overload.form
    if overload.draws:
        return draws.compute(func, given)
    if name in lists.NAMES:
        found, known = lists.compute(func, given)
        return DONE if known and found is None else found
    floats = [each.dtype in FLOATS for each in tensors]
    if not any(floats):
        return None
    libdevice.required_release()
    if name in reductions.ROWS and name not in ROWS:
        return _reduced(name, given, tensors, threads) if form == NEW else None
    if not all(floats):
        return None
    if name in WHOLE:
        return WHOLE[name](given, threads) if form == NEW else None
    formula = ROWS[name](given)
    if formula is None or not _fits(formula):
        return None
    if why := libdevice.difference(formula.name, formula.parameters, len(formula.operands)):
        return why
    dtype = _result_dtype(formula, tensors)
    target = given[overload.out] if overload.out else None
    if target is not None and (target.dtype not in FLOATS or target.device.type != "cpu"):
        return None
    found = _computed(_in_one_format(formula, tensors, dtype), dtype, threads)
    if name in loss_formulas.ROWS and given.get("weight") is not None:
        found = found * given["weight"]
    share = loss_formulas.shared(name, given, found)
    if share is not None:
        found = _computed(share, dtype, threads)
    if name in loss_formulas.LOSSES and given["reduction"] != loss_formulas.NONE:
        found = _reduced("mean" if given["reduction"] == loss_formulas.MEAN else "sum", {"self": found}, [found], threads)
        if found is None:
            return None
    if target is None:
        return _EXTRA[name](found) if name in _EXTRA else found
    if name in _EXTRA:
        return None
    if form == OUT and target.shape != found.shape:
        target.resize_(found.shape)
    target.copy_(found)
    return target
