"""The mode that torch asks about every operator below autograd, and its answers: each is computed, and told in the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves, tree_map

from fastmma.functions import autocast
from fastmma.host.errors import NotEmulatedError
from fastmma.host.float_mode import in_default_mode
from fastmma.torch import composites, conditions, frames, functions, fused, neutral
from fastmma.torch.attention import FUSED as FUSED_ATTENTION
from fastmma.torch.attention import answered
from fastmma.torch.emulation import Computation, Emulation, tensors_text
from fastmma.torch.kept_calls import Key, kept_function, kept_product, key_of
from fastmma.torch.kept_products import kept_by
from fastmma.torch.kinds import (
    BODY,
    COMPOSITE,
    FIXED,
    FLOW,
    FREE,
    FUNCTION,
    FUSED,
    KINDS,
    MATH_ATTENTION,
    MENDED,
    PRODUCT,
    RECURRENT,
    TOLD,
    WHOLE,
    Kind,
    body_of,
    kind_of,
)
from fastmma.torch.report import ASSUMED, PASSED, UNSEEN

_NO_DISPATCH = torch._C._disabled_torch_dispatch_impl
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_APART = frozenset({COMPOSITE, RECURRENT, MATH_ATTENTION, FUSED, BODY, FLOW})  # whose operators come back, and are cast
_LISTS = (tuple, list)
_FAKE = "FakeTensor"  # which has a shape, and holds nothing


class DispatchMode(TorchDispatchMode):
    """The operators of one thread, within one ``with``.

    Attributes
    ----------
    run : Emulation
    tally : Tally
        Calls that need no lock.
    neutral : dict
        Those of neutral operators.
    told : int
        How many calls were not neutral.
    passes : bool
        torch computes everything, and nothing is told.
    calls : dict
        What computes calls at once, by their keys.
    modes : callable
        torch's settings for products of a dtype.
    """

    supports_higher_order_operators = True

    def __init__(self, run: Emulation) -> None:
        super().__init__()
        self.run = run
        self.tally = run.report.tally()
        self.neutral = self.tally.neutral
        self.told = 0
        self.passes = False
        self.calls, self.modes = kept_by(run.settings).calls, run.settings.modes

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tell torch whether it is to keep torch.compile out of `__torch_dispatch__`, which `frames.skip` does sooner."""
        return not frames.can_skip

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        for each in types:
            if each in _PLAIN:
                continue
            if each.__name__ == _FAKE:  # of a mode below
                return func(*args, **(kwargs or {}))
            if getattr(each, "__torch_dispatch__", _NO_DISPATCH) is not _NO_DISPATCH:
                return NotImplemented  # the subclass first: its inner operators come back here
        kwargs = kwargs or {}
        if self.passes:
            return func(*args, **kwargs)
        kind = KINDS.get(id(func)) or kind_of(func)
        answer = kind.answer
        if answer is not PRODUCT and (answer is FREE or ((answer is FIXED or kind.other is FIXED) and kind.unless(args, kwargs) is None)):
            result = kind.compute(*args, **kwargs)
            self.neutral[kind] = self.neutral.get(kind, 0) + 1
            return result
        compute: _Answer
        if answer is PRODUCT or answer is FUNCTION:
            key = key_of(kind, args, kwargs, self.modes if answer is PRODUCT else None)
            kept = None if key is None else self.calls.get(key)
            found = None if kept is None else kept.compute(self.run, self.tally, args)
            if found is not None:
                self.told += 1
                return found
            compute = partial(_product if answer is PRODUCT else _function, key=key)
        else:
            compute = _ANSWERS[answer]
        if answer in _APART or not autocast.is_on():
            return compute(self, kind, func, args, kwargs)
        with autocast.paused():
            return compute(self, kind, func, args, kwargs)

    @contextmanager
    def guessing(self, why: str) -> Iterator[None]:
        """Call products assumed within the ``with``."""
        before, self.run = self.run, self.run.guessing(why)
        try:
            yield
        finally:
            self.run = before

    def once(self) -> AbstractContextManager[object]:
        """Enter this mode, unless the thread is within it."""
        return nullcontext() if any(each is self for each in _get_current_dispatch_mode_stack()) else self

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Leave everything to torch within the ``with``."""
        self.passes = True
        try:
            yield
        finally:
            self.passes = False


frames.skip(DispatchMode.__torch_dispatch__.__code__)


def _neutral(mode: DispatchMode, kind: Kind) -> None:
    mode.neutral[kind] = mode.neutral.get(kind, 0) + 1


def _tell(mode: DispatchMode, kind: Kind, func: Any, args: tuple[Any, ...], why: str) -> None:
    mode.told += 1
    mode.run.tell(kind.line.operator, kind.status, why, args)


def _fixed(mode: DispatchMode, kind: Kind, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute what has not the bits that IEEE 754 fixes, for this reason."""
    why = kind.unless(args, kwargs)
    result = func(*args, **kwargs)
    if why is None or _holds_nothing(args) or (why is conditions.ZERO and not _has_zero(result)):
        _neutral(mode, kind)
    else:
        _tell(mode, kind, func, args, why)
    return result


