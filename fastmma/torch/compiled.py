"""Lines of a report for what a compiler makes of a graph: all operations that are not emulated."""

from __future__ import annotations

import re
from collections import Counter
from operator import getitem
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._pytree import tree_leaves

from fastmma.host.caller import folders_of
from fastmma.torch import conditions, neutral, scatter_conditions
from fastmma.torch.kinds import KINDS, kind_of
from fastmma.torch.replacements import is_replacement, set_place
from fastmma.torch.report import NEUTRAL, PASSED, UNSEEN, Line
from fastmma.torch.unfixed import RECURRENT

Lines = Counter[tuple[Line, str]]
_FUSED = "inductor compiles it to C++, which may skip roundings to 16 bits and lose signs of zeros"
_NOBODY = "an operator that is not torch's; fastmma does not examine its kernel"
_HOLDS = "an operator with graphs inside, which fastmma does not examine"
_PLACES = "the order of equal elements, or of several values for one place, is up to the machine"
# where tensors have one dtype; all views move, too
_MOVING = neutral.MOVES | neutral.METADATA | {"broadcast_in_dim", "copy", "copy_", "device_put", "iota"}
_JOINING = frozenset({"cat", "copy", "copy_", "stack", "where"})  # which cast where dtypes differ
# integers have one result, but for orders of equal elements, and for several values for one place
_UNORDERED = (conditions.ORDER, conditions.DRAWN)
_PLACING = (
    conditions.ordered,
    conditions.united,
    scatter_conditions.put,
    scatter_conditions.placed,
    scatter_conditions.put_by_number,
    scatter_conditions.scattered,
    scatter_conditions.scatter_added,
)
_CASTS = frozenset({torch.ops.prims.convert_element_type.default, torch.ops.aten._to_copy.default})
_PLACE = re.compile(r'^\s*File "(.+)", line (\d+)', re.MULTILINE)


def lines_of(module: Any) -> Lines:
    """Count the operations of a graph, and of the graphs within, by their lines in a report; replacements learn their places."""
    found: Lines = Counter()
    for graph in module.modules():
        for node in getattr(getattr(graph, "graph", None), "nodes", ()):
            if node.op != "call_function":
                continue
            if is_replacement(node.target):
                set_place(node, place_of(node))
            elif line := _line_of(node):
                found[line, place_of(node)] += 1
        if hasattr(graph, "recompile"):
            graph.recompile()
    return found


def place_of(node: Any) -> str:
    """Return the caller's file and line of a node, the innermost that is not torch's."""
    own = folders_of("torch")
    places = _PLACE.findall(node.meta.get("stack_trace") or "")
    return next((f"{file}:{line}" for file, line in reversed(places) if not file.startswith(own)), "")


def recurrent_lines(module: Any) -> Lines:
    """Count the recurrent layers and cells of a graph that torch has not taken apart yet: on a GPU, their steps are others."""
    found: Lines = Counter()
    for graph in module.modules():
        for node in getattr(getattr(graph, "graph", None), "nodes", ()):
            name = getattr(node.target, "__name__", "").partition(".")[0]
            if name in RECURRENT:
                found[Line(name, PASSED, "", RECURRENT[name]), place_of(node)] += 1
    return found


def _line_of(node: Any) -> Line | None:
    """Describe a node; None for numbers of Python's."""
    func, given, made = node.target, _tensors(*node.all_input_nodes), _tensors(node)
    described = all("val" in each.meta for each in (node, *node.all_input_nodes))
    if not isinstance(func, OpOverload | HigherOrderOperator) and (func is getitem or (described and not made)):
        return None
    if isinstance(func, HigherOrderOperator):
        status, why = UNSEEN, _HOLDS
    else:
        status, why = _status(func, given, made) if described else (UNSEEN, _NOBODY)
    return Line(str(func), status, " x ".join(f"{str(each.dtype).removeprefix('torch.')} {tuple(each.shape)}" for each in given), why)


def _status(func: Any, given: list[torch.Tensor], made: list[torch.Tensor]) -> tuple[str, str]:
    """Say what becomes of an operator's calls, and why."""
    if not isinstance(func, OpOverload) or func.namespace not in ("aten", "prims"):
        return UNSEEN, _NOBODY
    name = func.name().partition("::")[2]
    if torch.Tag.nondeterministic_seeded in func.tags or name.startswith("inductor_"):
        return PASSED, conditions.DRAWN
    if _moves(func, given + made) or _widens(func, given, made):
        return NEUTRAL, ""
    kind = KINDS.get(id(func)) or kind_of(func)
    if func.namespace == "aten" and kind.status == UNSEEN:
        return UNSEEN, kind.why
    if _formats(given + made):
        return PASSED, _FUSED
    return (PASSED, _PLACES) if kind.why in _UNORDERED or kind.unless in _PLACING else (NEUTRAL, "")


def _tensors(*nodes: Any) -> list[torch.Tensor]:
    """List the tensors that nodes make, which hold nothing."""
    return [each for each in tree_leaves([node.meta.get("val") for node in nodes]) if isinstance(each, torch.Tensor)]


def _formats(tensors: list[torch.Tensor]) -> set[torch.dtype]:
    """Find the floating-point dtypes among tensors."""
    return {each.dtype for each in tensors if each.is_floating_point() or each.is_complex()}


def _moves(func: OpOverload, tensors: list[torch.Tensor]) -> bool:
    """Tell whether an operator moves elements, and casts none."""
    name = func.name().partition("::")[2].partition(".")[0]
    joins = name in _JOINING and len({each.dtype for each in tensors} - {torch.bool}) > 1
    return bool(func.is_view or name in _MOVING) and not joins and len(_formats(tensors)) <= 1


def _widens(func: OpOverload, given: list[torch.Tensor], made: list[torch.Tensor]) -> bool:
    """Tell whether an operator casts floating-point numbers to a format that holds them all."""
    if func not in _CASTS:
        return False
    old, new = given[0].dtype, made[0].dtype
    return bool(old.is_floating_point and new.is_floating_point and torch.promote_types(old, new) == new)
