"""The errors that fastmma raises on purpose."""

from __future__ import annotations


class FastmmaError(Exception):
    """Base of every error that fastmma raises on purpose."""


class InstructionError(FastmmaError, ValueError):
    """The text is not an opcode of the table, or the opcode is illegal where it was used."""


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
    """The bits of a library's operation are not known, and the library's own bits are not accepted instead."""


class CacheWarning(UserWarning):
    """Compiled kernels cannot be kept on the disk, so every process compiles them again; or a folder of kernels cannot be trusted."""


class VersionWarning(UserWarning):
    """A library is newer than all versions that fastmma was tested with."""


# tracebacks name what users import
for _error in (
    *(FastmmaError, InstructionError, TargetError, OperandError, OperandTypeError),
    *(BackendError, OutOfMemoryError, NotEmulatedError, CacheWarning, VersionWarning),
):
    _error.__module__ = "fastmma"