def _mended(mode: DispatchMode, kind: Kind, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute what a GPU computes otherwise for -0 alone."""
    return neutral.mended(kind.name, args, _fixed(mode, kind, func, args, kwargs))


def _told(mode: DispatchMode, kind: Kind, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute as torch does what no integers are."""
    result = func(*args, **kwargs)
    settled = conditions.is_whole(args, result) or conditions.is_empty(args)
    if settled and kind.why not in (conditions.ORDER, conditions.DRAWN):
        _neutral(mode, kind)
    elif not _holds_nothing(args):
        _tell(mode, kind, func, args, kind.why)
    return result


def _function(mode: DispatchMode, kind: Kind, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], key: Key | None = None) -> Any:
    """Compute a function with the bits of the GPU, where they are known and IEEE 754 does not fix them; keep what does so at once."""
    settings = mode.run.settings
    fixed = kind.other in (FIXED, MENDED) and kind.unless(args, kwargs) is None
    if fixed or not settings.computes_functions or _holds_nothing(args):
        return _ANSWERS[kind.other](mode, kind, func, args, kwargs)
    result = in_default_mode(functions.compute, func, args, kwargs, settings.threads)
    if result is None:
        return _ANSWERS[kind.other](mode, kind, func, args, kwargs)
    if isinstance(result, str):
        _tell(mode, kind, func, args, result)
        return func(*args, **kwargs)
    mode.told += 1
    line = mode.run.computed(kind.line.operator, args)
    if key is not None and not mode.run.guess and key not in mode.calls:
        mode.calls.keep(key, in_default_mode(kept_function, kind, func, args, kwargs, line))
    return None if result is functions.DONE else result


def _product(mode: DispatchMode, kind: Kind, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], key: Key | None = None) -> Any:
    """Compute a product; keep what computes calls like it at once."""
    if _holds_nothing(args):
        return func(*args, **kwargs)
    mode.told += 1
    if key is None or key in mode.calls:
        return answered(mode.run, func, args, kwargs)
    kept = None

    def hear(computation: Computation, operands: tuple[torch.Tensor | None, ...], result: torch.Tensor) -> None:
        nonlocal kept
        kept = result, kept_product(computation, operands, args)

    found = answered(mode.run.heard_by(hear), func, args, kwargs)
    mode.calls.keep(key, kept[1] if kept is not None and kept[0] is found else None)
    return found


