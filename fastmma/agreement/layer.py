"""A layer's product as a library is asked for it, and the plan that the library takes for a number of rows."""

from __future__ import annotations

from typing import Any, NamedTuple

from fastmma.agreement.ranks import ALL_REDUCES, RING, RanksPlan, across_ranks
from fastmma.host.errors import OperandError
from fastmma.host.integers import integer
from fastmma.isa.formats import FORMATS, Format, format_of
from fastmma.isa.gpus import TargetName
from fastmma.products import cublas
from fastmma.products.bound import Strided
from fastmma.products.by_tile import ByTile
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.lanes_plan import LanesPlan

LAYOUTS = ("nn", "nt", "tn", "tt")
PRESETS = {"cublas": False, "cublas-fast-accum": True}
CUTS = ("k", "n")
LEAST_RATE = float.fromhex("0x1.fff972474538fp-1")  # 0.99995
Planned = GemmPlan | LanesPlan | RanksPlan
_RESULTS = {"e4m3": "bf16", "e5m2": "bf16", "tf32": "f32"}  # where they have not the format of the operands


class Sharing(NamedTuple):
    """The sharing of a product among ranks.

    Attributes
    ----------
    ranks : int
    cut : {"k", "n"}
        What they share: parts of k, or columns of the result.
    all_reduce : {"ring", "tree"}
        How the results of parts of k are added.
    """

    ranks: int = 1
    cut: str = "k"
    all_reduce: str = RING

    def __str__(self) -> str:
        if self.ranks == 1:
            return ""
        return f" on {self.ranks} ranks, {f'k cut, {self.all_reduce}' if self.cut == 'k' else 'columns cut'}"


ALONE = Sharing()


class Layer(NamedTuple):
    """A product whose number of rows is open.

    Attributes
    ----------
    n, k : int
        Of the whole, which ranks may share.
    fmt, out : Format
        Of both operands, and of the result.
    layout : str
    fast_accum : bool
        Whether sums of 8-bit floats are not promoted.
    bias : bool
    stack : int
        How many products there are of a call.
    sharing : Sharing
    """

    n: int
    k: int
    fmt: Format
    out: Format
    layout: str
    fast_accum: bool
    bias: bool
    stack: int
    sharing: Sharing

    @classmethod
    def of(cls, n: int, k: int, *, dtype: Any, layout: str, preset: str, out_dtype: Any, bias: bool, stack: int, sharing: Sharing) -> Layer:
        """Check what `fastmma.invariance` is asked.

        Raises
        ------
        OperandError, OperandTypeError, InstructionError
        """
        fmt = format_of(dtype)
        out = format_of(out_dtype) if out_dtype is not None else FORMATS[_RESULTS.get(fmt.name, fmt.name)]
        sizes = {name: integer(value, f"invariance: {name}", 1) for name, value in (("n", n), ("k", k), ("stack", stack))}
        for name, value, known in (
            ("layout", layout, LAYOUTS),
            ("preset", preset, PRESETS),
            ("cut", sharing.cut, CUTS),
            ("all_reduce", sharing.all_reduce, ALL_REDUCES),
        ):
            if value not in known:
                raise OperandError(f"invariance: {name} must be one of {', '.join(known)}, not {value!r}")
        if sizes[sharing.cut] % sharing.ranks:
            raise OperandError(f"invariance: {sharing.cut} = {sizes[sharing.cut]} cannot be cut into equal parts for {sharing.ranks} ranks")
        if bias and sharing.ranks > 1 and sharing.cut == "k":
            raise OperandError("invariance: where ranks share k, a bias is added after their sum, by an operation of its own: leave it out")
        return cls(sizes["n"], sizes["k"], fmt, out, layout, PRESETS[preset], bias, sizes["stack"], sharing)

    def plan(self, rows: int, target: TargetName, least_rate: float) -> Planned | None:
        """Return the library's plan for so many rows; None where it is not known well enough."""
        shares = {self.sharing.cut: self.sharing.ranks}
        wide, deep = self.n // shares.get("n", 1), self.k // shares.get("k", 1)
        options: dict[str, Any] = {"target": target, "use_fast_accum": self.fast_accum}
        options |= {"out_dtype": self.out.name} if self.fmt.kind == "float" else {}
        options |= {"tf32": True} if self.fmt.name == "tf32" else {}
        options |= {"bias": Strided(self.out.dtype, (wide,), (self.out.dtype.itemsize,))} if self.bias else {}
        try:
            plan = cublas.plan(self._operand(rows, deep, self.layout[0]), self._operand(deep, wide, self.layout[1]), **options)
        except OperandError:
            return None
        if isinstance(getattr(plan, "split_k", 1), ByTile):  # rows of one call have different bits
            return None
        evidence = plan.evidence
        rate = evidence.rate if evidence is not None else None
        sure = rate is not None and rate[0] >= least_rate * rate[1]
        if evidence is None or not (evidence.level == "recorded" or sure):
            return None
        return across_ranks(plan, self.sharing.ranks, self.sharing.all_reduce) if shares.get("k", 1) > 1 else plan

    def _operand(self, rows: int, columns: int, layout: str) -> Strided:
        size = self.fmt.dtype.itemsize
        matrix = (rows, columns), (columns * size, size) if layout == "n" else (size, rows * size)
        if self.stack == 1:
            return Strided(self.fmt.dtype, *matrix)
        return Strided(self.fmt.dtype, (self.stack, *matrix[0]), (rows * columns * size, *matrix[1]))
