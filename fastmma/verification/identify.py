"""Plans that give these bits: the orders of k, the instructions and the epilogues that a matrix product can come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import as_array
from fastmma.host.calls import public_call
from fastmma.host.errors import FastmmaError, OperandError, OperandTypeError
from fastmma.host.integers import integer
from fastmma.isa.formats import Format, format_of
from fastmma.isa.gpus import TargetName, target_named
from fastmma.products.gemm import gemm
from fastmma.products.gemm_plan import GemmPlan
from fastmma.verification.plan_space import ORDERS, TARGETS, Family, epilogues, families, is_one, multiplied, plans

# rows and columns of the samples on which plans are tried, one after the other; each is drawn evenly from the matrix
_SAMPLES = (8, 24, 72, 216)
_WORK = 1 << 33  # multiply-adds of all plans on one sample, at most
_KEPT = 32  # plans that go on to the next sample where none has every bit


@dataclass(frozen=True)
class Match:
    """A plan, and the share of elements whose bits it gives.

    Attributes
    ----------
    plan : GemmPlan
        ``fastmma.gemm(a, b, plan=match.plan)`` computes the product with it.
    share : float
        The share of the compared elements whose bits it gives, from 0 to 1; NaNs count as equal.
    elements : int
        How many elements were compared.
    alike : tuple of str
        The instructions, with targets, that give the same bits.
    """

    plan: GemmPlan
    share: float
    elements: int
    alike: tuple[str, ...] = ()

    def __str__(self) -> str:
        found = f"{100 * self.share:.4g} % of {self.elements:,} elements"
        text = str(self.plan).replace("\n", "\n  ")
        return f"{found}: {text}" + (f"\n    computed alike: {', '.join(self.alike)}" if self.alike else "")


class _Sought(NamedTuple):
    """A product whose plan is sought."""

    d: NDArray[Any]
    a: NDArray[Any]
    b: NDArray[Any]
    c: NDArray[Any] | None
    options: dict[str, Any]  # alpha, beta and bias, where they are given

    def sample(self, side: int) -> _Sought:
        """At most `side` rows and columns, spread evenly: the bits of an element depend on its row of a and its column of b alone."""
        rows, columns = (np.unique(np.linspace(0, size - 1, min(side, size)).astype(np.intp)) for size in self.d.shape)
        options = dict(self.options)
        if "bias" in options:
            options["bias"] = options["bias"][columns]
        place = np.ix_(rows, columns)
        return _Sought(self.d[place], self.a[rows], self.b[:, columns], None if self.c is None else self.c[place], options)

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return int(self.d.size * self.a.shape[1])

    def share(self, plan: GemmPlan) -> float:
        """The share of elements whose bits a plan gives."""
        options = dict(self.options)
        if not plan.epilogue:
            options.clear()
        if self.c is not None and not plan.adds_c:
            options.pop("beta", None)
        found = gemm(self.a, self.b, self.c, plan=plan, **options)
        equal = found.view(f"u{found.itemsize}") == self.d.view(f"u{found.itemsize}")
        if found.dtype.kind != "i":
            equal |= np.isnan(found.astype(np.float64)) & np.isnan(self.d.astype(np.float64))
        return float(equal.mean())


@public_call
def identify(
    d: Any,
    a: Any,
    b: Any,
    *,
    c: Any = None,
    bias: Any = None,
    alpha: Any = 1.0,
    beta: Any = 1.0,
    targets: TargetName | list[TargetName] | None = None,
    most: int = 8,
) -> tuple[Match, ...]:
    """Find the plans that give the bits of a matrix product, best first.

    Instructions, orders of k and epilogues are tried from the likeliest to the least likely on ever larger samples of the elements; the
    search ends where some plans give every bit of a sample of about 50,000. Plans that agree on all of it are equally good: the inputs do
    not tell them apart.

    Parameters
    ----------
    d : array (M, N)
        What was computed; its dtype is the format of the result.
    a, b : array (M, K), array (K, N)
        In the formats that were multiplied; float32 stands for tf32.
    c : array (M, N), optional
        What was added, times `beta`.
    bias : array (N,), optional
    alpha, beta : float
    targets : str or list of str, optional
        The GPUs to try; by default one for each kind of tensor core.
    most : int
        The largest number of plans to return.

    Returns
    -------
    tuple of Match
        Empty if nothing fits the dtypes. The first has a share of 1 if a plan was found.

    Raises
    ------
    TargetError, OperandError, OperandTypeError
        All are `fastmma.FastmmaError`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.standard_normal((64, 512)).astype(np.float16), rng.standard_normal((512, 32)).astype(np.float16)
    >>> d = gemm(a, b, target="sm_80", split_k=3)
    >>> match = identify(d, a, b)[0]
    >>> match.share, match.plan.target, match.plan.split_k
    (1.0, 'sm_80', 3)
    """
    product = _bound(d, a, b, c, bias, alpha, beta)
    most = integer(most, "most", 1)
    chosen = TARGETS if targets is None else targets if isinstance(targets, list) else (targets,)
    found: dict[GemmPlan, tuple[float, tuple[str, ...]]] = {}
    out = format_of(product.d.dtype)
    space = list(_combinations(product, out, tuple(target_named(target) for target in chosen)))
    small = product.sample(_SAMPLES[0])
    for row in ORDERS:
        # one part is cheap: all instructions are tried, also where one has every bit
        for group in [space] if row is ORDERS[0] else [[each] for each in space]:
            tried = {}
            for family, ends, cast in group:
                for plan in plans(row, family, product.a.shape[1], ends, cast):
                    tried[plan] = small.share(plan), family.names
            found |= tried
            if whole := _confirm(product, {plan: value for plan, value in tried.items() if value[0] == 1}):
                return _rank(whole, product.sample(_SAMPLES[-1]).d.size, most)
    best = dict(sorted(found.items(), key=lambda item: -item[1][0])[:_KEPT])
    larger = product.sample(_SAMPLES[2])
    return _rank({plan: (larger.share(plan), alike) for plan, (_, alike) in best.items()}, larger.d.size, most)


Shares = dict[GemmPlan, tuple[float, tuple[str, ...]]]


def _combinations(product: _Sought, out: Format, targets: tuple[str, ...]) -> Iterator[tuple[Family, tuple[tuple[str, ...], str], bool]]:
    """Instructions with epilogues, and whether the operands are rounded first."""
    a, b = multiplied(product.a, "identify: a"), multiplied(product.b, "identify: b")
    given = {name for name in ("alpha", "bias") if name in product.options} | ({"c"} if product.c is not None else set())
    for family in families(a, b, targets):
        (_, ins) = next(iter(family.members.values()))
        for ends in epilogues(ins, out, given):
            for cast in (True, False) if ins.atype == "tf32" else (False,):
                yield family, ends, cast


def _confirm(product: _Sought, survivors: Shares) -> Shares:
    """The plans that give every bit of larger and larger samples."""
    for side in _SAMPLES[1:]:
        sample = product.sample(side)
        affordable = max(_WORK // max(sample.work, 1), 8)
        survivors = {plan: value for plan, value in list(survivors.items())[:affordable] if sample.share(plan) == 1}
    return survivors


def _rank(found: Shares, elements: int, most: int) -> tuple[Match, ...]:
    """Matches by share; the order of the search decides among equals."""
    matches = [Match(plan, share, elements, alike) for plan, (share, alike) in found.items()]
    return tuple(sorted(matches, key=lambda match: -match.share)[:most])


def _bound(d: Any, a: Any, b: Any, c: Any, bias: Any, alpha: Any, beta: Any) -> _Sought:
    """The product as arrays that fit each other."""
    arrays = [as_array(value, f"identify: {name}") for name, value in (("d", d), ("a", a), ("b", b))]
    if any(array.ndim != 2 for array in arrays):
        raise OperandError("identify: d, a and b must have two dimensions")
    result, first, second = arrays
    if first.shape[1] != second.shape[0] or result.shape != (first.shape[0], second.shape[1]):
        raise OperandError(f"identify: d {result.shape}, a {first.shape} and b {second.shape} are not (M, N), (M, K) and (K, N)")
    try:
        format_of(result.dtype)
    except FastmmaError:
        raise OperandTypeError(f"identify: d has dtype {result.dtype}, in which no product results") from None
    options: dict[str, Any] = {} if is_one(alpha) else {"alpha": alpha}
    if bias is not None:
        options["bias"] = as_array(bias, "identify: bias")
        if options["bias"].shape != result.shape[1:]:
            raise OperandError(f"identify: bias must have shape {result.shape[1:]}, not {options['bias'].shape}")
    added = None if c is None else as_array(c, "identify: c")
    if added is not None:
        options["beta"] = beta
        if added.shape != result.shape:
            raise OperandError(f"identify: c must have shape {result.shape}, not {added.shape}")
    return _Sought(np.ascontiguousarray(result), first, second, added, options)
