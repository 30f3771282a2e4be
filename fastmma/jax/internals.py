"""JAX's private names in one place, checked when it is imported: lowering tables, equations, places and meshes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import mlir

from fastmma.host.caller import Libraries, find_caller, folders_of
from fastmma.host.errors import BackendError

_WRITTEN_FOR = "0.10 to 0.12"
_LIBRARIES = Libraries(folders_of("jax", "jaxlib"))

try:
    from jax._src import dispatch, stages
    from jax._src.callback import _callback_op_sharding, pure_callback_p
    from jax._src.cudnn.scaled_matmul_stablehlo import _scaled_matmul_p as scaled_matmul_p
    from jax._src.interpreters import mlir as _mlir
    from jax._src.interpreters import pxla as _pxla
    from jax._src.interpreters.mlir import _lowerings, _platform_specific_lowerings, _uncacheable_primitives
    from jax._src.lax.lax import canonicalize_precision, dot_general_p
    from jax._src.lax.parallel import all_gather_p, psum_invariant_p, psum_p
    from jax._src.sharding_impls import ShardingContext, SPMDAxisContext
    from jax._src.source_info_util import user_frames
    from jaxlib.mlir.ir import Location

    cpu_lowerings: dict[Any, Any] = _platform_specific_lowerings["cpu"]
    common_lowerings: dict[Any, Any] = _lowerings
    lower_equations: Callable[..., Any] = _mlir.jaxpr_subcomp
    Compiled, Lowered = stages.Compiled, stages.Lowered
    lower_program: Callable[..., Any] = _pxla.lower_sharding_computation
    _ = (_pxla.axis_groups, Compiled.__call__, Lowered.compile, dispatch.get_intermediate_shardings)
except (ImportError, KeyError, AttributeError) as error:
    raise BackendError(f"fastmma.jax is written for jax {_WRITTEN_FOR}; in jax {jax.__version__} it does not find {error}") from error

__all__ = [
    "Compiled",
    "Location",
    "Lowered",
    "all_gather_p",
    "call_back",
    "canonicalize_precision",
    "common_lowerings",
    "count_devices",
    "count_group",
    "cpu_lowerings",
    "dot_general_p",
    "find_place",
    "has_automatic_axes",
    "is_of_jax",
    "lower_equations",
    "lower_natively",
    "lower_program",
    "partitioned_program",
    "psum_invariant_p",
    "psum_p",
    "pure_callback_p",
    "register",
    "replace_lowering_of_equations",
    "replace_lowering_of_programs",
    "restore",
    "scaled_matmul_p",
    "spans_devices",
]


def lower_natively(primitive: Any, entry: Any, context: Any, *operands: Any, **parameters: Any) -> Any:
    """Apply the rule that was in the table of the CPU, or the common one where there was none."""
    found = entry if entry is not None else common_lowerings[primitive]
    return getattr(found, "rule", found)(context, *operands, **parameters)


def call_back(context: Any, function: Callable[..., Any], *operands: Any) -> Any:
    """Lower to a call of a function of NumPy's arrays with one result.

    JAX's own callbacks put the arrays on a device first: a copy that may wait for a thread while all of them wait for other devices.
    """
    sharding = _callback_op_sharding(context.module_context.axis_context, None, context.avals_out)
    arrays = list(operands), context.avals_in, context.avals_out
    found, _, _ = mlir.emit_python_callback(
        context, lambda *given: (function(*given),), None, *arrays, has_side_effect=False, returns_token=False, sharding=sharding
    )
    return found


def register(primitive: Any, rule: Any) -> Callable[[], None]:
    """Put a rule into the table of the CPU, for each equation anew, and return what puts back the entry that was there."""
    before, cached = cpu_lowerings.get(primitive), primitive not in _uncacheable_primitives
    mlir.register_lowering(primitive, rule, platform="cpu", cacheable=False)
    return lambda: restore(primitive, before, cached)


def restore(primitive: Any, entry: Any, cached: bool) -> None:
    """Put an entry back into the table of the CPU, or take out what is there."""
    if entry is None:
        cpu_lowerings.pop(primitive, None)
    else:
        cpu_lowerings[primitive] = entry
    if cached:
        _uncacheable_primitives.discard(primitive)


def replace_lowering_of_equations(function: Callable[..., Any]) -> None:
    """Have all equations of all programs lowered by a function; `lower_equations` is JAX's own."""
    _mlir.jaxpr_subcomp = function


def replace_lowering_of_programs(function: Callable[..., Any]) -> None:
    """Have all programs lowered by a function; `lower_program` is JAX's own."""
    _pxla.lower_sharding_computation = function


def spans_devices(arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Tell whether a program that is lowered may be partitioned among several devices."""
    closed, _, _, inputs, outputs, *_ = arguments
    inner = [sharding for sharding, _ in dispatch.get_intermediate_shardings(closed.jaxpr)]
    mesh = options.get("context_mesh")
    return any(getattr(each, "num_devices", 1) > 1 for each in (*inputs, *outputs, *inner)) or getattr(mesh, "size", 0) > 1


def partitioned_program(lower: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any], folder: str) -> None:
    """Compile a program under another name, which JAX's caches tell apart, and have XLA write it after its partitioner."""
    closed, api, name, *others = arguments
    dumped = {"xla_dump_to": folder, "xla_dump_hlo_pass_re": "spmd-partitioning"}
    lower(closed, api, f"{name}_partitioned", *others, **options).compile(compiler_options=dumped)


def find_place(*tracebacks: Any) -> tuple[str, int] | None:
    """Find the innermost file and line outside of JAX and fastmma: in the first traceback of JAX's that has one, or on the stack."""
    for traceback in tracebacks:
        for frame in user_frames(traceback):
            if not _LIBRARIES[frame.file_name]:
                return frame.file_name, frame.start_line
    found = find_caller(_LIBRARIES)
    return None if found is None else (found.file, found.line)


def count_devices(context: Any) -> int:
    """Count the devices among which XLA itself partitions the program that is lowered; 1 where each device has its own."""
    axes = context.module_context.axis_context
    return int(axes.num_devices) if isinstance(axes, ShardingContext) else 1


def count_group(context: Any, axes: tuple[Any, ...]) -> int:
    """Count the devices of a group along some axes of the mesh on which the program runs; 0 where groups differ."""
    sizes = {len(each) for each in _pxla.axis_groups(context.module_context.axis_context, axes)}
    return sizes.pop() if len(sizes) == 1 else 0


def has_automatic_axes(context: Any) -> bool:
    """Tell whether some axes of a mesh are a program's own and the others XLA's, where JAX runs no callbacks."""
    axes = context.module_context.axis_context
    return isinstance(axes, SPMDAxisContext) and axes.manual_axes != frozenset(axes.mesh.axis_names)


class _Own:
    """The primitives that are attributes of JAX's modules; modules may be imported later."""

    def __init__(self) -> None:
        self.modules = 0
        self.primitives: set[Any] = set()

    def __contains__(self, primitive: Any) -> bool:
        if primitive not in self.primitives and len(sys.modules) != self.modules:
            self.modules = len(sys.modules)
            modules = [module for name, module in list(sys.modules.items()) if name.startswith("jax._src") and module is not None]
            self.primitives = {value for module in modules for value in list(vars(module).values()) if isinstance(value, Primitive)}
        return primitive in self.primitives


_own = _Own()


def is_of_jax(primitive: Any) -> bool:
    """Tell whether a primitive is one of JAX's, not one of a caller's that has the same name."""
    return primitive in _own
