"""One matrix product of any size as a GPU's tensor cores accumulate it."""

from __future__ import annotations

from typing import Any, Unpack

from numpy.typing import NDArray

from fastmma.backends.gpu.arrays import accepts_cupy
from fastmma.backends.resolve import backend_of
from fastmma.host.calls import public_call
from fastmma.host.signatures import spell_keywords
from fastmma.host.threads import thread_count
from fastmma.products.bound import Arguments
from fastmma.products.gemm_choice import arrays, check_plan, choose
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.keywords import Choices, GemmChoices, read_choices
from fastmma.products.lanes_plan import LanesPlan
from fastmma.products.prepared import prepared_of
from fastmma.products.repeated import form_of_call, multiply_again, remember


@public_call
@accepts_cupy
@spell_keywords(GemmChoices, Choices)
def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    metadata: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    alpha: Any = 1.0,
    beta: Any = None,
    bias: Any = None,
    plan: GemmPlan | LanesPlan | None = None,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    backend: str = "numba",
    **choices: Unpack[GemmChoices],
) -> NDArray[Any]:
    """Multiply matrices and add an accumulator, with the bits of a GPU's tensor cores.

    The instruction loops over k in ascending order; D is fed back as C. Edges are padded with zeros.

    Parameters
    ----------
    a : array (M, K), or (M, K / 2) if sparse
    b : array (K, N)
        Elements in the dtype of the instruction's format, of any strides and byte order; any of M, N and K may be 0.
    c : array (M, N), optional
        Accumulator to start from; zero if not given. So ``gemm(a2, b2, c=gemm(a1, b1))`` continues where the first product stopped. With
        `beta` or a preset it is added in the epilogue instead, and may be float32, bfloat16 or float16.
    instruction : str or Instruction, optional
        By default the one that a vendor library would use for these dtypes on the target (on sm_90a wgmma; else the deepest mma).
        ``"fma.rn.f32"`` multiplies float32 off the tensor cores: one chain of fma for each element from c, or with `split_k` one for each
        slice, whose lengths are multiples of 4, as cuBLAS's are.
    target : str
        The GPU, for example ``"sm_80"`` or ``"sm_120a"``.
    accumulator : dtype or format, optional
        The format of the sums, for example ``"f16"``; by default that of a `c` that they start from, or the widest. `out` and `out_dtype`
        decide the last rounding only.
    metadata : integer array (M, K / chunk), optional
        Sparse A: the 4-bit words that `fastmma.sparse.compress` returns with the stored elements.
    scale_a, scale_b : arrays (M, ceil(K / block)) and (ceil(K / block), N), optional
        Block scaling: float8_e8m0fnu, or float8_e4m3fn (not negative) for ue4m3. The block is the instruction's k over its
        `scale_vec_size`: 32 for MX formats, 16 for NVFP4.
    promote_every : int, optional
        Accumulate that many k in the tensor core from zero, then add the partial sum to the result by one IEEE add (round to nearest), as
        DeepGEMM does. It must be a multiple of the instruction's k.
    split_k : int, sequence of (start, stop), or StreamK
        Cut K into that many parts of equal length (rounded up to the instruction's k), or as given, accumulate each from zero (the first
        from `c`), then join them by IEEE adds.
    join : {"ascending", "pairwise", "workspace", "in-place"}
        In which order parts are added, with r for rounding to `join_dtype` or to the result's format.

        - ascending: ``((first + second) + third) + ...``
        - pairwise: ``(first + second) + (third + fourth)``, and so on.
        - workspace: ``(r(first) + r(second)) + ...``. Each part is rounded, also if only one has any k.
        - in-place: ``r(r(first) + second) + ...``. The total is rounded each time that a part joins it. Each part goes through the
          epilogue: the first with `c` or the bias, any other with the result before it as its c.
    join_dtype : dtype or format, optional
        bfloat16 or float16: the parts, and each of their sums, are rounded to it, unless `join` says which.
    preset : str, optional
        Accumulate as a library does: one of `fastmma.products.presets.GEMM_PRESETS`, for example ``"cublas"``. It sets `promote_every`, the
        order of the epilogue and where `split_k` cuts. For ``"H100"`` and ``"H200"`` (which ``"sm_90a"`` means), it also sets the number of
        parts, if the plan book has a product of this shape, with these types and contiguous dimensions.
    alpha, beta : float, optional
        Taken as f32: the result is ``alpha * a @ b + beta * c``. As in BLAS, c is not read where beta is 0.
    bias : float32, bfloat16 or float16 array (N,), optional
        Added to every row.
    activation : {"relu", "gelu"}, optional
        ``max(x, 0)``; or, on a Hopper GPU, the approximation of cuBLASLt's epilogue by ``tanh.approx.f32``, CUTLASS's without a preset.
    out_dtype : dtype or format, optional
        The format of the result, to which it is rounded to nearest even, once: float32, bfloat16 or float16. By default the accumulator's.
    cast : bool
        Round float16, float32 and float64 inputs to the instruction's formats first, to nearest even. Without it, a tf32 instruction
        ignores the lowest 13 bits of float32 operands, as the hardware does; cuBLAS rounds them first.
    arithmetic : Arithmetic, optional
        Your own arithmetic instead of the target's: `fastmma.arithmetic` returns the target's, and `dataclasses.replace` changes it.
    unknown : {"one", "refuse"}
        What a preset does with a product whose parts it does not know. "one": use one part of k, and note it in the plan.
        "refuse": raise.
    plan : GemmPlan or LanesPlan, optional
        The plan to follow; by default the one that `fastmma.gemm_plan` returns for the same arguments. With a plan, give only the operands,
        alpha, beta and bias. `fastmma.cublas.plan` returns a plan of either kind.
    out : ndarray (M, N), optional
        Where to put the result; it may be `c`, and may overlap any operand.
    threads : int, optional
        All cores by default, or ``FASTMMA_NUM_THREADS``. The result does not depend on it.
    backend : {"numba", "reference", "cupy", "cupy-emulate"}
        Compiled for the CPU; exact Python integers; the tensor cores of the GPU in the machine; or the emulator, for any target, on any
        NVIDIA GPU. The last two need CuPy.

    Returns
    -------
    array (M, N) of `out_dtype`, or in the accumulator's dtype

    Notes
    -----
    The order of the epilogue is the plan's; print it. By default, as CUTLASS: ``fma(alpha, sum, bias)``, then ``fma(beta, c, x)``, then the
    activation, then one rounding.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError, BackendError
        All are `fastmma.FastmmaError`.

    Examples
    --------
    >>> import ml_dtypes
    >>> import numpy as np
    >>> a = np.full((3, 100), 0.5, ml_dtypes.float8_e4m3fn)
    >>> gemm(a, a.T, target="sm_90a").tolist()[0]
    [25.0, 25.0, 25.0]
    >>> gemm(a, a.T, alpha=0.1, bias=np.arange(3, dtype=np.float32), out_dtype=ml_dtypes.bfloat16).tolist()[0]
    [2.5, 3.5, 4.5]
    """
    runner, workers = backend_of(backend), thread_count(threads)
    arguments = Arguments("gemm", a, b, c, bias, alpha, beta, out, metadata, scale_a, scale_b)
    form = form_of_call(arguments, runner, workers, choices) if plan is None else None
    if form is not None and (found := multiply_again(form, arguments)) is not None:
        return found
    chosen = read_choices(choices)
    if plan is not None:
        check_plan(plan, (GemmPlan, LanesPlan), chosen, "gemm")
    a, b = arrays(a, b, chosen, plan, "gemm")
    arguments = arguments._replace(a=a, b=b)
    if plan is not None:
        return prepared_of(plan, runner, workers).multiply(arguments)
    product = prepared_of(choose(arguments, chosen), runner, workers)
    result = product.multiply(arguments)
    if form is not None:
        remember(form, product, arguments)
    return result
