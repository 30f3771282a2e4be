"""Launches that no GPU takes: the error names the kernel, where it stands, what is wrong, and what to do."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Mapping
from functools import lru_cache
from operator import index
from typing import Any

from triton._utils import type_canonicalisation_dict

from fastmma.host.errors import FastmmaError, OperandError, OperandTypeError
from fastmma.triton.compilers import options_of
from fastmma.triton.places import find_definition

_MOST_PROGRAMS = ((1 << 31) - 1, (1 << 16) - 1, (1 << 16) - 1)  # CUDA's, along each axis
_POWERS = {"num_warps": (1, 2, 4, 8, 16, 32), "num_ctas": (1, 2, 4, 8, 16)}
_MOST_AXES = 3


def fail(kind: type[FastmmaError], kernel: Any, what: str, advice: str) -> FastmmaError:
    """Make an error with the line where a kernel begins."""
    file, line = find_definition(kernel.fn.__code__)
    return kind(f"{kernel.fn.__name__}: {what} ({file}:{line}: {linecache.getline(file, line).strip()}); {advice}")


def bind_arguments(kernel: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Bind the arguments of a launch to the kernel's names, as they were given; the rest are options of the launch.

    Raises
    ------
    OperandTypeError
        If the kernel has no such parameters, or one is a tensor of a type that Triton does not have.
    """
    own = {name: value for name, value in options.items() if name in kernel.arg_names}
    try:
        given = inspect.getcallargs(kernel.fn, *arguments, **own)
    except TypeError as error:
        raise fail(OperandTypeError, kernel, str(error), f"its parameters are {', '.join(kernel.arg_names)}") from None
    for name, value in given.items():
        _check_argument(kernel, name, value)
    return given, {name: value for name, value in options.items() if name not in own}


def _check_argument(kernel: Any, name: str, value: Any) -> None:
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise fail(OperandError, kernel, f"{name} is {value}, which has more than 64 bits", "cut it, or pass its parts")
    if not hasattr(value, "data_ptr"):
        return
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in type_canonicalisation_dict:
        raise fail(OperandTypeError, kernel, f"{name} is a tensor of {dtype}, for which Triton has no type", "view it as another one")
    if getattr(value, "is_meta", False) or str(getattr(value, "layout", "torch.strided")) != "torch.strided":
        kind = "meta" if value.is_meta else value.layout
        raise fail(OperandTypeError, kernel, f"{name} is a {kind} tensor, which has no address", "pass a dense one that has memory")


@lru_cache(maxsize=16)
def _list_options(number: int) -> frozenset[str]:
    return frozenset(vars(options_of(number, {"enable_fp_fusion": True})))  # else Triton warns of its default


def check_options(kernel: Any, options: Mapping[str, Any], number: int) -> None:
    """Check the options of a launch on a GPU, of which `compilers` has this number.

    Raises
    ------
    OperandError
        If there is no such option, or Triton does not take its value.
    """
    known = _list_options(number)
    for name, value in options.items():
        if name not in known:
            raise fail(OperandError, kernel, f"{name} is neither a parameter nor an option of a launch", "leave it out")
        if name in _POWERS and value not in _POWERS[name]:
            raise fail(OperandError, kernel, f"{name}={value!r}", f"take one of {', '.join(map(str, _POWERS[name]))}")


def count_grid(kernel: Any, grid: Any, given: dict[str, Any]) -> tuple[int, int, int]:
    """Return the three sizes of a grid, which may be a function of the arguments.

    Raises
    ------
    OperandError, OperandTypeError
        If it is no grid.
    """
    advice = "a grid is a tuple of one to three integers, or a function of the arguments that returns one: kernel[(4, 2)](...)"
    try:
        found = grid(given) if callable(grid) else grid
    except KeyError as error:
        raise fail(OperandError, kernel, f"the grid's function asks for {error}", f"it can have {', '.join(given)}") from error
    if not isinstance(found, (tuple, list)) or not 1 <= len(found) <= _MOST_AXES:
        raise fail(OperandTypeError, kernel, f"the grid is {found!r}", advice)
    try:
        sizes = tuple(map(index, found))
    except TypeError:
        raise fail(OperandTypeError, kernel, f"the grid is {found!r}", advice) from None
    for size, most in zip(sizes, _MOST_PROGRAMS, strict=False):
        if not 0 <= size <= most:
            raise fail(OperandError, kernel, f"the grid is {found!r}", f"CUDA takes 0 to {most} programs along this axis")
    return (*sizes, 1, 1)[:_MOST_AXES]  # type: ignore[return-value]
