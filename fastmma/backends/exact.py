"""The backend "reference": product by product, instruction by instruction, in exact integers."""

from __future__ import annotations

import numpy as np

from fastmma.backends.call import Codes, Operands, Operation, cut, truth_values, whole_k
from fastmma.backends.engine import Backend
from fastmma.host.threads import parallel_for
from fastmma.isa.formats import Format
from fastmma.kernels.params import Promotion, Step
from fastmma.numerics import reference, reference_steps, reference_sums


class Exact(Backend):
    """Python integers: slow, and meant to be read."""

    def run(self, operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
        """`Backend.run`."""
        del threads  # Python runs on one at a time, and the caller's is the one that answers Ctrl-C
        ins, whole = operation.instruction, whole_k(operation.instruction, truth_values(operation.instruction, operands))

        def work(start: int, stop: int, _worker: int) -> None:
            for index in range(start, stop):
                product = whole.products(index, index + 1)
                sums = np.zeros(d.shape[1:], d.dtype) if product.c is None else product.c[0]
                for k in range(0, whole.depth, ins.k):
                    sums = self.execute(operation, cut(ins, product, k, k + ins.k), sums)
                d[index] = sums

        parallel_for(work, len(d), 1)

    def execute(self, operation: Operation, operands: Operands, c: Codes) -> Codes:
        """One instruction of one product, from codes c (m, n) to codes of d."""
        one = operands.each(lambda codes: codes[0])
        ins, arithmetic = operation.instruction, operation.arithmetic
        return reference.tile(ins, arithmetic, one.a, one.b, c, metadata=one.metadata, scale_a=one.scale_a, scale_b=one.scale_b)

    def promote(self, rule: str, partial: Codes, total: Codes, scale_a: Codes | None, scale_b: Codes | None) -> Codes:
        """Partial sums of a chunk of k join the totals (m, n) by a rule of `PROMOTIONS`."""
        return reference_sums.promote(rule, partial, total, scale_a, scale_b)

    def promoted(self, operation: Operation, operands: Operands, d: Codes, promotion: Promotion, threads: int) -> None:
        """`Backend.promoted`."""
        ins, depth = operation.instruction, operands.depth
        total = np.zeros(d.shape, d.dtype) if operands.c is None else operands.c.copy()
        for chunk, start in enumerate(range(0, depth, promotion.every)):
            partial = np.empty_like(d)
            self.run(operation, cut(ins, operands, start, min(start + promotion.every, depth)), partial, threads)
            for index in range(len(d)):
                own = promotion.of(index)
                scales = [None if each is None else each[chunk].view(np.uint32) for each in (own.scale_a, own.scale_b)]
                total[index] = self.promote(promotion.rule, partial[index], total[index], *scales)
        d[...] = total

    def join(self, total: Codes, part: Codes, fmt: Format, stage: str = "split-k") -> Codes:  # noqa: ARG002 - for who explains it
        """`Backend.join`."""
        pairs = zip(total.ravel().tolist(), part.ravel().tolist(), strict=True)
        if fmt.kind == "float":
            sums = [reference_steps.ieee_add(reference_steps.number(x, fmt), reference_steps.number(y, fmt), fmt) for x, y in pairs]
        else:
            sums = [reference.integer_sum([reference_steps.Number(x - (x >> 31 << 32), code=x)], y, saturate=False) for x, y in pairs]
        return np.array(sums, fmt.code_dtype).reshape(total.shape)

    def apply(self, sums: Codes, steps: list[Step], threads: int) -> Codes:  # noqa: ARG002 - one thread
        """`Backend.apply`."""
        return reference_sums.apply(sums, steps)

    def narrow(self, sums: Codes, out: str, threads: int) -> Codes:  # noqa: ARG002 - one thread
        """`Backend.narrow`."""
        return sums if out == "f32" else reference_sums.narrow(sums, out)
