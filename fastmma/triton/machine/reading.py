"""Reads the PTX of a kernel from its text."""

from __future__ import annotations

import re

import numpy as np

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.machine.code import Address, Block, Code, Immediate, Operand, Parameter, Register, Special, Step, Symbol, Vector

_LOC = re.compile(r"\.loc\s+(\d+) (\d+) (\d+)")
_FILE = re.compile(r'\.file\s+(\d+) "([^"]+)"(?: "([^"]+)")?')
_ENTRY = re.compile(r"\.entry\s+(\S+)\s*\((.*?)\)", re.DOTALL)
_PARAMETER = re.compile(r"\.param\s+(?:\.align \d+ )?\.(\w+)\s.*?(\w+)(?:\[(\d+)\])?\s*$")
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$")
_COUNTED = re.compile(r"^(%?[\w$]+)<(\d+)>$")
_LABEL = re.compile(r"^([\w$]+):\s*")
_PREDICATE = re.compile(r"^@(!?)([%\w$]+)\s+")
_COMMENT = re.compile(r"//.*$")
_TABLE = re.compile(r"^\.(?:global|const) .*\.b8 (\w+)\[\d+\] = \{([\d, ]+)\};", re.MULTILINE)
_LOCAL = re.compile(r"\.local\s[^;]*\b__local_depot\d+\[(\d+)\]")
_THREADS = re.compile(r"\.reqntid (\d+)")
_SHARED = re.compile(r"^\.(?:extern|visible|weak)?\s*\.?shared\s.*?(\w+)\s*(?:\[(\d*)\])", re.MULTILINE)
MEETINGS = ("bar.sync", "barrier.sync", "barrier.cta.sync")  # at which threads wait for others: they begin blocks of steps
_SIZES = {"pred": 1, "8": 1, "16": 2, "32": 4, "64": 8}


def parse_number(text: str) -> Immediate | None:
    """Parse a number as PTX writes it.

    Examples
    --------
    >>> parse_number("0f3F800000"), parse_number("-5"), parse_number("0x10U")
    (Immediate(value=1065353216, size=4), Immediate(value=-5, size=0), Immediate(value=16, size=0))
    """
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
        return Immediate(int(text[2:], 16), 4)
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
        return Immediate(int(text[2:], 16), 8)
    found = re.fullmatch(r"(-?)(0x[0-9a-fA-F]+|0b[01]+|\d+)U?", text)
    if found:
        return Immediate(int(found[2], 0) * (-1 if found[1] else 1))
    if re.fullmatch(r"-?\d+\.\d*(?:[eE][-+]?\d+)?", text):
        return Immediate(int(np.float64(text).view(np.uint64)), 8)
    return None


def split_operands(text: str) -> list[str]:
    """Split operands at commas that stand in no braces or brackets.

    Examples
    --------
    >>> split_operands("{%r1, %r2}, [%rd1+16], 4")
    ['{%r1, %r2}', '[%rd1+16]', '4']
    """
    found, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            found.append(text[start:index].strip())
            start = index + 1
    rest = text[start:].strip()
    return [*found, rest] if rest else found


