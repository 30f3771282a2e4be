"""Products that are chosen once and called many times: tile loops and small models."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Operands
from fastmma.backends.fixed import Fixed
from fastmma.backends.resolve import backend_of
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError
from fastmma.host.signatures import spell_keywords
from fastmma.host.threads import thread_count
from fastmma.isa.codes import from_codes
from fastmma.isa.instruction import Instruction
from fastmma.kernels.params import Promotion
from fastmma.operands.check import Results, codes_of
from fastmma.products.epilogue import finished
from fastmma.products.fixed import Addend
from fastmma.products.gemm_choice import ends, followed, parted
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.keywords import Choices, GemmChoices, read_choices
from fastmma.products.loop import accumulate
from fastmma.products.small import SmallProducts

_KEPT = 256  # forms of small products


class Prepared:
    """A product that `fastmma.prepare` has chosen: a call checks shapes and dtypes, and computes.

    Attributes
    ----------
    plan : GemmPlan
        What a call does; it prints.

    Examples
    --------
    >>> product = prepare(np.ones((16, 32), np.float16), np.ones((32, 8), np.float16), target="sm_80")
    >>> total = np.zeros((16, 8), np.float32)
    >>> for _ in range(3):
    ...     total = product(np.ones((16, 32), np.float16), np.ones((32, 8), np.float16), total)
    >>> total[0, 0]
    np.float32(96.0)
    """

    def __init__(self, plan: GemmPlan, backend: str, threads: int | None) -> None:
        self.plan = plan
        self._runner, self._threads = backend_of(backend), thread_count(threads)
        ins = self._instruction = plan.operation.instruction
        if ins.sparse or ins.scale_vec_size:
            raise OperandError(f"{ins}: prepare takes neither metadata nor scales; gemm does")
        self._formats = ins.formats
        self._names = tuple(f"{ins.opcode}: {name}" for name in "abc")
        self._direct = plan.order.parts == 1 and plan.promote_every is None and not plan.first_tile
        self._promotion = None if plan.promote_every is None else Promotion(plan.promote_every)
        self._small = SmallProducts(plan, self._runner, self._threads, _KEPT, at_once=True)

    @public_call
    def __call__(
        self, a: Any, b: Any, c: Any = None, *, alpha: Any = 1.0, beta: Any = None, bias: Any = None, out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """The product of a (M, K) and b (K, N), or of stacks of them, a (T, M, K) and b (T, K, N).

        Parameters
        ----------
        a, b, c, alpha, beta, bias
            As in `fastmma.gemm`; the epilogue of the plan takes the last three, and c where it says so.
        out : array (M, N) or (T, M, N), optional
            Where to put the result; it may be `c`, and may overlap any operand.

        Raises
        ------
        OperandError, OperandTypeError
        """
        if out is None and type(a) is np.ndarray and type(b) is np.ndarray:
            found = self._small.multiply(a, b, c, alpha, beta, bias)
            if found is not None:
                return found
        plan, formats = self.plan, self._formats
        x = codes_of(a, formats.a, self._names[0], cast=plan.cast)
        y = codes_of(b, formats.b, self._names[1], cast=plan.cast)
        if x.ndim != y.ndim or x.ndim not in (2, 3) or x.shape[-1] != y.shape[-2] or x.shape[:-2] != y.shape[:-2]:
            needed = "a of shape (M, K) and b of shape (K, N), or a (T, M, K) and b (T, K, N)"
            raise OperandError(f"{self._instruction}: a prepared product needs {needed}, not {x.shape} and {y.shape}")
        shape = (*x.shape[:-1], y.shape[-1])
        starting = None
        if c is not None and not plan.adds_c:
            starting = codes_of(c, formats.c, self._names[2], cast=plan.cast)
            if starting.shape != shape:
                raise OperandError(f"{self._instruction}: c must have shape {shape}, not {starting.shape}")
        if x.ndim == 2:
            x, y, starting = x[None], y[None], None if starting is None else starting[None]
        operands = Operands(x, y, starting)
        if plan.epilogue:
            given = {"alpha": alpha, "beta": beta, "c": c if plan.adds_c else None, "bias": bias}
            return finished("prepared", plan, operands, shape, out, given, self._runner, self._threads)
        if bias is not None or beta is not None or alpha != 1:
            raise OperandError(f"{self._instruction}: the plan has no epilogue, which alpha, beta or bias need")
        if out is None:
            sums = np.empty((x.shape[0], shape[-2], shape[-1]), formats.d.code_dtype)
            self._accumulated(operands, sums)
            return from_codes(sums.reshape(shape), formats.d)
        results = Results(out, shape, self._instruction, operands)
        codes = results.codes if len(shape) == 3 else results.codes[None]
        self._accumulated(operands, codes)
        return results.elements()

    def _accumulated(self, operands: Operands, sums: NDArray[Any]) -> None:
        """Write the sums."""
        if self._direct:
            self._runner.run(self.plan.operation, operands, sums, self._threads)
        else:
            accumulate(self._runner, self.plan.operation, operands, sums, self._promotion, self.plan.order, self._threads)

    def fixed(
        self,
        a_shape: tuple[int, ...],
        a_strides: tuple[int, ...],
        b_shape: tuple[int, ...],
        b_strides: tuple[int, ...],
        alpha: float = 1.0,
        beta: float | None = None,
        addend: Addend | None = None,
    ) -> Fixed | None:
        """Return what computes small products of these shapes and strides in bytes from addresses alone, without looking at anything.

        None where there is nothing of the kind. Results are C-contiguous.
        """
        return self._small.fixed(a_shape, a_strides, b_shape, b_strides, alpha, beta, addend)


@public_call
@spell_keywords(GemmChoices, Choices)
def prepare(
    a: Any = None,
    b: Any = None,
    c: Any = None,
    *,
    alpha: Any = 1.0,
    beta: Any = None,
    bias: Any = None,
    plan: GemmPlan | None = None,
    threads: int | None = None,
    backend: str = "numba",
    **choices: Unpack[GemmChoices],
) -> Prepared:
    """A product that is checked and chosen once, and then called: a call costs some microseconds above its kernel.

    Parameters
    ----------
    a, b, c : array, optional
        Operands such as those that the calls will have, of which only what `fastmma.gemm_plan` says counts. They may be left out where an
        instruction or a plan is given; a may be the instruction itself, and b the target: ``prepare("mma.sync...", "sm_80")``.
    instruction, target, accumulator, promote_every, split_k, join, join_dtype, preset, activation, out_dtype, cast, arithmetic, unknown
        As in `fastmma.gemm`.
    alpha, beta, bias
        As in `fastmma.gemm`; only whether they are 1, or given, counts.
    plan : GemmPlan, optional
        What to do, in place of what it is chosen from.
    threads : int, optional
        All cores by default, or ``FASTMMA_NUM_THREADS``.
    backend : {"numba", "reference", "cupy", "cupy-emulate"}
        Who computes.

    Returns
    -------
    Prepared
        ``product(a, b, c=None, *, alpha, beta, bias, out)``.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError, BackendError
        All are `fastmma.FastmmaError`.

    Examples
    --------
    >>> product = prepare("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", target="sm_80")
    >>> product(np.ones((16, 64), np.float16), np.ones((64, 8), np.float16))[0, 0]
    np.float32(64.0)
    """
    if isinstance(a, str | Instruction):
        if choices.get("instruction") is not None:
            raise OperandError("prepare: an instruction is given twice")
        a, choices["instruction"] = None, a
        if isinstance(b, str | tuple):
            b, choices["target"] = None, b
    chosen = read_choices(choices)
    if plan is None and chosen.instruction is None and (a is None or b is None):
        raise OperandError("prepare needs operands a and b, an instruction, or a plan")
    given = ends(c, None, bias, alpha, beta, "prepare", chosen.instruction is not None or plan is not None)
    found = followed(plan, chosen, a, b, None, False, given, "prepare")
    parted(found, c, given, "prepare")
    return Prepared(found, backend, threads)
