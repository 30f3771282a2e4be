"""Cases of a study, each of which is one product under one configuration, and grids of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Any

from fastmma.host.calls import named_fields
from fastmma.host.errors import OperandError
from fastmma.host.integers import integer
from fastmma.isa.gpus import target_named
from fastmma.isa.instruction import Instruction
from fastmma.numerics.changes import changes
from fastmma.study.distributions import distribution_of
from fastmma.study.products import IEEE, instruction_of

_EDITION = 4  # of what a record holds and how it is computed; a new one makes older records those of other cases
SAMPLE = 512


@named_fields
@dataclass(frozen=True)
class Case:
    """One product: everything that decides its record.

    Attributes
    ----------
    format : str
        The format of both operands, or ``"A,B"``: an element format such as ``"e4m3"``, to which values are rounded (to nearest even,
        finite ones beyond its range to the largest value), or a scaling scheme of `fastmma.scaling` such as ``"nvfp4"``, with a rule or
        a rounding that is not its first after a colon, such as ``"mxfp4:even"`` or ``"nvfp4:stochastic"``.
    target : str
        The GPU; or ``"ieee-f32"``, where an f32 accumulator takes one product after the other in ascending k, every multiplication and
        every addition being rounded to nearest even.
    m, n, k : int
        The operands are A (M, K) and weights B (N, K); the product is A times the transpose of B.
    promote_every, split_k
        The accumulation plan, as `fastmma.gemm` and `fastmma.scaled_matmul` have it; what is not given, `fastmma.scaled_plan` chooses.
    distribution : str
        The distribution of operands that are not read from files.
    weights, activations : str
        The files of B and A, with the digest of their values, or empty.
    seed : int
    sample : int
        Rows and columns of the product that are compared with the exact one, at most that many of each, drawn at random from the seed.
    arithmetic : str
        Changes of the target's arithmetic, such as ``"align_bits=20,rounding=rn"``; the fields are those of `fastmma.Arithmetic`.
    """

    format: str
    target: str
    m: int
    n: int
    k: int
    promote_every: int | None = None
    split_k: int = 1
    distribution: str = "normal"
    weights: str = ""
    activations: str = ""
    seed: int = 0
    sample: int = SAMPLE
    arithmetic: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "arithmetic", ",".join(f"{name}={value}" for name, value in changes(self.arithmetic).items()))
        least = {"m": 1, "n": 1, "k": 1, "split_k": 1, "seed": 0, "sample": 1}
        if self.promote_every is not None:
            least["promote_every"] = 1
        for name, low in least.items():
            value = integer(getattr(self, name), f"study: {name}", low)
            object.__setattr__(self, name, value)  # NumPy's integers are none of JSON's
        for name in ("format", "target", "weights", "activations"):
            if not isinstance(getattr(self, name), str):
                raise OperandError(f"study: {name} must be a string, not {getattr(self, name)!r}")
        distribution_of(self.distribution)
        _ = self.instruction  # raises where there is none

    @property
    def instruction(self) -> Instruction | None:
        """What runs; None for IEEE f32."""
        return instruction_of(self.format, self.target, self.promote_every, self.split_k, self.arithmetic)

    @property
    def key(self) -> str:
        """A name of the whole configuration, by which a record is found again."""
        from hashlib import sha256  # which takes time, and is needed when work has begun

        text = json.dumps({"edition": _EDITION, **asdict(self)}, sort_keys=True)
        return sha256(text.encode()).hexdigest()[:20]

    @property
    def accumulator(self) -> str:
        """Target, accumulation plan and changes of the arithmetic in short."""
        promoted = f", promoted every {self.promote_every}" if self.promote_every else ""
        own = f", {self.arithmetic.replace(',', ', ')}" if self.arithmetic else ""
        return self.target + promoted + (f", split-k {self.split_k}" if self.split_k > 1 else "") + own

    @property
    def source(self) -> str:
        """Where the operands come from, in short."""
        if not (self.weights or self.activations):
            return f"operands drawn ({self.distribution})"
        drawn = f"drawn ({self.distribution})"
        operands = (("weights", self.weights), ("activations", self.activations))
        return ", ".join(f"{name} {value.rpartition(' ')[0] or drawn}" for name, value in operands)


CASE_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(Case))


def case_of(record: Mapping[str, Any]) -> Case:
    """The configuration of a record."""
    return Case(**{name: record[name] for name in CASE_FIELDS})


@named_fields
@dataclass(frozen=True)
class Grid:
    """Cases: every combination of the choices.

    Attributes
    ----------
    formats, targets : tuple of str
    shapes : tuple of (M, N, K)
        Where an operand comes from a file, its extents replace those given here.
    distributions : tuple of str
    promote_every : tuple of int or None
    split_k : tuple of int
    seeds : tuple of int
    sample : int
    arithmetics : tuple of str
        As in `Case`, which says what each choice means.

    Raises
    ------
    fastmma.FastmmaError
        By `cases`, if a choice is unknown or a format does not run on a target.

    Examples
    --------
    >>> grid = Grid(formats=("e4m3",), targets=("sm_90a", "ieee-f32"), shapes=((64, 64, 256),), promote_every=(None, 128))
    >>> [case.accumulator for case in grid.cases()]
    ['sm_90a', 'sm_90a, promoted every 128', 'ieee-f32']
    """

    formats: tuple[str, ...]
    targets: tuple[str, ...]
    shapes: tuple[tuple[int, int, int], ...]
    distributions: tuple[str, ...] = ("normal",)
    promote_every: tuple[int | None, ...] = (None,)
    split_k: tuple[int, ...] = (1,)
    seeds: tuple[int, ...] = (0,)
    sample: int = SAMPLE
    arithmetics: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        for name in ("formats", "targets", "shapes", "distributions", "promote_every", "split_k", "seeds", "arithmetics"):
            value = getattr(self, name)
            if not isinstance(value, tuple | list):
                raise OperandError(f"study: {name} must be a tuple of choices, not {value!r}")
            object.__setattr__(self, name, tuple(value))
        for shape in self.shapes:
            if not isinstance(shape, tuple | list) or len(shape) != 3:
                raise OperandError(f"study: a shape must be (M, N, K), not {shape!r}")

    def cases(self) -> Iterator[Case]:
        """The cases, those with the same operands next to each other; IEEE accumulation has no plan, so that it is one case."""
        seen = set()
        for distribution, seed, (m, n, k), fmt, target in product(self.distributions, self.seeds, self.shapes, self.formats, self.targets):
            plans = ((None, 1, ""),) if target == IEEE else product(self.promote_every, self.split_k, self.arithmetics)
            for promote_every, split_k, own in plans:
                options: dict[str, Any] = {"distribution": distribution, "seed": seed, "sample": self.sample, "arithmetic": own}
                case = Case(fmt, target if target == IEEE else target_named(target), m, n, k, promote_every, split_k, **options)
                if case not in seen:
                    seen.add(case)
                    yield case
