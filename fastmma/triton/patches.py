"""Patches of Triton's interpreter: in force while a kernel of ours runs, and nowhere else."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import triton
import triton.language as tl
from triton.runtime import interpreter

from fastmma.host.errors import BackendError
from fastmma.products.report import NEUTRAL
from fastmma.triton import arithmetic, casts, dots, elementwise, extrema, functions, libdevice, memory, reductions, scaled
from fastmma.triton.builder import BUILDER, make_builder
from fastmma.triton.compilers import options_of, smallest_dot
from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.formats import canonicalise_nan
from fastmma.triton.methods import METHODS
from fastmma.triton.rewriting import MEANINGS, REWRITTEN, Meanings, Transformer, count_by_tensors
from fastmma.triton.versions import TESTED

_OPERATIONS: Mapping[str, Operation] = elementwise.refuse_fp8(
    {
        **memory.OPERATIONS,
        **casts.OPERATIONS,
        **arithmetic.OPERATIONS,
        **elementwise.OPERATIONS,
        **extrema.OPERATIONS,
        **functions.OPERATIONS,
        **libdevice.OPERATIONS,
        **dots.OPERATIONS,
        **scaled.OPERATIONS,
    }
)
_REDUCTIONS = reductions.REDUCTIONS | extrema.REDUCTIONS
_UNROLLED = "loops of tl.static_range: sums of what an iteration leaves to the next are taken as in a loop that is not unrolled"
_OPTIONS = ("supported_fp8_dtypes", "deprecated_fp8_dot_operand_dtypes", "allowed_dot_input_precisions", "default_dot_input_precision")


def check_triton() -> None:
    """Raise unless this Triton is one whose interpreter these modules were tested with, and nobody else has changed it.

    Raises
    ------
    BackendError
    """
    version = ".".join(triton.__version__.split(".")[:2])
    if version not in TESTED:
        raise BackendError(f"fastmma.triton was tested with the interpreter of Triton {', '.join(TESTED)}, not {triton.__version__}")
    strangers = {getattr(BUILDER, name).__module__ for name in METHODS if hasattr(BUILDER, name)} - {BUILDER.__module__}
    if strangers:
        raise BackendError(f"Triton's interpreter was changed by {', '.join(sorted(strangers))}: leave that first, then enter fastmma's")


def _options(run: Emulation) -> Any:
    """Return what the compiler would let a kernel of this launch do."""
    options = options_of(run.capability, {"enable_fp_fusion": run.fuses, "num_warps": run.launch.warps})
    chosen = {name: getattr(options, name) for name in _OPTIONS}
    imprecise = options.max_num_imprecise_acc_default or 0
    return dataclasses.replace(interpreter.interpreter_builder.options, max_num_imprecise_acc_default=imprecise, **chosen)


class _Scopes:
    """Triton's changes of its language for a kernel and each function that it calls, undone together: Triton undoes the kernel's only."""

    def __init__(self, run: Emulation) -> None:
        self._patch = interpreter._patch_lang
        self._run = run
        self._scopes: list[Any] = []
        self._functions: set[int] = set()
        self._changed: set[int] = set()
        self._names: list[tuple[dict[str, Any], str, Any]] = []

    def __call__(self, function: Any) -> _Scopes:
        if id(function) in self._functions:
            return self
        self._functions.add(id(function))
        for space, name, value in list(libdevice.find_functions(function)):
            self._names.append((space, name, space[name]))
            space[name] = value
        languages = {id(value) for value in function.__globals__.values() if value is tl or value is tl.core}
        if languages and languages <= self._changed:
            return self
        scope = self._patch(function)
        scope.set_attr(tl.tensor, "T", property(lambda tensor: interpreter.interpreter_semantic.permute(tensor, (1, 0))))
        for language in (tl, tl.core):
            if id(language) in languages:
                scope.set_attr(language, "range", count_by_tensors)
                scope.set_attr(language, "static_range", self._unrolled(language.static_range))
        self._changed |= languages
        self._scopes.append(scope)
        return self

    def _unrolled(self, loop: Any) -> Any:
        def static_range(*bounds: Any, **options: Any) -> Any:
            if self._run.launch.compiled is None:
                self._run.report.notes[_UNROLLED] += 1
            return loop(*bounds, **options)

        return static_range

    def restore(self) -> None:
        """Undo everything."""
        while self._scopes:
            self._scopes.pop().restore()
        while self._names:
            space, name, value = self._names.pop()
            space[name] = value


def _count_reduction(run: Emulation, operation: Operation, original: Any) -> Any:
    def method(reduction: Any, *operands: Any, **options: Any) -> Any:
        told = run.report.told
        result = operation(run, partial(original, reduction), *operands, *options.values())
        if run.report.told == told:
            run.report.tell(NEUTRAL, "reduction", "integers, or IEEE 754 in whichever order")
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            tensor.handle.data = canonicalise_nan(tensor.handle.data)
        return result

    return method


@contextmanager
def patched(run: Emulation) -> Iterator[None]:
    """Triton's interpreter with the operations of an emulation, until the block ends, however it does."""
    builder = interpreter.interpreter_builder
    remembers = run.launch.has_dot and run.launch.compiled is None
    smallest = smallest_dot(run.capability)
    with ExitStack() as stack:

        def put(holder: Any, name: str, value: Any, **options: Any) -> None:
            stack.enter_context(patch.object(holder, name, value, **options))

        stack.callback(setattr, builder, "__class__", type(builder))
        builder.__class__ = run.builder(remembers, partial(make_builder, run, _OPERATIONS, remembers=remembers))
        for holder, operations in ((interpreter.ReduceOps, _REDUCTIONS), (interpreter.ScanOps, reductions.SCANS)):
            for name, operation in operations.items():
                put(holder, name, _count_reduction(run, operation, getattr(holder, name)))
        put(interpreter, "_interpreter", memory.Memory(interpreter._interpreter))
        put(interpreter, "_get_np_dtype", partial(memory.numpy_dtype, interpreter._get_np_dtype))
        put(interpreter, "_patch_lang", _Scopes(run))
        put(interpreter.interpreter_semantic, MEANINGS, Meanings, create=True)
        put(interpreter.FunctionRewriter, "ast_transformer", Transformer())
        put(interpreter.InterpretedFunction, "rewritten_fn", REWRITTEN)
        put(builder, "options", _options(run))
        stack.enter_context(patch.dict(builder.codegen_fns, {"min_dot_size": smallest}))
        yield


def warmed_up(kernel: Any) -> Any:
    """Return what `kernel.warmup` returns: who asks how many registers a kernel takes gets a number, and may launch it."""

    class Warm:
        n_regs, n_spills, n_max_threads = 32, 0, 1024
        metadata = SimpleNamespace(shared=1024, num_warps=4)

        def _init_handles(self) -> None:
            """Nothing is loaded onto a device."""

        def __getitem__(self, grid: Any) -> Any:
            return kernel[grid]

    return Warm()
