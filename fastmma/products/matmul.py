"""Stacks of matrix products, with NumPy's shapes and broadcasting."""

from __future__ import annotations

import math
from typing import Any, Unpack

from numpy.typing import NDArray

from fastmma.backends.call import Codes, Operands
from fastmma.backends.gpu.arrays import accepts_cupy
from fastmma.backends.resolve import backend_of
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError
from fastmma.host.signatures import spell_keywords
from fastmma.host.threads import thread_count
from fastmma.operands.check import codes_of, codes_of_array, flatten, leading_dimensions
from fastmma.products.bound import Arguments
from fastmma.products.gemm_choice import arrays, check_plan, choose
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.keywords import Choices, GemmChoices, read_choices
from fastmma.products.operands import check_ends
from fastmma.products.prepared import prepared_of
from fastmma.products.repeated import form_of_call, multiply_again, remember

_HINT = "; b.swapaxes(-1, -2) would fit"


@public_call
@accepts_cupy
@spell_keywords(GemmChoices, Choices)
def matmul(
    a: Any,
    b: Any,
    *,
    c: Any = None,
    alpha: Any = 1.0,
    beta: Any = None,
    bias: Any = None,
    plan: GemmPlan | None = None,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    backend: str = "numba",
    **choices: Unpack[GemmChoices],
) -> NDArray[Any]:
    """Multiply as `numpy.matmul` does, with its shapes and broadcasting, and with the bits of a GPU's tensor cores.

    Parameters
    ----------
    a, b : array
        Of at least one dimension. One-dimensional operands are promoted to matrices and the added dimension is dropped from the result;
        leading dimensions broadcast.
    c : array of the result's shape, optional
        Accumulator to start from; with `beta` or a preset it is added in the epilogue. A keyword, because the third argument of
        `numpy.matmul` is `out`.
    alpha, beta, bias
        Of the epilogue, ``activation(alpha * a @ b + beta * c + bias)``, rounded to `out_dtype`; `fastmma.gemm` explains it.
        The bias has the length of the last dimension.
    instruction, target, accumulator, promote_every, split_k, join, join_dtype, preset, activation, out_dtype, cast, arithmetic, unknown
        As in `fastmma.gemm`; sparse and block-scaled instructions are for `gemm` only.
    plan : GemmPlan, optional
        The plan to follow, instead of the options that choose one; by default the one that `fastmma.gemm_plan` returns for them.
    out : ndarray, optional
        Where to put the result, of exactly its shape and dtype; it may overlap any operand.
    threads : int, optional
        All cores by default, or ``FASTMMA_NUM_THREADS``. The result does not depend on it.
    backend : {"numba", "reference", "cupy", "cupy-emulate"}
        Compiled for the CPU; exact Python integers; the tensor cores of the GPU in the machine; or the emulator, for any target, on any
        NVIDIA GPU. The last two need CuPy.

    Returns
    -------
    array of the shape that `numpy.matmul` gives, of `out_dtype`, or in the accumulator's dtype

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError, BackendError
        All are `fastmma.FastmmaError`.

    Examples
    --------
    >>> import numpy as np
    >>> a, b = np.ones((5, 1, 4, 32), np.float16), np.ones((2, 32, 3), np.float16)
    >>> matmul(a, b, target="sm_80").shape
    (5, 2, 4, 3)
    """
    runner, workers = backend_of(backend), thread_count(threads)
    arguments = Arguments("matmul", a, b, c, bias, alpha, beta, out)
    form = form_of_call(arguments, runner, workers, choices) if plan is None else None
    if form is not None and (found := multiply_again(form, arguments)) is not None:
        return found
    chosen = read_choices(choices)
    if plan is not None:
        check_plan(plan, (GemmPlan,), chosen, "matmul")
    a, b = arrays(a, b, chosen, plan, "matmul")
    arguments = arguments._replace(a=a, b=b)
    if plan is None:
        plan = choose(arguments, chosen)
    ins = plan.operation.instruction
    if ins.sparse or ins.scale_vec_size:
        raise OperandError(f"{ins}: matmul takes neither metadata nor scales; gemm does")
    product = prepared_of(plan, runner, workers)
    if (found := product.multiply_small(arguments)) is not None:
        if form is not None:
            remember(form, product, arguments)
        return found
    check_ends(plan, arguments)
    x = codes_of_array(a, ins.formats.a, "matmul: a", cast=plan.cast)
    y = codes_of_array(b, ins.formats.b, "matmul: b", cast=plan.cast)
    if x.ndim == 0 or y.ndim == 0:
        raise OperandError("matmul: operands must have at least one dimension; multiply by a scalar instead")
    left = x[None, :] if x.ndim == 1 else x
    right = y[:, None] if y.ndim == 1 else y
    if left.shape[-1] != right.shape[-2]:
        turned = y.ndim > 1 and left.shape[-1] == right.shape[-1]
        raise OperandError(f"matmul: the inner dimensions differ: a {x.shape}, b {y.shape}{_HINT if turned else ''}")
    lead = leading_dimensions("matmul", a=left.shape[:-2], b=right.shape[:-2])
    rows, columns = left.shape[-2], right.shape[-1]
    shape = (*lead, *((rows,) if x.ndim > 1 else ()), *((columns,) if y.ndim > 1 else ()))
    whole = (math.prod(lead), rows, columns)
    operands = Operands(flatten(left, lead), flatten(right, lead), _start(plan, c, shape, whole))
    return product.run(arguments, operands, shape)


def _start(plan: GemmPlan, c: Any, shape: tuple[int, ...], whole: tuple[int, int, int]) -> Codes | None:
    """The codes of c that the accumulators of all products start from.

    Raises
    ------
    OperandError, OperandTypeError
    """
    if c is None or plan.adds_c:
        return None
    codes = codes_of(c, plan.operation.instruction.formats.c, "matmul: c", cast=plan.cast)
    if codes.shape != shape:
        raise OperandError(f"matmul: c must have shape {shape}, not {codes.shape}")
    return codes.reshape(whole)
