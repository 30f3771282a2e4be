"""One emulation: its settings, its report, and the plans that it has chosen."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastmma.host.bounded import Bounded
from fastmma.host.caller import find_caller
from fastmma.host.errors import NotEmulatedError
from fastmma.host.float_mode import is_default
from fastmma.products.bound import Bound, Strided
from fastmma.products.lanes_plan import LanesPlan
from fastmma.products.prepared import Prepared, prepare
from fastmma.torch import on_gpu
from fastmma.torch.arrays import as_numpy, strided, to_numpy
from fastmma.torch.chains import chained, fills_k, multiply_by_lanes
from fastmma.torch.kept_products import kept_by
from fastmma.torch.places import LIBRARIES, where
from fastmma.torch.plans import ALIGNED, FORMATS, Epilogue, InvalidError, Planned, UnknownError, planned
from fastmma.torch.report import ASSUMED, EMULATED, PASSED, Line, Report
from fastmma.torch.settings import Modes, Settings

if TYPE_CHECKING:
    from fastmma.backends.fixed import Fixed


class AssumedWarning(UserWarning):
    """A product's order of k, or its epilogue, is not known to be the library's."""


class Computation(NamedTuple):
    """A kind of call: what computes arrays, its line in the report, results' dtype and shape, and what computes small products at once.

    `filled` tells whether the GPU's kernel fills k up with zeros, which are added to each sum: a negative zero is positive then.
    """

    product: Callable[..., Any]
    line: Line
    out: torch.dtype
    shape: tuple[int, ...]
    fixed: Fixed | None = None
    filled: bool = False


def _unlike(epilogue: Epilogue) -> str:
    """Say what of factors is not as recorded calls had it; empty where nothing is."""
    if epilogue.alpha > 0 or (epilogue.alpha and (epilogue.c or epilogue.bias)):
        return ""
    return "cuBLAS with alpha = 0 is not recorded" if not epilogue.alpha else "the sign of zeros by a negative alpha is not recorded"


class Emulation:
    """The state that all handlers of operators need.

    Attributes
    ----------
    settings : Settings
    report : Report
    plain : dict
        torch's own kernels, by operator, where others have taken their places.
    guess : str
        Why products are only assumed at present; empty where they are not.
    heard : callable, optional
        Is told of each product how it was computed, its operands with the addend, and the result.
    """

    guess = ""
    heard: Callable[[Computation, tuple[torch.Tensor | None, ...], torch.Tensor], None] | None = None

    def __init__(self, settings: Settings, report: Report | None = None) -> None:
        self.settings = settings
        self.report = Report(settings.architecture) if report is None else report
        self._plans: Bounded[tuple[Any, ...], Computation | str] = Bounded()  # or why there is none
        self._lines: Bounded[tuple[Any, ...], Line] = Bounded()
        self.plain: dict[Any, Callable[..., Any]] = {}
        self._warned: list[bool] = []
        self._before: Emulation | None = None

    def guessing(self, why: str) -> Emulation:
        """Return this emulation, in which products are only assumed."""
        found = copy.copy(self)
        found.guess, found._before = why, self
        return found

    def heard_by(self, heard: Callable[..., None]) -> Emulation:
        """Return this emulation, which tells a function of its products."""
        found = copy.copy(self)
        found.heard = heard
        return found

    def known(self) -> Emulation:
        """Return the emulation that `guessing` was asked of."""
        return self._before or self

    def product(
        self,
        operator: str,
        a: torch.Tensor,
        b: torch.Tensor,
        *,
        out_dtype: torch.dtype | None = None,
        c: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        alpha: float = 1.0,
        beta: float = 1.0,
        grouped: bool = False,
        activation: str | None = None,
    ) -> torch.Tensor:
        """Matrices (..., M, K) times (..., K, N), with the epilogue of a library.

        Raises
        ------
        UnknownError
            If its bits are not known.
        """
        addend = c if bias is None else bias
        if not a.layout is b.layout is torch.strided or not (addend is None or addend.layout is torch.strided):
            raise UnknownError("torch multiplies sparse tensors itself")
        if a.is_nested or b.is_nested:
            raise UnknownError("torch multiplies nested tensors itself")
        modes, added = self.settings.modes(a.dtype), None if addend is None else _lying(addend)
        key = operator, _lying(a), _lying(b), added, bias is None, alpha, beta, out_dtype, modes, grouped, activation
        found = self._plans.get(key)
        if found is None:
            kept = kept_by(self.settings).products
            found = kept.get(key)
            if found is None:
                row = c is not None and c.dim() == a.dim() == len("mk") and c.shape[0] == 1 and c.is_contiguous()
                wanted = Epilogue(out_dtype or a.dtype, c is not None, bias is not None, alpha, beta, grouped, activation, row)
                found = self._prepared_or_unknown(operator, a, b, addend, wanted, modes)
                kept.keep(key, found)
            self._plans.keep(key, found)
        if isinstance(found, str):
            raise UnknownError(found)
        if a.is_cuda:
            result = found.product(_lines(a), _lines(b), found.out, alpha=alpha, **_added(found.shape, c, bias, beta))
            self.done(found.line)
            return result
        result = torch.empty(found.shape, dtype=found.out)  # its memory is torch's own, and stays resizable
        fixed, last = found.fixed, 0 if addend is None else addend.data_ptr()
        if fixed is None or not is_default() or not fixed(a.data_ptr(), b.data_ptr(), result.data_ptr(), None, last):
            given: dict[str, Any] = {"alpha": alpha}
            if bias is not None:
                given["bias"] = _addend(bias, bias.shape)
            if c is not None:
                given |= {"beta": beta, "c": _addend(c, found.shape)}
            as_numpy(result)[...] = found.product(as_numpy(_lines(a)), as_numpy(_lines(b)), **given)
        self.done(found.line)
        if self.heard is not None:
            self.heard(found, (a, b, addend), result)
        return result.add_(0.0) if found.filled else result

    def _prepared_or_unknown(
        self, operator: str, a: torch.Tensor, b: torch.Tensor, addend: torch.Tensor | None, epilogue: Epilogue, modes: Modes
    ) -> Computation | str:
        """The product of such tensors, or the reason why its bits are not known."""
        try:
            return self._prepared(operator, a, b, addend, epilogue, modes)
        except UnknownError as unknown:
            return str(unknown)

    def _prepared(
        self, operator: str, a: torch.Tensor, b: torch.Tensor, addend: torch.Tensor | None, epilogue: Epilogue, modes: Modes
    ) -> Computation:
        """The product of such tensors, chosen and checked."""
        dtype = a.dtype
        if self.settings.check == "cuda" and dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
            raise NotImplementedError(f"\"addmm_cuda\" not implemented for '{str(dtype).removeprefix('torch.').capitalize()}'")
        check(a, b, addend, epilogue.out)
        if dtype not in FORMATS:
            raise UnknownError(f"no product of {dtype} in a library is known")
        lines = [_lines(each) for each in (a, b)]
        x, y = map(strided, lines)
        epilogue = epilogue._replace(aligned=not any(each.data_ptr() % ALIGNED for each in lines))
        thin = self.settings.library is not None and 1 in (a.shape[-2], b.shape[-1])  # which cuBLAS multiplies by other kernels
        off_tensor_cores = dtype is torch.float32 and (thin or not modes.tf32)
        how = chained(self.settings, x, y, epilogue, modes) if off_tensor_cores else planned(self.settings, x, y, dtype, epilogue, modes)
        unlike = self.settings.other_workspace or _unlike(epilogue)
        if unlike and how.status == EMULATED:
            how = how._replace(status=ASSUMED, how=f"{unlike}; else {how.how}")
        out, shape = torch.int32 if dtype is torch.int8 else epilogue.out, (*x.shape[:-1], y.shape[-1])
        if isinstance(how.plan, LanesPlan):
            if a.is_cuda:
                raise UnknownError("products whose k are shared by lanes are computed on CPUs alone")
            lanes = partial(multiply_by_lanes, plan=how.plan, threads=self.settings.threads)
            return Computation(lanes, line_of(operator, how, x, y), out, shape, filled=off_tensor_cores and fills_k(self.settings, x))
        if a.is_cuda:
            return Computation(partial(on_gpu.multiplied, how.plan), line_of(operator, how, x, y), out, shape)
        product = prepare(plan=how.plan, threads=self.settings.threads)
        filled = off_tensor_cores and fills_k(self.settings, x)
        return Computation(product, line_of(operator, how, x, y), out, shape, _fixed(product, a, b, addend, epilogue), filled)

    def done(self, line: Line) -> None:
        """Count a call that was computed."""
        if self.guess and line.status == EMULATED:
            line = _assumed(line, self.guess)
        self.report.count(line, where())
        self.warn(line)

    def warn(self, line: Line) -> None:
        """Warn of the first product that is assumed, unless all are guesses or the settings say no."""
        if line.status == ASSUMED and not (self.guess or self._warned) and self.settings.unknown == "warn" and self.settings.library:
            self._warned.append(True)
            text = f"{line.operator} of {line.operands} is computed, but not known to have the library's bits: {line.how}"
            _warn(f"{text}; the report lists all such products")

    def tell(self, operator: str, status: str, why: str, args: tuple[Any, ...]) -> Line:
        """Count a call that torch has computed, or is to compute, and return its line."""
        line = self._line(operator, status, why, args)
        self.report.count(line, where())
        return line

    def _line(self, operator: str, status: str, why: str, args: tuple[Any, ...]) -> Line:
        key = (operator, status, why, *[(each.dtype, _shape(each)) for each in args if isinstance(each, torch.Tensor)])
        line = self._lines.get(key)
        if line is None:
            line = Line(operator, status, tensors_text(args), why)
            self._lines.keep(key, line)
        return line

    def line_of(self, operator: str, args: tuple[Any, ...]) -> Line:
        """Return the line of calls that are `computed`, and counted elsewhere."""
        return self._line(operator, *self.settings.status_of(operator), args)

    def computed(self, operator: str, args: tuple[Any, ...], what: str = "") -> Line:
        """Count a call that was computed as a kernel of the recorded version of torch does, and return its line."""
        status, how = self.settings.status_of(operator)
        return self.tell(operator, ASSUMED if self.guess else status, self.guess or f"{what}{how}", args)

    def passed(self, operator: str, why: str, operands: str = "", status: str = PASSED) -> None:
        """Count a call that torch is to compute, if it may.

        Raises
        ------
        NotEmulatedError
            If the settings say so.
        """
        if self.settings.other == "error":
            raise NotEmulatedError(f"{operator}: {why}")
        if self.settings.other == "warn":
            _warn(f"{operator} is not emulated: {why}")
        self.report.count(Line(operator, status, operands, why), where())


def _lying(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Describe all of a tensor that a choice depends on: a key."""
    place, on_cpu, on_gpu = tensor.data_ptr() % ALIGNED, tensor.is_cpu, tensor.is_cuda
    return tensor.dtype, tensor.shape, tensor.stride(), place, on_cpu, on_gpu, tensor.is_neg()


