"""Products of block-scaled arrays, accumulated by an explicit plan."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from fastmma.backends.call import Codes
from fastmma.backends.resolve import backend_of
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.threads import thread_count
from fastmma.isa.codes import from_codes
from fastmma.isa.formats import FORMATS
from fastmma.isa.gpus import TargetName
from fastmma.isa.instruction import Instruction
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.operands.check import check_output, leading_dimensions
from fastmma.products.by_tile import ByTile, Cuts
from fastmma.products.epilogue import Epilogue
from fastmma.products.loop import accumulate
from fastmma.products.plan import AccumulationPlan
from fastmma.products.scaled_choice import check_operands, scaled_plan
from fastmma.products.scaled_fixed import form_of_call, form_that_came, remember, scaled_form
from fastmma.products.scaled_operands import bound, of_lines, promotion_of, scaled_operand


@public_call
def scaled_matmul(
    a: Any,
    b: Any,
    *,
    c: Any = None,
    bias: Any = None,
    alpha: float = 1.0,
    beta: float | None = None,
    activation: str | None = None,
    plan: AccumulationPlan | None = None,
    target: TargetName | None = None,
    preset: str | None = None,
    instruction: str | Instruction | None = None,
    promote_every: int | None = None,
    promotion: str | None = None,
    split_k: int | Cuts | list[tuple[int, int]] | ByTile | None = None,
    join: str | None = None,
    join_dtype: Any = None,
    epilogue: tuple[str, ...] | None = None,
    out_dtype: Any = None,
    arithmetic: Arithmetic | None = None,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    backend: str = "numba",
) -> NDArray[Any]:
    """Multiply block-scaled arrays with the bits that an accumulation plan gives on a GPU.

    It multiplies the values ``element * scale`` (and ``* global_scale``). The plan says when and how the scales are multiplied in, and
    how everything is rounded: print what `fastmma.scaled_plan` returns for the same arguments.

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
    beta : float, optional
        Multiplies c, rounded to f32 before it is added. As in BLAS, c is not read where beta is 0.
    activation : {"relu"}, optional
        ``max(x, 0)``, before the result is rounded.
    plan : AccumulationPlan, optional
        The plan to follow; by default the one that `fastmma.scaled_plan` returns for `activation` and the parameters from `target` to
        `arithmetic`. With a plan, give none of these.
    target : str, optional
        The GPU; ``"sm_90a"`` by default.
    preset : str, optional
        The choices of a library: one of `fastmma.products.plan.PRESETS`.
    instruction : str or Instruction, optional
        By default the one that a library would use: it takes the scales where the target has such an instruction.
    promote_every : int, optional
        k between promotions; a multiple of the instruction's k.
    promotion : str, optional
        How partial sums join the total: ``"add"``, ``"fma"``, ``"multiply-add"``, ``"fma-each"`` or ``"multiply-add-each"``.
    split_k : int, sequence of (start, stop), or StreamK, optional
        Parts of k; 1 by default.
    join, join_dtype : str, optional
        In which order the parts are added (``"ascending"``, ``"pairwise"``), and the format to which they and their sums are rounded.
    epilogue : tuple of str, optional
        The steps on the f32 sums, in order; `fastmma.AccumulationPlan` names them.
    out_dtype : dtype or format, optional
        float32 (the default), bfloat16 or float16.
    arithmetic : Arithmetic, optional
        Your own arithmetic instead of the target's: `fastmma.arithmetic` returns the target's, and `dataclasses.replace` changes it.
    out : ndarray (..., M, N), optional
        Where to put the result.
    threads : int, optional
        All cores by default, or ``FASTMMA_NUM_THREADS``. The result does not depend on it.
    backend : {"numba", "reference", "cupy", "cupy-emulate"}
        Compiled for the CPU; exact Python integers; the tensor cores of the GPU in the machine; or the emulator, for any target, on any
        NVIDIA GPU. The last two need CuPy.

    Returns
    -------
    array (..., M, N) of `out_dtype`

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError, BackendError
        All are `fastmma.FastmmaError`.

    Notes
    -----
    TransformerEngine does not multiply two global scales. It computes alpha from the largest magnitudes of both tensors, as ``amax_a *
    amax_b * factor`` with the f32 nearest to ``1 / (6 * 6 * 448 * 448)``. To get its bits, pass that as alpha, with global scales of 1.

    Examples
    --------
    DeepSeek's fp8: activations in blocks of 1 x 128, weights of 128 x 128, promoted every 128 k.

    >>> from fastmma.scaling import quantize
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, w = rng.standard_normal((4, 512)), rng.standard_normal((256, 512))
    >>> a, b = quantize(x, "fp8_1x128"), quantize(w, "fp8_128x128").T
    >>> d = scaled_matmul(a, b, target="sm_90a", preset="deepgemm", out_dtype="bfloat16")
    >>> d.shape, str(d.dtype)
    ((4, 256), 'bfloat16')
    """
    runner, workers = backend_of(backend), thread_count(threads)
    choices: dict[str, Any] = {
        "target": target,
        "preset": preset,
        "instruction": instruction,
        "promote_every": promote_every,
        "promotion": promotion,
        "split_k": split_k,
        "join": join,
        "join_dtype": join_dtype,
        "activation": activation,
        "epilogue": epilogue,
        "out_dtype": out_dtype,
        "arithmetic": arithmetic,
    }
    plain, given = c is None and bias is None and beta is None, plan
    call = form_of_call(a, b, alpha, runner, workers, given, choices.values()) if plain else None
    form = None if call is None else form_that_came(call)
    if form is not None and (done := form.multiply(a, b, alpha, out)) is not None:
        return done
    plan = _plan(a, b, plan, {name: value for name, value in choices.items() if value is not None})
    lead = leading_dimensions("scaled_matmul", a=a.shape[:-2], b=b.shape[:-2])
    shape = (*lead, a.shape[-2], b.shape[-1])
    if out is not None:
        check_output(out, shape, FORMATS[plan.out], "scaled_matmul")
    form = scaled_form(plan, a, b, runner, workers) if plain else None
    if form is not None and (done := form.multiply(a, b, alpha, out)) is not None:
        if call is not None:
            remember(call, form, given)
        return done
    left, right = scaled_operand(a).widened(plan.widened[0], runner), scaled_operand(b).widened(plan.widened[1], runner)
    finish = Epilogue("scaled_matmul", plan.epilogue, plan.out, runner, workers)
    values = finish.operands(alpha, beta, c, bias, shape, a.global_scale, b.global_scale)
    if plan.scales == "epilogue":
        values |= finish.scales(of_lines(left, -1, runner), of_lines(right, -2, runner))
    promoted, operands = promotion_of(plan, left, right, lead, runner), bound(plan, left, right, lead)

    def multiply(products: slice, rows: slice, sums: Codes) -> None:
        some = promoted if promoted is None else promoted.of(products).part(slice(None), rows, slice(None))
        part = operands.products(products.start, products.stop).lines(rows, slice(None))
        accumulate(runner, plan.operation, part, sums, some, plan.order, workers)

    cut = not isinstance(plan.split_k, ByTile)
    found = from_codes(finish.results(multiply, plan.operation.instruction.formats.d, values, shape, cut), plan.out)
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
    plan.recheck()
    return plan
