"""Kernels as the interpreter runs them, in those places where Python's statements mean something else than in compiled kernels.

The interpreter rewrites a kernel before it runs it. Here, the variable of a loop is a tensor, ``and``, ``or`` and ``not`` of tensors are
operations, ``min`` and ``max`` are Triton's, and names to which numbers are assigned are tensors.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

MEANINGS = "fastmma"  # of the attribute of the interpreter's semantic that leads to what stands here


def count_by_tensors(*bounds: Any, step: Any = None, **_options: Any) -> Iterator[Any]:
    """Count as a loop of a compiled kernel does: by tensors, of 32 bits unless a bound has 64."""
    semantic = interpreter.interpreter_semantic
    start, end, by = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    parts = [semantic.to_tensor(part) for part in (start, end, by if step is None else step)]
    kind = parts[0].dtype
    for part in parts[1:]:
        kind = semantic.integer_promote_impl(kind, part.dtype)
    dtype = interpreter._get_np_dtype(kind)
    for value in range(*(int(part.handle.data.squeeze()) for part in parts)):
        yield tl.tensor(TensorHandle(np.array([value], dtype), kind), kind)


class OperandChain:
    """An operand of ``and`` or ``or`` in a chain of comparisons, with those before it: constants decide, tensors are kept."""

    def __init__(self, value: Any, *, decides: bool | None = None) -> None:
        self.value, self.decides = value, decides
        self.tensors: list[Any] = []
        self.stops = False

    def __lt__(self, after: OperandChain) -> OperandChain:
        after.decides = self.decides
        dynamic = isinstance(after.value, tl.core.base_value) and not isinstance(after.value, (tl.constexpr, tl.tuple))
        after.tensors = [*self.tensors, *([after.value] if dynamic else ())]
        after.stops = not dynamic and bool(after.value) is self.decides
        return after

    def __bool__(self) -> bool:
        return not self.stops

    def join(self) -> Any:
        """Join the tensors, the last two first."""
        if self.stops or not self.tensors:
            return self.value
        *first, result = self.tensors
        for one in reversed(first):
            result = one.logical_or(result) if self.decides else one.logical_and(result)
        return result


class Meanings:
    """The meanings of statements in compiled kernels."""

    OperandChain = OperandChain
    _BUILTINS: tuple[tuple[Any, str], ...] = ((builtins.min, "builtin_min"), (builtins.max, "builtin_max"))

    @staticmethod
    def find_iterator(function: Any) -> Any:
        """Return what a loop counts by."""
        return count_by_tensors if function is builtins.range else function

    @classmethod
    def find_function(cls, function: Any) -> Any:
        """Return Triton's function in the place of Python's."""
        for own, name in cls._BUILTINS:
            if function is own:
                return lambda *values: _unwrap(getattr(tl.core, name)(*values, _semantic=interpreter.interpreter_semantic))
        return function

    @staticmethod
    def negate(value: Any) -> Any:
        """Negate a truth value."""
        return value.__not__() if isinstance(value, tl.tensor) else not value

    @staticmethod
    def assign(value: Any) -> Any:
        """Return what a name is bound to: a tensor where the value is a number."""
        if isinstance(value, tuple):
            return interpreter._tuple_create(value, map(Meanings.assign, value))
        return interpreter.interpreter_semantic.to_tensor(value, False)

    @staticmethod
    def declare(annotation: Any, value: Any) -> Any:
        """Return what a name with an annotation is bound to."""
        return value if annotation is tl.constexpr or "constexpr" in str(annotation) else Meanings.assign(value)


def _unwrap(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _call(name: str, *arguments: ast.expr, at: ast.AST) -> ast.Call:
    holder = ast.Attribute(value=ast.Name(id="interpreter_semantic", ctx=ast.Load()), attr=MEANINGS, ctx=ast.Load())
    call = ast.Call(func=ast.Attribute(value=holder, attr=name, ctx=ast.Load()), args=list(arguments), keywords=[])
    for node in (call, call.func, holder, holder.value):
        ast.copy_location(node, at)
    return call


class Transformer(interpreter.ASTTransformer):
    """Rewrites a kernel."""

    def __init__(self) -> None:
        self._constants: set[str] = set()  # names that were annotated as constexpr before they are bound

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:  # noqa: N802 (the name is ast's)
        """Rewrite a function, whose names are its own."""
        self._constants = set()
        self.generic_visit(node)
        return node

    def visit_For(self, node: ast.For) -> ast.For:  # noqa: N802
        """Count by tensors."""
        self.generic_visit(node)
        if isinstance(node.iter, ast.Call):
            node.iter.func = _call("find_iterator", node.iter.func, at=node.iter.func)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:  # noqa: N802
        """Join tensors, element by element."""
        self.generic_visit(node)
        start = _call("OperandChain", ast.Constant(value=None), at=node)
        start.keywords = [ast.keyword(arg="decides", value=ast.Constant(value=isinstance(node.op, ast.Or)))]
        wrapped: list[ast.expr] = [_call("OperandChain", value, at=value) for value in node.values]
        chain = ast.Compare(left=start, ops=[ast.Lt() for _ in wrapped], comparators=wrapped)
        return ast.copy_location(ast.Call(func=ast.Attribute(value=chain, attr="join", ctx=ast.Load()), args=[], keywords=[]), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:  # noqa: N802
        """Negate tensors, element by element."""
        self.generic_visit(node)
        return _call("negate", node.operand, at=node) if isinstance(node.op, ast.Not) else node

    def visit_Call(self, node: ast.Call) -> ast.Call:  # noqa: N802
        """Take Triton's functions of the names."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            node.func = _call("find_function", node.func, at=node.func)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:  # noqa: N802
        """Bind tensors.

        Raises
        ------
        ValueError
            If there is more than one target, as the compiler has it.
        """
        self.generic_visit(node)
        if len(node.targets) > 1:
            raise ValueError("Multiple assignments are not supported")
        target = node.targets[0]
        if not (isinstance(target, ast.Name) and target.id in self._constants):
            node.value = _call("assign", node.value, at=node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:  # noqa: N802
        """Bind tensors, unless the annotation is constexpr."""
        self.generic_visit(node)
        if node.value is not None:
            node.value = _call("declare", node.annotation, node.value, at=node.value)
        elif isinstance(node.target, ast.Name) and "constexpr" in ast.unparse(node.annotation):
            self._constants.add(node.target.id)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:  # noqa: N802
        """Bind tensors."""
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        name = ast.copy_location(ast.Name(id=node.target.id, ctx=ast.Load()), node.target)
        value = ast.copy_location(ast.BinOp(left=name, op=node.op, right=node.value), node)
        return ast.copy_location(ast.Assign(targets=[node.target], value=_call("assign", value, at=node)), node)


class Rewritten(dict[Callable[..., Any], Callable[..., Any]]):
    """The kernels that were rewritten, no more than so many: the rest are rewritten again."""

    def __setitem__(self, function: Callable[..., Any], rewritten: Callable[..., Any]) -> None:
        if len(self) >= 1 << 10:
            self.clear()
        super().__setitem__(function, rewritten)


REWRITTEN = Rewritten()