def _warn(text: str) -> None:
    """Warn of the caller's line."""
    caller = find_caller(LIBRARIES)
    warnings.warn(text, AssumedWarning, stacklevel=caller.level if caller else 1)


@lru_cache(1024)
def _assumed(line: Line, why: str) -> Line:
    return replace(line, status=ASSUMED, how=f"{line.how}; {why}")


def _fixed(product: Prepared, a: torch.Tensor, b: torch.Tensor, addend: torch.Tensor | None, epilogue: Epilogue) -> Fixed | None:
    """Return what computes a small product from the addresses of tensors like these, which are read as they lie."""
    tensors = [a, b] if addend is None else [a, b, addend]
    if any(each.is_neg() for each in tensors) or _lines(a) is not a or _lines(b) is not b:
        return None
    c = strided(addend.expand((*a.shape[:-1], b.shape[-1]))) if addend is not None and epilogue.c else None
    bias = strided(addend) if addend is not None and c is None else None
    return product.fixed(Bound(strided(a), strided(b), c, bias, float(epilogue.alpha), epilogue.beta if epilogue.c else None))


def check(a: torch.Tensor, b: torch.Tensor, addend: torch.Tensor | None, out_dtype: torch.dtype) -> None:
    """Raise InvalidError where torch would refuse the operands."""
    if a.dim() != b.dim() or a.dim() not in (2, 3) or a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise InvalidError(f"shapes {tuple(a.shape)} and {tuple(b.shape)}")
    if a.device != b.device or a.device.type not in ("cpu", "cuda"):
        raise UnknownError("torch multiplies tensors on other devices itself")
    if a.is_cuda and not on_gpu.available():
        raise UnknownError("tensors on a GPU need CuPy, which the extras cuda12 and cuda13 install")
    if a.dtype is not b.dtype or (addend is not None and addend.dtype not in (a.dtype, out_dtype)):
        raise InvalidError(f"dtypes {a.dtype} and {b.dtype}")
    if out_dtype is not a.dtype and not (out_dtype is torch.float32 and a.dtype in (torch.float16, torch.bfloat16)):
        raise RuntimeError("out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs")