class _Reader:
    """Reads the body of a kernel."""

    def __init__(self, text: str) -> None:
        self.files = {number: f"{folder}/{name}" if name else folder for number, folder, name in _FILE.findall(text)}
        self.names: list[dict[str, Register]] = [{}]
        self.sizes: list[int] = []
        self.blocks = [Block()]
        self.labels: dict[str, int] = {}
        self.line = ("", 0)
        self.scopes = [0]  # braces that are open, by their numbers
        self.opened = 0

    def declare(self, kind: str, names: str) -> None:
        size = _SIZES[kind.lstrip("bfus")] if kind != "pred" else 1
        for name in names.split(","):
            counted = _COUNTED.match(name.strip())
            each = [f"{counted[1]}{number}" for number in range(int(counted[2]))] if counted else [name.strip()]
            for one in each:
                self.names[-1][one] = Register(len(self.sizes), size)
                self.sizes.append(size)

    def find(self, name: str) -> Register | None:
        return next((scope[name] for scope in reversed(self.names) if name in scope), None)

    def operand(self, text: str) -> Operand:
        if text == "_":
            return None
        if text[0] == "{":
            return Vector(tuple(self.operand(part) for part in split_operands(text[1:-1])))
        if text[0] == "[":
            return self.address(text[1:-1].strip())
        if text[0] == "!":
            found = self.find(text[1:])
            return Register(found.number, found.size, True) if found else Symbol(text)
        if "|" in text:
            return Vector(tuple(self.operand(part) for part in text.split("|")))
        number = parse_number(text)
        return number or self.find(text) or (Special(text) if text[0] == "%" else self.symbol(text))

    def label(self, name: str) -> str:
        """Name a label, which those of inline assembly are within their braces alone."""
        return f"{name}@{self.scopes[-1]}" if self.scopes[-1] and not name.startswith("$L__BB") else name

    def branch(self, text: str) -> Operand:
        return Symbol(self.label(text))

    def symbol(self, text: str) -> Operand:
        name, plus, offset = text.partition("+")
        return Address(Symbol(name.strip()), int(offset, 0)) if plus else Symbol(name)

    def address(self, text: str) -> Operand:
        if text.startswith("{") or "," in text:
            return Vector(tuple(self.operand(part) for part in split_operands(text)))
        found = re.fullmatch(r"([%\w$.]+)\s*(?:([+-])\s*(-?\w+))?", text)
        if found is None:
            raise NotEmulatedError(f"the address [{text}]")
        number = parse_number(found[1])
        base = number or self.find(found[1]) or Symbol(found[1])
        offset = parse_number(found[3]) if found[3] else None
        return Address(base, (offset.value if offset else 0) * (-1 if found[2] == "-" else 1))

    def statement(self, text: str, place: int) -> None:
        declared = _REGISTERS.match(text)
        if declared:
            self.declare(declared[1], declared[2])
            return
        if text.startswith("."):
            return
        predicate = None
        guarded = _PREDICATE.match(text)
        if guarded:
            found = self.find(guarded[2])
            if found is None:
                raise NotEmulatedError(f"the predicate {guarded[2]}")
            predicate = Register(found.number, found.size, bool(guarded[1]))
            text = text[guarded.end() :]
        opcode, _, rest = text.partition(" ") if " " in text else (text, "", "")
        opcode, _, more = opcode.partition("\t")
        read = self.branch if opcode.startswith("bra") else self.operand
        operands = tuple(map(read, split_operands((more + " " + rest).strip())))
        if opcode.startswith(MEETINGS) and self.blocks[-1].steps:
            self.blocks.append(Block())
        self.blocks[-1].steps.append(Step(opcode, operands, predicate, place, self.line))
        if opcode.startswith(("bra", "ret", "exit", "trap")):
            self.blocks.append(Block())

    def scope(self, opens: bool) -> None:
        if opens:
            self.opened += 1
            self.names.append({})
            self.scopes.append(self.opened)
        else:
            self.names.pop()
            self.scopes.pop()

    def body(self, text: str, first: int) -> None:
        waiting, since = "", 0
        for place, raw in enumerate(text.splitlines(), first):
            loc = _LOC.match(raw.strip())
            if loc:
                if loc[2] != "0":  # which stands for several lines: steps stay at the one before
                    self.line = self.files.get(loc[1], ""), int(loc[2])
                continue
            rest = _COMMENT.sub("", raw).strip()
            while rest:
                if not waiting:
                    label = _LABEL.match(rest)
                    if label and label[1].startswith("$L__tmp"):  # which mark lines alone
                        rest = rest[label.end() :]
                        continue
                    if label:
                        if self.blocks[-1].steps:
                            self.blocks.append(Block())
                        self.labels[self.label(label[1])] = len(self.blocks) - 1
                        rest = rest[label.end() :]
                        continue
                    if rest[0] in "{}":
                        self.scope(rest[0] == "{")
                        rest = rest[1:].strip()
                        continue
                    since = place
                part, end, rest = rest.partition(";")
                waiting = f"{waiting} {part}".strip()
                rest = rest.strip()
                if end:
                    self.statement(waiting, since)
                    waiting = ""
        self.blocks.append(Block([Step("ret", (), None, 0, self.line)]))


def read_code(text: str) -> Code:
    """Read the one kernel of a module.

    Raises
    ------
    NotEmulatedError
        If it has functions that are called, or what is not understood.
    """
    entries = _ENTRY.findall(text)
    if len(entries) != 1 or re.search(r"^\s*(?:\.visible |\.weak )?\.func\b", text, re.MULTILINE):
        raise NotEmulatedError("PTX with functions that are called")
    entry = _ENTRY.search(text)
    assert entry is not None
    parameters: dict[str, Parameter] = {}
    place = 0
    for declaration in entry[2].split(","):
        found = _PARAMETER.match(declaration.strip())
        if found is None:
            continue
        size = _SIZES[found[1].lstrip("bfus")]
        place = -(-place // size) * size
        parameters[found[2]] = Parameter(place, size * int(found[3] or 1))
        place += size * int(found[3] or 1)
    start = text.index("{", entry.end())
    end = text.rindex("}", start, _end_of_body(text, start))
    reader = _Reader(text)
    reader.body(text[start + 1 : end], text.count("\n", 0, start + 1))
    threads = _THREADS.search(text, entry.end(), start)
    if threads is None:
        raise NotEmulatedError("PTX that does not say how many threads a block has")
    local = _LOCAL.search(text, start)
    bytes_of_local = int(local[1]) if local and re.search(r"\bmov\.(?:b|u)32\s+%SPL, __local_depot", text) else 0
    tables = {name: bytes(int(one) for one in values.split(",")) for name, values in _TABLE.findall(text)}
    return Code(tuple(reader.blocks), reader.labels, parameters, tuple(reader.sizes), int(threads[1]), bytes_of_local, tables)


def _end_of_body(text: str, start: int) -> int:
    """Return the end of the braces that are opened at a place."""
    depth = 0
    for found in re.finditer(r"[{}]", text[start:]):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return start + found.end()
    return len(text)
