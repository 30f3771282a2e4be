"""LLVM code from the source of Python functions, in one walk: what is known before the code runs is computed, and calls are inlined.

Numba takes most of a kernel's compilation to find out kinds. Here every value has its type when it is met: numbers of the language are
int64 and float64, records and dtypes are known, and named tuples are their members.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.bindings import Variable, place_of_either, read, source_of, write
from fastmma.kernels.llvm.building import alloca_once
from fastmma.kernels.llvm.calls import FUNCTIONS, call_intrinsic, convert
from fastmma.kernels.llvm.emit import I64
from fastmma.kernels.llvm.intrinsics import Intrinsic
from fastmma.kernels.llvm.parts import Part
from fastmma.kernels.llvm.scalars import Array, Value, cast, compute, is_group, is_number, known, llvm_kind, negative, runtime, truth

_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class _Loop(NamedTuple):
    again: ir.Block
    end: ir.Block


class Translation:
    """One call of a function, in a function of LLVM code: of its arguments, and of the names that its statements bind."""

    def __init__(self, builder: ir.IRBuilder, function: Any, arguments: dict[str, Any]) -> None:
        self.builder, self._function = builder, function
        self._source = source_of(function)
        self._names: dict[str, Any] = {}
        self._loops: list[_Loop] = []
        self._result: Any = None
        self._end: ir.Block | None = None
        for name, value in arguments.items():
            self._bind(name, value)

    def run(self) -> Any:
        """Emit all statements, and return what the function does."""
        *before, last = self._source.tree.body
        returns = sum(isinstance(each, ast.Return) for each in ast.walk(self._source.tree))
        if isinstance(last, ast.Return) and returns == 1:
            self._all(before)
            return None if last.value is None else self._value(last.value)
        self._end = self.builder.append_basic_block("returned") if returns else None
        self._all(self._source.tree.body)
        if self._end is not None:
            if not self._ended:
                self.builder.branch(self._end)
            self.builder.position_at_end(self._end)
        return None if self._result is None else read(self.builder, self._result)

    # --- statements ---

    @property
    def _ended(self) -> bool:
        return bool(self.builder.block.is_terminated)

    def _all(self, statements: list[ast.stmt]) -> None:
        for each in statements:
            if self._ended:
                return
            getattr(self, f"_{type(each).__name__.lower()}")(each)

    def _expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self._value(node.value)

    def _pass(self, node: ast.Pass) -> None:
        pass

    def _assign(self, node: ast.Assign) -> None:
        value = self._value(node.value)
        for target in node.targets:
            self._store(target, value)

    def _annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._store(node.target, self._value(node.value))

    def _augassign(self, node: ast.AugAssign) -> None:
        read = ast.Name(node.target.id, ast.Load()) if isinstance(node.target, ast.Name) else node.target
        self._store(node.target, compute(self.builder, _OPERATORS[type(node.op)], self._value(read), self._value(node.value)))

    def _store(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self._bind(target.id, value)
        elif isinstance(target, ast.Tuple):
            for each, part in zip(target.elts, value, strict=True):
                self._store(each, part)
        elif isinstance(target, ast.Subscript):
            array, pointer = self._element(target)
            self.builder.store(cast(self.builder, runtime(value), array.dtype).code, pointer).align = 1
        else:
            raise self._unknown(target)

    def _return(self, node: ast.Return) -> None:
        assert self._end is not None
        if node.value is not None:
            value = self._value(node.value)
            self._result = write(self.builder, self._result, value)
        self.builder.branch(self._end)

    def _if(self, node: ast.If) -> None:
        test = self._truth(node.test)
        if not isinstance(test, Value):
            self._all(node.body if test else node.orelse)
            return
        then, otherwise, end = (self.builder.append_basic_block(name) for name in ("then", "else", "endif"))
        self.builder.cbranch(test.code, then, otherwise)
        for block, statements in ((then, node.body), (otherwise, node.orelse)):
            self.builder.position_at_end(block)
            self._all(statements)
            if not self._ended:
                self.builder.branch(end)
        self.builder.position_at_end(end)

    def _while(self, node: ast.While) -> None:
        again, body, end = (self.builder.append_basic_block(name) for name in ("while", "body", "endwhile"))
        self.builder.branch(again)
        self.builder.position_at_end(again)
        self.builder.cbranch(runtime(self._truth(node.test)).code, body, end)
        self.builder.position_at_end(body)
        self._body(node.body, _Loop(again, end))
        self.builder.position_at_end(end)

    def _for(self, node: ast.For) -> None:
        assert isinstance(node.iter, ast.Call)
        if self._value(node.iter.func) is not range:
            raise self._unknown(node.iter)
        bounds = [runtime(self._value(each)) for each in node.iter.args]
        start, stop, step = [*([] if len(bounds) > 1 else [runtime(0)]), *bounds, *([] if len(bounds) > 2 else [runtime(1)])]
        start, stop, step = (cast(self.builder, each, kinds.int64) for each in (start, stop, step))
        counter = alloca_once(self.builder, I64)
        self.builder.store(start.code, counter)
        test, body, again, end = (self.builder.append_basic_block(name) for name in ("for", "body", "next", "endfor"))
        self.builder.branch(test)
        self.builder.position_at_end(test)
        now = self.builder.load(counter)
        self.builder.cbranch(self._goes_on(now, stop.code, step.code), body, end)
        self.builder.position_at_end(body)
        self._store(node.target, Value(kinds.int64, now))
        self._body(node.body, _Loop(again, end))
        self.builder.position_at_end(again)
        self.builder.store(self.builder.add(self.builder.load(counter), step.code), counter)
        self.builder.branch(test)
        self.builder.position_at_end(end)

    def _goes_on(self, now: ir.Value, stop: ir.Value, step: ir.Value) -> ir.Value:
        builder = self.builder
        up, down = builder.icmp_signed("<", now, stop), builder.icmp_signed(">", now, stop)
        if isinstance(step, ir.Constant):
            return up if step.constant > 0 else down
        return builder.select(builder.icmp_signed(">", step, ir.Constant(I64, 0)), up, down)

    def _body(self, statements: list[ast.stmt], loop: _Loop) -> None:
        self._loops.append(loop)
        self._all(statements)
        self._loops.pop()
        if not self._ended:
            self.builder.branch(loop.again)

    def _continue(self, _node: ast.Continue) -> None:
        self.builder.branch(self._loops[-1].again)

    def _break(self, _node: ast.Break) -> None:
        self.builder.branch(self._loops[-1].end)

    # --- names ---

    def _bind(self, name: str, value: Any) -> None:
        if name not in self._source.variables:
            self._names[name] = value
            return
        held = self._names.get(name)
        self._names[name] = Variable(write(self.builder, held.place if isinstance(held, Variable) else None, value))

    # --- expressions ---

    def _value(self, node: ast.expr) -> Any:
        return getattr(self, f"_value_{type(node).__name__.lower()}", self._refused)(node)

    def _refused(self, node: ast.expr) -> Any:
        raise self._unknown(node)

    def _unknown(self, node: ast.AST) -> TypeError:
        return TypeError(f"{self._function.__module__}.{self._function.__qualname__}: {ast.unparse(node)} cannot be emitted")

    def _value_constant(self, node: ast.Constant) -> Any:
        return node.value

    def _value_name(self, node: ast.Name) -> Any:
        if node.id in self._names:
            held = self._names[node.id]
            return read(self.builder, held.place) if isinstance(held, Variable) else held
        found = self._function.__globals__.get(node.id, getattr(builtins, node.id, None))
        return known(found) if is_number(found) else found

    def _value_tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._value(each) for each in node.elts)

    def _value_attribute(self, node: ast.Attribute) -> Any:
        found = getattr(self._value(node.value), node.attr)
        return int(found) if isinstance(found, int) else found

    def _value_subscript(self, node: ast.Subscript) -> Any:
        whole = self._value(node.value)
        if isinstance(whole, Array) and isinstance(node.slice, ast.Slice):
            return self._first(whole, node.slice)
        if isinstance(whole, Array):
            array, pointer = self._element(node)
            read = self.builder.load(pointer)
            read.align = 1
            return Value(array.dtype, read)
        return whole[self._value(node.slice)]

    def _first(self, array: Array, part: ast.Slice) -> Array:
        """The first elements of an array of one dimension."""
        (_,) = array.shape
        if part.lower is not None or part.step is not None or part.upper is None:
            raise self._unknown(part)
        return array._replace(shape=(runtime(self._value(part.upper)),))

    def _element(self, node: ast.Subscript) -> tuple[Array, ir.Value]:
        array, index = self._value(node.value), self._value(node.slice)
        assert isinstance(array, Array)
        indices = index if is_group(index) else (index,)
        place: Any = 0
        for size, each in zip(array.shape, indices, strict=True):
            place = compute(self.builder, operator.add, compute(self.builder, operator.mul, place, size), each)
        start = self.builder.inttoptr(array.address.code, ir.PointerType(llvm_kind(array.dtype)))
        return array, self.builder.gep(start, [cast(self.builder, runtime(place), kinds.int64).code])

    def _value_binop(self, node: ast.BinOp) -> Any:
        return compute(self.builder, _OPERATORS[type(node.op)], self._value(node.left), self._value(node.right))

    def _value_unaryop(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            test = self._truth(node.operand)
            return Value(kinds.boolean, self.builder.not_(test.code)) if isinstance(test, Value) else not test
        if isinstance(node.op, ast.USub):
            return negative(self.builder, self._value(node.operand))
        if isinstance(node.op, ast.Invert):
            return compute(self.builder, operator.xor, self._value(node.operand), -1)
        raise self._unknown(node)

    def _value_compare(self, node: ast.Compare) -> Any:
        (symbol,), (right,) = node.ops, node.comparators
        if isinstance(symbol, (ast.Is, ast.IsNot)):
            return (self._value(node.left) is self._value(right)) == isinstance(symbol, ast.Is)
        return compute(self.builder, _OPERATORS[type(symbol)], self._value(node.left), self._value(right))

    def _truth(self, node: ast.expr) -> Any:
        """Emit a condition; a bool if it is known."""
        value = self._value(node)
        return truth(self.builder, value) if isinstance(value, Value) else bool(value)

    def _value_boolop(self, node: ast.BoolOp) -> Any:
        """Emit conditions, each only where those before it leave it open."""
        first, rest = self._truth(node.values[0]), node.values[1:]
        decides = isinstance(node.op, ast.Or)
        if not rest:
            return first
        others = ast.BoolOp(node.op, rest)
        if not isinstance(first, Value):
            return first if first == decides else self._value_boolop(others)
        known_place = write(self.builder, None, first)
        block, end = self.builder.append_basic_block("open"), self.builder.append_basic_block("decided")
        self.builder.cbranch(first.code, *((end, block) if decides else (block, end)))
        self.builder.position_at_end(block)
        write(self.builder, known_place, self._value_boolop(others))
        self.builder.branch(end)
        self.builder.position_at_end(end)
        return read(self.builder, known_place)

    def _value_ifexp(self, node: ast.IfExp) -> Any:
        test = self._truth(node.test)
        if not isinstance(test, Value):
            return self._value(node.body if test else node.orelse)
        blocks = [self.builder.append_basic_block(name) for name in ("chosen", "other")]
        self.builder.cbranch(test.code, *blocks)
        ends, values = [], []
        for block, each in zip(blocks, (node.body, node.orelse), strict=True):
            self.builder.position_at_end(block)
            values.append(self._value(each))
            ends.append(self.builder.block)
        end = self.builder.append_basic_block("either")
        place = place_of_either(self.builder, *values)
        for block, value in zip(ends, values, strict=True):
            self.builder.position_at_end(block)
            write(self.builder, place, value)
            self.builder.branch(end)
        self.builder.position_at_end(end)
        return read(self.builder, place)

    # --- calls ---

    def _value_call(self, node: ast.Call) -> Any:
        called = self._value(node.func)
        given = [part for each in node.args for part in (self._value(each.value) if isinstance(each, ast.Starred) else [self._value(each)])]
        keywords = {str(each.arg): self._value(each.value) for each in node.keywords}
        if isinstance(called, Intrinsic):
            return call_intrinsic(self.builder, called, given)
        inlined = called.function if isinstance(called, Part) else called
        if inspect.isfunction(inlined):
            bound = inspect.signature(inlined).bind(*given, **keywords)
            bound.apply_defaults()
            return Translation(self.builder, inlined, dict(bound.arguments)).run()
        if called in FUNCTIONS:
            return FUNCTIONS[called](self.builder, *given)
        if isinstance(called, type) and issubclass(called, np.generic):
            return convert(self.builder, called, *given)
        if (isinstance(called, type) and issubclass(called, tuple)) or isinstance(getattr(called, "__self__", None), tuple):
            return called(*given, **keywords)
        raise self._unknown(node)
