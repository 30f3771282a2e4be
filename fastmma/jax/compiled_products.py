"""Products in XLA's text of a compiled program: which kernel computes each, its parts of k, and how these are added."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from fastmma.jax.compiled_sums import UNKNOWN, find_join, find_tiles
from fastmma.jax.hlo import Computation, Instruction, match_dimensions, read_module, read_numbers

Total = tuple[int, str, int]  # parts of k, how they are added, and to how many groups of warps they are dealt

_MOVES = ("bitcast", "copy", "transpose", "reshape", "get-tuple-element")
_JAX_NAMES = {
    "f32": "float32",
    "bf16": "bfloat16",
    "f16": "float16",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f64": "float64",
}
_LIBRARY = r'custom_call_target="__(cublas[^"]*)"'
_KERNELS = ("__triton_nested_gemm_fusion", "__triton_gemm")
_UNKNOWN_JOIN = "the order in which XLA adds the parts of k is not known"
_HELD = 16  # k of two instructions, whose threads hold neighbours
_WARPGROUP, _ROWS = 4, 64  # warps and rows of a tile from which Triton takes wgmma


@dataclass(frozen=True)
class CompiledProduct:
    """A product as XLA compiled it.

    Attributes
    ----------
    sizes : tuple of int
        Of the batch, m, n, k.
    operands : tuple of frozenset of str
        The dtypes of either operand, as it is in memory and as it is multiplied.
    result : str
        The dtype to which the sums are rounded; empty where they are used in several.
    scope : str
        JAX's functions and transformations in which it was made.
    is_warpgroup : bool
        Whether the instruction is ``wgmma``, or else ``mma.sync``.
    parts, length : int
        The parts of k, and how many k a part has.
    join : str
        The order in which parts are added.
    neighbours : int
        How many k a thread holds side by side.
    dealt : int
        To how many groups of warps the parts are dealt in turn, each of which adds its own first.
    unknown : str
        Why the order of k is not known; empty where it is.
    """

    sizes: tuple[int, int, int, int]
    operands: tuple[frozenset[str], frozenset[str]]
    result: str
    scope: str
    is_warpgroup: bool = False
    parts: int = 1
    length: int = 0
    join: str = "ascending"
    neighbours: int = 1
    dealt: int = 1
    unknown: str = ""


def find_compiled_products(text: str) -> list[CompiledProduct]:
    """Find the products of a program that XLA compiled for a GPU.

    Parameters
    ----------
    text : str
        ``jax.jit(f).lower(...).compile().as_text()`` on the GPU.
    """
    module = read_module(text)
    callers = {each.calls: (outer, each) for outer in module.values() for each in outer.instructions.values() if each.calls}
    return [
        _Product(module, inner, each, callers.get(name)).read()
        for name, inner in module.items()
        for each in inner.instructions.values()
        if each.opcode == "dot" or (each.opcode == "custom-call" and each.word(_LIBRARY))
    ]


@dataclass(frozen=True)
class _Product:
    """A dot of a fusion, or a call of cuBLAS, with what surrounds it."""

    module: dict[str, Computation]
    inner: Computation
    dot: Instruction
    caller: tuple[Computation, Instruction] | None

    def read(self) -> CompiledProduct:
        """Read the sizes, the kernel and the order of k."""
        lhs, rhs = (list(self._trace(self.inner, self.inner.operand(self.dot, place), self.caller)) for place in (0, 1))
        b, m, n, k = self._sizes(lhs[0].shape, rhs[0].shape)
        less = self._find_padding(lhs, rhs)
        ends = list(self._follow(self.inner, self.dot, self.caller))
        results, sums = {dtype for dtype, _ in ends}, {one for _, one in ends if one is not None}
        parts, join, dealt = sums.pop() if sums else (1, "ascending", 1)
        tile, widened = self._find_tile(), any(self._is_widened(place) for place in (0, 1))
        warps = int(self._choice(r'"num_warps":"?(\d+)') or 0)
        is_warpgroup = tile is not None and tile[0] >= _ROWS and warps > 0 and warps % _WARPGROUP == 0
        return CompiledProduct(
            (b // parts, m - less["m"], n - less["n"], parts * k - less["k"]),
            (_find_dtypes(lhs), _find_dtypes(rhs)),
            _JAX_NAMES.get(results.pop(), "") if len(results) == 1 else "",
            self.dot.scope,
            is_warpgroup,
            parts,
            k,
            join or "ascending",
            2 if widened and not is_warpgroup and self._fills_tiles(k) else 1,
            dealt,
            self._find_unknown(widened and not is_warpgroup, k, tile) or ("" if join and not sums else _UNKNOWN_JOIN),
        )

    def _choice(self, pattern: str) -> str:
        return "" if self.caller is None else self.caller[1].word(pattern)

    def _sides(self) -> dict[str, tuple[int, ...]]:
        """Return the dimensions of k and of the batch of either operand."""
        found = {}
        for side, kind in itertools.product(("lhs", "rhs"), ("contracting", "batch")):
            listed = self.dot.word(rf'"{side}_{kind}_dimensions":\[([\d",]*)\]').replace('"', "")
            found[f"{side} {kind}"] = read_numbers(listed) or self.dot.numbers(f"{side}_{kind}_dims")
        return found

    def _sizes(self, lhs: tuple[int, ...], rhs: tuple[int, ...]) -> tuple[int, int, int, int]:
        sides = self._sides()
        k, batch = (math.prod(lhs[each] for each in sides[f"lhs {kind}"]) for kind in ("contracting", "batch"))
        return batch, math.prod(lhs) // (k * batch), math.prod(rhs) // (k * batch), k

    def _is_widened(self, place: int) -> bool:
        """Tell whether the kernel itself converts an operand to a wider type."""
        inside = list(self._trace(self.inner, self.inner.operand(self.dot, place), None))
        return len(_find_dtypes(inside)) > 1

    def _fills_tiles(self, k: int) -> bool:
        """Tell whether tiles of a kernel have no k too many, which it would mask; where it does, threads hold no neighbours."""
        tile = int(self.dot.word(r'"sizes":\["(\d+)"\]') or 0)
        return tile > 0 and k % tile == 0

    def _find_unknown(self, widened: bool, k: int, tile: tuple[int, int] | None) -> str:
        if self.dot.opcode == "custom-call":
            library, chosen = self.dot.word(_LIBRARY), self.dot.word(r'"selected_algorithm":"?(\d+)') or "?"
            return f"XLA calls {library.partition('$')[0]}, whose kernel (algorithm {chosen}) its text does not tell"
        kind = self._choice(r'"kind":"(\w+)"')
        if kind not in _KERNELS:
            return f"XLA computes it in a fusion of the kind {kind or 'of a loop'}, without tensor cores or by a kernel that is not known"
        is_unknown = widened and (tile is None or (k % _HELD == 0 and not self._fills_tiles(k)))
        return "the order of k in a kernel that widens operands and has such tiles is not known" if is_unknown else ""

    def _find_tile(self) -> tuple[int, int] | None:
        """Return the rows and columns of the dot that a program of the kernel computes."""
        found = None if self.caller is None else find_tiles(self.caller[1], self.inner.root, self.dot)
        return None if found is None else (found[-2], found[-1])

    def _trace(self, computation: Computation, made: Instruction, caller: tuple[Computation, Instruction] | None) -> Iterator[Instruction]:
        """Follow an operand back, over moves, conversions and padding, to what is none of these."""
        yield made
        if made.opcode in (*_MOVES, "convert", "pad") and made.operands:
            yield from self._trace(computation, computation.operand(made, 0), caller)
        elif made.opcode == "parameter" and caller is not None and caller[1].opcode == "fusion":
            yield from self._trace(caller[0], caller[0].operand(caller[1], int(made.argument)), None)
        elif made.opcode == "fusion" and made.calls in self.module:
            inner = self.module[made.calls]
            if all(each.opcode in (*_MOVES, "convert", "pad", "parameter", "constant") for each in inner.instructions.values()):
                yield from self._trace(inner, inner.root, (computation, made))

    def _find_padding(self, lhs: list[Instruction], rhs: list[Instruction]) -> dict[str, int]:
        """Return how many rows, columns and k XLA added."""
        less, sides = {"m": 0, "n": 0, "k": 0}, self._sides()
        for side, free, steps in (("lhs", "m", lhs), ("rhs", "n", rhs)):
            inner = (*sides[f"{side} contracting"], *sides[f"{side} batch"])
            for pad in (each for each in steps if each.opcode == "pad"):
                added = [sum(map(int, each.split("_")[:2])) for each in pad.word(r"padding=([\d_x-]+)").split("x")]
                for of_pad, of_operand in match_dimensions(pad, steps[0]):
                    less["k" if of_operand[-1] in inner else free] = sum(added[each] for each in of_pad)
        return less

    def _follow(
        self,
        computation: Computation,
        made: Instruction,
        caller: tuple[Computation, Instruction] | None,
        total: Total | None = None,
    ) -> Iterator[tuple[str, Total | None]]:
        """Find the dtypes in which a result is used, and the parts of k that were added on the way with the order."""
        if made.is_root and caller is not None:
            yield from self._follow(caller[0], caller[1], None, total)
            return
        users = computation.users(made.name)
        for user in users:
            if user.opcode in _MOVES:
                yield from self._follow(computation, user, caller, total)
            elif user.opcode == "convert":
                yield user.dtype, total
            elif user.opcode == "reduce" and total is None and self._adds(user):
                parts = math.prod(made.shape[each] for each in user.numbers("dimensions"))
                join = UNKNOWN if caller is None else find_join(caller[1], computation, user, made.shape)
                yield from self._follow(computation, user, caller, (parts, *join))
            elif user.opcode == "fusion":
                body = self.module[user.calls]
                for number, name in enumerate(user.operands):
                    if name == made.name:
                        yield from self._follow(body, body.parameter(number), (computation, user), total)
            else:
                yield made.dtype, total
        if not users:
            yield made.dtype, total

    def _adds(self, reduction: Instruction) -> bool:
        """Tell whether a reduction adds, as XLA does that cuts k."""
        body = self.module.get(reduction.word(r"to_apply=%?([\w.-]+)"))
        return body is not None and body.root.opcode == "add" and "reduce_sum" not in reduction.rest


def _find_dtypes(steps: list[Instruction]) -> frozenset[str]:
    return frozenset(_JAX_NAMES.get(each.dtype, each.dtype) for each in steps if each.dtype)
