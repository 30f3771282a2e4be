"""Launch a Gluon kernel: compile it as far as its intermediate code, bind its arguments, and run the programs of its grid."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from triton.compiler.errors import CompilationError

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.compilation import compile_function
from fastmma.triton.emulation import Emulation
from fastmma.triton.gluon import assembly, cancellation, control, numbers, products, shared, sums, tcgen05, tensors, tma, waits
from fastmma.triton.gluon.control import Block, prepare
from fastmma.triton.gluon.kernel import Kernel
from fastmma.triton.gluon.maps import TensorMap
from fastmma.triton.gluon.mlir import parse_module
from fastmma.triton.gluon.needs import checking
from fastmma.triton.gluon.program import Program, run_together
from fastmma.triton.gluon.types import Type
from fastmma.triton.reasons import refusal

MAKERS = {
    **numbers.MAKERS,
    **tensors.MAKERS,
    **sums.MAKERS,
    **shared.MAKERS,
    **waits.MAKERS,
    **tma.MAKERS,
    **products.MAKERS,
    **tcgen05.MAKERS,
    **cancellation.MAKERS,
    **assembly.MAKERS,
    **control.MAKERS,
}


def _flatten(name: str, value: Any) -> Mapping[str, Any]:
    """Return the values that a kernel has of one argument, by the names that the compiler gives them."""
    if isinstance(value, tuple):
        return {inner: one for index, part in enumerate(value) for inner, one in _flatten(f"{name}.{index}", part).items()}
    found = {name: value}
    if hasattr(value, "block_shape"):
        found |= {f"{name}.shape.{index}": size for index, size in enumerate(value.shape)}
        found |= {f"{name}.stride.{index}": size for index, size in enumerate(value.strides)}
    return found


def _convert(value: Any, kind: Type) -> Any:
    """Return an argument as the launcher passes it."""
    if kind.kind == "descriptor":
        return _map_tensor(value, kind)
    if kind.is_pointer:
        return np.int64(value.data_ptr() if hasattr(value, "data_ptr") else value)
    if kind.is_float:
        return np.float32(value).astype(kind.dtype)[()] if kind.element != "f64" else np.float64(value)
    return kind.dtype.type(value) if kind.element == "i1" else np.array(value).astype(kind.dtype)[()]


def _map_tensor(value: Any, kind: Type) -> TensorMap:
    pixels: tuple[tuple[int, ...], ...] = ()
    if getattr(value, "mode", "tiled") != "tiled":
        steps = value.element_strides or [1] * len(value.shape)
        pixels = (tuple(steps[1:-1]), tuple(value.pixel_box_lower_corner), tuple(value.pixel_box_upper_corner))
    return TensorMap(
        value.base.data_ptr(),
        kind.dtype,
        tuple(int(size) for size in value.shape),
        tuple(int(size) for size in value.strides),
        value.padding == "nan",
        value.round_f32_to_tf32,
        *pixels,
    )


def _make_kernel(run: Emulation, function: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[Kernel, Any]:
    try:
        with checking(run):
            compiled = compile_function(function, arguments, {**options, "enable_fp_fusion": run.fuses})
    except NotEmulatedError:
        raise
    except (CompilationError, RuntimeError) as error:
        raise NotEmulatedError(refusal(function, [function], error, is_gluon=True)) from error
    module = parse_module(compiled.asm["ttgir"])
    entry = module.functions.get(function.fn.__name__) or next(iter(module.functions.values()))
    kernel = Kernel(module, run, compiled.metadata.num_warps, lambda: str(compiled.asm["ptx"]), MAKERS)
    return kernel.enter(entry), entry


def launch(
    run: Emulation,
    function: Any,
    arguments: tuple[Any, ...],
    options: Mapping[str, Any],
    grid: tuple[int, int, int],
    bound: Mapping[str, Any],
) -> None:
    """Run all programs of a grid, one after another.

    Raises
    ------
    NotEmulatedError
        If an operation of the kernel is not known.
    BarrierError, DeadlockError, RaceError
        If its barriers do not order its accesses, or never let it end.
    """
    kernel, entry = _make_kernel(run, function, arguments, options)
    given = {inner: value for name, one in bound.items() for inner, value in _flatten(name, one).items()}
    block = prepare(entry.body, kernel)
    values = [_convert(given[name], kind) for name, kind in zip(entry.parameters, entry.body.types, strict=True)]
    found = None if run.races == "error" else run.report.notes
    places = deque((x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0]))
    try:
        while places:
            _run_program(
                block,
                kernel,
                entry.size,
                dict(zip(entry.body.arguments, values, strict=True)),
                Program(places.popleft(), grid, kernel.ctas, places, found),
            )
    finally:
        kernel.flush()


def _run_program(block: Block, kernel: Kernel, size: int, given: Mapping[int, Any], program: Program) -> None:
    first = program.partition("the default partition", kernel.warps)
    values: list[Any] = [None] * size
    for number, value in given.items():
        values[number] = value
    if not block.waits:
        block.run(first, values)
        return
    for _ in run_together([(first, block.run_waiting(first, values))]):
        raise AssertionError("a program that waits for another")
