"""Read the compiler's intermediate code (TTGIR): operations, with their operands, attributes, types, regions and places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from fastmma.triton.gluon.types import Type, parse_types, split_at_commas

_NAME = re.compile(r'"?([a-z_][a-z_0-9]*\.[a-z_0-9.]+)"?')
_VALUE = re.compile(r"%[\w.$-]+(?:#\d+)?")
_RESULTS = re.compile(r"^((?:%[\w.$-]+(?::\d+)?(?:, )?)+) = ")
_PLACE = re.compile(r"\s+loc\((#loc\d*|.*)\)$")
_ALIAS = re.compile(r"^(#[A-Za-z_]\w*) = (#ttg\..*|#ttng\..*)$", re.MULTILINE)
_LOCATION = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_FILE = re.compile(r'^"([^"]*)":(\d+):(\d+)')
_CALL = re.compile(r"^callsite\((#loc\d*) at (#loc\d*)\)$")
_FUNCTION = re.compile(r"tt\.func (?:public |private |internal )?@([\w.$\"-]+)\(")


@dataclass
class Region:
    """A region of one block: its arguments, by the numbers of their values, and its operations."""

    arguments: list[int] = field(default_factory=list)
    types: list[Type] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


@dataclass
class Operation:
    """One operation.

    Attributes
    ----------
    name : str
        Such as ``"arith.addf"``.
    text : str
        The operation as it is printed, without results and types.
    results, operands : list of int
        Numbers of values, which are unique in a function.
    types : list of Type
        All types that are printed behind it, operands before results.
    attributes : dict
        By name, as they are printed; True for those without a value.
    regions : list of Region
    place : str
        The name of its location.
    """

    name: str
    text: str
    results: list[int]
    operands: list[int]
    types: list[Type]
    attributes: dict[str, str]
    regions: list[Region] = field(default_factory=list)
    place: str = ""


@dataclass
class Function:
    """A function: its body, with the parameters as arguments, their names, and how many values it has."""

    name: str
    parameters: list[str]
    body: Region
    size: int = 0


@dataclass
class Module:
    """What the compiler made of a kernel."""

    functions: dict[str, Function]
    places: dict[str, str]
    attributes: dict[str, str]

    def find_places(self, name: str) -> tuple[tuple[str, int, int], ...]:
        """Return file, line and column of a location, the innermost call first."""
        body = self.places.get(name, "")
        call = _CALL.match(body)
        if call:
            return self.find_places(call[1]) + self.find_places(call[2])
        found = _FILE.match(body)
        if found:
            return ((found[1], int(found[2]), int(found[3])),)
        inner = re.search(r"\((#loc\d*)\)$", body)
        return self.find_places(inner[1]) if inner else ()


def _strip_place(line: str) -> tuple[str, str]:
    """Cut the location off a line."""
    found = re.search(r"\s+loc\((#loc\d*)\)$", line)
    return (line[: found.start()], found[1]) if found else (line, "")


def _find_attributes(text: str) -> dict[str, str]:
    """Read the dictionary of attributes of an operation."""
    found: dict[str, str] = {}
    for match in re.finditer(r"(?:<\{|(?<![<\w])\{)", text):
        depth, end = 0, match.end()
        for end in range(match.end() - 1, len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                break
        for part in split_at_commas(text[match.end() : end]):
            name, _, value = part.partition(" = ")
            found[name.strip(' "')] = value.strip() or "true"
    return found


def _before_types(text: str) -> tuple[str, str]:
    """Split an operation at the last colon outside of brackets."""
    depth, quoted = 0, False
    for index in range(len(text) - 1, 0, -1):
        letter = text[index]
        if letter == '"':
            quoted = not quoted
        if quoted:
            continue
        if letter in ")]}" or (letter == ">" and text[index - 1] != "-"):
            depth += 1
        elif letter in "([{<":
            depth -= 1
        elif depth == 0 and text[index - 1 : index + 2] == " : ":
            return text[: index - 1], text[index + 2 :]
    return text, ""


class _Reader:
    """Reads the lines of one function."""

    def __init__(self, lines: Iterator[str], aliases: dict[str, str]) -> None:
        self.lines, self.aliases = lines, aliases
        self.numbers: dict[str, int] = {}
        self.size = 0

    def define(self, name: str, count: int = 1) -> list[int]:
        """Number the values that a name stands for."""
        names = [f"{name}#{index}" for index in range(count)] if count > 1 else [name]
        found = []
        for one in names:
            self.numbers[one] = self.size
            found.append(self.size)
            self.size += 1
        if count > 1:
            self.numbers[name] = found[0]
        return found

    def use(self, text: str) -> list[int]:
        """List the numbers of the values in a text."""
        return [self.numbers[name] for name in _VALUE.findall(text)]

    def types(self, text: str) -> list[Type]:
        """Parse the types in a text."""
        return parse_types(text, self.aliases)

    def arguments(self, text: str) -> tuple[list[int], list[Type]]:
        """Define the arguments of a block: names with types."""
        text = re.sub(r"\s*loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", "", text)
        numbers, kinds = [], []
        for part in split_at_commas(text):
            name, _, kind = part.strip().partition(": ")
            numbers += self.define(name)
            kinds += self.types(kind)[:1]
        return numbers, kinds

    def block(self, region: Region) -> str:
        """Read operations until the region ends, and return the line that ends it."""
        for raw in self.lines:
            line = raw.strip()
            if line.startswith("}"):
                return line
            if line.startswith("^"):
                numbers, kinds = self.arguments(line[line.index("(") + 1 : line.rindex(")")] if "(" in line else "")
                region.arguments, region.types = numbers, kinds
                continue
            if line:
                region.operations.append(self.operation(line))
        raise ValueError("the code ends within a region")

    def operation(self, line: str) -> Operation:
        """Read an operation that begins at a line."""
        text, place = _strip_place(line)
        names: list[tuple[str, int]] = []
        defined = _RESULTS.match(text)
        if defined:
            for part in defined[1].split(", "):
                name, _, count = part.partition(":")
                names.append((name, int(count or 1)))
            text = text[defined.end() :]
        found = _NAME.match(text)
        if found is None:
            raise ValueError(f"no operation: {line}")
        made = Operation(found[1], text, [], [], [], {}, [], place)
        if text.endswith("{") or made.name == "ttg.warp_specialize":
            self.structured(made)
        else:
            self.plain(made, text[found.end() :])
        for name, count in names:
            made.results += self.define(name, count)
        return made

    def plain(self, made: Operation, rest: str) -> None:
        """Read operands, attributes and types."""
        body, kinds = _before_types(rest)
        made.attributes = _find_attributes(body)
        made.operands = self.use(body)
        made.types = self.types(kinds)

    def structured(self, made: Operation) -> None:
        """Read an operation with regions."""
        text = made.text
        if made.name == "scf.for":
            head = re.match(r"scf\.for (?:unsigned )?(%\S+) = (%\S+) to (%\S+) step (%\S+)\s*(.*)\{$", text)
            assert head is not None
            made.operands = self.use(" ".join(head.group(2, 3, 4)))
            carried = re.search(r"iter_args\((.*?)\) -> \((.*)\)", head[5])
            pairs = [part.split(" = ") for part in split_at_commas(carried[1])] if carried else []
            made.operands += [number for _, value in pairs for number in self.use(value)]
            made.types = self.types(head[5].rsplit(" : ", 1)[1]) if " : " in head[5] else []
            region = Region([*self.define(head[1]), *(number for name, _ in pairs for number in self.define(name.strip()))])
            made.attributes["unsigned"] = "true" if "unsigned" in text[:20] else ""
            self.finish(made, region)
        elif made.name == "scf.while":
            head = re.match(r"scf\.while \((.*?)\) : ", text) or re.match(r"scf\.while()", text)
            assert head is not None
            pairs = [part.split(" = ") for part in split_at_commas(head[1])] if head[1] else []
            made.operands = [number for _, value in pairs for number in self.use(value)]
            self.finish(made, Region([number for name, _ in pairs for number in self.define(name.strip())]))
        elif made.name == "ttg.warp_specialize":
            made.operands = self.use(text)
            self.partitions(made)
        else:
            made.operands = self.use(text)
            made.attributes = _find_attributes(text.rstrip("({"))
            self.finish(made, Region())

    def finish(self, made: Operation, region: Region) -> None:
        """Read a region, and those that follow it: ``} else {``, ``} do {``, ``}, {``."""
        made.regions.append(region)
        end = self.block(region)
        while end.endswith("{"):
            made.regions.append(Region())
            end = self.block(made.regions[-1])
        body, place = _strip_place(end)
        made.place = place or made.place
        made.attributes |= _find_attributes(body[1:])
        if " : " in body:
            made.types = self.types(_before_types(body)[1])

    def partitions(self, made: Operation) -> None:
        """Read the regions of `ttg.warp_specialize`, each with its warps; the default one is the first."""
        warps = []
        for raw in self.lines:
            line = raw.strip()
            if line.startswith(("default", "partition")):
                region, outer = Region(), dict(self.numbers)
                if line.startswith("partition"):
                    found = re.match(r"partition\d+\((.*)\) num_warps\((\d+)\)", line)
                    assert found is not None
                    region.arguments, region.types = self.arguments(found[1])
                    warps.append(found[2])
                made.regions.append(region)
                end = self.block(region)
                self.numbers = outer  # each partition has names of its own
                if end != "}" and not end.startswith("} loc"):
                    body, made.place = _strip_place(end)
                    made.types = self.types(body)
                    break
            else:
                body, made.place = _strip_place(line)
                made.types = self.types(body)
                break
        made.attributes["warps"] = ",".join(warps)


def parse_module(text: str) -> Module:
    """Read the text of a module.

    Raises
    ------
    ValueError
        If it is written in a way that is not known.
    """
    aliases = dict(_ALIAS.findall(text))
    places = dict(_LOCATION.findall(text))
    lines = iter(text.splitlines())
    functions: dict[str, Function] = {}
    attributes: dict[str, str] = {}
    for line in lines:
        if line.startswith("module"):
            attributes = _find_attributes(line.rpartition(" {")[0])
        found = _FUNCTION.search(line)
        if found is None:
            continue
        reader = _Reader(lines, aliases)
        depth = 0
        for end in range(found.end() - 1, len(line)):
            depth += {"(": 1, ")": -1}.get(line[end], 0)
            if depth == 0:
                break
        inner = re.sub(r" \{[^{}]*\}", "", line[found.end() : end])
        body = Region()
        body.arguments, body.types = reader.arguments(inner)
        names = [name[1:] for name in reader.numbers]
        reader.block(body)
        functions[found[1]] = Function(found[1], names, body, reader.size)
    return Module(functions, places, attributes)
