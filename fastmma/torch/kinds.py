"""The kind of every operation that a mode sees: what becomes of its calls, by torch's own schemas and tags and by the tables here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.library import _impls as _python_kernels

from fastmma.torch import conditions, draws, functions, fused, neutral, unfixed
from fastmma.torch.attention_apart import APART
from fastmma.torch.fused_attention import COMPUTED
from fastmma.torch.operators import OPERATORS, UNKNOWN
from fastmma.torch.report import NEUTRAL, PASSED, UNSEEN, Line

# how calls of a kind are answered
FREE, FIXED, MENDED, TOLD, PRODUCT = "free", "fixed", "mended", "told", "product"
COMPOSITE, RECURRENT, MATH_ATTENTION = "composite", "recurrent", "math attention"
BODY, FLOW, WHOLE, FUNCTION, FUSED = "body", "flow", "whole", "function", "fused"
_COMPOSITE_KEY = "CompositeImplicitAutograd"
_TORCHS = ("prim", "prims", "profiler", "debugprims")
_MOVERS = ("fsdp",)  # whose Python functions are torch's own
_COLLECTIVES = ("c10d", "_c10d_functional", "c10d_functional", "_dtensor")
# these views add up what has equal places, or convert
_NO_VIEWS = frozenset({"coalesce", "to", "_autocast_to_full_precision", "_autocast_to_reduced_precision"})
# control: whose functions run, and how often; their bodies are seen
_CONTROL = neutral.names("cond while_loop while_loop_stack_output map_impl scan associative_scan tag_activation_checkpoint wrap")
_FLEX = frozenset({"flex_attention", "flex_attention_backward"})
_NOT_LISTED = "it is in no list of what is known"


class Kind:
    """The kind of an operator: what becomes of its calls.

    Attributes
    ----------
    name : str
        Of the operator, without its overload.
    answer : str
        How its calls are answered.
    other : str
        How those calls of a function are answered whose bits are not known.
    line : Line
        Of those that are neutral.
    status, why : str
        Of those that are not.
    unless : callable
        Says of a call why it is not neutral.
    compute : callable
        What computes a neutral call: the operator, or what has a GPU's zeros.
    """

    __slots__ = ("answer", "compute", "line", "name", "operator", "other", "status", "unless", "why")

    def __init__(self, func: Any, answer: str, why: str = "", *, status: str = PASSED, unless: conditions.Unless = conditions.real) -> None:
        self.operator = func  # is kept, since its place in memory is its key
        self.name = _name(func).removesuffix("_")
        self.answer, self.status, self.why, self.unless = answer, status, why, unless
        self.compute = neutral.WITH_ZEROS.get(func, func)
        self.other = ""
        self.line = Line(str(func), NEUTRAL, "", "")


KINDS: dict[int, Kind] = {}  # by the operators' places in memory: they live as long as torch, which hashes them in Python


def kind_of(func: Any) -> Kind:
    """Find the kind of an operator, once."""
    found = _higher_order(func) if isinstance(func, HigherOrderOperator) else _kind(func)
    if found.answer in (FIXED, MENDED, TOLD, WHOLE) and func.namespace == "aten" and (found.name in functions.NAMES or draws.draws(func)):
        found.answer, found.other = FUNCTION, found.answer
    KINDS[id(func)] = found
    return found


def _name(func: Any) -> str:
    """Name an operator as its schema does."""
    return str(func.name() if isinstance(func, HigherOrderOperator) else func._schema.name.partition("::")[2])


def _higher_order(func: Any) -> Kind:
    if func.name() in _CONTROL:
        return Kind(func, FLOW)
    if func.name() in _FLEX:
        return Kind(func, WHOLE, "a GPU's kernel of this attention is not known")
    return Kind(func, WHOLE, _NOT_LISTED, status=UNSEEN)


def _kind(func: Any) -> Kind:
    name, space = _name(func), func.namespace
    plain = name if name in neutral.UNLESS or name in neutral.MOVES | neutral.METADATA else name.removesuffix("_")
    if func in OPERATORS or func in APART or func in COMPUTED or func in UNKNOWN:
        return Kind(func, PRODUCT)
    if space != "aten":
        return _foreign(func, name, space)
    if name in unfixed.RECURRENT:
        return Kind(func, RECURRENT, unfixed.RECURRENT[name])
    if name in unfixed.FUSED and func._overloadname == unfixed.FUSED[name]:
        return Kind(func, FUSED, fused.WHY)
    if name == unfixed.MATH_ATTENTION:
        return Kind(func, MATH_ATTENTION)
    if plain in neutral.UNLESS:
        answer = MENDED if plain in neutral.LEAST and func not in neutral.WITH_ZEROS else FIXED
        return Kind(func, answer, _why(func, plain) or unfixed.APPROXIMATED, unless=neutral.UNLESS[plain])
    if plain in neutral.MOVES | neutral.METADATA or _is_view(func, name):
        return Kind(func, FREE)
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if has(func.name(), _COMPOSITE_KEY) and not has(func.name(), "CPU"):  # with a kernel of its own, torch takes it whole
        return Kind(func, COMPOSITE)
    why = _why(func, plain)
    return Kind(func, TOLD, why) if why else Kind(func, WHOLE, _NOT_LISTED, status=UNSEEN)


def _is_composite(func: Any) -> bool:
    """Is an operator made of others, on all devices?"""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(has(func.name(), _COMPOSITE_KEY)) and not (has(func.name(), "CPU") or has(func.name(), "CUDA"))


def _is_view(func: Any, name: str) -> bool:
    """Does an operator return another view of its argument, or a copy of one?"""
    if torch.Tag.view_copy in func.tags:
        return True
    returned = func._schema.returns
    kept = [each.alias_info is not None and not each.alias_info.is_write for each in returned]
    return bool(kept) and all(kept) and name not in _NO_VIEWS


def _why(func: Any, name: str) -> str:
    """Say why results of torch's own are not a GPU's; nothing where it is not known."""
    packet = getattr(torch.ops.aten, name, None) or getattr(torch.ops.aten, _name(func))
    tags = {tag for overload in packet.overloads() for tag in getattr(packet, overload).tags}
    for names, tag, why in _REASONS:
        if name in names or tag in tags:
            return why
    return unfixed.LISTS if name.startswith("_foreach_") else ""


_REASONS: tuple[tuple[frozenset[str], Any, str], ...] = (
    (unfixed.RANDOM, torch.Tag.nondeterministic_seeded, conditions.DRAWN),
    (unfixed.STEPS, None, unfixed.CONTRACTED),
    (unfixed.TIES, None, conditions.ORDER),
    (unfixed.SUMS, torch.Tag.reduction, unfixed.ADDED),
    (unfixed.FUNCTIONS, torch.Tag.pointwise, unfixed.APPROXIMATED),
)


def _foreign(func: Any, name: str, space: str) -> Kind:
    """Find the kind of an operator that is none of aten's."""
    if space == "profiler":
        return Kind(func, FREE)
    if space in _COLLECTIVES and name in unfixed.GATHERED:
        return Kind(func, FREE)
    if space in _COLLECTIVES and name in unfixed.REDUCED:
        return Kind(func, TOLD, unfixed.ADDED)
    if space in _TORCHS:
        return Kind(func, WHOLE, _NOT_LISTED, status=UNSEEN)
    if _is_composite(func):
        return Kind(func, COMPOSITE)
    return Kind(func, BODY, "torch does not show what this operator does", status=NEUTRAL if space in _MOVERS else UNSEEN)


def body_of(func: Any, args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """Find the Python function that an operator of somebody's own runs for tensors on their device; None where it is compiled."""
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    device = tensors[0].device.type.upper() if tensors else "CPU"
    for key in (device, "CompositeExplicitAutograd"):
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key):
            names = {func._schema.name.replace("::", "/"), func.name().replace("::", "/")}
            if any(f"{name}/{key}" in _python_kernels for name in names):
                return partial(func._op_dk, getattr(torch._C.DispatchKey, key))
            return None
    return None
