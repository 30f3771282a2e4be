"""Names of Python functions whose code is emitted: which change, and where the numbers of those lie."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import lru_cache
from typing import Any, NamedTuple

from llvmlite import ir

from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.building import alloca_once
from fastmma.kernels.llvm.scalars import Value, cast, is_group, is_number, kind_of, llvm_kind, runtime
from fastmma.kernels.llvm.vectors import VectorType

_ORELSE = 1 << 20  # more than statements of a body


class Source(NamedTuple):
    """A function's syntax tree, and the names that it binds more than once, or where not every use sees it."""

    tree: ast.FunctionDef
    variables: frozenset[str]


class _Uses:
    """The places where names are bound and used: the numbers of statements, from the outermost one inwards."""

    def __init__(self, tree: ast.FunctionDef) -> None:
        self.bound: dict[str, list[tuple[int, ...]]] = {argument.arg: [()] for argument in tree.args.args}
        self.used: list[tuple[str, tuple[int, ...]]] = []
        self._body(tree.body, ())

    def _body(self, statements: list[ast.stmt], path: tuple[int, ...], first: int = 0) -> None:
        for number, each in enumerate(statements, first):
            self._visit(each, (*path, number))

    def _visit(self, node: ast.AST, path: tuple[int, ...]) -> None:
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                self.bound.setdefault(node.id, []).append(path)
            else:
                self.used.append((node.id, path))
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self.bound.setdefault(node.target.id, []).append(path)
        for name, value in ast.iter_fields(node):
            if name in ("body", "orelse") and isinstance(value, list):
                self._body(value, path, 1 + _ORELSE * (name == "orelse"))
            elif name == "target" and isinstance(node, ast.For):
                self._visit(value, (*path, 0))
            else:
                for each in value if isinstance(value, list) else [value]:
                    if isinstance(each, ast.AST):
                        self._visit(each, path)


@lru_cache(1024)
def source_of(function: Any) -> Source:
    """Read a function."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(tree, ast.FunctionDef)
    uses = _Uses(tree)
    once = {name: paths[0] for name, paths in uses.bound.items() if len(paths) == 1}
    # a use sees the only binding where it comes after it in the same statements, or within one of those
    within = {name: path[:-1] for name, path in once.items()}
    hidden = {name for name, at in uses.used if name in once and (at[: len(within[name])] != within[name] or at < once[name])}
    return Source(tree, frozenset(name for name in uses.bound if name not in once or name in hidden))


class Variable(NamedTuple):
    """A name that changes: where its numbers lie."""

    place: Any  # a `Place`, a tuple of such, or what is known


class Place(NamedTuple):
    """Memory of one number or vector."""

    kind: Any
    pointer: ir.Value


def new_place(builder: ir.IRBuilder, kind: Any) -> Place:
    """Emit memory on the stack, which LLVM turns into registers."""
    return Place(kind, alloca_once(builder, llvm_kind(kind)))


def write(builder: ir.IRBuilder, place: Any, value: Any) -> Any:
    """Emit the writing of a value to where a name's lies, or to a new place; return the place.

    Raises
    ------
    TypeError
        If the name has a value of a type that does not hold this one.
    """
    if is_group(value):
        parts = [write(builder, *each) for each in zip(place or [None] * len(value), value, strict=True)]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if not isinstance(value, Value) and not is_number(value):
        if place is not None and place is not value:
            raise TypeError(f"{value} where there was {place}")
        return value
    given = runtime(value)
    found = new_place(builder, given.kind) if place is None else place
    if not _holds(found.kind, given.kind, value):
        raise TypeError(f"{given.kind} where there was {found.kind}")
    builder.store(given.code if found.kind == given.kind else cast(builder, given, found.kind).code, found.pointer)
    return found


def _holds(kind: Any, given: Any, value: Any) -> bool:
    """Tell whether a place of a kind may take a value of another one, as NumPy promotes numbers; of those that are known, any."""
    if kind == given:
        return True
    if isinstance(kind, VectorType) or isinstance(given, VectorType) or kind == kinds.boolean:
        return False
    if isinstance(kind, kinds.Float) != isinstance(given, kinds.Float):
        return bool(kind == kinds.float64 or given == kinds.boolean)
    return given == kinds.boolean or is_number(value) or bool(kind.bitwidth > given.bitwidth)


def read(builder: ir.IRBuilder, place: Any) -> Any:
    """Emit the reading of what was written."""
    if isinstance(place, Place):
        return Value(place.kind, builder.load(place.pointer))
    if is_group(place):
        parts = [read(builder, each) for each in place]
        return type(place)(*parts) if hasattr(place, "_fields") else tuple(parts)
    return place


def place_of_either(builder: ir.IRBuilder, first: Any, second: Any) -> Any:
    """Emit memory for either of two values."""
    if is_group(first):
        return tuple(place_of_either(builder, *each) for each in zip(first, second, strict=True))
    one, other = kind_of(first), kind_of(second)
    if isinstance(one, VectorType) or one == other:
        return new_place(builder, one)
    return new_place(builder, kinds.float64 if isinstance(one, kinds.Float) or isinstance(other, kinds.Float) else kinds.int64)
