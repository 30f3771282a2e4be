"""No cache grows with what callers pass: each has a bound, or keys of which there are few."""

from __future__ import annotations

import ast
import gc
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import fastmma
from fastmma.backends import holds, route
from fastmma.backends.problem import Extents, Problem, Strides
from fastmma.backends.resolve import operation_of
from fastmma.kernels.fused import batch, batch_numbers
from fastmma.kernels.fused.blocks import COLUMNS, ROWS
from fastmma.kernels.llvm.micro_kernel import MicroKernel
from fastmma.products.choice import default_instruction
from fastmma.products.prepared import Prepared

PACKAGE = Path(fastmma.__file__).parent
CONTAINERS = {"dict", "list", "set", "deque", "defaultdict", "OrderedDict", "WeakKeyDictionary", "WeakValueDictionary", "WeakSet"}
# what a module or an object fills by and by, and why it stays small
REVIEWED = {
    "backends/gpu/emulator.py: self._kept": "emptied when it holds the tables of 256 operations",
    "explanation/explorer/layouts.py: self.values": "of one page, which is made at once",
    "explanation/explorer/layouts.py: self._numbers": "of one page, which is made at once",
    "explanation/recorder.py: self.steps": "of one element that is explained",
    "functions/autocast.py: self.casts": "of weights, emptied where a region of autocast ends",
    "functions/fixed_norms.py: self._free": "as many as threads that computed a norm of one form at the same time",
    "functions/softmax.py: self._free": "as many as threads that computed few rows of one form at the same time",
    "host/apart.py: _under_way": "functions that run apart at the moment",
    "host/calls.py: of_call.found": "of one call",
    "host/latches.py: _spare": "as many as there were helpers of calls at the same time",
    "host/forks.py: _locks": "three, of Numba, of LLVM and of the kernels",
    "host/forks.py: _forking": "threads that fork at the moment",
    "host/kept_memory.py: _kept": "of one result: its maxlen is 1",
    "host/threads.py: self.used": "of one call",
    "host/threads.py: self.busy": "of one call",
    "kernels/llvm/pieces.py: self.idle": "one for each helper, of which there are as many as a call ever had threads",
    "kernels/llvm/pieces.py: self.products": "of the present calls of a thread",
    "kernels/functions/expression.py: self.lines": "of one formula",
    "kernels/matrices/memory.py: self._kept": "of one product of a kind, at most 256 MB: its maxlen is 1",
    "kernels/functions/expression.py: self.calls": "of one formula",
    "kernels/fma/fixed.py: self._free": "as many as threads that computed a product of one form at the same time",
    "kernels/fused/fixed_panels.py: self._free": "as many as threads that computed a product of one form at the same time",
    "kernels/fused/fixed.py: self._free": "as many as threads that computed a product of one form at the same time",
    "kernels/integer/amx.py: self._free": "as many as threads that computed a product of one form at the same time",
    "kernels/integer/words.py: self._free": "as many as threads that computed a product of one form at the same time",
    "kernels/scaled/amx_small_groups.py: self._free": "as many as threads that computed a product of one form at the same time",
    "kernels/llvm/bindings.py: self.used": "of one function",
    "kernels/llvm/emit.py: _pointers": "LLVM types of numbers, and vectors of a power of two of them",
    # a record has no shape and no value in it, but parameters of an arithmetic that kernels/envelopes.py bounds, and of register tiles;
    # machine code is kept as long as the process, since others hold its address, and each took a quarter of a second to compile
    "kernels/llvm/micro_kernel.py: self._addresses": "records that code is compiled for",
    "kernels/llvm/micro_kernel.py: self._functions": "records that code is compiled for",
    "kernels/llvm/object_code.py: _linked": "records that code is compiled for",
    "kernels/llvm/translation.py: self._loops": "of one function that is emitted",
    "kernels/llvm/translation.py: self._names": "of one function that is emitted",
    "kernels/matrices/loans.py: _kept": "64, of at most 2^28 bytes together",
    "kernels/matrices/loans.py: self._lent": "of one call",
    "kernels/matrices/memory.py: self.addresses": "the parts of one buffer",
    "products/prepared.py: self._kept": "emptied when it holds as many forms as it may",
    "products/prepared.py: self._seen": "emptied when it holds as many forms as it may",
    "products/repeated.py: _known": "emptied when it holds 64 forms of calls",
    "products/scaled_fixed.py: _known": "emptied when it holds 64 forms of calls",
    "triton/machine/reading.py: self.sizes": "of one kernel",
    "triton/machine/reading.py: self.labels": "of one kernel",
    "triton/machine/kernel.py: self._extra": "of one kernel",
    "triton/machine/state.py: self.factors": "of one launch, which has no more registers than its kernel",
    "jax/active.py: _entered": "emulations that are entered",
    "jax/active.py: _undo": "of the innermost emulation",
    "jax/internals.py: self.primitives": "JAX's primitives",
    "jax/report.py: _current": "one report or none",
    "torch/emulation.py: self._warned": "one warning or none",
    "torch/emulation.py: self.plain": "operators that are replaced",
    "torch/generators.py: _made": "generators that are there",
    "torch/kinds.py: KINDS": "torch's operators and those that programs define, which torch keeps as well",
    "torch/replacements.py: _defined": "operators that are replaced",
    "torch/replacements.py: _made": "operators that are replaced",
    "torch/replacements.py: _numbers": "lines of programs that were compiled: graphs hold their numbers, and torch keeps graphs",
    "torch/replacements.py: _sites": "lines of programs that were compiled: graphs hold their numbers, and torch keeps graphs",
    "torch/report.py: self._calls": "what the report counts, of one entry of a thread",
    "torch/report.py: self._tallies": "threads that emulate at the moment",
    "torch/report.py: self.neutral": "operators of torch, of one entry of a thread",
    "torch/row_products.py: self._inside": "of one run of a model",
    "torch/row_products.py: self.attention": "of one run of a model",
    "torch/row_products.py: self.others": "of one run of a model",
    "torch/row_products.py: self.products": "of one run of a model",
    "torch/watch.py: self.marks": "of one recording",
    "torch/watch.py: self.tensors": "of one recording",
    "triton/gluon/mlir.py: self.numbers": "of one function that is read",
    "triton/handles.py: self.attr": "of one tensor of the interpreter",
    "triton/interpret.py: _OPEN": "emulations that are entered",
    "triton/memory.py: _DTYPES": "types of Triton",
    "triton/memory.py: self.attr": "of one tensor of the interpreter",
    "triton/patches.py: self._changed": "of one run of a kernel",
    "triton/patches.py: self._functions": "of one run of a kernel",
    "triton/patches.py: self._names": "of one run of a kernel",
    "triton/patches.py: self._scopes": "of one run of a kernel",
    "triton/report.py: self._new": "operations of a run between two looks at the report",
    "triton/report.py: self._warned": "operations that a report names",
    "triton/rewriting.py: self._constants": "names in one function",
    "triton/rewriting.py: self.tensors": "of one expression",
}
OWN_TESTS: set[str] = set()


