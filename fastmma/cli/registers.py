"""Operands of one instruction as hexadecimal words: the registers of all lanes, or the codes that meet in one element."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Operands
from fastmma.host.errors import OperandError
from fastmma.host.files import content
from fastmma.host.integers import one_of
from fastmma.isa.formats import Format
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.operands.registers import gather
from fastmma.operands.scales import unpack_scales
from fastmma.operands.sparse import check_metadata, unpack_metadata

Codes = NDArray[Any]
_MOST = 1 << 20  # bytes of a file of words


def words_of(text: str, what: str) -> list[int]:
    """Hexadecimal numbers with commas or blanks between them, or ``@FILE`` that holds them.

    Raises
    ------
    OperandError
        If they are anything else.

    Examples
    --------
    >>> words_of("3c00,0x4000 C000", "a") == [0x3C00, 0x4000, 0xC000]
    True
    """
    held = content(Path(text[1:]), _MOST).decode("ascii", "replace") if text.startswith("@") else text
    words = [word for word in re.split(r"[\s,]+", held) if word]
    if not all(re.fullmatch(r"(0[xX])?[0-9a-fA-F]{1,16}", word, re.ASCII) for word in words):
        raise OperandError(f"--{what} takes hexadecimal numbers with commas between them, or @FILE, not {held[:60]!r}")
    return [int(word, 16) for word in words]


class Given:
    """The words of every operand, and the element that they are read for."""

    def __init__(self, ins: Instruction, words: Mapping[str, list[int]], row: int, col: int, computation: int, selector: int) -> None:
        self.ins, self.words, self.selector = ins, words, selector
        one_of(row, range(ins.m), "--row")
        one_of(col, range(ins.n), "--col")
        one_of(computation, range(ins.tiles), "--computation")
        self.row, self.col, self.computation = slice(row, row + 1), slice(col, col + 1), computation

    def operands(self) -> Operands:
        """The row of A, the column of B, and what else the element needs, as codes of one product.

        Raises
        ------
        OperandError
            If an operand has another number of words than its codes or its registers.
        """
        ins, formats = self.ins, self.ins.formats
        found: dict[str, Codes] = {
            "a": self._matrix("a", formats.a, ins.stored_k).reshape(1, 1, -1),
            "b": self._matrix("b", formats.b, ins.k).reshape(1, -1, 1),
            "c": self._matrix("c", formats.c, 1).reshape(1, 1, 1),
        }
        if ins.sparse:
            found["metadata"] = self._metadata().reshape(1, 1, -1)
        if ins.scale_vec_size:
            assert formats.scale is not None
            found["scale_a"] = self._scales("scale_a", formats.scale).reshape(1, 1, -1)
            found["scale_b"] = self._scales("scale_b", formats.scale).reshape(1, -1, 1)
        unused = sorted(self.words.keys() - found.keys())
        if unused:
            raise OperandError(f"{ins}: it takes no {' and no '.join(unused)}")
        return Operands(**found)

    def _matrix(self, name: str, fmt: Format, count: int) -> Codes:
        """The codes of A's row, of B's column, or of one accumulator, which is 0 where none is given."""
        words = self.words.get(name, [0] if name == "c" else [])
        operand = self.ins.operands.get("d" if name == "c" and self.ins.in_place else name)
        registers = 0 if operand is None else operand.layout.lanes * operand.registers
        if len(words) == count and not (count == registers and max(words) >> fmt.bits):
            return self._codes(name, words, fmt)
        if operand is None or len(words) != registers:
            raise self._error(name, len(words), f"{count} codes of {fmt}", f"{registers} registers" if registers else "")
        held = np.array(words, np.uint64).astype(operand.layout.register_dtype).reshape(operand.layout.lanes, operand.registers)
        matrices = gather(held, operand, kind=self.ins.kind)
        matrix = matrices[self.computation] if self.ins.tiles > 1 else matrices
        place = {"a": (self.row, slice(None)), "b": (slice(None), self.col), "c": (self.row, self.col)}[name]
        return np.asarray(matrix[place].astype(fmt.code_dtype))

    def _metadata(self) -> Codes:
        words, rule = self.words.get("metadata", []), pattern_of(self.ins)
        count = self.ins.k // rule.chunk
        if len(words) == self.ins.lanes and (count != self.ins.lanes or max(words) > 15):
            return np.asarray(unpack_metadata(self.ins, np.array(words, np.uint32), selector=self.selector)[self.row])
        if len(words) != count:
            raise self._error("metadata", len(words), f"{count} words of 4 bits", f"{self.ins.lanes} registers")
        return check_metadata(np.array(words, np.uint64), (count,), rule, ordered=self.ins.ordered_metadata, what=f"{self.ins}: metadata")

    def _scales(self, name: str, fmt: Format) -> Codes:
        words, count = self.words.get(name, []), self.ins.scale_vec_size
        if len(words) == count:
            return self._codes(name, words, fmt)
        if len(words) != self.ins.lanes:
            raise self._error(name, len(words), f"{count} codes of {fmt}", f"{self.ins.lanes} registers")
        scales = unpack_scales(self.ins, np.array(words, np.uint32), name[-1], 0, 0)
        return np.asarray(scales[self.row if name == "scale_a" else self.col])

    def _codes(self, name: str, words: list[int], fmt: Format) -> Codes:
        if max(words) >> fmt.bits:
            raise OperandError(f"{self.ins}: {name} has {max(words):#x}, and codes of {fmt} have {fmt.bits} bits")
        return np.array(words, fmt.code_dtype)

    def _error(self, name: str, count: int, codes: str, registers: str) -> OperandError:
        wanted = f"{codes}, or {registers} of all {self.ins.lanes} lanes, lane after lane" if registers else codes
        return OperandError(f"{self.ins}: {name} must be {wanted}; there are {count} words")
