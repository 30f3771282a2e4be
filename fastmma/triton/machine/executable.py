"""What Triton's compiler made of a kernel, as something that this CPU can execute, and who runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastmma.functions import special
from fastmma.host.errors import NotEmulatedError
from fastmma.isa.targets import target_of
from fastmma.numerics.lookup import fidelity
from fastmma.products.report import ASSUMED, EMULATED, NEUTRAL, Line
from fastmma.triton.contraction import COMPARED
from fastmma.triton.machine.kernel import Executed, Machine
from fastmma.triton.machine.launch import count_programs, pack_arguments
from fastmma.triton.machine.operands import CONVERTED, EXACT, FUSED, MOVED, ORDER, PRODUCT, UNCLEAR, UNIT
from fastmma.triton.places import find_definition
from fastmma.triton.report import Report

_TOLD = {
    MOVED: (NEUTRAL, "moves data"),
    EXACT: (NEUTRAL, "integers, or IEEE 754"),
    CONVERTED: (EMULATED, "PTX, executed"),
    UNIT: (EMULATED, "special function unit, PTX, executed"),
    FUSED: (EMULATED, "one rounding, PTX, executed"),
    UNCLEAR: (ASSUMED, "whether ptxas fuses a product with it is not clear"),
    ORDER: (ASSUMED, "program after program, thread after thread: the order changes from run to run of a GPU"),
}
_OF_POINTERS = ("tt.int_to_ptr", "tt.ptr<!tt.ptr", "tt.ptr<tt.ptr")


@dataclass
class Executable:
    """A compiled kernel.

    Attributes
    ----------
    name, ptx : str
    shared : int
        Bytes of shared memory of a block.
    signature : dict
        Types of the arguments, by name.
    limits : str
        Why nothing here executes it, whatever its instructions are; empty where there is no such reason.
    cubin : bytes
        The machine code.
    makes_pointers : bool
        Whether it makes pointers of integers.
    maps : tuple of mapping
        What the compiler says of the tensor maps among the arguments; none where it made pointers of descriptors.
    is_taken : bool or None
        Whether the PTX is executed in the place of the interpreter; None while nobody has tried.
    """

    name: str
    ptx: str
    shared: int
    signature: dict[str, Any]
    limits: str = ""
    cubin: bytes = b""
    makes_pointers: bool = False
    maps: tuple[Mapping[str, Any], ...] = ()
    is_taken: bool | None = None
    _machines: dict[str, Machine | str] = field(default_factory=dict)

    @classmethod
    def of(cls, compiled: Any) -> Executable:
        """Take what is needed of Triton's answer."""
        metadata = compiled.metadata
        file, line = find_definition(compiled.src.fn.fn.__code__)
        limits = f"clusters of several blocks ({file}:{line})" if metadata.num_ctas > 1 else ""
        signature = dict(compiled.src.signature)
        if getattr(metadata, "global_scratch_size", 0):
            limits = f"tensor descriptors that the kernel makes ({file}:{line})"
        makes_pointers = any(name in compiled.asm["ttgir"] for name in _OF_POINTERS)
        found = cls(metadata.name, compiled.asm["ptx"], metadata.shared, signature, limits, compiled.asm["cubin"], makes_pointers)
        found.maps = tuple(getattr(metadata, "tensordesc_meta", None) or ())
        return found

    def machine(self, target: str) -> Machine | str:
        """Return what executes it on a GPU, or why nothing does."""
        if target not in self._machines:
            try:
                self._machines[target] = self.limits or Machine(self.ptx, self.shared, target, self.cubin)
            except NotEmulatedError as error:
                self._machines[target] = str(error)
        return self._machines[target]

    def refusal(self, target: str, values: dict[str, Any]) -> str:
        """Return why nothing here executes it on some arguments, which hold tensor maps; empty where something does."""
        machine = self.machine(target)
        if not self.maps or isinstance(machine, str):
            return ""
        try:
            self._pack(machine, values)
        except NotEmulatedError as error:
            return str(error)
        return ""

    def _pack(self, machine: Machine, values: dict[str, Any]) -> bytes:
        places = [(one.place, one.size) for one in machine.code.parameters.values()]
        return pack_arguments(self.signature, values, places, self.maps)

    def run(self, report: Report, grid: Any, values: dict[str, Any]) -> None:
        """Execute it on the arguments of a launch, and count in the report what it did.

        Raises
        ------
        NotEmulatedError
            If it has instructions that nothing here executes.
        """
        machine = self.machine(report.target)
        if isinstance(machine, str):
            raise NotEmulatedError(f'{self.name}: nothing here executes {machine}; lowering="compile" interprets the kernel')
        counts = machine.run(count_programs(grid), self._pack(machine, values))
        _tell(report, counts)


def judge(one: Executed, target: str) -> tuple[str, str]:
    """Return the status of a step that was executed for a GPU, and how or why."""
    major, minor = target_of(target).capability
    capability = 10 * major + minor
    if one.status == PRODUCT:
        return EMULATED, f"PTX, executed ({fidelity(one.step.opcode, target)})"
    if one.status == UNIT and capability not in special.RECORDED:
        return ASSUMED, "recorded on an H100 and an H200 only"
    if one.status == FUSED and capability >= COMPARED and not one.step.opcode.startswith("fma"):
        return ASSUMED, "fused multiply-adds as PTX has them: which others ptxas makes for this GPU is not known"
    return _TOLD[one.status]


def _tell(report: Report, counts: Counter[Executed]) -> None:
    for one, number in counts.items():
        status, how = judge(one, report.target)
        file, line = one.step.line
        report.count(Line(one.step.opcode, status, "", how), f"{file}:{line}" if file else "", number)
