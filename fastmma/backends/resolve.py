"""Names to what they mean: a backend, a target, and an instruction on a target."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from fastmma.backends.call import Operation
from fastmma.backends.compiled import Compiled
from fastmma.backends.engine import Backend
from fastmma.backends.exact import Exact
from fastmma.host.errors import BackendError
from fastmma.isa.amd.table import namesake
from fastmma.isa.gpus import TargetName, target_named
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiply
from fastmma.isa.targets import TARGETS
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.numerics.lookup import arithmetic, check_strict, own_arithmetic


def _silicon() -> Backend:
    from fastmma.backends.gpu.silicon import Silicon

    return Silicon()


def _emulator() -> Backend:
    from fastmma.backends.gpu import device
    from fastmma.backends.gpu.emulator import Emulator

    return Emulator(device)


# the GPU's modules are imported when they are asked for
_BACKENDS: dict[str, Callable[[], Backend]] = {"numba": Compiled, "reference": Exact, "cupy": _silicon, "cupy-emulate": _emulator}
BACKENDS = tuple(_BACKENDS)


@lru_cache(16)
def _made(name: str) -> Backend:
    return _BACKENDS[name]()


def backend_of(name: str | Backend) -> Backend:
    """The backend of a name, or one that is given itself.

    Raises
    ------
    BackendError
        If there is none.
    """
    if type(name) is str and name in _BACKENDS:  # sooner than to ask whether a name is a backend
        return _made(name)
    if isinstance(name, Backend):
        return name
    if not isinstance(name, str) or name not in _BACKENDS:
        raise BackendError(f"there is no backend {name!r}; there are {', '.join(BACKENDS)}")
    return _made(name)


def resolved_target(target: TargetName) -> str:
    """The target that a name means; ``"native"`` is that of the GPU in the machine.

    Whether that GPU executes another target is asked when the operands are checked.

    Raises
    ------
    TargetError
        If there is no such target.
    BackendError
        If there is no GPU to name its own.
    """
    if isinstance(target, str) and target == "native":
        from fastmma.backends.gpu.device import native_target

        return native_target()
    return target_named(target)


def operation_of(ins: str | Instruction, target: TargetName, own: Arithmetic | None = None) -> Operation:
    """An instruction as a target computes it, or as an arithmetic of the caller's own has it.

    Raises
    ------
    InstructionError, TargetError
        If the opcode or the target is wrong, or what the target computes is not known.
    OperandError, OperandTypeError
        If the instruction cannot be computed by `own`.

    Examples
    --------
    >>> operation_of("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80").arithmetic.terms
    8
    """
    if not isinstance(ins, str | Instruction):
        ins = multiply(ins)
    if not isinstance(target, str) or target not in TARGETS:
        target = resolved_target(target)
    if own is not None:
        found = namesake(multiply(ins), target)
        return Operation(found, target, own_arithmetic(found, target, own))
    operation = _operation(ins, target)
    check_strict(operation.instruction, target, operation.arithmetic)
    return operation


@lru_cache(1 << 14)
def _operation(ins: str | Instruction, target: str) -> Operation:
    found = namesake(multiply(ins), target)
    return Operation(found, target, arithmetic(found, target, strict=False))
