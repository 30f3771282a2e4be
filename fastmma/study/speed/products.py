"""Products that are measured: of one format, or of block-scaled arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fastmma.host.addresses import aligned_empty
from fastmma.host.errors import FastmmaError, OperandError
from fastmma.isa.formats import format_of
from fastmma.isa.gpus import target_named
from fastmma.isa.instruction import Instruction
from fastmma.products.choice import default_instruction
from fastmma.products.gemm import gemm
from fastmma.products.scaled import scaled_matmul
from fastmma.products.scaled_choice import scaled_plan
from fastmma.scaling import SCHEMES, ScaledArray, quantize
from fastmma.scaling.schemes import scheme_of

Shape = tuple[int, int, int]
Run = Callable[[int], Any]


@lru_cache(16)
def operand(atype: str, shape: tuple[int, int], seed: int) -> NDArray[Any]:
    """A matrix of normally distributed numbers, of random bytes, or of random bits."""
    fmt = format_of(atype)
    rng = np.random.default_rng(seed)
    if fmt.kind == "bit":
        return rng.integers(0, 2, shape, dtype=np.uint8).view(bool)
    if fmt.kind != "float":
        return rng.integers(int(fmt.min), int(fmt.max) + 1, shape).astype(fmt.dtype)
    return rng.standard_normal(shape, dtype=np.float32).astype(fmt.dtype)


@dataclass(frozen=True)
class TimedProduct:
    """A product of two matrices of one format, by the instruction that the target's library would use.

    Attributes
    ----------
    atype : str
        Format of A and B.
    target : str
    finished : bool
        Whether a bias is added, and the result rounded to bfloat16.
    """

    atype: str
    target: str
    finished: bool = False

    def instruction(self) -> Instruction:
        """Choose the instruction that multiplies.

        Raises
        ------
        InstructionError, TargetError
        """
        return default_instruction(self.atype, self.atype, None, target_named(self.target))

    def operands(self, shape: Shape) -> tuple[NDArray[Any], NDArray[Any]]:
        """A and B."""
        m, n, k = shape
        return operand(self.atype, (m, k), 0), operand(self.atype, (k, n), 1)

    def run(self, shape: Shape) -> Run:
        """A function of the number of threads that computes the product once."""
        (m, n, _), (a, b), ins = shape, self.operands(shape), self.instruction()
        out = aligned_empty((m, n), ml_dtypes.bfloat16 if self.finished else ins.operands["d"].format.dtype)  # as `gemm` makes large ones
        more: dict[str, Any] = {"bias": np.ones(n, np.float32)} if self.finished else {}
        return lambda threads: gemm(a, b, instruction=ins, target=self.target, threads=threads, out=out, **more)


@dataclass(frozen=True)
class ScaledProduct:
    """A product of block-scaled arrays; quantising them is not part of it.

    Attributes
    ----------
    schemes : (str, str)
        Of A and B.
    target : str
    """

    schemes: tuple[str, str]
    target: str

    def instruction(self) -> Instruction:
        """Choose the instruction that multiplies.

        Raises
        ------
        FastmmaError
            If the target has no such product.
        """
        return scaled_plan(*self.operands((128, 128, 512)), target=self.target).operation.instruction

    def operands(self, shape: Shape) -> tuple[ScaledArray, ScaledArray]:
        """A and B."""
        m, n, k = shape
        a, b = quantize(operand("f32", (m, k), 0), self.schemes[0]), quantize(operand("f32", (n, k), 1), self.schemes[1])
        return a, b.T

    def run(self, shape: Shape) -> Run:
        """A function of the number of threads that computes the product once."""
        a, b = self.operands(shape)
        plan = scaled_plan(a, b, target=self.target)
        return lambda threads: scaled_matmul(a, b, plan=plan, threads=threads)


def sgemm(shape: Shape) -> Run:
    """NumPy's float32 product, as a function of the same form; how many threads it takes is its own affair."""
    m, n, k = shape
    a, b = operand("f32", (m, k), 0), operand("f32", (k, n), 1)
    out = np.empty((m, n), np.float32)
    return lambda _threads: np.matmul(a, b, out=out)


_PLAIN = ("f16", "bf16", "tf32", "e4m3", "e5m2", "f64", "s8", "b1")
_PARTNERS = {"fp8_1x128": "fp8_128x128"}  # DeepGEMM's activations and weights
FAMILIES = (*_PLAIN, *SCHEMES)


def family_named(name: str) -> str:
    """The family that a name or an alias means.

    Raises
    ------
    OperandError
        If there is no such family.

    Examples
    --------
    >>> family_named("f16"), family_named("MXFP8")
    ('f16', 'mxfp8_e4m3')
    """
    if name in _PLAIN:
        return name
    try:
        return scheme_of(name).name
    except FastmmaError:
        raise OperandError(f"there is no family {name!r}; there are {', '.join(FAMILIES)}") from None


def product_of(family: str, target: str) -> TimedProduct | ScaledProduct:
    """The product of a family on a target.

    Raises
    ------
    FastmmaError
        If there is no such family, the target cannot multiply it, or nobody knows how.
    """
    known, name = family_named(family), target_named(target)
    found = TimedProduct(known, name) if known in _PLAIN else ScaledProduct((known, _PARTNERS.get(known, known)), name)
    found.instruction()
    return found


def refusal(family: str, target: str) -> str:
    """Why a target does not multiply a family; empty where it does."""
    try:
        product_of(family, target)
    except FastmmaError as error:
        return str(error)
    return ""
