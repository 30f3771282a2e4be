"""Parts of LLVM code beyond an IRBuilder: memory on the stack, loops, and functions by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from llvmlite import ir


class Loop(NamedTuple):
    """A loop; `index` counts."""

    index: ir.Value


def get_or_insert_function(module: ir.Module, kind: ir.FunctionType, name: str) -> ir.Function:
    """The function of a module of this name, declared if need be."""
    found = module.globals.get(name)
    return ir.Function(module, kind, name) if found is None else found


def alloca_once(builder: ir.IRBuilder, kind: ir.Type) -> ir.Value:
    """Memory on the stack, of which a function that loops has one piece; it holds zeros at first."""
    with builder.goto_entry_block():
        pointer = builder.alloca(kind)
        builder.store(ir.Constant(kind, None), pointer)
    return pointer


def alloca_once_value(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Memory on the stack that holds a value."""
    pointer = alloca_once(builder, value.type)
    builder.store(value, pointer)
    return pointer


def pack_struct(builder: ir.IRBuilder, values: Sequence[ir.Value]) -> ir.Value:
    """Values as the members of one."""
    whole = ir.Constant(ir.LiteralStructType([value.type for value in values]), ir.Undefined)
    for number, value in enumerate(values):
        whole = builder.insert_value(whole, value, number)
    return whole


@contextmanager
def for_range(builder: ir.IRBuilder, count: ir.Value) -> Iterator[Loop]:
    """Emit a loop over range(count)."""
    zero, one = ir.Constant(count.type, 0), ir.Constant(count.type, 1)
    with for_range_slice(builder, zero, count, one) as index:
        yield Loop(index)


@contextmanager
def for_range_slice(builder: ir.IRBuilder, start: ir.Value, stop: ir.Value, step: ir.Value) -> Iterator[ir.Value]:
    """Emit a loop over range(start, stop, step), for a positive step."""
    test, body, end = (builder.append_basic_block(f"for.{name}") for name in ("cond", "body", "end"))
    before = builder.basic_block
    builder.branch(test)
    with builder.goto_block(test):
        index = builder.phi(start.type, name="loop.index")
        builder.cbranch(builder.icmp_signed("<", index, stop), body, end)
    with builder.goto_block(body):
        yield index
        last = builder.basic_block
        following = builder.add(index, step, flags=["nsw"])
        if not builder.block.is_terminated:
            builder.branch(test)
    index.add_incoming(start, before)
    index.add_incoming(following, last)
    builder.position_at_end(end)
