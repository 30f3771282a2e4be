"""JAX's private interpreter of Mosaic GPU kernels: the methods that compute, and in JAX 0.10 what its memory holds."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, partialmethod
from types import ModuleType
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback
from jax.extend.core import Primitive
from numpy.typing import NDArray

from fastmma.jax.mosaic_callbacks import Multiply, Noted, replace_products

_LANGUAGE = "jax._src.pallas.mosaic_gpu.core"
_MODULE = "jax._src.pallas.mosaic_gpu.interpret.jaxpr_interpret"
_CALLBACKS = "jax._src.pallas.mosaic_gpu.interpret", "jax._src.pallas.mosaic.interpret.thread_map"
_PRODUCTS = {"wgmma": "_interpret_wgmma_ref_p", "tcgen05_mma": "_interpret_tcgen05_mma_p"}  # the second since JAX 0.11
_OTHERS, _CHECK = "_interpret_arithmetic_primitive", "_raise_if_unsupported_memory_space"
_OPTIONS = ("scaled", "sparse", "collective_axis")


@dataclass(frozen=True)
class Place:
    """A product of a kernel that is traced.

    Attributes
    ----------
    operation : {"wgmma", "tcgen05_mma"}
    lhs, rhs, sums : jax.ShapeDtypeStruct
        The operands as they are multiplied, and the accumulator.
    options : tuple of str
        What the kernel asks for beside operands: ``"scaled"``, ``"sparse"``, ``"collective_axis"``.
    traceback : object
        JAX's, of the kernel's line.
    arguments : tuple
        Of the method that JAX has for it.
    """

    operation: str
    lhs: jax.ShapeDtypeStruct
    rhs: jax.ShapeDtypeStruct
    sums: jax.ShapeDtypeStruct
    options: tuple[str, ...]
    traceback: Any
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Interpreter:
    """JAX's interpreter, and its own methods for products."""

    module: ModuleType
    natives: Mapping[str, Callable[..., Any]]

    @property
    def calls_numpy(self) -> bool:
        """Tell whether the calls of this version of JAX do all but multiply: since 0.11."""
        return "tcgen05_mma" in self.natives

    def multiply_natively(self, place: Place) -> Any:
        """Have NumPy multiply, as JAX does."""
        return self.natives[place.operation](*place.arguments)

    def multiply(self, place: Place, product: Multiply) -> Any:
        """Have a function multiply what the kernel's memory holds, when the kernel runs."""
        owner, equation, token, get = place.arguments
        if self.calls_numpy:
            noted = equation.replace(source_info=Noted(equation.source_info, product))
            return self.natives[place.operation](owner, noted, token, get)
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
        kind, callbacks = module.JaxprInterpreter, module.gpu_callbacks
        _ = getattr(kind, _OTHERS), getattr(module, _CHECK), module.gpu_primitives.wgmma_ref_p, callbacks.wgmma, kind._interpret_wgmma_ref_p
        natives = {name: getattr(kind, method) for name, method in _PRODUCTS.items() if hasattr(kind, method)}
        _ = callbacks.TcGen05Mma.__call__ if "tcgen05_mma" in natives else None
    except (ImportError, AttributeError):
        return None
    return Interpreter(module, natives)


def replace_methods(interpreter: Interpreter, multiply: Callable[[Place], Any], refuse: Callable[[str, Any], None]) -> Callable[[], None]:
    """Have functions interpret products and refuse what is not known, and return what puts JAX's own methods back.

    Parameters
    ----------
    interpreter : Interpreter
    multiply : callable
    refuse : callable
        Takes the name of a primitive and JAX's traceback of the kernel's line.
    """
    module = interpreter.module
    kind, own = module.JaxprInterpreter, module.gpu_primitives
    of_mosaic = {value for value in vars(own).values() if isinstance(value, Primitive)} - set(_of_arrays(own))
    interpret_natively, check_natively = getattr(kind, _OTHERS), getattr(module, _CHECK)

    def interpret_product(self: Any, name: str, equation: Any, token: Any, get: Any) -> Any:
        return multiply(_describe(name, equation, (self, equation, token, get)))

    def interpret_others(self: Any, equation: Any, get: Any) -> Any:
        if equation.primitive in of_mosaic or any(map(_takes_references, equation.params.values())):
            refuse(equation.primitive.name, equation.source_info.traceback)
        return interpret_natively(self, equation, get)

    def check_memory(space: Any) -> None:
        try:
            check_natively(space)
        except NotImplementedError:
            refuse(str(space), None)

    methods = {_PRODUCTS[name]: partialmethod(interpret_product, name) for name in interpreter.natives}
    undo = [_replace(kind, name, method) for name, method in {**methods, _OTHERS: interpret_others}.items()]
    undo.append(_replace(module, _CHECK, check_memory))
    if interpreter.calls_numpy:
        undo.append(replace_products(module.gpu_callbacks))

    def restore() -> None:
        for each in undo:
            each()

    return restore


def _replace(owner: Any, name: str, value: Any) -> Callable[[], None]:
    """Set an attribute, and return what sets it back."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, before)


def is_of_interpreter(callback: Any) -> bool:
    """Tell whether a callback is one by which the interpreter that `find_interpreter` finds moves data and keeps its barriers."""
    while isinstance(callback, partial):
        callback = callback.func
    return str(getattr(callback, "__module__", "")).startswith((*_CALLBACKS, __name__)) and find_interpreter() is not None


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


def _takes_references(parameter: Any) -> bool:
    """Tell whether a parameter of a primitive is a program that writes to memory, for which the interpreter has no method of its own."""
    return any(_is_reference(each.aval) for each in getattr(parameter, "invars", ()))


def _operands(equation: Any, values: Sequence[Any]) -> tuple[Sequence[Any], list[Any]]:
    """Return the operands of an equation, and the transforms of accumulator, left and right operand."""
    trees = [equation.params[f"{name}_transforms_tree"] or jax.tree.structure([]) for name in ("acc", "a", "b")]
    leaves = iter(values[len(values) - _count_leaves(equation) :])
    return values[:3], [jax.tree.unflatten(tree, [next(leaves) for _ in range(tree.num_leaves)]) for tree in trees]


def _count_leaves(equation: Any) -> int:
    """Count the last operands of an equation that belong to transforms of the others."""
    trees = [value for name, value in equation.params.items() if name.endswith("_transforms_tree") and value is not None]
    return sum(tree.num_leaves for tree in trees)


def _describe(name: str, equation: Any, arguments: tuple[Any, ...]) -> Place:
    """Describe a product by its operands after their transforms."""
    avals = [variable.aval for variable in equation.invars]
    (sums, lhs, rhs), transforms = _operands(equation, avals)
    described = []
    for aval, steps in zip((sums, lhs, rhs), transforms, strict=True):
        kind = getattr(aval, "inner_aval", aval)
        for step in steps:
            kind = step.transform_type(kind) if hasattr(step, "transform_type") else kind
        described.append(jax.ShapeDtypeStruct(kind.shape, kind.dtype))
    options = tuple(option for option in _OPTIONS if equation.params.get(option))
    return Place(name, described[1], described[2], described[0], options, equation.source_info.traceback, arguments)
