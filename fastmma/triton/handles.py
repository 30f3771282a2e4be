"""Notes on a value beside its data: the product it is, the dot it will be, and how narrow it was loaded.

The interpreter's handles have a dictionary of attributes, which is empty again in the result of every operation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from triton.runtime.interpreter import TensorHandle

from fastmma.triton.positions import Position, straight
from fastmma.triton.report import Report

FACTORS, KIND, SOURCES, VALUE = "fastmma.factors", "fastmma.kind", "fastmma.sources", "fastmma.value"
LOADED, CONSTANT, JOINED = "fastmma.loaded_bits", "fastmma.constant", "fastmma.joined"


@dataclass(frozen=True)
class Factors:
    """The two arrays of which a value is the product, whether they were one value, and which constant one of them is."""

    x: NDArray[Any]
    y: NDArray[Any]
    where: Position
    is_square: bool
    factor: float | None = None


class ProductHandle(TensorHandle):
    """The result of a dot from zero, multiplied when it is read: an addition may take the dot instead, and start it from the addend."""

    def __init__(self, dtype: Any, where: Position, multiply: Callable[[NDArray[Any] | None], NDArray[Any]], report: Report) -> None:
        self.dtype, self.where = dtype, where
        self.attr: dict[str, Any] = {}
        self._multiply, self._report = multiply, report
        self._data: NDArray[Any] | None = None
        self._taken = False

    @property
    def data(self) -> NDArray[Any]:
        """The product, added to zero."""
        if self._data is None:
            if self._taken:
                self._report.passes("tl.dot", "used again after it was added to something: the compiler does not join such an addition")
            self._data = self._multiply(None)
        return self._data

    def joins(self, where: Position) -> bool:
        """Tell whether an addition there can take this dot: nothing else has used it, and no loop lies between."""
        return self._data is None and not self._taken and straight(self.where, where)

    def onto(self, addend: NDArray[Any]) -> NDArray[Any]:
        """The dot, started from an addend."""
        self._taken = True
        return self._multiply(addend)


def loaded_bits(handle: Any) -> int:
    """Bits of the narrowest elements from which a value was loaded, its own if it was not."""
    return int(handle.attr.get(LOADED, handle.dtype.scalar.primitive_bitwidth))


def remember_loads(result: Any, operands: tuple[Any, ...], *, joins: bool) -> Any:
    """Give a result the narrowest of the loads behind its operands, and whether `tl.join` lies behind it."""
    marks = [operand.attr for operand in operands if isinstance(operand, TensorHandle)]
    bits = [one[LOADED] for one in marks if LOADED in one]
    if isinstance(result, TensorHandle):
        if bits:
            result.attr[LOADED] = min(bits)
        if joins or any(JOINED in one for one in marks):
            result.attr[JOINED] = True
    return result
