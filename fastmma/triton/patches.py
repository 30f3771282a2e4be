"""Where fastmma stands in Triton's interpreter: while a kernel of ours runs, and nowhere else."""

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
from triton.backends.nvidia import compiler
from triton.runtime import interpreter

from fastmma.host.errors import BackendError
from fastmma.triton import arithmetic, casts, dots, functions, memory, reductions, scaled
from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.handles import remember_loads
from fastmma.triton.versions import TESTED

_BUILDER = interpreter.InterpreterBuilder
_OPERATIONS: Mapping[str, Operation] = {
    **memory.OPERATIONS,
    **casts.OPERATIONS,
    **arithmetic.OPERATIONS,
    **functions.OPERATIONS,
    **dots.OPERATIONS,
    **scaled.OPERATIONS,
}
# results of these were not loaded as their operands were
_NOT_ELEMENTWISE = (
    "load",
    "store",
    "dot",
    "atomic",
    "descriptor",
    "histogram",
    "gather",
    "print",
    "assert",
    "assume",
    "barrier",
    "program",
)
_ELEMENTWISE = tuple(
    name for name in vars(_BUILDER) if name.startswith("create_") and not any(part in name for part in (*_NOT_ELEMENTWISE, "addptr"))
)
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
    strangers = {getattr(_BUILDER, name).__module__ for name in _OPERATIONS} - {_BUILDER.__module__}
    if strangers:
        raise BackendError(f"Triton's interpreter was changed by {', '.join(sorted(strangers))}: leave that first, then enter fastmma's")


def _method(run: Emulation, name: str, original: Any, keeps: bool) -> Any:
    operation = _OPERATIONS.get(name)

    def method(builder: Any, *operands: Any, **options: Any) -> Any:
        plain = partial(original, builder, **options)
        result = operation(run, plain, *operands) if operation is not None else plain(*operands)
        return remember_loads(result, operands) if keeps else result

    return method


def _options(run: Emulation) -> Any:
    """What the compiler would let a kernel of this launch do."""
    backend = compiler.CUDABackend(compiler.GPUTarget("cuda", run.capability, 32))
    options = backend.parse_options({"enable_fp_fusion": run.fuses, "num_warps": run.launch.warps})
    chosen = {name: getattr(options, name) for name in _OPTIONS}
    imprecise = options.max_num_imprecise_acc_default or 0
    return dataclasses.replace(interpreter.interpreter_builder.options, max_num_imprecise_acc_default=imprecise, **chosen)


class _Scopes:
    """Triton's changes of its language for a kernel and each function that it calls, undone together: Triton undoes the kernel's only."""

    def __init__(self, run: Emulation) -> None:
        self._patch = interpreter._patch_lang
        self._run = run
        self._scopes: list[Any] = []

    def __call__(self, function: Any) -> _Scopes:
        scope = self._patch(function)
        scope.set_attr(tl, "static_range", self._unrolled(tl.static_range))
        self._scopes.append(scope)
        return self

    def _unrolled(self, loop: Any) -> Any:
        def static_range(*bounds: Any, **options: Any) -> Any:
            self._run.report.notes[_UNROLLED] += 1
            return loop(*bounds, **options)

        return static_range

    def restore(self) -> None:
        while self._scopes:
            self._scopes.pop().restore()


@contextmanager
def patched(run: Emulation) -> Iterator[None]:
    """Triton's interpreter with the operations of an emulation, until the block ends, however it does."""
    builder = interpreter.interpreter_builder
    smallest = compiler.min_dot_size(compiler.GPUTarget("cuda", run.capability, 32))
    with ExitStack() as stack:

        def put(holder: Any, name: str, value: Any) -> None:
            stack.enter_context(patch.object(holder, name, value))

        keeps = _ELEMENTWISE if run.launch.has_dot and run.launch.compiled is None else ()
        for name in {*_OPERATIONS, *keeps}:
            put(_BUILDER, name, _method(run, name, getattr(_BUILDER, name), name in keeps))
        for holder, operations in ((interpreter.ReduceOps, reductions.REDUCTIONS), (interpreter.ScanOps, reductions.SCANS)):
            for name, operation in operations.items():
                original = getattr(holder, name)
                put(holder, name, lambda self, *rest, _o=operation, _p=original: _o(run, partial(_p, self), *rest))
        put(interpreter, "_interpreter", memory.Memory(interpreter._interpreter))
        put(interpreter, "_get_np_dtype", partial(memory.numpy_dtype, interpreter._get_np_dtype))
        put(interpreter, "_patch_lang", _Scopes(run))
        put(builder, "options", _options(run))
        stack.enter_context(patch.dict(builder.codegen_fns, {"min_dot_size": smallest}))
        yield


def warmed_up(kernel: Any) -> Any:
    """What `kernel.warmup` returns: who asks how many registers a kernel takes gets a number, and may launch it."""

    class Warm:
        n_regs, n_spills, n_max_threads = 32, 0, 1024
        metadata = SimpleNamespace(shared=1024, num_warps=4)

        def _init_handles(self) -> None:
            """Nothing is loaded onto a device."""

        def __getitem__(self, grid: Any) -> Any:
            return kernel[grid]

    return Warm()