@cache
def trees() -> list[tuple[str, ast.Module]]:
    """The modules of the package, by where they are."""
    return [(path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text())) for path in sorted(PACKAGE.rglob("*.py"))]


def called(node: ast.expr) -> str:
    """The last name of what is called or used as a decorator."""
    function = node.func if isinstance(node, ast.Call) else node
    function = function.value if isinstance(function, ast.Subscript) else function
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def is_unbounded(node: ast.expr) -> bool:
    """Whether an expression is `functools.cache`, or an `lru_cache` without a bound."""
    if called(node) == "cache":
        return True
    bounds = [*node.args, *(each.value for each in node.keywords if each.arg == "maxsize")] if isinstance(node, ast.Call) else []
    return called(node) == "lru_cache" and any(isinstance(each, ast.Constant) and each.value is None for each in bounds)


def test_caches_of_functions_have_a_bound_or_no_keys() -> None:
    found = 0
    for place, tree in trees():
        keyless = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                given = node.args
                unbounded = [each for each in node.decorator_list if is_unbounded(each)]
                found += sum(called(each) in ("cache", "lru_cache") for each in node.decorator_list)
                assert not unbounded or not (given.posonlyargs + given.args + given.kwonlyargs or given.vararg or given.kwarg), (
                    f"{place}: {node.name} keeps a result for each of its arguments"
                )
                keyless.update(map(id, unbounded))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                assert id(node) in keyless or not is_unbounded(node), f"{place}: line {node.lineno} makes a cache without a bound"
    assert found > 80


def is_empty(node: ast.expr | None) -> bool:
    """Whether an expression makes a container that is there to be filled."""
    if isinstance(node, ast.Dict):
        return not node.keys
    if isinstance(node, ast.List | ast.Set):
        return not node.elts
    return isinstance(node, ast.Call) and called(node) in CONTAINERS and not node.args


