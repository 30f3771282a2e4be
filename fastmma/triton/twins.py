"""Each function of a kernel twice: as Triton's compiler takes it, and as its interpreter does.

``TRITON_INTERPRET`` decides which of the two `triton.jit` makes. While a kernel is compiled or interpreted, all names that it can reach
mean the kind that is wanted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any
from unittest.mock import patch

import triton.language as tl
from triton import knobs
from triton._utils import _tuple_create
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

KINDS = (JITFunction, InterpretedFunction)
_TWIN = "_fastmma_twin"  # kept by the function itself: Triton hashes a function by all that it calls


def twin(function: Any, kind: type) -> Any:
    """The function as one of that kind."""
    if isinstance(function, kind):
        return function
    other = vars(function).get(_TWIN)
    if other is None:
        other = kind(function.fn, **getattr(function, "kwargs", {}))
        setattr(function, _TWIN, other)
        setattr(other, _TWIN, function)
    return other


def list_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code and that of all functions in it."""
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from list_codes(value)


def list_functions(values: Iterable[Any]) -> list[Any]:
    """List the functions among the arguments of a kernel."""
    found = []
    for value in values:
        found += [value] if isinstance(value, KINDS) else list_functions(value) if isinstance(value, tuple) else []
    return found


def convert_kind(value: Any, kind: type) -> Any:
    """Convert a kernel's argument: functions become those of a kind."""
    if isinstance(value, KINDS):
        return twin(value, kind)
    return _tuple_create(value, (convert_kind(one, kind) for one in value)) if isinstance(value, tuple) else value


def _modules(names: Iterable[str], space: dict[str, Any]) -> list[ModuleType]:
    """The modules that names in a namespace lead to, one in another too."""
    found = [value for name in names if isinstance(value := space.get(name), ModuleType)]
    for module in found:  # which grows
        inner = (vars(module).get(name) for name in names)
        found += [value for value in inner if isinstance(value, ModuleType) and value not in found]
    return found


def callees(*kernels: Any) -> list[Any]:
    """Kernels and all of the functions that they can reach by name."""
    found: dict[int, Any] = {}
    waiting = list(kernels)
    while waiting:
        one = waiting.pop()
        if id(one) in found:
            continue
        found[id(one)] = one
        for code in list_codes(one.fn.__code__):
            values = [one.fn.__globals__.get(name) for name in code.co_names]
            values += [vars(module).get(name) for module in _modules(code.co_names, one.fn.__globals__) for name in code.co_names]
            waiting += [value for value in values if isinstance(value, KINDS)]
    return list(found.values())


def _names(functions: Iterable[Any]) -> set[str]:
    return {name for one in functions for code in list_codes(one.fn.__code__) for name in code.co_names}


def names(*kernels: Any) -> set[str]:
    """All names in the code of kernels and of what they call."""
    return _names(callees(*kernels))


@lru_cache(maxsize=1)
def _language(_number: int) -> list[ModuleType]:
    """Triton's own modules, found anew when another was imported."""
    return [module for name, module in sys.modules.items() if name.startswith("triton.language")]


def _forwarding(function: Any) -> Callable[..., Any]:
    return lambda *arguments, **options: function(*arguments, **options)


@contextmanager
def all_of_kind(kernel: Any, kind: type, *others: Any) -> Iterator[Any]:
    """The kernel as one of a kind; all that it and others call is of that kind until the block ends."""
    functions = callees(kernel, *others)
    used = _names(functions)
    spaces = {id(one.fn.__globals__): one.fn.__globals__ for one in functions}
    modules = [module for space in spaces.values() for module in _modules(used, space)]
    spaces |= {id(vars(module)): vars(module) for module in (*modules, *_language(len(sys.modules)))}
    found = [
        (space, name, value)
        for space in spaces.values()
        for name in used
        if isinstance(value := space.get(name), KINDS) and not isinstance(value, kind)
    ]
    methods = [name for name, value in vars(tl.standard).items() if isinstance(value, KINDS) and name in vars(tl.tensor)]
    with ExitStack() as stack:
        stack.enter_context(knobs.runtime.scope())
        knobs.runtime.interpret = kind is InterpretedFunction
        for name in methods:
            method = twin(vars(tl.standard)[name], kind)
            stack.enter_context(patch.object(tl.tensor, name, method if kind is JITFunction else _forwarding(method)))
        for space, name, value in found:
            stack.callback(space.__setitem__, name, value)
            space[name] = twin(value, kind)
        yield twin(kernel, kind)
