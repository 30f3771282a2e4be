"""The keywords that the plan of a plain product follows from: as a call gives them, and as they are read."""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

from fastmma.host.errors import OperandError
from fastmma.isa.gpus import TargetName
from fastmma.isa.instruction import Instruction
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.products.by_tile import ByTile, Cuts
from fastmma.products.choice import named

DEFAULT_TARGET = "sm_90a"


class GemmChoices(TypedDict, total=False):
    """The keywords of `fastmma.gemm`, `fastmma.gemm_plan`, `fastmma.matmul` and `fastmma.prepare` that choose a plan."""

    instruction: str | Instruction | None
    target: TargetName
    accumulator: Any
    promote_every: int | None
    split_k: int | Cuts | list[tuple[int, int]] | ByTile
    join: str
    join_dtype: Any
    preset: str | None
    activation: str | None
    out_dtype: Any
    cast: bool
    arithmetic: Arithmetic | None
    unknown: str


class Choices(NamedTuple):
    """Such keywords with their defaults, formats by name."""

    instruction: str | Instruction | None = None
    target: TargetName = DEFAULT_TARGET
    promote_every: int | None = None
    split_k: int | Cuts | list[tuple[int, int]] | ByTile = 1
    preset: str | None = None
    cast: bool = False
    accumulator: Any = None
    activation: str | None = None
    out_dtype: Any = None
    join: str = "ascending"
    join_dtype: str = ""
    arithmetic: Arithmetic | None = None
    unknown: str = "one"

    @property
    def reads_dtypes(self) -> bool:
        """True if the plan follows from the dtypes of the operands."""
        return self.instruction is None or self.preset is not None


UNSET = Choices()
UNKNOWN = ("one", "refuse")


def read_choices(given: GemmChoices) -> Choices:
    """Complete the keywords of a call, and name their formats, in place.

    Raises
    ------
    OperandTypeError, OperandError
        If something is no format, or `unknown` is neither "one" nor "refuse".
    TypeError
        If there is a keyword of another name.
    """
    if not given:
        return UNSET
    # the dict is the call's own
    if "accumulator" in given:
        given["accumulator"] = named(given["accumulator"], "accumulator")
    if "out_dtype" in given:
        given["out_dtype"] = named(given["out_dtype"], "out_dtype")
    if "join_dtype" in given:
        given["join_dtype"] = named(given["join_dtype"], "join_dtype") or ""
    if given.get("unknown", UNKNOWN[0]) not in UNKNOWN:
        raise OperandError(f"unknown must be one of {', '.join(UNKNOWN)}, not {given['unknown']!r}")
    return Choices(**given)
