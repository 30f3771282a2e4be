"""The PTX of a compiled kernel as instructions with the places in the source that they come from."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

Site = tuple[str, int, int]  # file, line, column
Sites = tuple[Site, ...]  # of all calls that lead to a place, outermost first
Number = tuple[int, ...] | None

EXCHANGED: Sites = (("", 0, 0),)  # the place of no load: values of other threads, or of other iterations

_FILE = re.compile(r'\.file\s+(\d+) "([^"]+)"(?: "([^"]+)")?')
_LOC = re.compile(r"\.loc\s+(\d+) (\d+) (\d+)(?:, function_name [^,]+, inlined_at (\d+) (\d+) (\d+))?")
_INSTRUCTION = re.compile(r"(?:@!?%p\d+ )?([a-z][\w.:]*)\s+([^;]*);")
_FUNCTION = re.compile(r"^\s*(?:\.visible |\.weak )?\.(?:entry|func)\b", re.MULTILINE)
_LABEL = re.compile(r"\$\w+:")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")
_NAME = re.compile(r"%[a-z]+\d+")
_ENDS = ("bra", "ret")
_OPAQUE = ("ld", "shfl", "wgmma", "mma", "ldmatrix", "atom")  # what they give is no function of one element of a thread
_UNKNOWN: dict[Sites, Number] = {EXCHANGED: None}
_FLOATS = re.compile(r"\.(?:f16|bf16|f32|f64)(?:x2)?$")


@dataclass(frozen=True, eq=False)
class Instruction:
    """One instruction.

    Attributes
    ----------
    opcode : str
    written, operands : tuple of str
        The registers that it writes, and its operands.
    block : int
        The basic block that holds it.
    sites : tuple
        Its place in the source.
    place : int
        Its place in the text.
    """

    opcode: str
    written: tuple[str, ...]
    operands: tuple[str, ...]
    block: int
    sites: Sites
    place: int = 0

    @property
    def name(self) -> str:
        """Return the opcode's first part."""
        return self.opcode.partition(".")[0]

    @property
    def is_of_floats(self) -> bool:
        """Tell whether it computes floats."""
        return _FLOATS.search(self.opcode) is not None

    @property
    def read(self) -> tuple[str, ...]:
        """List the registers that it reads."""
        return tuple(name for operand in self.operands for name in _NAME.findall(operand))


@dataclass
class _Places:
    """The places of `.loc`: one of an inlined function goes on from the last place that had the location where it was called."""

    files: dict[str, str] = field(default_factory=dict)
    latest: dict[Site, Sites] = field(default_factory=dict)

    def site(self, number: str, line: str, column: str) -> Site:
        return self.files.get(number, ""), int(line), int(column)

    def sites(self, loc: re.Match[str]) -> Sites:
        here = self.site(loc[1], loc[2], loc[3])
        outer: Sites = ()
        if loc[4]:
            caller = self.site(loc[4], loc[5], loc[6])
            outer = self.latest.get(caller, (caller,))
        found = (*outer, here)
        self.latest[here] = found
        return found


def _instructions(text: str) -> Iterator[Instruction]:
    places, block, inline = _Places(), 0, False
    here: Sites = ()
    for number, folder, name in _FILE.findall(text):
        places.files[number] = f"{folder}/{name}" if name else folder
    for place, line in enumerate(map(str.strip, text.splitlines())):
        loc = _LOC.match(line)
        if line.endswith("inline asm"):
            inline = line.startswith("// begin")
        elif loc:
            here = here if inline else places.sites(loc)  # lines of assembly are counted on from the place where it stands
        elif _LABEL.match(line):
            block += not line.startswith("$L__tmp")
        else:
            found = _INSTRUCTION.match(line)
            if found is None:
                continue
            first, *rest = _OPERAND.findall(found[2]) or [""]
            writes = not found[1].startswith(
                ("st.", "bra", "bar.", "ret", "red.", "fence", "cp.", "mbarrier", "wgmma.fence", "wgmma.commit")
            )
            written, operands = (_NAME.findall(first), rest) if writes else ([], [first, *rest])
            yield Instruction(found[1], tuple(written), tuple(operands), block, here, place)
            block += found[1].startswith(_ENDS)


