"""Assertions about plans and programs: the same bits for every input, and for every number of rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from contextlib import nullcontext
from importlib import import_module
from typing import Any

from fastmma.agreement.same_bits import same_bits
from fastmma.backends.plan import Plan
from fastmma.host.calls import named_keywords
from fastmma.host.errors import OperandError
from fastmma.isa.gpus import TargetName
from fastmma.testing.arrays import host_array
from fastmma.testing.bits import codes_of

_SHOWN = 8


def assert_same_bits(p: Plan, q: Plan, *, assumed: bool = False, **options: Any) -> None:
    """Raise unless two plans have the same bits for every input.

    Parameters
    ----------
    p, q : Plan
    assumed : bool
        Accept what the plans assume about a GPU or a library.
    **options
        The other arguments of `fastmma.same_bits`: k, m, n, c and budget.

    Raises
    ------
    AssertionError
        The message is the verdict: operands on which the plans differ, or what is not known.
    OperandError, OperandTypeError

    Examples
    --------
    >>> from fastmma import GemmPlan
    >>> opcodes = [f"mma.sync.aligned.m16n8k{k}.row.col.f32.f16.f16.f32" for k in (16, 8)]
    >>> assert_same_bits(*(GemmPlan("sm_80", opcode) for opcode in opcodes))
    >>> assert_same_bits(*(GemmPlan("sm_90a", opcode) for opcode in opcodes), k=8)
    """
    __tracebackhide__ = True
    verdict = same_bits(p, q, **options)
    if (verdict.as_written if assumed else verdict.equal) is not True:
        raise AssertionError(str(verdict))


@named_keywords
def assert_invariant(
    function: Callable[[int], Any], rows: Collection[int] = (1, 2, 8, 64), *, target: TargetName | None = None, assumed: bool = False
) -> None:
    """Raise unless the rows of a result have the same bits, however many rows are computed at once.

    Parameters
    ----------
    function : callable
        Takes a number of rows, computes that many first rows of its data, and returns the results: an array of NumPy, torch or JAX.
    rows : collection of int
        The numbers of rows to try.
    target : str, optional
        A GPU. torch's products have its bits while the function runs, and a product whose order is not known to be the library's is an
        error.
    assumed : bool
        Accept such products.

    Raises
    ------
    AssertionError
        The message names the numbers of rows whose results differ, or the operations that do not have the GPU's bits.
    OperandError, OperandTypeError, TargetError

    Examples
    --------
    >>> import fastmma
    >>> import numpy as np
    >>> a, b = np.ones((64, 256), np.float16), np.ones((256, 8), np.float16)
    >>> assert_invariant(lambda count: fastmma.gemm(a[:count], b, target="H100"))
    """
    __tracebackhide__ = True
    counts = sorted(set(rows))
    if not counts or counts[0] < 1:
        raise OperandError(f"assert_invariant: rows must be numbers of at least 1, not {rows!r}")
    emulation = nullcontext() if target is None else _emulated(target)
    with emulation as entered:
        results = {count: codes_of(host_array(function(count), f"the result of {count} rows")) for count in counts}
    for count, found in results.items():
        if found.ndim < 1 or len(found) != count:
            raise OperandError(f"assert_invariant: the result of {count} rows has the shape {found.shape}")
    if entered is not None:
        entered.report.assert_all_emulated(assumed=assumed)
    whole = results[counts[-1]]
    wrong = [(count, row) for count in counts for row in range(count) if (results[count][row] != whole[row]).any()]
    if wrong:
        shown = ", ".join(f"row {row} of {count}" for count, row in wrong[:_SHOWN])
        raise AssertionError(f"{len(wrong)} rows have other bits than among {counts[-1]}: {shown}{', ...' if len(wrong) > _SHOWN else ''}")


def _emulated(target: TargetName) -> Any:
    if sys.modules.get("torch") is None:
        raise OperandError("assert_invariant: a target is for programs of torch, which is not imported")
    return import_module("fastmma.torch").emulate(target)
