"""A backend that computes one element of a product by the reference, and keeps every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fastmma.backends.call import Codes, Operands, Operation
from fastmma.backends.exact import Exact
from fastmma.explanation.steps import ZERO, Dyadic, Step, Term, decoded, difference_of, dyadic, own_term, sum_of, summands, value_of
from fastmma.isa.formats import Format
from fastmma.isa.instruction import Instruction
from fastmma.kernels.params import Step as Operator
from fastmma.numerics import reference, reference_steps
from fastmma.numerics.methods import METHODS
from fastmma.numerics.reference_steps import Number, watching

# names of the operands of IEEE operations inside an instruction: those of a lowered form come after its sums of products
_Names = dict[str, tuple[str, ...]]
_INSIDE: _Names = {"fma": ("a", "b", "accumulator"), "add": ("sum", "c"), "convert": ("value",)}
_CHAINED: _Names = {**_INSIDE, "add": ("accumulator", "chain")}
_PAIRED: _Names = {"multiply": ("a", "b"), "add": ("first", "second")}
_NAMES: dict[str, _Names] = {"steps": _INSIDE, "chain": _CHAINED, "trees": _PAIRED, "integers": _INSIDE}
# and when partial sums join a total, operation by operation
_PROMOTED: dict[str, tuple[tuple[str, ...], ...]] = {
    "add": (("total", "partial"),),
    "fma": (("scale_a", "scale_b"), ("scale_a * scale_b", "partial", "total")),
    "multiply-add": (("scale_a", "scale_b"), ("scale_a * scale_b", "partial"), ("total", "scaled partial")),
    "fma-each": (("partial", "scale_a"), ("partial * scale_a", "scale_b", "total")),
    "multiply-add-each": (("partial", "scale_a"), ("partial * scale_a", "scale_b"), ("total", "scaled partial")),
}
_JOINED = {"split-k": ("total", "part"), "promotion": ("total", "partial")}
_OPERANDS = {"multiply": 2, "add": 2, "fma": 3, "accumulate": 3}  # of an operation of an epilogue; of others one


def _operands_of(step: Operator) -> tuple[str, ...]:
    """Names of what an operation of an epilogue takes, in the order in which the reference does."""
    if len(step.names) == _OPERANDS.get(step.operation, 1):
        return step.names
    return (*step.names, "x") if step.operation == "accumulate" else ("x", *step.names)


class Recorder(Exact):
    """Computes the element [row, col] of every product that it is given, leaves the others 0, and notes its steps in `steps`."""

    def __init__(self, row: int, col: int) -> None:
        self.steps: list[Step] = []
        self.row, self.col = slice(row, row + 1), slice(col, col + 1)
        self._k = 0  # of the next instruction
        self._stop = 0  # where the k of this run end: an instruction goes on with zeros

    def run(self, operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
        """`Backend.run`."""
        self._stop = self._k + operands.depth
        found = np.empty((len(d), 1, 1), d.dtype)
        super().run(operation, operands.lines(self.row, self.col), found, threads)
        self._k = self._stop
        d[...] = 0
        d[:, self.row, self.col] = found

    def execute(self, operation: Operation, operands: Operands, c: Codes) -> Codes:
        """`Exact.execute`."""
        with watching() as seen:
            d = super().execute(operation, operands, c)
        ins = operation.instruction
        factors = _Factors(ins, operands)
        names = _NAMES[METHODS[operation.arithmetic.method].sums]
        for step in seen:
            if step.operation in ("fused", "sum"):
                terms = [factors.term(each, self._k, self._stop) for each in step.terms[:-1]]
                self._note("instruction", step, [*terms, own_term("accumulator", step.terms[-1])])
            else:
                terms = summands(step, names[step.operation])
                if step.terms[0].ks:
                    terms[0] = factors.term(reference_steps.product(step.terms[0], step.terms[1]), self._k, self._stop)
                self._note("instruction", step, terms)
        self._k += ins.k
        return d

    def promote(self, rule: str, partial: Codes, total: Codes, scale_a: Codes | None, scale_b: Codes | None) -> Codes:
        """`Exact.promote`."""
        scales = (None if scale_a is None else scale_a[self.row], None if scale_b is None else scale_b[self.col])
        with watching() as seen:
            found = super().promote(rule, partial[self.row, self.col], total[self.row, self.col], *scales)
        self._note_all("promotion", seen, _PROMOTED[rule])
        return self._place(found, total)

    def join(self, total: Codes, part: Codes, fmt: Format, stage: str = "split-k") -> Codes:
        """`Backend.join`."""
        with watching() as seen:
            found = super().join(total[:, self.row, self.col], part[:, self.row, self.col], fmt)
        self._note_all(stage, seen, (_JOINED[stage],))
        return self._place(found, total)

    def rounded(self, sums: Codes, fmt: str, threads: int) -> Codes:
        """`Backend.rounded`."""
        with watching() as seen:
            found = Exact().rounded(sums[:, self.row, self.col], fmt, threads)
        self._note_all("split-k", seen, (("sum",),))
        return self._place(found, sums)

    def apply(self, sums: Codes, steps: list[Operator], threads: int) -> Codes:
        """`Backend.apply`."""
        # an operand of all rows, or of all columns, has only one
        row, col = (slice(0, 1) if extent == 1 else own for extent, own in zip(sums.shape, (self.row, self.col), strict=True))
        place = row, col
        found = sums[place]
        for step in steps:
            first, second = (None if each is None else each[place] for each in (step.first, step.second))
            with watching() as seen:
                found = super().apply(found, [step._replace(first=first, second=second)], threads)
            self._note_all("epilogue", seen, (_operands_of(step),))
        result = np.array(sums)
        result[place] = found
        return result

    def narrow(self, sums: Codes, out: str, threads: int) -> Codes:
        """`Backend.narrow`: of sums that the epilogue has rounded to `out`, and so not a step."""
        found = super().narrow(sums[self.row, self.col], out, threads)
        return self._place(found, np.zeros(sums.shape, found.dtype))

    def _place(self, found: Codes, others: Codes) -> Codes:
        result = np.zeros_like(others)
        result[..., self.row, self.col] = found
        return result

    def _note_all(self, stage: str, seen: Sequence[reference_steps.Step], names: Sequence[Sequence[str]]) -> None:
        for step, own in zip(seen, names, strict=True):
            self._note(stage, step, summands(step, own))

    def _note(self, stage: str, seen: reference_steps.Step, terms: list[Term]) -> None:
        """Keep a step, with what alignment and rounding took; the zeros that fill an instruction are left out."""
        if seen.aligned:
            terms = [_align(term, dyadic(units, seen.last)) for term, units in zip(terms, seen.aligned, strict=True)]
        shown = tuple(term for term in terms if term.k or seen.operation == "fma" or term.name not in ("product", "group"))
        total = None
        if not any(term.special for term in terms):
            total = sum_of([term.value if term.kept is None else term.kept for term in terms])
        finite = total is not None and not decoded(seen.code, seen.fmt).special
        ks = [k for term in shown for k in term.k]
        self.steps.append(
            Step(
                stage=stage,
                operation=seen.operation,
                k=(min(ks), max(ks) + 1) if ks else (min(self._k, self._stop),) * 2,
                terms=shown,
                emax=seen.emax if seen.aligned else None,
                unit=seen.last if seen.aligned else None,
                total=total,
                rounding=seen.mode,
                dropped=difference_of(total, value_of(seen.code, seen.fmt)) if finite and total is not None else ZERO,
                code=seen.code,
                format=seen.fmt.name,
            )
        )


def _align(term: Term, kept: Dyadic) -> Term:
    """A term, and what alignment leaves of it."""
    return replace(term, kept=kept, lost=difference_of(term.value, kept))


class _Factors:
    """The codes that one instruction multiplies for one element, by their k."""

    def __init__(self, ins: Instruction, operands: Operands) -> None:
        self.ins = ins
        ks = reference.columns_of_stored(ins, None if operands.metadata is None else operands.metadata[0])[0]
        self.a = dict(zip(ks, operands.a[0, 0].tolist(), strict=True))
        self.b = operands.b[0, :, 0].tolist()
        self.scales = tuple(None if each is None else each.ravel().tolist() for each in (operands.scale_a, operands.scale_b))

    def term(self, value: Number, first: int, stop: int) -> Term:
        """A product or a group as a term; its k count from `first`, and those from `stop` on are no operand's."""
        ks = tuple(k for k in value.ks if first + k < stop)
        scale_a, scale_b = (None if each is None or not ks else each[ks[0] * len(each) // self.ins.k] for each in self.scales)
        return replace(
            own_term("product" if len(value.ks) < 2 else "group", value),
            k=tuple(first + k for k in ks),
            a=tuple(self.a[k] for k in ks),
            b=tuple(self.b[k] for k in ks),
            scale_a=scale_a,
            scale_b=scale_b,
        )