@dataclass(frozen=True)
class Program:
    """All instructions, in their order, and the first and last place of each loop."""

    instructions: tuple[Instruction, ...]
    loops: tuple[tuple[int, int], ...] = ()

    @classmethod
    def read_from(cls, text: str) -> Program:
        """Read PTX; nothing of one with functions that are called."""
        if len(_FUNCTION.findall(text)) > 1:  # each has registers of its own
            return cls(())
        instructions = tuple(_instructions(text))
        labels = {line.partition(":")[0].strip(): place for place, line in enumerate(text.splitlines()) if _LABEL.match(line.strip())}
        jumps = ((labels.get(one.operands[0], one.place), one.place) for one in instructions if one.name == "bra")
        return cls(instructions, tuple((first, last) for first, last in jumps if first < last))

    def find_loops(self, one: Instruction) -> set[tuple[int, int]]:
        """Tell in which loops an instruction stands."""
        return {loop for loop in self.loops if loop[0] <= one.place <= loop[1]}

    @cached_property
    def _writers(self) -> dict[str, list[Instruction]]:
        found = defaultdict(list)
        for one in self.instructions:
            for name in one.written:
                found[name].append(one)
        return dict(found)

    @cached_property
    def _readers(self) -> dict[str, list[Instruction]]:
        found = defaultdict(list)
        for one in self.instructions:
            for name in dict.fromkeys(one.read):
                found[name].append(one)
        return dict(found)

    def writers(self, name: str) -> list[Instruction]:
        """List the instructions that write a register, but not a constant that a load may leave in it."""
        found = self._writers.get(name, [])
        loads = [one for one in found if one.name == "ld"]
        return loads if len(loads) == 1 and len(found) == 2 and found[0].name == "mov" else found

    def source(self, name: str) -> str:
        """Return the register of which one is a copy, with the same or the other sign."""
        writers = self.writers(name)
        if len(writers) == 1:
            (found,) = writers
            if found.name in ("mov", "neg") and len(found.operands) == len(found.written) == 1 and _NAME.fullmatch(found.operands[0]):
                return self.source(found.operands[0])
        return name

    def writer(self, name: str) -> Instruction | None:
        """Find the instruction that computes a register; copies and signs are looked through. None where several do."""
        writers = self.writers(self.source(name))
        return writers[0] if len(writers) == 1 else None

    def is_shuffled(self, name: str) -> bool:
        """Tell whether a register holds another lane's value."""
        return any(one.name == "shfl" for one in self._writers.get(name, ()))

    def readers(self, name: str) -> list[Instruction]:
        """List the instructions that use a register; copies and signs are looked through."""
        found = []
        for one in self._readers.get(name, ()):
            through = one.name in ("mov", "neg") and len(one.written) == 1 and len(one.operands) == 1 and one.operands[0] == name
            found += self.readers(one.written[0]) if through and len(self._writers[one.written[0]]) == 1 else [one]
        return found

    @cached_property
    def _loads(self) -> dict[str, tuple[Sites, int]]:
        """List the registers that are loaded from global memory, each with the place of the load and how many it loads before."""
        found: dict[str, tuple[Sites, int]] = {}
        counts: dict[Sites, int] = defaultdict(int)
        for one in self.instructions:
            if one.opcode.startswith("ld.global"):
                for name in one.written:
                    found[name] = one.sites, counts[one.sites]
                    counts[one.sites] += 1
        return found

    @property
    def load_sites(self) -> set[Sites]:
        """List the places of all loads."""
        return {sites for sites, _ in self._loads.values()}

    def _read_all(self) -> None:
        """Go through the instructions in their order, so that what is asked of one was mostly asked of those before."""
        for one in self.instructions:
            for name in one.written:
                self._trace(name)

    def find_loads(self, names: tuple[str, ...]) -> dict[Sites, Number]:
        """Tell from which loads registers are computed, and from which of the values of each; `EXCHANGED` from those of other threads.

        The number of a value is None where it is computed from several.
        """
        if not self._known:
            self._read_all()
        found: dict[Sites, Number] = {}
        for name in names:
            for sites, number in self._trace(name).items():
                found[sites] = number if found.setdefault(sites, number) == number else None
        return found

    def _trace(self, name: str) -> dict[Sites, Number]:
        if name not in self._known:
            self._known[name] = dict(_UNKNOWN)  # where a loop leads back
            writers = self.writers(name)
            if name in self._loads and len(writers) == 1:
                sites, number = self._loads[name]
                self._known[name] = {sites: (number,)}
            elif len(writers) == 1:
                (one,) = writers
                packed = self._unpack(one)
                if packed:
                    self._known[name] = self._trace(packed[one.written.index(name)])
                    return self._known[name]
                data = tuple(read for read in one.read if not read.startswith("%p"))
                part = (one.written.index(name),) if len(one.written) > 1 else ()
                is_opaque = one.name in _OPAQUE or any(self.is_shuffled(read) for read in data)
                sources = _UNKNOWN if is_opaque else self.find_loads(data)
                self._known[name] = (
                    {}
                    if one.opcode.startswith("ld.param")
                    else {sites: None if number is None else (*number, *part) for sites, number in sources.items()}
                )
        return self._known[name]

    def _unpack(self, one: Instruction) -> tuple[str, ...]:
        """Return the registers of which one was put together that an instruction takes apart."""
        source = self.writers(one.operands[0]) if one.name == "mov" and len(one.written) > 1 and len(one.operands) == 1 else []
        return source[0].read if len(source) == 1 and source[0].name == "mov" and len(source[0].read) == len(one.written) else ()

    @cached_property
    def _known(self) -> dict[str, dict[Sites, Number]]:
        return {}
