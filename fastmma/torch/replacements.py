"""Operators of our own, which graphs hold in the places of torch's products; each one knows by which emulation it is computed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from fastmma.host import forks
from fastmma.torch.attention import answered
from fastmma.torch.attention_apart import APART
from fastmma.torch.emulation import Emulation
from fastmma.torch.operators import NEW, OPERATORS, UNKNOWN, form_of
from fastmma.torch.places import belong_to

_NAMESPACE = "fastmma"
_LAID_OUT = (torch.Tag.needs_exact_strides,)  # the library's choice depends on them
REPLACED = tuple(func for func in (*OPERATORS, *APART, *UNKNOWN) if form_of(func) == NEW)
_sites: list[tuple[Emulation, str]] = []  # by the numbers that graphs hold
_numbers: dict[tuple[int, str], int] = {}
_defined: dict[Any, Any] = {}  # by the operators that ours replace
_made: set[Any] = set()
_lock = forks.shared_lock(outermost=True)


def site(run: Emulation, place: str = "") -> int:
    """Return the number by which graphs name an emulation and a line of the caller's."""
    with _lock:
        found = _numbers.setdefault((id(run), place), len(_sites))
        if found == len(_sites):
            _sites.append((run, place))
        return found


def set_place(node: Any, place: str) -> None:
    """Change the node of a replacement: its calls belong to a line of the caller's."""
    run, _ = _sites[node.args[0]]
    node.args = (site(run, place), *node.args[1:])


def replacements(run: Emulation) -> dict[Any, Callable[..., Any]]:
    """Return torch's operators that concern an emulation, each with what takes its place in a graph, as a table of decompositions."""
    return {func: partial(_call, func, site(run)) for func in REPLACED}


def is_replacement(func: Any) -> bool:
    """Say whether an operator is one of ours, which counts its calls."""
    return func in _made


def _call(func: Any, number: int, *args: Any, **kwargs: Any) -> Any:
    return replacement(func)(number, *args, **kwargs)


def replacement(func: Any) -> Any:
    """Return the operator that computes what one of torch's does; its first argument is the number of a site."""
    found = _defined.get(func)
    return _define(func) if found is None else found


def _define(func: Any) -> Any:
    schema = func._schema
    name = f"{schema.name.partition('::')[2]}_{schema.overload_name or 'default'}"
    written = str(schema).partition("(")[2]
    full = f"{_NAMESPACE}::{name}"
    torch.library.define(full, f"(int site, {written}", tags=_LAID_OUT)
    is_product = func in OPERATORS

    def compute(site: int, *args: Any, **kwargs: Any) -> Any:
        run, place = _sites[site]
        with belong_to(place):
            found = answered(run, func, args, kwargs)
        return _in_rows(found) if is_product else found

    def shapes(site: int, *args: Any, **kwargs: Any) -> Any:
        found = func(*args, **kwargs)
        return _in_rows(found) if is_product else found

    torch.library.impl(full, "CPU", compute)
    torch.library.register_fake(full, shapes)
    made = getattr(getattr(torch.ops, _NAMESPACE), name).default
    _made.add(made)
    _defined[func] = made
    return made


def _in_rows(result: Any) -> Any:
    """Lay results out in whole rows: torch pads those of grouped products."""
    return tree_map_only(torch.Tensor, torch.Tensor.contiguous, result)
