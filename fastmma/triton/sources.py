"""From which loads a value is computed: by that, additions of the interpreter are found in the machine code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from triton.runtime.interpreter import TensorHandle

from fastmma.triton.handles import SOURCES, VALUE
from fastmma.triton.positions import position, sites
from fastmma.triton.ptx import EXCHANGED, Sites

_NONE: frozenset[Sites] = frozenset()


def list_sources(*values: Any) -> frozenset[Sites]:
    """Return the places of the loads behind values."""
    found = _NONE
    for value in values:
        if type(value) is TensorHandle or isinstance(value, TensorHandle):
            one = value.attr.get(SOURCES)
            if one and one is not found:
                found = found | one if found else one
    return found


def mark_exchanged(handle: Any) -> Any:
    """Remember that a value is made of those of several threads, which hides from which loads."""
    handle.attr[SOURCES] = frozenset({EXCHANGED})
    return handle


def _computed(operands: tuple[Any, ...]) -> frozenset[Sites]:
    return list_sources(*operands)


def _loaded(_operands: tuple[Any, ...]) -> frozenset[Sites]:
    return frozenset({sites(position())})


def _chosen(operands: tuple[Any, ...]) -> frozenset[Sites]:
    return list_sources(*operands[1:])


_METHODS: Mapping[str, Callable[[tuple[Any, ...]], frozenset[Sites]]] = {"create_masked_load": _loaded, "create_select": _chosen}

_CONVERSIONS = ("create_si_to_fp", "create_ui_to_fp")  # the compiler converts constants itself


def rememberer(method: str) -> Callable[[Any, tuple[Any, ...]], None]:
    """Return what gives the result of a method of the builder the places of the loads behind it."""
    sources, converts = _METHODS.get(method, _computed), method in _CONVERSIONS

    def remember(result: Any, operands: tuple[Any, ...]) -> None:
        attr = result.attr
        if SOURCES not in attr:
            attr[SOURCES] = sources(operands)
            if converts and VALUE in operands[0].attr:
                attr[VALUE] = operands[0].attr[VALUE]

    return remember