def _whole(mode: DispatchMode, kind: Kind, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute as torch does what may multiply within."""
    if kind.status == PASSED and mode.run.settings.attention == "error":
        raise NotEmulatedError(f"{func}: {kind.why}")
    if not _holds_nothing(args):
        mode.told += 1
        mode.run.passed(str(func), kind.why, tensors_text(args), kind.status)
    return func(*args, **kwargs)


def _composite(mode: DispatchMode, kind: Kind, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take apart what in inference mode nobody has taken apart."""
    with mode:
        return composites.decompose(func, args, kwargs)


def _recurrent(mode: DispatchMode, kind: Kind, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take apart a recurrent layer, of which a GPU's library makes something else."""
    mode.told += 1
    mode.run.passed(str(func), kind.why, tensors_text(tree_leaves(args)))
    return _guessed(mode, kind.why, func, args, kwargs)


def _fused(mode: DispatchMode, kind: Kind, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute a composite that is one kernel on a GPU; its operators are a guess where that is not known."""
    if not _holds_nothing(args):
        key = key_of(kind, args, kwargs) if kind.name in fused.KEPT else None
        kept = None if key is None else mode.calls.get(key)
        found = None if kept is None else kept.compute(mode.run, mode.tally, args)
        if found is not None:
            mode.told += 1
            return found
        with mode.once():
            found, known = in_default_mode(fused.compute, mode.run, kind.name, args, kwargs)
        if found is not None:
            mode.told += 1
            if key is not None and not mode.run.guess and key not in mode.calls:
                mode.calls.keep(key, in_default_mode(fused.keep, mode.run, kind.name, args, kwargs))
            return found
        if not known:
            return _guessed(mode, kind.why, func, args, kwargs)
    with mode.once():
        return composites.decompose(func, args, kwargs)


def _math_attention(mode: DispatchMode, kind: Kind, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take apart attention, which a GPU computes by a fused kernel unless torch's settings forbid all of them."""
    cuda, wish = torch.backends.cuda, mode.run.settings.attention
    if not (cuda.flash_sdp_enabled() or cuda.mem_efficient_sdp_enabled() or cuda.cudnn_sdp_enabled()):
        with mode.once():
            return composites.decompose(func, args, kwargs)
    if wish == "error":
        raise NotEmulatedError(f"{func}: {FUSED_ATTENTION}")
    mode.told += 1
    mode.run.tell(str(func), PASSED if wish == "pass" else ASSUMED, FUSED_ATTENTION, args)
    if wish == "pass":
        with mode.passing():
            return composites.decompose(func, args, kwargs)
    return _guessed(mode, FUSED_ATTENTION, func, args, kwargs)


def _guessed(mode: DispatchMode, why: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take a composite apart; its products are assumed, in the backward pass too."""
    with mode.guessing(why), mode.once():
        found = composites.decompose(func, args, kwargs)
    composites.mark((args, kwargs), found, partial(_begin, why), _end)
    return found


def _begin(why: str) -> None:
    mode = innermost()
    if mode is not None:
        mode.run = mode.run.guessing(why)


def _end() -> None:
    mode = innermost()
    if mode is not None:
        mode.run = mode.run.known()


def _body(mode: DispatchMode, kind: Kind, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the Python function of somebody's own operator, whose operators are seen one by one; a compiled one is not looked into."""
    body = body_of(func, args)
    if body is None:
        return _whole(mode, kind, func, args, kwargs)
    before = mode.told
    with mode:
        result = body(*args, **kwargs)
    if kind.status == UNSEEN and mode.told == before and not _holds_nothing(args):  # it moves data, or computes what torch is not asked for
        mode.told += 1
        mode.run.passed(str(func), kind.why, tensors_text(args), kind.status)
    return result


def _flow(mode: DispatchMode, kind: Kind, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the functions of a control flow within the mode."""

    def within(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            with mode:
                return function(*given, **named)

        return run

    args, kwargs = tree_map(lambda each: within(each) if callable(each) and not isinstance(each, torch.Tensor) else each, (args, kwargs))
    return func(*args, **kwargs)


def _has_zero(result: Any) -> bool:
    """Is a zero among floating-point results?"""
    found = [each for each in tree_leaves(result) if isinstance(each, torch.Tensor) and each.is_floating_point()]
    return any(bool((each == 0).any()) for each in found)


def _holds_nothing(args: tuple[Any, ...]) -> bool:
    """Are tensors among arguments, or in lists of them, on no device?"""
    if args and type(args[0]) in _PLAIN:
        return bool(args[0].is_meta)
    for value in args:
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, torch.Tensor):
                return bool(each.is_meta)  # all are, or none is
    return False


_Answer = Callable[[DispatchMode, Kind, Any, tuple[Any, ...], dict[str, Any]], Any]
_ANSWERS: dict[str, _Answer] = {
    FIXED: _fixed,
    MENDED: _mended,
    TOLD: _told,
    PRODUCT: _product,
    COMPOSITE: _composite,
    RECURRENT: _recurrent,
    MATH_ATTENTION: _math_attention,
    BODY: _body,
    FLOW: _flow,
    WHOLE: _whole,
    FUNCTION: _function,
    FUSED: _fused,
}


def innermost() -> DispatchMode | None:
    """Find the mode that this thread has entered last."""
    for each in reversed(_get_current_dispatch_mode_stack()):
        if isinstance(each, DispatchMode):
            return each
    return None


def emulates(args: tuple[Any, ...], kwargs: dict[str, Any]) -> DispatchMode | None:
    """Find the mode that a call above autograd concerns."""
    mode = innermost()
    return None if mode is None or mode.passes or _is_fake(args) or (kwargs and _is_fake(kwargs)) else mode


def _is_fake(given: Any) -> bool:
    """Is a tensor that holds nothing among arguments?"""
    if isinstance(given, torch.Tensor):
        return type(given).__name__ == _FAKE
    if isinstance(given, _LISTS):
        return any(map(_is_fake, given))
    return any(type(each).__name__ == _FAKE for each in tree_leaves(given)) if isinstance(given, dict) and given else False


def recognise(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer for a composite above autograd, where the thread emulates; else take it apart as torch does."""
    kind = KINDS.get(id(func)) or kind_of(func)
    if kind.answer is FUSED and fused.is_taken_apart(kind.name, args, kwargs):
        return composites.decompose(func, args, kwargs)
    mode = emulates(args, kwargs)
    if mode is None or mode.run.guess:
        return composites.decompose(func, args, kwargs)
    return _ANSWERS[kind.answer](mode, kind, func, args, kwargs)
