"""Signatures of functions that take their keywords as ``**keywords: Unpack[...]``."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def spell_keywords(kinds: Any, defaults: type[NamedTuple]) -> Callable[[F], F]:
    """Show each keyword of a TypedDict, where `inspect` and `help` would show ``**keywords``.

    Parameters
    ----------
    kinds : TypedDict
        Names and types of the keywords.
    defaults : NamedTuple
        The class whose fields of the same names have their defaults.

    Examples
    --------
    >>> from typing import TypedDict, Unpack
    >>> class Kinds(TypedDict, total=False):
    ...     size: int
    >>> class Sizes(NamedTuple):
    ...     size: int = 3
    >>> @spell_keywords(Kinds, Sizes)
    ... def make(name: str, *, color: str = "", **sizes: Unpack[Kinds]) -> None: ...
    >>> list(signature(make).parameters), signature(make).parameters["size"].default
    (['name', 'size', 'color'], 3)
    """
    keywords = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=defaults._field_defaults[name], annotation=getattr(kind, "__forward_arg__", kind))
        for name, kind in kinds.__annotations__.items()
    ]

    def spelled(function: F) -> F:
        own = signature(function)
        named = [each for each in own.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        places = [each for each in named if each.kind is not Parameter.KEYWORD_ONLY]
        function.__signature__ = own.replace(parameters=[*places, *keywords, *named[len(places) :]])  # type: ignore[attr-defined]
        return function

    return spelled
