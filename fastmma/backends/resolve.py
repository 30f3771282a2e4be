"""A plan: an instruction on a target, resolved once, ready to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from fastmma.backends.call import Job
from fastmma.backends.compiled import NUMBA, Engine
from fastmma.backends.exact import REFERENCE
from fastmma.host.errors import BackendError
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiply
from fastmma.isa.targets import architecture
from fastmma.numerics.rows import Arithmetic, arithmetic


def _silicon(_method: str, target: str) -> Engine:
    from fastmma.backends.gpu.silicon import engine_of

    return engine_of(target)


def _emulator(_method: str, _target: str) -> Engine:
    from fastmma.backends.gpu.emulator import ENGINE

    return ENGINE


# what executes a method of the numerics table; the GPU's modules are imported when they are asked for
_ENGINES: dict[str, Callable[[str, str], Engine]] = {
    "numba": lambda method, _target: NUMBA[method],
    "reference": lambda _method, _target: REFERENCE,
    "cupy": _silicon,
    "cupy-emulate": _emulator,
}
BACKENDS = tuple(_ENGINES)


def check_backend(backend: str) -> None:
    """Raise BackendError unless there is such a backend."""
    if not isinstance(backend, str) or backend not in BACKENDS:
        raise BackendError(f"there is no backend {backend!r}; there are {', '.join(BACKENDS)}")


def resolved_target(target: str) -> str:
    """The target; ``"native"`` is that of the GPU in the machine. Whether that executes another is asked when the operands are checked.

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
    architecture(target)
    return target


@dataclass(frozen=True)
class Plan:
    """What runs: the instruction, how the target computes it, and the engine that does so here."""

    instruction: Instruction
    target: str
    backend: str
    job: Job
    engine: Engine

    @property
    def arithmetic(self) -> Arithmetic:
        """The row of the numerics table."""
        return self.job.arithmetic


@cache
def _plan(ins: Instruction, target: str, row: Arithmetic, backend: str) -> Plan:
    return Plan(ins, target, backend, Job(ins, row), _ENGINES[backend](row.method, target))


def plan(ins: str | Instruction, target: str, backend: str = "numba") -> Plan:
    """Resolve an instruction, a target and a backend.

    Raises
    ------
    InstructionError, TargetError
        If the opcode or the target is wrong, or what the target computes is not known.
    BackendError
        If there is no such backend.

    Examples
    --------
    >>> plan("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80").arithmetic.terms
    8
    """
    check_backend(backend)
    ins = multiply(ins)
    target = resolved_target(target)
    return _plan(ins, target, arithmetic(ins, target), backend)
