"""Products that are chosen once and called many times: tile loops and small models."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Operands
from fastmma.backends.engine import Backend
from fastmma.backends.fixed import Fixed
from fastmma.backends.resolve import backend_of
from fastmma.host.addresses import address_of, maker_of_results
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError
from fastmma.host.signatures import spell_keywords
from fastmma.host.threads import call_uninterrupted, thread_count
from fastmma.isa.formats import FORMATS
from fastmma.isa.instruction import Instruction
from fastmma.kernels.params import Promotion
from fastmma.operands.check import Results, operand, takes_results
from fastmma.products.bound import Arguments, Bound, bind, operand_or_strided
from fastmma.products.epilogue import finish_products
from fastmma.products.fixed import fixed_product
from fastmma.products.gemm_choice import check_plan, choose
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.keywords import Choices, GemmChoices, read_choices
from fastmma.products.lanes_gemm import LanesProduct
from fastmma.products.lanes_plan import LanesPlan
from fastmma.products.loop import accumulate
from fastmma.products.operands import bind_operands, check_ends

_FORMS = 256  # of small products, which `prepare` keeps
_CALLED_FORMS, _CALLED_PLANS = 16, 16  # that calls without a prepared product keep


class Kept(NamedTuple):
    """A kernel that computes products of a form, the shape of their results, and what makes arrays for these."""

    fixed: Fixed
    shape: tuple[int, ...]
    new_results: Callable[[], NDArray[Any]]


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

    def __init__(self, plan: GemmPlan, runner: Backend, threads: int, forms: int = _FORMS, *, at_once: bool = True) -> None:
        """Keep at most `forms` forms, each when it comes first, or else when it comes again."""
        self.plan, self._runner, self._threads = plan, runner, threads
        ins = self._instruction = plan.operation.instruction
        self._promotion = None if plan.promote_every is None else Promotion(plan.promote_every)
        self._result = FORMATS[plan.out].dtype if plan.epilogue else ins.formats.d.dtype
        self._most, self._at_once, self._keeps = forms, at_once, runner.settings() is not None  # else someone may watch every step
        self._kept: dict[Bound, Kept | None] = {}
        self._seen: set[Bound] = set()

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
        arguments = Arguments("a prepared product", a, b, c, bias, alpha, beta, out)
        found = self.multiply_small(arguments)
        if found is not None:
            return found
        opcode = self._instruction.opcode
        arguments = arguments._replace(a=operand(a, f"{opcode}: a"), b=operand(b, f"{opcode}: b"))
        return self.run(arguments, *bind_operands(self.plan, arguments, stacks=True))

    def multiply(self, arguments: Arguments) -> NDArray[Any]:
        """Multiply matrices: at once where a kernel for their form is kept, else by way of their codes.

        Raises
        ------
        OperandError, OperandTypeError
        """
        found = self.multiply_small(arguments) if arguments.a.ndim == 2 else None
        return self.run(arguments, *bind_operands(self.plan, arguments)) if found is None else found

    def run(self, arguments: Arguments, operands: Operands, shape: tuple[int, ...]) -> NDArray[Any]:
        """Multiply operands that are bound, and do to their sums what the plan's epilogue does.

        Raises
        ------
        OperandError, OperandTypeError
            If `out`, or what the epilogue takes, is wrong.
        """
        plan, runner, threads = self.plan, self._runner, self._threads
        if plan.epilogue:
            return finish_products(plan, arguments, operands, shape, runner, threads)
        results = Results(arguments.out, shape, self._instruction, operands)
        codes, whole = results.codes, (operands.a.shape[0], operands.a.shape[1], operands.b.shape[2])
        sums = codes.reshape(whole) if codes.flags.c_contiguous or len(shape) == 2 or shape == whole else np.empty(whole, codes.dtype)
        if plan.is_direct:
            runner.run(plan.operation, operands, sums, threads)
        else:
            accumulate(runner, plan.operation, operands, sums, self._promotion, plan.order, threads)
        if not np.may_share_memory(sums, codes):
            codes[...] = sums.reshape(shape)
        return results.elements()

    def multiply_small(self, arguments: Arguments) -> NDArray[Any] | None:
        """Multiply arrays of a form that is kept; return None for any other, and for what is wrong."""
        bound = bind(arguments) if self._keeps else None
        if bound is None:
            return None
        try:
            kept = self._kept[bound]
        except KeyError:
            kept = self._keep(bound)
        return None if kept is None else self.multiply_by(kept, arguments)

    def multiply_by(self, kept: Kept, arguments: Arguments) -> NDArray[Any] | None:
        """Multiply arrays by the kernel of their form; return None for what is out of reach, and for an `out` that it cannot write to."""
        _, a, b, c, bias, _, _, out, *_ = arguments
        addend = c if bias is None else bias
        if out is None:
            result = kept.new_results()
        elif takes_results(out, kept.shape, self._result, (a, b, addend)):
            result = out
        else:
            return None
        start, last = (None, addend) if self.plan.epilogue else (addend, None)
        return result if kept.fixed(a, b, address_of(result), start, 0 if last is None else address_of(last)) else None

    def kept_of(self, bound: Bound) -> Kept | None:
        """Return the kernel that is kept for a form, if one is."""
        return self._kept.get(bound)

    def fixed(self, bound: Bound) -> Fixed | None:
        """Return what computes a small product from addresses alone, without any check; None if nothing does.

        Results are C-contiguous.
        """
        return fixed_product(self.plan, self._runner, self._threads, bound)

    def _keep(self, bound: Bound) -> Kept | None:
        """Return what computes products of a form that is not kept yet; None if there is nothing, or it is too early."""
        if not self._at_once and bound not in self._seen:
            if len(self._seen) >= self._most:
                self._seen.clear()
            self._seen.add(bound)
            return None
        if len(self._kept) >= self._most:
            self._kept.clear()
        fixed = call_uninterrupted(self.fixed, bound)  # a signal handler may come with another form
        kept = self._kept[bound] = None if fixed is None else self._kept_by(fixed, (*bound.a[1][:-1], bound.b[1][-1]))
        return kept

    def _kept_by(self, fixed: Fixed, shape: tuple[int, ...]) -> Kept:
        return Kept(fixed, shape, maker_of_results(shape, self._result))


@overload
def prepared_of(plan: GemmPlan, runner: Backend, threads: int) -> Prepared: ...


@overload
def prepared_of(plan: GemmPlan | LanesPlan, runner: Backend, threads: int) -> Prepared | LanesProduct: ...


def prepared_of(plan: GemmPlan | LanesPlan, runner: Backend, threads: int) -> Prepared | LanesProduct:
    """Return what calls by a plan share; it is new where nothing is kept."""
    if isinstance(plan, LanesPlan):
        return LanesProduct(plan, runner, threads)
    settings = runner.settings()
    return Prepared(plan, runner, threads) if settings is None else _prepare(plan, runner, threads, settings)


@lru_cache(_CALLED_PLANS)
def _prepare(plan: GemmPlan, runner: Backend, threads: int, settings: object) -> Prepared:  # noqa: ARG001 - a key
    return Prepared(plan, runner, threads, _CALLED_FORMS, at_once=False)


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
    """Choose and check a product once, to call it often: a call costs some microseconds more than its kernel.

    Parameters
    ----------
    a, b, c : array, optional
        Operands like those of the later calls; only what `fastmma.gemm_plan` names of them matters. They may be left out if an
        instruction or a plan is given; a may be the instruction itself, and b the target: ``prepare("mma.sync...", "sm_80")``.
    instruction, target, accumulator, promote_every, split_k, join, join_dtype, preset, activation, out_dtype, cast, arithmetic, unknown
        As in `fastmma.gemm`.
    alpha, beta, bias
        As in `fastmma.gemm`; only whether they are 1, or given, counts.
    plan : GemmPlan, optional
        The plan to follow, instead of the options that choose one.
    threads : int, optional
        All cores by default, or ``FASTMMA_NUM_THREADS``.
    backend : {"numba", "reference", "cupy", "cupy-emulate"}
        What computes, as in `fastmma.gemm`.

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
    typed = plan is None and chosen.reads_dtypes
    a, b = (None if each is None else operand_or_strided(each, f"prepare: {name}", typed=typed) for name, each in (("a", a), ("b", b)))
    arguments = Arguments("prepare", a, b, c, bias, alpha, beta)
    if plan is None:
        plan = choose(arguments, chosen)
    else:
        check_plan(plan, (GemmPlan,), chosen, "prepare")
    check_ends(plan, arguments)
    runner, workers, ins = backend_of(backend), thread_count(threads), plan.operation.instruction
    if ins.sparse or ins.scale_vec_size:
        raise OperandError(f"{ins}: prepare takes neither metadata nor scales; gemm does")
    return Prepared(plan, runner, workers)
