"""Dots of f32 in several dots of parts: ``input_precision`` of ``"tf32x3"``, ``"bf16x3"`` and ``"bf16x6"``.

A number is split into its value in the narrow format, the narrow value of the rest, and so on. Dots of parts follow one another in one
accumulator, the smallest first; a NaN among their sums, which a rest of infinity makes, becomes zero before the last one, that of the first
parts; then the accumulator of the kernel is added.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

Parts = tuple[tuple[int, int], ...]

# by the name of the precision, which parts of the two operands are multiplied, in their order
SPLITS: dict[str, tuple[str, Parts]] = {
    "tf32x3": ("tf32", ((1, 0), (0, 1), (0, 0))),
    "bf16x3": ("bf16", ((1, 0), (0, 1), (0, 0))),
    "bf16x6": ("bf16", ((1, 1), (2, 0), (0, 2), (1, 0), (0, 1), (0, 0))),
}
_MADE = re.compile(r"^\s*(%[\w#]+)(?::\d+)? = (?:\"?)([\w.]+)\"? ?(.*)$")
_NAMES = re.compile(r"%[\w#]+")
_DOT = ("tt.dot", "ttng.warp_group_dot")
# these hand on the numbers that they are given
_SAME = ("ttg.local_alloc", "ttg.local_load", "ttg.convert_layout", "ttng.warp_group_dot_wait", "ttg.memdesc_trans", "ttg.memdesc_index")


@dataclass
class SplitReader:
    """Reads from the compiler's intermediate code which parts a dot multiplies."""

    text: str
    made: dict[str, tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        self.made = {found[1]: (found[2], found[3]) for line in self.text.splitlines() if (found := _MADE.match(line))}

    def _source(self, name: str) -> tuple[str, str]:
        operation, rest = self.made.get(name.partition("#")[0], ("", ""))
        operands = _NAMES.findall(rest)
        return self._source(operands[0]) if operation in _SAME and operands else (operation, rest)

    def find_part(self, name: str) -> tuple[str, int] | None:
        """Find the format of an operand of a dot, and which part of its numbers it is; None for one that is not split."""
        operation, rest = self._source(name)
        operands = _NAMES.findall(rest)
        if operation == "tt.elementwise_inline_asm" and "cvt.rna.tf32.f32" in rest:
            return "tf32", 0
        if operation == "arith.subf" and self.find_part(operands[1]) == ("tf32", 0):
            return "tf32", 1
        if operation != "arith.truncf" or "xbf16" not in rest:
            return None
        number = 0
        operation, rest = self._source(operands[0])
        while operation == "arith.subf":
            first, second = _NAMES.findall(rest)[:2]
            taken, code = self._source(second)
            if taken != "arith.extf" or self._source(_NAMES.findall(code)[0])[0] != "arith.truncf":
                break
            number += 1
            operation, rest = self._source(first)
        return "bf16", number

    def list_dots(self) -> list[tuple[str, str]]:
        """List the precisions of split dots whose parts come in the order that is known, each with the text of its last dot."""
        found: list[tuple[str, str]] = []
        waiting: list[tuple[str, tuple[int, int]]] = []
        for line in self.text.splitlines():
            made = _MADE.match(line)
            if made is None or made[2] not in _DOT:
                continue
            a, b = (self.find_part(name) for name in _NAMES.findall(made[3])[:2])
            if a is None or b is None or a[0] != b[0]:
                continue
            waiting.append((a[0], (a[1], b[1])))
            if (a[1], b[1]) == (0, 0):
                kind, parts = a[0], tuple(pair for _, pair in waiting)
                names = [name for name, row in SPLITS.items() if row == (kind, parts) and all(one == kind for one, _ in waiting)]
                if names:
                    found.append((names[0], line))
                waiting = []
        return found
