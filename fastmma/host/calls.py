"""What every public call does around its work: floats in the default mode, and sizes beyond memory told by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from fastmma.host.errors import FastmmaError, OutOfMemoryError
from fastmma.host.float_mode import in_default_mode, is_default

P = ParamSpec("P")
R = TypeVar("R")
# NumPy's ValueErrors of arrays whose size no address has
_TOO_LARGE = ("array is too big", "Maximum allowed dimension exceeded", "iterator is too large", "too many elements")


def public_call(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function in the default mode of floats; what does not fit into memory is an `OutOfMemoryError` that names it.

    The traceback of a Ctrl-C ends at the call.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            # the mode is asked here as well: of a small product, a call more is a part that counts
            return function(*args, **kwargs) if is_default() else in_default_mode(function, *args, **kwargs)
        except FastmmaError:
            raise
        except KeyboardInterrupt as interrupt:
            # where it came tells the user nothing, and its frames would keep the operands alive
            raise interrupt.with_traceback(None) from None
        except MemoryError as error:
            reason = str(error)
        except ValueError as error:
            reason = str(error)
            if not reason.startswith(_TOO_LARGE):
                raise
        name = function.__qualname__.removesuffix(".__post_init__")
        raise OutOfMemoryError(f"{name}: operands or results of these sizes do not fit into memory: {reason}")

    return call
