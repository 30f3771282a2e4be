"""The errors that fastmma raises on purpose."""

from __future__ import annotations


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


class NotEmulatedError(FastmmaError, NotImplementedError):
    """A library's operation whose bits nobody knows, where its own are not wanted in their place."""


class CacheWarning(UserWarning):
    """Compiled kernels cannot be kept on the disk, so that every process compiles them anew, or a folder of them is not to be trusted."""


class VersionWarning(UserWarning):
    """A library is newer than all versions that fastmma was tested with."""


# tracebacks name what users import
for _error in (
    *(FastmmaError, InstructionError, TargetError, OperandError, OperandTypeError),
    *(BackendError, OutOfMemoryError, NotEmulatedError, CacheWarning, VersionWarning),
):
    _error.__module__ = "fastmma"