def _lines(matrix: torch.Tensor) -> torch.Tensor:
    """Matrices as torch hands them to cuBLAS: in whole rows or columns, else copied."""
    if matrix.is_neg():
        matrix = matrix.resolve_neg()
    (rows, columns), (down, along) = matrix.shape[-2:], matrix.stride()[-2:]
    whole = (along == 1 and down >= max(columns, 1)) or (down == 1 and along >= max(rows, 1))
    return matrix if whole else matrix.contiguous()


def line_of(operator: str, how: Planned, *arrays: NDArray[Any] | Strided) -> Line:
    """The line of a report for a product of arrays."""
    operation = how.plan.operation
    return Line(
        operator, how.status, operands_text(*arrays), f"{operation.instruction.opcode}; {how.how}", operation.arithmetic.evidence.level
    )


def operands_text(*arrays: NDArray[Any] | Strided) -> str:
    """Dtypes and shapes."""
    return " x ".join(f"{array.dtype} {array.shape}" for array in arrays)


def tensors_text(args: Any) -> str:
    """Dtypes and shapes of the tensors among arguments."""
    return " x ".join(f"{str(each.dtype).removeprefix('torch.')} {_shape(each)}" for each in args if isinstance(each, torch.Tensor))


def _shape(tensor: torch.Tensor) -> tuple[int, ...] | str:
    return "of several shapes" if tensor.is_nested else tuple(tensor.shape)


def _addend(tensor: torch.Tensor, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """c or a bias as f32, of the shape that it is added to."""
    wide = tensor if tensor.dtype is torch.float32 else tensor.to(torch.float32)
    return to_numpy(wide if wide.shape == shape else wide.expand(shape))


def _added(shape: tuple[int, ...], c: torch.Tensor | None, bias: torch.Tensor | None, beta: float) -> dict[str, torch.Tensor | float]:
    """Return what is added to a product of a shape on a GPU, as f32."""
    if bias is not None:
        return {"bias": bias.to(torch.float32).resolve_neg()}
    return {} if c is None else {"beta": beta, "c": c.to(torch.float32).resolve_neg().expand(shape)}
