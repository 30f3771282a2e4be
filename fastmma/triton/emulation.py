"""One `with fastmma.triton.interpret(...)`: what it emulates, and the kernel that it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from triton import knobs

from fastmma.host.errors import NotEmulatedError
from fastmma.isa.targets import target_of
from fastmma.products.prepared import Prepared, prepare
from fastmma.triton.compilation import compiled_kernel
from fastmma.triton.compiled import CompiledKernel, CompiledSum
from fastmma.triton.compilers import number_of
from fastmma.triton.lowering import Dot, Lowering, lowering_by_rules
from fastmma.triton.machine.executable import Executable
from fastmma.triton.positions import Position, site, sites
from fastmma.triton.report import Report
from fastmma.triton.twins import list_functions, names

Operation = Callable[..., Any]
Source = Literal["compile", "ptx", "rules"]
Races = Literal["error", "note"]
_WARPS = 4  # Triton's default
_MOST_ATOMICS = 1 << 17  # of one program


@dataclass
class Launch:
    """One kernel with its arguments.

    Attributes
    ----------
    kernel : triton.runtime.interpreter.InterpretedFunction
    arguments : tuple
    options : dict
        Arguments by name, and options of the launch such as ``num_warps``.
    capability : int
        The GPU's compute capability, 90 for sm_90a.
    source : {"compile", "ptx", "rules"}
        Who says what operations become.
    report : Report
    """

    kernel: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    capability: int
    source: Source
    report: Report
    refusal: str = ""  # why the compiler does not take the kernel
    _atomics: tuple[tuple[int, ...], int] = ((), 0)  # the program that runs, and how many it executed

    @property
    def warps(self) -> int:
        """Warps of a program."""
        return int(self.options.get("num_warps") or _WARPS)

    @property
    def fuses(self) -> bool:
        """True if the compiler contracts products and sums."""
        asked = self.options.get("enable_fp_fusion")
        language = knobs.language
        return not language.force_disable_fp_fusion and bool(language.default_fp_fusion if asked is None else asked)

    @cached_property
    def has_dot(self) -> bool:
        """True if the kernel multiplies matrices."""
        return bool(self._names & {"dot", "dot_scaled"})

    @cached_property
    def names_pointers(self) -> bool:
        """True if the kernel names a type of pointers, as one does that makes pointers of integers."""
        return "pointer_type" in self._names

    @property
    def makes_pointers(self) -> bool:
        """True if the kernel makes pointers of integers, or nobody can tell."""
        found = self.executable
        return found is None or found.makes_pointers or self.names_pointers

    @cached_property
    def _names(self) -> set[str]:
        return names(self.kernel, *list_functions((*self.arguments, *self.options.values())))

    @cached_property
    def compiled(self) -> CompiledKernel | None:
        """What the compiler made of the kernel, if it is asked and takes it."""
        if self.source == "rules":
            return None
        found = compiled_kernel(self.kernel, self.arguments, self.options | {"enable_fp_fusion": self.fuses})
        if isinstance(found, str):
            self.refusal = found
            self.report.notes[f"{self.kernel.__name__} by rules, since the compiler does not take it: {found}"] += 1
            return None
        return found

    @property
    def executable(self) -> Executable | None:
        """The compiled kernel, if its PTX may be executed."""
        return None if self.compiled is None else self.compiled.executable

    def count_atomics(self, program: tuple[int, ...]) -> None:
        """Count the atomic operations of a program.

        Raises
        ------
        NotEmulatedError
            If they are so many that it waits for another one.
        """
        self._atomics = (program, self._atomics[1] + 1 if self._atomics[0] == program else 1)
        if self._atomics[1] > _MOST_ATOMICS:
            raise NotEmulatedError("a loop that does not end: its program waits for another one, and programs run one after another here")

    def lowering(self, dot: Dot, where: Position) -> tuple[Lowering, str]:
        """Return what a dot becomes, and who says so."""
        found = self.compiled.lowering(dot, site(where)) if self.compiled is not None else None
        return (found, "compiled") if found is not None else (lowering_by_rules(dot, self.capability, self.warps), "rules")

    def find_sum(self, where: Position, shape: tuple[int, ...], axis: int | None) -> CompiledSum | None:
        """Find what the compiler made of a sum along an axis, or of all."""
        return None if self.compiled is None else self.compiled.find_sum(sites(where), shape, axis)

    def takes_addend(self, where: Position) -> bool:
        """Tell whether the compiler may start a dot from what is added to its result."""
        return self.compiled is None or not self.compiled.starts_from_zero(site(where))


@dataclass
class Emulation:
    """The settings and the state of an emulation.

    Attributes
    ----------
    target : str
        The GPU, as ptxas calls it.
    lowering : {"compile", "ptx", "rules"}
    num_warps : int or None
        Warps of every program, where a launch does not say.
    fp_fusion : bool or None
        Whether products and sums are contracted; None is what the launch and Triton say.
    report : Report
    launch : Launch
        The kernel that runs.
    configs : mapping
        By the names of kernels, the configuration that is taken of those of an autotuner.
    races : {"error", "note"}
        What is done with a race of a Gluon kernel.
    """

    target: str
    lowering: Source
    num_warps: int | None
    fp_fusion: bool | None
    report: Report
    launch: Launch = field(init=False)
    configs: Mapping[str, Any] = field(default_factory=dict)
    races: Races = "error"
    _products: dict[tuple[str, int | None], Prepared] = field(init=False, default_factory=dict)
    _builders: dict[bool, type] = field(init=False, default_factory=dict)

    def product(self, instruction: str, promote_every: int | None) -> Prepared:
        """The product of tiles by an instruction, chosen when it is asked for first."""
        found = self._products.get((instruction, promote_every))
        if found is None:
            found = prepare(instruction=instruction, target=self.target, promote_every=promote_every)
            self._products[instruction, promote_every] = found
        return found

    def builder(self, remembers: bool, make: Callable[[], type]) -> type:
        """The interpreter's builder, made when it is asked for first."""
        if remembers not in self._builders:
            self._builders[remembers] = make()
        return self._builders[remembers]

    @property
    def capability(self) -> int:
        """The GPU's compute capability, 90 for sm_90a, or the number that `compilers` has for one of AMD's."""
        return number_of(target_of(self.target))

    @property
    def fuses(self) -> bool:
        """True if products and sums become fused multiply-adds."""
        return self.launch.fuses

    def begin(self, kernel: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Take note of the kernel that runs next, and compile it."""
        self.enter(kernel, arguments, options)
        _ = self.launch.compiled  # compiled before Triton's language is replaced by the interpreter's

    def enter(self, kernel: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Take note of the kernel that runs next."""
        chosen = {"num_warps": self.num_warps, "enable_fp_fusion": self.fp_fusion}
        options = {name: value for name, value in chosen.items() if value is not None} | options
        self.launch = Launch(kernel, arguments, options, self.capability, self.lowering, self.report)
