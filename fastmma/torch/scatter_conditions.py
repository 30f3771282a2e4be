"""Conditions under which values that meet at places have the same bits on any machine: a GPU adds and puts them in any order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fastmma.torch.conditions import FLOATS, SCALE, real

_TWICE = "of two values for one place, a GPU keeps any"
_ANY_ORDER = "a GPU adds to a place in any order"


def _distinct(places: Tensor) -> bool:
    """Are all columns different?"""
    return bool(places.is_meta or places.shape[1] == torch.unique(places, dim=1).shape[1])


def _meet_in_order(places: Tensor, x: Tensor) -> bool:
    """Does the order of additions to these columns of places not matter: is each there once, or twice where a tensor holds zeros alone?"""
    if places.is_meta:
        return True
    most = int(torch.unique(places, dim=1, return_counts=True)[1].max()) if places.numel() else 0
    return most < 2 or (most == 2 and not bool(x.any()))


def put(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why values that are put to places are not neutral."""
    x, indices, values = args[:3]
    given = [(each, size) for each, size in zip(indices, x.shape, strict=False) if each is not None]
    if len(args) > 3 and args[3]:
        masks = any(each.dtype in (torch.bool, torch.uint8) for each, _ in given)
        if x.dtype in FLOATS and (masks or not _meet_in_order(_columns(given), x)):
            return _ANY_ORDER
        return real(args, kwargs)
    if values.numel() == 1 or any(each.dtype in (torch.bool, torch.uint8) for each, _ in given):
        return None  # places of a mask are distinct
    return None if _distinct(_columns(given)) else _TWICE


def _columns(given: list[tuple[Tensor, int]]) -> Tensor:
    """Return the places that indices of dimensions of some sizes name, a column each."""
    places = torch.broadcast_tensors(*(torch.where(each < 0, each + size, each) for each, size in given))
    return torch.stack([each.reshape(-1) for each in places])


def added(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why rows that are added to places are not neutral."""
    x, _, places, rows = args[:4]
    if kwargs.get("alpha", 1) != 1 and x.dtype in FLOATS:
        return SCALE
    if x.dtype in FLOATS and not _meet_in_order(places.reshape(1, -1), x):
        return _ANY_ORDER
    return real((x, rows), kwargs)


def placed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why rows that are copied to places are not neutral."""
    return None if _distinct(args[2].reshape(1, -1)) else _TWICE


def scattered(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why scattered values are not neutral."""
    _, dim, index, source = args[:4]
    if kwargs.get("reduce") is not None:
        return "a GPU joins in any order what meets at a place"
    if not isinstance(source, Tensor) or index.is_meta or index.dim() == 0:
        return None
    ordered = index.sort(dim).values
    return _TWICE if bool((ordered.diff(dim=dim) == 0).any()) else None


def scatter_added(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why values that are added to places are not neutral: three and more meet, or two where something is already."""
    x, dim, index = args[:3]
    if x.dtype in FLOATS and not index.is_meta and index.dim():
        same = index.sort(dim).values.diff(dim=dim) == 0
        twice = same & same.roll(1, dim)
        twice.narrow(dim, 0, min(1, twice.shape[dim])).fill_(False)
        if bool(twice.any()) or (bool(same.any()) and bool(x.any())):
            return _ANY_ORDER
    return real((x, *args[3:]), kwargs)


def put_by_number(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why values that are put to numbered places are not neutral."""
    x, index = args[:2]
    places = index if index.is_meta else torch.where(index < 0, index + x.numel(), index)
    accumulates = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    if accumulates and x.dtype in FLOATS and not _meet_in_order(places.reshape(1, -1), x):
        return _ANY_ORDER
    return real(args, kwargs) if accumulates or _distinct(places.reshape(1, -1)) else _TWICE
