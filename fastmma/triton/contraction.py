"""The additions of a compiled kernel that became fused multiply-adds, and with which operands: read off its PTX.

LLVM contracts products and sums of one stretch of code, and its choice depends on all of it. What it leaves, ptxas contracts where a
product, or the last multiplication of a division, is only added: so its machine code has it for every kernel that was looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from fastmma.triton.ptx import EXCHANGED, Instruction, Program, Sites

PRODUCT, QUOTIENT, SUM, OTHER = "product", "quotient", "sum", "other"
COMPARED = 100  # below this compute capability, what ptxas contracts was compared with its machine code, kernel by kernel
_ANSWERS = 1 << 10
_SUMS = ("add", "sub", "fma")
_PRODUCTS = {"mul": PRODUCT, "div": QUOTIENT}
_OF_FACTORS = (PRODUCT, QUOTIENT)
# what a register of a kind can be: a division by a constant becomes a product
_CAN_BE = {PRODUCT: _OF_FACTORS, QUOTIENT: (QUOTIENT,), SUM: (SUM,)}


@dataclass(frozen=True)
class Origin:
    """The origin of a value, as far as additions ask: a product, a sum or something else, and from which loads.

    The compiler joins operations of several places into one, whose place is then that of the first: so loads say which value it is.

    Attributes
    ----------
    kind : {"product", "quotient", "sum", "other"}
    loads : frozenset
        The places of the loads, and `EXCHANGED` for values of other threads and iterations, behind which are others.
    is_square : bool
        Whether it is the product of a value with itself.
    factor : float or None
        A constant factor of a product, if one is known.
    is_partial : bool
        Whether there are loads beside these, which the compiler joined with others.
    """

    kind: str = OTHER
    loads: frozenset[Sites] = frozenset()
    is_square: bool = False
    factor: float | None = None
    is_partial: bool = False

    def may_be(self, value: Origin, *, exactly: bool = False) -> bool:
        """Tell whether a register of this origin can hold a value of the kernel; `exactly` if nothing of it was exchanged to get there."""
        is_exchanged, was_exchanged = EXCHANGED in self.loads, EXCHANGED in value.loads
        if self.kind != OTHER and value.kind not in _CAN_BE[self.kind] and not (self.kind == SUM and is_exchanged and was_exchanged):
            return False
        if self.kind == PRODUCT and value.kind in _OF_FACTORS and not _are_alike(self.factor, value.factor):
            return False
        if self.kind == value.kind == PRODUCT and self.is_square != value.is_square:
            return False
        if value.is_partial:
            return is_exchanged or value.loads <= self.loads
        return self.loads - {EXCHANGED} <= value.loads if is_exchanged and not exactly else self.loads == value.loads


def _are_alike(factor: float | None, other: float | None) -> bool:
    return factor is None or other is None or abs(factor) == abs(other)


@dataclass(frozen=True)
class _Sum:
    """One addition: whether a product is fused with it, None where that is not clear, and its operands: such a product is the first."""

    is_fused: bool | None
    operands: tuple[Origin, Origin]

    def list_choices(self, first: Origin, second: Origin, *, exactly: bool) -> set[int | None]:
        """List which operand is fused, 0, 1 or -1 for neither, if this is the addition of two values; nothing if it cannot be."""
        one, other = self.operands
        found: set[int | None] = set()
        for index, (x, y) in enumerate(((first, second), (second, first))):
            if (x.kind in _OF_FACTORS or not self.is_fused) and one.may_be(x, exactly=exactly) and other.may_be(y, exactly=exactly):
                found.add(index if self.is_fused else -1 if self.is_fused is False else None)
        return found


def _list_choices(sums: set[_Sum], first: Origin, second: Origin, *, exactly: bool) -> set[int | None]:
    return set().union(*(one.list_choices(first, second, exactly=exactly) for one in sums))


def _is_product(instruction: Instruction | None) -> bool:
    return instruction is not None and instruction.name in _PRODUCTS and instruction.is_of_floats


@dataclass(frozen=True, eq=False)
class Contractions:
    """The additions of a kernel."""

    program: Program

    def _is_carried(self, register: str, addition: Instruction) -> bool:
        """Tell whether it is a product that another iteration of a loop made: ptxas unrolls loops, and fuses some of these."""
        writers = self.program.writers(register)
        loops = self.program.find_loops(addition)
        around = [one for one in writers if len(writers) > 1 and loops & self.program.find_loops(one)]
        copied = (self.program.writer(name) for one in around if one.name == "mov" for name in one.read)
        return any(map(_is_product, (*around, *copied)))

    def _is_taken(self, register: str, addition: Instruction) -> bool | None:
        """Tell whether ptxas fuses the product in a register with all additions that use it; None where that is not clear."""
        if self._is_carried(register, addition):
            return None
        product = self.program.writer(register)
        if product is None or not _is_product(product) or ".rn" in product.opcode:
            return False
        readers = self.program.readers(product.written[0])
        if any(one.name not in ("add", "sub") or not one.is_of_floats for one in readers):
            return False
        if any(self.program.find_loops(one) - self.program.find_loops(product) for one in readers):
            return False  # it is not computed again in every iteration
        return True if {product.block} == {one.block for one in readers} else None

    def _find_factor(self, *operands: str) -> float | None:
        """Return the value of a constant among the operands of a product of f32."""
        for name in operands:
            made = self.program.writer(name)
            codes = (name,) if made is None or made.name not in ("mov", "div") else made.operands
            values = [np.uint32(int(code[2:], 16)).view(np.float32) for code in codes if code.startswith("0f")]
            if values and len(values) == len(codes):
                return float(np.float32(values[0] / np.float64(values[1])) if len(values) > 1 else values[0])
        return None

    def _are_one(self, first: str, second: str) -> bool:
        """Tell whether two operands are one value, but for the sign."""
        return self.program.source(first) == self.program.source(second)

    def _find_origin(self, *operands: str) -> Origin:
        """Find the origin of a register, or of the product of two."""
        loads = frozenset(self.program.find_loads(tuple(name for name in operands if name.startswith("%"))))
        if len(operands) > 1:
            return Origin(PRODUCT, loads, self._are_one(*operands), self._find_factor(*operands))
        found = self.program.writer(operands[0])
        if found is None or not found.is_of_floats:
            return Origin(OTHER, loads)
        if found.name in _PRODUCTS:
            is_square = found.name == "mul" and self._are_one(*found.operands)
            return Origin(_PRODUCTS[found.name], loads, is_square, self._find_factor(*found.operands))
        is_doubled = found.name == "add" and self._are_one(*found.operands)  # x + x is 2 x
        return Origin(SUM if found.name in _SUMS and not is_doubled else OTHER, loads)

    def list_taken(self) -> Iterator[tuple[Instruction, int | None]]:
        """Yield the sums that ptxas fuses with a product, each with the operand that is the product: None where that is not clear."""
        for one in self.program.instructions:
            if one.name in ("add", "sub") and one.is_of_floats and len(one.operands) == 2 and ".rn" not in one.opcode:
                taken = [self._is_taken(operand, one) for operand in one.operands]
                if any(taken) or None in taken:
                    yield one, None if None in taken or all(taken) else taken.index(True)

    def _read(self, one: Instruction) -> _Sum:
        if one.name == "fma":
            return _Sum(True, (self._find_origin(*one.operands[:2]), self._find_origin(one.operands[2])))
        taken = [self._is_taken(operand, one) for operand in one.operands]
        first, second = map(self._find_origin, one.operands)
        if None in taken or all(taken):
            return _Sum(None, (first, second))
        return _Sum(any(taken), (first, second) if not taken[1] else (second, first))

    @cached_property
    def _additions(self) -> dict[Sites, list[Instruction]]:
        found = defaultdict(list)
        for one in self.program.instructions:
            if one.name in _SUMS and one.is_of_floats:
                found[one.sites].append(one)
        return dict(found)

    @cached_property
    def _sums(self) -> dict[Sites, set[_Sum]]:
        return {sites: set(map(self._read, instructions)) for sites, instructions in self._additions.items()}

    @lru_cache(maxsize=_ANSWERS)  # noqa: B019 - the programs of a grid ask the same; what is kept is bounded
    def find_fused_operand(self, sites: Sites, first: Origin, second: Origin) -> int | None:
        """Say which operand of the addition at a place is fused with it: 0, 1, or -1 for neither; None where that is not clear."""
        here = self._sums.get(sites)
        first, second = (replace(one, loads=one.loads & self._loads, is_partial=not one.loads <= self._loads) for one in (first, second))
        if not {first.kind, second.kind} & set(_OF_FACTORS) and all(one.is_fused is False for one in here or ()):
            return -1
        if here is not None:
            found = _list_choices(here, first, second, exactly=False)
        else:  # the compiler does not compute again what it has, and joins additions of several places
            found = _list_choices(self._everywhere, first, second, exactly=True) or _list_choices(
                self._everywhere, first, second, exactly=False
            )
        return next(iter(found)) if len(found) == 1 else None

    @cached_property
    def _loads(self) -> frozenset[Sites]:
        return frozenset({EXCHANGED, *self.program.load_sites})

    @cached_property
    def _everywhere(self) -> set[_Sum]:
        return set().union(*self._sums.values())

    def _find_leaves(self, register: str, height: int) -> list[tuple[tuple[str, ...], bool]] | None:
        """List the values that a tree of additions adds, and which is a product that is fused; None where there is no such tree."""
        if height == 0:
            return [((register,), False)]
        node = self.program.writer(register)
        if node is None or node.name not in ("add", "fma") or not node.is_of_floats or any(map(self.program.is_shuffled, node.read)):
            return None
        if node.name == "fma":
            return [(node.operands[:2], True), (node.operands[2:], False)] if height == 1 else None
        if self._read(node).is_fused is not False:
            return None
        parts = [self._find_leaves(operand, height - 1) for operand in node.operands]
        return None if None in parts else [leaf for part in parts if part is not None for leaf in part]

    def _find_roots(self, places: Sites, has_lanes: bool) -> list[str]:
        """List the registers that hold what a thread adds of its own in the reduction at a place."""
        if has_lanes:
            return list(dict.fromkeys(one.operands[0] for one in self.program.instructions if one.name == "shfl" and one.sites == places))
        made = [one for sites, additions in self._additions.items() if sites[:-1] == places for one in additions]
        read = {name for one in made for name in one.read}
        return [name for one in made for name in one.written if name not in read]

    @lru_cache(maxsize=_ANSWERS)  # noqa: B019
    def find_fused_registers(self, places: Sites, bits: int, along: tuple[int, ...], has_lanes: bool) -> tuple[bool, ...] | None:
        """Say which of a thread's values enter the reduction at a place as products, in one rounding.

        Parameters
        ----------
        places : tuple
            The calls that lead to the reduction.
        bits : int
            Bits of the number of a value of a thread.
        along : tuple of int
            Those that count along the axis.
        has_lanes : bool
            Whether lanes exchange their sums.

        Returns
        -------
        tuple of bool or None
            For each value; None where that is not clear.
        """
        additions = [one for sites, found in self._additions.items() if sites[:-1] == places for one in found]
        if not along:
            return (False,) * (1 << bits) if additions and all(self._read(one).is_fused is False for one in additions) else None
        trees = [leaves for root in self._find_roots(places, has_lanes) if (leaves := self._find_leaves(root, len(along))) is not None]
        values = [leaf for leaves in trees for leaf in leaves]
        if len(values) != 1 << bits:
            alike = [one for sites, additions in self._additions.items() if sites[-2:-1] == places[-1:] for one in additions]
            return (False,) * (1 << bits) if alike and all(self._read(one).is_fused is False for one in alike) else None
        if not any(fused for _, fused in values):
            return (False,) * (1 << bits)
        return self._by_number(values, along)

    @lru_cache(maxsize=_ANSWERS)  # noqa: B019
    def exchanges_products(self, places: Sites) -> bool:
        """Tell whether each lane adds its product to another's, which was rounded, in the first exchange of the reduction at a place."""
        additions = [one for sites, found in self._additions.items() if sites[:-1] == places for one in found]
        fused = [one for one in additions if self._read(one).is_fused is not False]
        return bool(fused) and all(one.name == "fma" and self._is_exchanged(one) for one in fused)

    def _is_exchanged(self, one: Instruction) -> bool:
        """Tell whether the addend is another lane's product of the same registers."""
        shuffle = self.program.writer(one.operands[2])
        product = self.program.writer(shuffle.operands[0]) if shuffle is not None and shuffle.name == "shfl" else None
        return product is not None and product.name == "mul" and set(product.operands) == set(one.operands[:2])

    def _by_number(self, values: list[tuple[tuple[str, ...], bool]], along: tuple[int, ...]) -> tuple[bool, ...] | None:
        loads = [self.program.find_loads(names) for names, _ in values]
        found: set[tuple[bool, ...] | None] = set()
        for source in set.intersection(*map(set, loads)):
            places = {number for one in loads if (number := one[source]) is not None}
            if len(places) == len(values):
                order = sorted(places)
                numbers = [order.index(number) for one in loads if (number := one[source]) is not None]
                flags = dict(zip(numbers, (fused for _, fused in values), strict=True))
                found.add(tuple(flags[number] for number in range(len(values))) if _are_paired(numbers, along) else None)
        return found.pop() if len(found) == 1 else None


def _are_paired(numbers: list[int], along: tuple[int, ...]) -> bool:
    """Tell whether neighbours are added first, then pairs of neighbours and so on: a tree over each of these bits, the lowest first."""
    groups = [[number] for number in numbers]
    for bit in along:
        pairs = list(zip(groups[::2], groups[1::2], strict=True))
        if any({number ^ (1 << bit) for number in first} != set(second) for first, second in pairs):
            return False
        groups = [first + second for first, second in pairs]
    return True
