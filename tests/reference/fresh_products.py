"""Products that PyTorch 2.11 computed on an H200 and an H100 after all rules were made, and what fastmma says of them from shapes.

``python tests/reference/fresh_products.py`` prints, by kind of product and by how well its order is known, how many have every bit.
``python tests/reference/fresh_products.py H100`` does so for those of the H100, and ``fresh_products.py H200 choices`` from the choices
that cuBLASLt answered for the shapes, without c.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fastmma.cublas import Choice
from numpy.typing import NDArray

import fastmma

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from reference import cancelling
from reference.by_tile import of_kept
from reference.cublas_kernels import DTYPES

FOLDER = Path(__file__).parent
PATHS = {"H200": FOLDER / "fresh_products.npz", "H100": FOLDER / "fresh_products_h100.npz"}
_BITS = {"bf16": 8, "f16": 11}


class Fresh(NamedTuple):
    """A call of ``mm``, ``linear`` or ``addmm``; its result at the rows and columns that are not zero, as f32 codes."""

    group: str
    op: str
    fmt: str
    layout: str
    m: int
    n: int
    k: int
    bias: bool
    seed: int

    @property
    def out(self) -> str:
        """The format of the result."""
        return "f32" if self.fmt == "tf32" else self.fmt


def recorded(gpu: str = "H200") -> Iterator[tuple[Fresh, NDArray[np.uint32]]]:
    """All calls of a GPU with what they returned."""
    with np.load(PATHS[gpu]) as archive:
        calls, sizes, codes = json.loads(archive["calls"].tobytes()), archive["sizes"], archive["codes"]
    ends = np.cumsum(sizes)
    for call, size, end in zip(calls, sizes, ends, strict=True):
        yield Fresh(*call), codes[end - size : end]


def _empty(rows: int, columns: int, dtype: Any, layout: str) -> NDArray[Any]:
    """A matrix that is never read, of which the system gives no memory."""
    return np.empty((columns, rows), dtype).T if layout == "t" else np.empty((rows, columns), dtype)


def choices(gpu: str = "H200") -> Iterator[tuple[Choice, Choice]]:
    """What cuBLASLt answered for all calls: without a bias, and with one; the workspace only where none is needed."""
    with np.load(FOLDER / "fresh_choices.npz") as archive:
        answers = archive[gpu].tolist()
    for pair in answers:
        first, second = (Choice(*row[:9], workspace=None if row[9] else 0) for row in pair)
        yield first, second


def planned(fresh: Fresh, gpu: str = "H200", choice: Choice | None = None) -> Any:
    """The plan by the choice, or by the shapes alone."""
    dtype, out = DTYPES[fresh.fmt], DTYPES[fresh.out]
    added: dict[str, Any] = {"bias": np.empty(fresh.n, out)} if fresh.bias else {}
    if fresh.op == "addmm" and not fresh.bias:
        added["c"] = np.empty((fresh.m, fresh.n), out)
    a, b = _empty(fresh.m, fresh.k, dtype, fresh.layout[0]), _empty(fresh.k, fresh.n, dtype, fresh.layout[1])
    return fastmma.cublas.plan(a, b, choice=choice, target=gpu, out_dtype=fresh.out, tf32=fresh.fmt == "tf32", **added)


def computed(fresh: Fresh, plan: Any) -> NDArray[np.float32]:
    """What a plan computes at the rows and columns that are kept."""
    first, second = cancelling.vectors(fresh.fmt, fresh.fmt, fresh.k, fresh.seed)
    rows, columns, dtype, out = cancelling.kept(fresh.m), cancelling.kept(fresh.n), DTYPES[fresh.fmt], DTYPES[fresh.out]
    added: dict[str, Any] = {}
    if fresh.op == "addmm" or fresh.bias:
        rng, bits = cancelling.generator(fresh.seed, 77), _BITS.get(fresh.out, 24)
        c = cancelling.numbers(rng, (len(rows), len(columns)), bits, 4, -6).astype(out)
        bias = cancelling.numbers(rng, (len(columns),), bits, 4, -6).astype(out)
        added = {"bias": bias} if fresh.bias else {"c": c}
    a, b = first[: len(rows)].astype(dtype), second[: len(columns)].astype(dtype).T
    found = of_kept(plan, (fresh.m, fresh.n, fresh.k), lambda one: fastmma.gemm(a, b, plan=one, **added))
    return found.astype(np.float32).reshape(-1)


def judged(fresh: Fresh, codes: NDArray[np.uint32], gpu: str = "H200", choice: Choice | None = None) -> tuple[str, str]:
    """How well the order is known, and whether every bit is right; both ``"refused"`` where there is no plan."""
    try:
        plan = planned(fresh, gpu, choice)
    except fastmma.OperandError:
        return "refused", "refused"
    found, wanted = computed(fresh, plan), codes.view(np.float32)
    same = bool(((found == wanted) | (np.isnan(found) & np.isnan(wanted))).all())
    level = plan.evidence.level if plan.evidence.level != "fitted" or plan.evidence.is_known else "predicted"
    return level, "right" if same else "wrong"


def main() -> None:
    tables = {name: Counter[tuple[str, str]]() for name in ("group", "format", "order")}
    gpu = sys.argv[1] if len(sys.argv) > 1 else "H200"
    answered = choices(gpu) if sys.argv[2:] == ["choices"] else repeat((None, None))
    for (fresh, codes), pair in zip(recorded(gpu), answered, strict=False):
        level, verdict = judged(fresh, codes, gpu, pair[fresh.bias])
        for name, key in (("group", fresh.group), ("format", fresh.fmt), ("order", level)):
            tables[name][key, verdict] += 1
    for name, table in tables.items():
        for key in sorted({key for key, _ in table}):
            counts = {verdict: table[key, verdict] for verdict in ("right", "wrong", "refused")}
            print(f"{name:6} {key:10}", *(f"{verdict} {count:5}" for verdict, count in counts.items()))


if __name__ == "__main__":
    main()
