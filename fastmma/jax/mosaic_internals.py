"""JAX's private interpreter of Mosaic GPU kernels: what its memory holds, and the methods that compute."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback
from jax.extend.core import Primitive
from numpy.typing import NDArray

_LANGUAGE = "jax._src.pallas.mosaic_gpu.core"
_MODULE = "jax._src.pallas.mosaic_gpu.interpret.jaxpr_interpret"
_CALLBACKS = "jax._src.pallas.mosaic_gpu.interpret"
_WGMMA, _OTHERS = "_interpret_wgmma_ref_p", "_interpret_arithmetic_primitive"

Multiply = Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True)
class Place:
    """A wgmma of a kernel that is traced.

    Attributes
    ----------
    lhs, rhs, sums : jax.ShapeDtypeStruct
        The operands as they are multiplied, and the accumulator.
    traceback : object
        JAX's, of the kernel's line.
    arguments : tuple
        Of the method that JAX has for it.
    """

    lhs: jax.ShapeDtypeStruct
    rhs: jax.ShapeDtypeStruct
    sums: jax.ShapeDtypeStruct
    traceback: Any
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Interpreter:
    """JAX's interpreter, and its own method for wgmma."""

    module: ModuleType
    native: Callable[..., Any]

    def multiply_natively(self, place: Place) -> Any:
        """Have NumPy multiply, as JAX does."""
        return self.native(*place.arguments)

    def multiply(self, place: Place, product: Multiply) -> Any:
        """Have a function multiply what the kernel's memory holds, when the kernel runs."""
        owner, equation, token, get = place.arguments
        (sums, lhs, rhs, *_), transforms = _operands(equation, get())
        in_registers = not _is_reference(equation.invars[1].aval)
        keys = [sums, rhs] if in_registers else [sums, rhs, lhs]
        compute = partial(_multiply, self.module.gpu_callbacks, product)
        given = (transforms[0], transforms[2], () if in_registers else transforms[1])
        return io_callback(
            compute,
            self.module.gpu_callbacks.TOKEN_SHAPE_DTYPE,
            token,
            (owner.device_info.device_id, owner.grid_point_coords, owner.thread_id),
            keys,
            given,
            lhs if in_registers else None,
            ordered=True,
        ), []


def find_interpreter() -> Interpreter | None:
    """Find JAX's interpreter; None where no module of Mosaic GPU is imported, or this version of JAX has another one."""
    if _LANGUAGE not in sys.modules:
        return None
    try:
        module = importlib.import_module(_MODULE)
        native = getattr(module.JaxprInterpreter, _WGMMA)
        _ = module.JaxprInterpreter._interpret_arithmetic_primitive, module.gpu_primitives.wgmma_ref_p, module.gpu_callbacks.wgmma
    except (ImportError, AttributeError):
        return None
    return Interpreter(module, native)


def replace_methods(interpreter: Interpreter, multiply: Callable[[Place], Any], refuse: Callable[[str], None]) -> Callable[[], None]:
    """Have functions interpret wgmma and refuse what is not known, and return what puts JAX's own methods back."""
    kind, own = interpreter.module.JaxprInterpreter, interpreter.module.gpu_primitives
    before = {name: getattr(kind, name) for name in (_WGMMA, _OTHERS)}
    of_mosaic = {value for value in vars(own).values() if isinstance(value, Primitive)} - set(_of_arrays(own))

    def interpret_wgmma(self: Any, equation: Any, token: Any, get: Any) -> Any:
        return multiply(_describe(equation, (self, equation, token, get)))

    def interpret_others(self: Any, equation: Any, get: Any) -> Any:
        if equation.primitive in of_mosaic:
            refuse(equation.primitive.name)
        return before[_OTHERS](self, equation, get)

    setattr(kind, _WGMMA, interpret_wgmma)
    setattr(kind, _OTHERS, interpret_others)

    def restore() -> None:
        for name, method in before.items():
            setattr(kind, name, method)

    return restore


def is_of_interpreter(callback: Any) -> bool:
    """Tell whether a callback is one by which the interpreter that `find_interpreter` finds moves data and keeps its barriers."""
    while isinstance(callback, partial):
        callback = callback.func
    return str(getattr(callback, "__module__", "")).startswith((_CALLBACKS, __name__)) and find_interpreter() is not None


def _of_arrays(own: ModuleType) -> Sequence[Any]:
    """Return the primitives of Mosaic GPU that compute arrays from arrays, as any machine does."""
    return [getattr(own, name) for name in ("layout_cast_p", "broadcasted_iota_p") if hasattr(own, name)]


def _multiply(callbacks: ModuleType, product: Multiply, token: Any, ids: Any, keys: Sequence[Any], given: Any, lhs: Any) -> Any:
    """Multiply what the memory of a kernel holds, and add it to the accumulator there."""
    device, _, thread = (np.asarray(each) for each in ids)
    memory = callbacks._get_shared_memory()
    number = memory.get_global_thread_id(int(device), int(thread))
    sums_key, *others = (callbacks.HostAllocationKey.from_array(key) for key in keys)
    steps = [jax.tree.map(int, callbacks._remove_noop_transforms(each)) for each in given]

    def read(key: Any, transforms: Any) -> NDArray[Any]:
        array: NDArray[Any] = memory.get_buffer_content(key, (), number)[0]
        for step in transforms:
            array = (
                array.transpose(step.permutation) if hasattr(step, "permutation") else array[callbacks.interpret_utils.to_range((step,))]
            )
        return array

    place = callbacks.interpret_utils.to_range(steps[0])
    before = memory.get_buffer_content(sums_key, place, number)[0]
    left = np.asarray(lhs) if lhs is not None else read(others[1], steps[2])
    memory.store_buffer_content(sums_key, place, product(left, read(others[0], steps[1]), before), number)
    return token


def _is_reference(aval: Any) -> bool:
    return hasattr(aval, "inner_aval")


def _operands(equation: Any, values: Sequence[Any]) -> tuple[Sequence[Any], list[Any]]:
    """Return the operands of an equation, and the transforms of accumulator, left and right operand."""
    names = ("acc_transforms_tree", "a_transforms_tree", "b_transforms_tree")
    trees = [equation.params[name] or jax.tree.structure([]) for name in names]
    return values[:3], jax.tree.unflatten(jax.tree_util.treedef_tuple(trees), values[3:])


def _describe(equation: Any, arguments: tuple[Any, ...]) -> Place:
    """Describe a wgmma by its operands after their transforms."""
    avals = [variable.aval for variable in equation.invars]
    (sums, lhs, rhs), transforms = _operands(equation, avals)
    described = []
    for aval, steps in zip((sums, lhs, rhs), transforms, strict=True):
        kind = getattr(aval, "inner_aval", aval)
        for step in steps:
            kind = step.transform_type(kind) if hasattr(step, "transform_type") else kind
        described.append(jax.ShapeDtypeStruct(kind.shape, kind.dtype))
    return Place(described[1], described[2], described[0], equation.source_info.traceback, arguments)
