"""The interpreter's builder with the operations of an emulation: every method is counted, and those of fastmma's stand in their places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, partialmethod
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from fastmma.host.errors import NotEmulatedError
from fastmma.isa.codes import encode
from fastmma.triton.descriptors import reduce_into_memory
from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.formats import BF16, canonicalise_nan
from fastmma.triton.handles import remember_loads
from fastmma.triton.methods import ABSENT, HELPERS, Method, find_method
from fastmma.triton.sources import rememberer

BUILDER = interpreter.InterpreterBuilder
# results of these were not loaded as their operands were
_NOT_ELEMENTWISE = (
    *("load", "store", "dot", "atomic", "descriptor", "histogram", "gather", "print", "assert", "assume", "barrier", "program", "addptr"),
)


def _count(run: Emulation, row: Method, original: Callable[..., Any], operation: Operation | None, keeps: bool) -> Callable[..., Any]:
    status, name, why, canonical = row.status, row.operation, row.why, row.canonical
    report, remember, joins = run.report, rememberer(row.name), row.operation == "join"
    tell = report.tell

    def end(result: Any, operands: tuple[Any, ...]) -> Any:
        if type(result) is TensorHandle:  # a dot that was not multiplied yet is none
            if canonical:
                result.data = canonicalise_nan(result.data)
            remember(result, operands)
        return remember_loads(result, operands, joins=joins) if keeps else result

    def plain(builder: Any, *operands: Any, **options: Any) -> Any:
        tell(status, name, why)
        return end(original(builder, *operands, **options), operands)

    def replaced(builder: Any, *operands: Any, **options: Any) -> Any:
        assert operation is not None
        told = report.told
        result = operation(run, partial(original, builder, **options), *operands)
        if report.told == told:
            tell(status, name, why)
        return end(result, operands)

    return plain if operation is None else replaced


def _make_constant(run: Emulation, original: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
    return lambda builder, value: operation(run, partial(original, builder), value)


def _make_bf16(_builder: Any, value: float) -> Any:
    return TensorHandle(np.asarray(encode(np.array([value], np.float64), "bf16")).astype(np.uint16).view(BF16), interpreter.tl.bfloat16)


def _reduce(builder: Any, run: Emulation, *operands: Any) -> None:
    reduce_into_memory(run, builder, *operands)


def _wait(_builder: Any) -> None:
    """Do nothing."""


def _find_missing(_builder: Any, name: str) -> Any:
    if name.startswith("create_"):
        raise NotEmulatedError(f"{name.removeprefix('create_')}: Triton's interpreter has no such operation")
    raise AttributeError(name)


def make_builder(run: Emulation, operations: Mapping[str, Operation], *, remembers: bool) -> type:
    """Make the class of the builder.

    Parameters
    ----------
    run : Emulation
    operations : mapping
        What stands in the place of methods.
    remembers : bool
        Whether results remember how narrow their operands were loaded.
    """
    methods: dict[str, Any] = {"get_bf16": _make_bf16, "__getattr__": _find_missing}
    methods["create_descriptor_reduce"] = partialmethod(_reduce, run)
    for name, original in {**dict.fromkeys(ABSENT, _wait), **vars(BUILDER)}.items():
        if name.startswith("get_") and name in operations:
            methods[name] = _make_constant(run, original, operations[name])
        elif callable(original) and not name.startswith(("_", "get_")) and name not in HELPERS:
            keeps = remembers and name.startswith("create_") and not any(part in name for part in _NOT_ELEMENTWISE)
            methods[name] = _count(run, find_method(name), original, operations.get(name), keeps)
    return type("Builder", (BUILDER,), methods)
