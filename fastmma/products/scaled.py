"""Products of block-scaled arrays, accumulated by an explicit plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Operands, Operation
from fastmma.backends.compiled import widening
from fastmma.backends.engine import Backend
from fastmma.backends.resolve import backend_of, operation_of
from fastmma.host.arrays import as_array
from fastmma.host.calls import public_call
from fastmma.host.errors import FastmmaError, OperandError, OperandTypeError
from fastmma.host.threads import thread_count
from fastmma.isa.formats import FORMATS, decode, encode, from_codes, to_codes
from fastmma.isa.instruction import Instruction
from fastmma.kernels.params import Promotion, Step
from fastmma.operands.check import check_output
from fastmma.products.loop import accumulate
from fastmma.products.plan import MULTIPLIERS, ROUND, AccumulationPlan
from fastmma.products.scaled_choice import check_operands, scaled_plan
from fastmma.scaling import ScaledArray

Codes = NDArray[Any]
_ADDENDS = ("float32", "bfloat16", "float16")


class _Matrix(NamedTuple):
    """A two-dimensional operand: codes as they are multiplied, scales (one for each block of rows and of columns), and the blocks."""

    codes: Codes
    scales: Codes
    block: tuple[int, int]


@dataclass(frozen=True)
class _Run:
    """What the products of a call share."""

    plan: AccumulationPlan
    operation: Operation
    backend: Backend
    threads: int

    def apply(self, sums: Codes, steps: list[Step]) -> Codes:
        """Steps of an epilogue on f32 codes; they may be overwritten."""
        return self.backend.apply(sums, steps, self.threads)


@public_call
def scaled_matmul(
    a: Any,
    b: Any,
    *,
    c: Any = None,
    bias: Any = None,
    alpha: float = 1.0,
    plan: AccumulationPlan | None = None,
    target: str | None = None,
    preset: str | None = None,
    instruction: str | Instruction | None = None,
    promote_every: int | None = None,
    promotion: str | None = None,
    split_k: int | None = None,
    epilogue: tuple[str, ...] | None = None,
    out_dtype: Any = None,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    backend: str = "numba",
) -> NDArray[Any]:
    """Product of block-scaled arrays, with the bits that a plan of accumulation gives on a GPU.

    The values that are multiplied are ``element * scale`` (and ``* global_scale``); when and how the scales are multiplied in, and every
    rounding, is said by the plan: print what `fastmma.scaled_plan` returns for the same arguments.

    Parameters
    ----------
    a : ScaledArray (..., M, K)
        Quantised along its last dimension.
    b : ScaledArray (..., K, N)
        Quantised along its last but one dimension: weights (N, K) that are quantised along -1 are passed as ``w.T``.
        Leading dimensions broadcast.
    c : float32, bfloat16 or float16 array (..., M, N), optional
        Added in the epilogue.
    bias : float32, bfloat16 or float16 array (N,), optional
        Added in the epilogue.
    alpha : float
        Taken as f32. Multiplied by the global scales of NVFP4, if there are any, it multiplies the sums in the epilogue.
    plan : AccumulationPlan, optional
        What to do; by default what `fastmma.scaled_plan` returns for the next eight parameters, none of which may be given with a plan.
    target, preset, instruction, promote_every, promotion, split_k, epilogue, out_dtype : optional
        Those of `fastmma.scaled_plan`, with the same defaults: on ``"sm_90a"``, one part of k, to float32.
    out : ndarray (..., M, N), optional
        Where to put the result.
    threads : int, optional
        All cores by default, or ``FASTMMA_NUM_THREADS``. The result does not depend on it.
    backend : {"numba", "reference", "cupy", "cupy-emulate"}

    Returns
    -------
    array (..., M, N) of `out_dtype`

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError, BackendError
        All are `fastmma.FastmmaError`.

    Notes
    -----
    TransformerEngine does not multiply two global scales but computes alpha from the largest magnitudes of both tensors, as ``amax_a *
    amax_b * factor`` with the f32 nearest to ``1 / (6 * 6 * 448 * 448)``: for its very bits give that as alpha, with global scales of 1.

    Examples
    --------
    DeepSeek's fp8: activations in blocks of 1 x 128, weights of 128 x 128, promoted every 128 k.

    >>> from fastmma.scaling import quantize
    >>> rng = np.random.default_rng(0)
    >>> x, w = rng.standard_normal((4, 512)), rng.standard_normal((256, 512))
    >>> a, b = quantize(x, "fp8_1x128"), quantize(w, "fp8_128x128").T
    >>> d = scaled_matmul(a, b, target="sm_90a", preset="deepgemm", out_dtype="bfloat16")
    >>> d.shape, str(d.dtype)
    ((4, 256), 'bfloat16')
    """
    runner = backend_of(backend)
    choices: dict[str, Any] = {
        "target": target,
        "preset": preset,
        "instruction": instruction,
        "promote_every": promote_every,
        "promotion": promotion,
        "split_k": split_k,
        "epilogue": epilogue,
        "out_dtype": out_dtype,
    }
    plan = _plan(a, b, plan, {name: value for name, value in choices.items() if value is not None})
    run = _Run(plan, operation_of(plan.instruction, plan.target), runner, thread_count(threads))
    lead = _leading(a, b)
    shape = (*lead, a.shape[-2], b.shape[-1])
    if out is not None:
        check_output(out, shape, FORMATS[plan.out], "scaled_matmul")
    given = {
        "alpha": _alpha(run, alpha, a, b),
        "c": _addend(run, "c", c, shape),
        "bias": _addend(run, "bias", bias, shape[-1:]),
    }
    products = []
    for index in np.ndindex(*lead):
        addends = {name: value[index] if name == "c" and value is not None else value for name, value in given.items()}
        products.append(_product(run, _matrix(a, run, 0, index), _matrix(b, run, 1, index), addends))
    codes = products[0] if not lead else np.array(products, FORMATS[plan.out].code_dtype)
    found = from_codes(codes.reshape(shape), plan.out)
    if out is None:
        return found
    out[...] = found
    return out


def _plan(a: Any, b: Any, plan: Any, choices: dict[str, Any]) -> AccumulationPlan:
    """The plan that was given, checked, or the one that is chosen."""
    if plan is None:
        return scaled_plan(a, b, **choices)
    if not isinstance(plan, AccumulationPlan):
        raise OperandTypeError(f"scaled_matmul: plan must be an AccumulationPlan, not {type(plan).__name__}; fastmma.scaled_plan makes one")
    if choices:
        raise OperandError(f"scaled_matmul: with a plan, {', '.join(choices)} must be left out; dataclasses.replace changes a plan")
    check_operands(a, b, plan)
    return plan


def _leading(a: ScaledArray, b: ScaledArray) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise OperandError(f"scaled_matmul: the leading dimensions do not broadcast: a {a.shape}, b {b.shape}") from None


def _alpha(run: _Run, alpha: Any, a: ScaledArray, b: ScaledArray) -> Codes | None:
    """``(alpha * global_scale_a) * global_scale_b`` as f32 codes (1, 1), or None if there is nothing to multiply by."""
    try:
        value = encode(alpha, "f32")
    except FastmmaError:
        value = np.zeros(2, np.uint32)
    if value.ndim:
        raise OperandTypeError(f"scaled_matmul: alpha must be a real number, not {alpha!r}")
    factors = [np.float32(each.global_scale) for each in (a, b) if each.global_scale is not None]
    if not factors and value == 0x3F800000:
        return None
    _check_step(run, "alpha")
    steps = [Step("multiply", np.full((1, 1), factor)) for factor in factors]
    return run.apply(value.reshape(1, 1).copy(), steps)


def _check_step(run: _Run, name: str) -> None:
    """Raise OperandError where the plan has no place for an operand that was given."""
    if name not in [part for step in run.plan.epilogue for part in step.split("+")]:
        raise OperandError(f"scaled_matmul: the plan's epilogue {run.plan.epilogue} has no step for {name}")


def _addend(run: _Run, name: str, value: Any, shape: tuple[int, ...]) -> Codes | None:
    """c or a bias as f32 codes."""
    if value is None:
        return None
    array = as_array(value, f"scaled_matmul: {name}")
    if array.dtype.name not in _ADDENDS:
        raise OperandTypeError(f"scaled_matmul: {name} must have dtype {', '.join(_ADDENDS)}, not {array.dtype}")
    if array.shape != shape:
        raise OperandError(f"scaled_matmul: {name} must have shape {shape}, not {array.shape}")
    _check_step(run, name)
    return np.ascontiguousarray(array.astype(np.float32)).view(np.uint32)


def _matrix(array: ScaledArray, run: _Run, side: int, index: tuple[int, ...]) -> _Matrix:
    """Operand `side` of one product, its elements widened where the plan says so."""
    lead = index[len(index) - (array.ndim - 2) :] if array.ndim > 2 else ()
    at = tuple(0 if extent == 1 else i for i, extent in zip(lead, array.shape, strict=False))
    scales = array.scales[tuple(i // size for i, size in zip(at, array.block, strict=False))]
    codes, wide = to_codes(array.elements[at], array.row.element), run.plan.widened[side]
    if wide:
        codes = widening(FORMATS[array.row.element], FORMATS[wide])[codes]
    return _Matrix(codes, scales, (array.block[-2], array.block[-1]))


def _spread(scales: Codes, block: int, extent: int, axis: int) -> Codes:
    """Scales of blocks of rows (or columns) as one for each row; there may be none where k is 0."""
    if scales.shape[axis] == extent:
        return scales
    return np.take(scales, np.arange(extent) // block, axis=axis)


def _floats(scales: Codes) -> NDArray[np.float32]:
    """Scales as float32, which has all values of the others."""
    if scales.dtype == np.float32:
        return scales
    fmt = "ue8m0" if scales.dtype.name == "float8_e8m0fnu" else "ue4m3"
    table = decode(np.arange(256), fmt).astype(np.float32)
    return np.asarray(table[scales.view(np.uint8)])


def _promotion(every: int | None, rule: str, a: _Matrix, b: _Matrix) -> Promotion | None:
    """What happens at promotion, with the scales of every chunk."""
    if every is None:
        return None
    if rule == "add":
        return Promotion(every)
    starts = np.arange(0, a.codes.shape[1], every)
    left = _floats(a.scales[:, starts // a.block[1]]).T
    right = _floats(b.scales[starts // b.block[0]])
    return Promotion(
        every,
        rule,
        np.ascontiguousarray(_spread(left, a.block[0], a.codes.shape[0], 1)),
        np.ascontiguousarray(_spread(right, b.block[1], b.codes.shape[1], 1)),
    )


def _product(run: _Run, a: _Matrix, b: _Matrix, given: dict[str, Codes | None]) -> Codes:
    """One product of matrices, in codes of the result."""
    plan, ins = run.plan, run.operation.instruction
    shape = a.codes.shape[0], b.codes.shape[1]
    operands = Operands(a.codes[None], b.codes[None], None)
    if plan.scales == "instruction":
        left, right = _spread(a.scales, a.block[0], shape[0], 0), _spread(b.scales, b.block[1], shape[1], 1)
        operands = operands._replace(scale_a=to_codes(left, ins.stype)[None], scale_b=to_codes(right, ins.stype)[None])
    sums = np.empty(shape, np.uint32)
    promotion = _promotion(plan.promote_every, plan.promotion, a, b)
    accumulate(run.backend, run.operation, operands, sums[None], promotion, plan.split_k, run.threads)
    if plan.scales == "epilogue":
        given = {**given, **_epilogue_scales(run, a, b)}
    steps = [Step("convert from s32")] if ins.dtype == "s32" else []
    return run.backend.narrow(run.apply(sums, steps + _steps(run, given, shape)), plan.out, run.threads)


def _epilogue_scales(run: _Run, a: _Matrix, b: _Matrix) -> dict[str, Codes]:
    """Scales of rows, columns and tensors as f32 codes that broadcast; ones where there is no k."""
    shapes = {"scale_a": (a.scales.shape[0], 1), "scale_b": (1, b.scales.shape[1])}
    found: dict[str, Codes] = {}
    for (name, shape), each in zip(shapes.items(), (a, b), strict=True):
        scales = _floats(each.scales) if each.scales.size else np.ones(shape, np.float32)
        found[name] = np.ascontiguousarray(scales).view(np.uint32)
    if "scale_ab" in run.plan.epilogue:
        both = np.ascontiguousarray(np.broadcast_to(found["scale_a"], np.broadcast_shapes(*shapes.values())))
        factor = np.broadcast_to(found["scale_b"], both.shape).view(np.float32)
        found["scale_ab"] = run.apply(both.copy(), [Step("multiply", factor)])
    return found


def _steps(run: _Run, operands: dict[str, Codes | None], shape: tuple[int, int]) -> list[Step]:
    """The epilogue of the plan as operations; what is not given is left out."""
    rounding = [Step(f"round to {run.plan.out}")] if run.plan.out != "f32" else []
    steps: list[Step] = []
    rounded = False
    for step in run.plan.epilogue:
        if step == ROUND:
            steps += rounding
            rounded = True
            continue
        values = []
        for name in step.split("+"):
            codes = operands.get(name)
            if codes is None:
                continue
            if rounded:
                codes = run.apply(np.atleast_2d(codes).copy(), rounding)
            values.append((name, np.broadcast_to(codes, shape).view(np.float32)))
        if len(values) == 2:
            steps.append(Step("fma", values[0][1], values[1][1]))
        elif values:
            name, value = values[0]
            steps.append(Step("multiply" if name in MULTIPLIERS else "add", value))
        if values and rounded:
            steps += rounding
    return steps