def filled_later(node: ast.AST, of_function: bool = False) -> Iterator[str]:
    """The names of empty containers that a module, a class or an object keeps."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            for target in targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = child.value.elts if isinstance(child.value, ast.Tuple) else []
                values = values if len(values) == len(names) else [child.value] * len(names)
                kept = [name for name, value in zip(names, values, strict=True) if is_empty(value)]
                yield from (ast.unparse(name) for name in kept if isinstance(name, ast.Attribute) or not of_function)
        yield from filled_later(child, of_function or isinstance(child, ast.FunctionDef | ast.Lambda))


def test_what_else_is_kept_was_reviewed() -> None:
    found = {f"{place}: {name}" for place, tree in trees() for name in filled_later(tree)}
    assert found == set(REVIEWED)


# locks of which a child of a fork needs no account
LOCKS = {
    "functions/streams.py: Event": "an event of torch.cuda, which holds no lock",
    "host/apart.py: allocate_lock": "of one call",
    "host/forks.py: RLock": "of forks themselves",
    "host/notice.py: Lock": "taken for good by who says it",
    "host/threads.py: RLock": "renewed in the child",
    "kernels/llvm/pieces.py: RLock": "renewed in the child",
    "kernels/llvm/disk_cache.py: Lock": "taken for good by who warns",
    "kernels/llvm/numba_internals.py: RLock": "held by forks in that module",
}


def test_forks_hold_the_locks_of_the_package() -> None:
    """A child finds no lock of the package in the hands of a thread that it has not."""
    made = {
        f"{place}: {called(node)}"
        for place, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and called(node) in ("Condition", "Event", "Lock", "RLock", "Semaphore", "allocate_lock")
    }
    assert made == set(LOCKS)


def test_the_walk_sees_caches() -> None:
    """It is no test if it cannot fail."""
    source = """
kept = {}
class Each:
    def __init__(self):
        self.found: dict[int, int] = {}
        local = {}
        self.first, self.second = [], set()
"""
    assert list(filled_later(ast.parse(source))) == ["kept", "self.found", "self.first", "self.second"]
    for text in ("cache", "functools.cache", "lru_cache(None)", "lru_cache(maxsize=None)", "functools.lru_cache(None, typed=True)"):
        assert is_unbounded(ast.parse(text, mode="eval").body), text
    for text in ("lru_cache(64)", "lru_cache", "lru_cache(maxsize=1 << 14)", "cached_property"):
        assert not is_unbounded(ast.parse(text, mode="eval").body), text


def test_caches_by_shape_stay_within_their_bounds() -> None:
    """Products of ten thousand shapes."""
    operation = operation_of(default_instruction("f16", "f16", None, "sm_90a"), "sm_90a")
    usable = holds.cpu().usable()
    blocks = holds.blocks_of(operation, ROWS, COLUMNS, 64, usable)
    draw = random.Random(0)
    for _ in range(10_000):
        rows, columns, depth = (draw.randrange(1, 2000) for _ in range(3))
        holds.blocks_of(operation, rows, columns, depth, usable)
        sizes = Strides((2 * rows * depth, 2 * depth, 2), (2 * depth * columns, 2 * columns, 2))
        route.choose(Problem(operation, Extents(1, rows, columns, depth), sizes, False, False, False))
        if blocks is not None:  # this CPU has one
            batch_numbers.sizes(blocks.config, rows, columns, depth)
            strides = (rows * depth, depth, 1), (depth * columns, columns, 1), (4 * rows * columns, 4 * columns, 4)
            batch.loop_of(blocks.config, rows, columns, depth, *strides[:2], None, strides[2])
    for each in (holds.blocks_of, route._chosen, batch.block_config, batch_numbers.sizes, batch.loop_of):
        kept = each.cache_info()
        assert kept.maxsize is not None
        assert kept.currsize <= kept.maxsize <= 4096, each


def kept_by_objects() -> dict[str, int]:
    """How much there is in the containers that calls of `gemm` fill."""
    gc.collect()
    objects = [each for each in gc.get_objects() if type(each) in (MicroKernel, Prepared)]
    kernels = sum(len(each._addresses) + len(each._functions) for each in objects if type(each) is MicroKernel)
    forms = max((len(each._kept) for each in objects if type(each) is Prepared), default=0)
    return {"kernels": kernels, "forms": forms}


def test_products_of_many_shapes_keep_no_more() -> None:
    draw = random.Random(1)
    numbers = np.random.default_rng(1)
    data = numbers.integers(-4, 5, 1 << 14).astype(np.float16)

    def products(count: int) -> None:
        for _ in range(count):
            rows, columns, depth = (draw.randrange(1, 100) for _ in range(3))
            a, b = data[: rows * depth].reshape(rows, depth), data[-depth * columns :].reshape(depth, columns)
            for _again in range(2):
                result: Any = fastmma.gemm(a, b, target="sm_90a", threads=1)
            assert result.shape == (rows, columns)

    products(50)
    before = kept_by_objects()
    products(50)
    after = kept_by_objects()
    assert after["kernels"] == before["kernels"]
    assert after["forms"] <= 16
