"""The frame of every public call: floats in the default mode, the environment read once, errors told by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar

from fastmma.host.environment import of_call
from fastmma.host.errors import FastmmaError, OperandTypeError, OutOfMemoryError
from fastmma.host.float_mode import in_default_mode, is_default

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
# NumPy's ValueErrors of arrays whose size no address has
_TOO_LARGE = ("array is too big", "Maximum allowed dimension exceeded", "iterator is too large", "too many elements")
# keywords that one may take for positions, and what is said of them: of strings and capabilities, and of all else
_OF_NAMES = {"target": "target is a keyword (target=...)", "instruction": "instruction is one", "preset": "preset is one"}
_OF_ARRAYS = {"out": "write out=... for where the result goes", "c": "c=... for what is added"}


def _surplus(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """Return what is wrong with a call that has more positional arguments than the function takes; empty where it has not."""
    parameters = signature(function).parameters.values()
    names = [each.name for each in parameters if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    if len(args) <= len(names) or any(each.kind is Parameter.VAR_POSITIONAL for each in parameters):
        return ""
    meant = _OF_NAMES if isinstance(args[len(names)], str | tuple) else _OF_ARRAYS
    keywords = [each.name for each in parameters if each.kind is Parameter.KEYWORD_ONLY]
    hint = ", ".join(hint for name, hint in meant.items() if name in keywords) or "name the others"
    places = [name for name in names if name != "self"]
    given = len(args) - len(names) + len(places)
    return f"{function.__qualname__} takes {len(places)} arguments by position ({', '.join(places)}), not {given}; {hint}"


def unknown(function: Callable[..., Any], kwargs: Mapping[str, Any], name: str = "", own: Sequence[str] = ()) -> str:
    """Name a keyword that a function does not take, or that another one hands on to it, and the nearest one; empty if it takes all.

    `own` are keywords that the other one does not hand on: they may be the nearest.
    """
    parameters = signature(function).parameters
    surplus = [each for each in kwargs if each not in parameters]
    if not surplus or any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values()):
        return ""
    from difflib import get_close_matches

    nearest = get_close_matches(surplus[0], [*own, *(each for each in parameters if each != "self")], 1)
    return f"{name or function.__qualname__} takes no keyword {surplus[0]!r}{f'; the nearest is {nearest[0]!r}' if nearest else ''}"


def named_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Make too many positional arguments and unknown keywords an `OperandTypeError`, in functions that compute no floats."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError:
            wrong = _surplus(function, args) or unknown(function, kwargs)
            if not wrong:
                raise
        raise OperandTypeError(wrong)

    return call


def named_fields(kind: type[T]) -> type[T]:
    """Make a keyword that is no field of a record an `OperandTypeError`, also in `dataclasses.replace`."""
    made = kind.__init__

    @wraps(made)
    def fill(self: T, *args: Any, **kwargs: Any) -> None:
        try:
            made(self, *args, **kwargs)
        except TypeError:
            wrong = unknown(made, kwargs, kind.__name__)
            if not wrong:
                raise
            raise OperandTypeError(wrong) from None

    kind.__init__ = fill  # type: ignore[method-assign, assignment]
    return kind


def public_call(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function in the default mode of floats, with variables of the environment that stay as they are when they are first read.

    What does not fit into memory is an `OutOfMemoryError` that names it; too many positional arguments and unknown
    keywords are an `OperandTypeError`.

    The traceback of a Ctrl-C ends at the call.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        outermost = of_call.found is None  # another one may run a public call
        try:
            if outermost:
                of_call.found = {}
            # the mode is asked here as well: of a small product, a call more is a part that counts
            return function(*args, **kwargs) if is_default() else in_default_mode(function, *args, **kwargs)
        except FastmmaError:
            raise
        except KeyboardInterrupt as interrupt:
            # where it came tells the user nothing, and its frames would keep the operands alive
            raise interrupt.with_traceback(None) from None
        except TypeError:
            wrong = _surplus(function, args) or unknown(function, kwargs)
            if not wrong:
                raise
            raise OperandTypeError(wrong) from None
        except MemoryError as error:
            reason = str(error)
        except ValueError as error:
            reason = str(error)
            if not reason.startswith(_TOO_LARGE):
                raise
        finally:
            if outermost:
                of_call.found = None
        name = function.__qualname__.removesuffix(".__post_init__")
        raise OutOfMemoryError(f"{name}: operands or results of these sizes do not fit into memory: {reason}")

    return call
