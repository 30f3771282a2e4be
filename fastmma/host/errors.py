"""The errors that fastmma raises on purpose."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class FastmmaError(Exception):
    """Base of every error that fastmma raises on purpose."""


class InstructionError(FastmmaError, ValueError):
    """The text is no opcode of the table, or the opcode is illegal where it was used."""


class TargetError(FastmmaError, ValueError):
    """The target is unknown, cannot run the instruction, or has no (trusted) numerics row."""


class OperandError(FastmmaError, ValueError):
    """An operand has a wrong shape, size or value."""


class OperandTypeError(FastmmaError, TypeError):
    """An operand has a wrong type or dtype."""


class BackendError(FastmmaError, RuntimeError):
    """The backend is unknown or cannot run here."""


class OutOfMemoryError(FastmmaError, MemoryError):
    """Operands or results of these sizes do not fit into memory."""


class CacheWarning(UserWarning):
    """Compiled kernels cannot be kept on the disk, so that every process compiles them anew."""


# tracebacks name what users import
for _error in (FastmmaError, InstructionError, TargetError, OperandError, OperandTypeError, BackendError, OutOfMemoryError, CacheWarning):
    _error.__module__ = "fastmma"


def reports_memory(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Turn a MemoryError of a public function into an `OutOfMemoryError` that names it."""

    @wraps(function)
    def wrapped(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except OutOfMemoryError:
            raise
        except MemoryError as error:
            raise OutOfMemoryError(f"{function.__name__}: operands or results of these sizes do not fit into memory: {error}") from None

    return wrapped
