"""Numba's private names in one place, checked when it is imported.

Without some of it no kernel can be compiled. The rest saves time: where another Numba has it no more, kernels are compiled by plain
`numba.njit`, and a warning says what that costs. `fastmma.host.versions` lists the versions that were tested.
"""

from __future__ import annotations

import pickle
from _thread import RLock
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import numba
from numba import config

from fastmma.host.errors import BackendError
from fastmma.host.forks import hold_across_forks
from fastmma.host.versions import check_version, warn_of_version
from fastmma.kernels.llvm import settings
from fastmma.kernels.llvm.locks import LOCK

try:
    from numba.core.cgutils import (
        alloca_once,
        alloca_once_value,
        false_bit,
        gep_inbounds,
        is_not_null,
    )
    from numba.core.registry import cpu_target
    from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_global, signature
except ImportError as error:
    raise BackendError(f"fastmma compiles its kernels by what numba {numba.__version__} does not have: {error}") from error

__all__ = [
    "COMPILER_LOCK",
    "PART_OPTIONS",
    "AbstractTemplate",
    "AttributeTemplate",
    "KernelCache",
    "add_hooks",
    "alloca_once",
    "alloca_once_value",
    "describe_machine",
    "dump_kernel",
    "false_bit",
    "gep_inbounds",
    "infer_global",
    "is_not_null",
    "load_kernel",
    "signature",
    "type_of_global",
]

check_version("numba", numba.__version__)

# what saves time: the members that it needs, and what is lost without one of them
_NEEDS = {
    "lock": (("numba.core.compiler_lock:global_compiler_lock._lock._is_owned",), "a fork amid a compilation may hang"),
    "parts": (
        (
            "numba._dynfunc:make_function",
            "numba.core.codegen:JITCodeLibrary._finalize_dynamic_globals",
            "numba.core.codegen:JITCodeLibrary._finalize_final_module",
            "numba.core.codegen:JITCodeLibrary._optimize_final_module",
            "numba.core.compiler:CompilerBase.define_pipelines",
            "numba.core.compiler:DefaultPassBuilder.define_nopython_pipeline",
            "numba.core.compiler_machinery:PassManager.finalize",
            "numba.core.compiler_machinery:register_pass",
            "numba.core.typed_passes:NativeLowering.run_pass",
        ),
        "functions are compiled again in each of their callers",
    ),
    "hooks": (
        (
            "numba.core.caching:NullCache.load_overload",
            "numba.core.compiler:CompileResult._rebuild",
            "numba.core.compiler:CompileResult._reduce",
            "numba.core.dispatcher:Dispatcher._compile_for_args",
            "numba.core.dispatcher:Dispatcher.compile",
            "numba.core.runtime:rtsys.initialize",
            "numba.core.serialize:dumps",
        ),
        "every process compiles kernels anew, and an interrupt may leave them half compiled",
    ),
}


def _has(name: str) -> bool:
    """Look for the members of a need; warn of the first that is missing."""
    members, loss = _NEEDS[name]
    for member in members:
        try:
            resolve_name(member)
        except (ImportError, AttributeError):
            warn_of_version("numba", f"numba {numba.__version__} has no {member.replace(':', '.')}: {loss}")
            return False
    return True


# --- the lock of compilers ---

COMPILER_LOCK: Any = resolve_name("numba.core.compiler_lock:global_compiler_lock") if _has("lock") else RLock()
hold_across_forks(COMPILER_LOCK, around=LOCK)  # a child could never take it if another thread of its parent had it


# --- what kernels are compiled for ---

if settings.CPU_NAME is not None or settings.CPU_FEATURES is not None:
    config.CPU_NAME, config.CPU_FEATURES = settings.CPU_NAME, settings.CPU_FEATURES


def describe_machine() -> tuple[str, str, str]:
    """Return what Numba compiles for: LLVM's target triple, the CPU's name and its features."""
    triple, name, features = cpu_target.target_context.codegen().magic_tuple()
    return triple, name, features


def type_of_global(value: Any) -> Any:
    """Return the type of a global of kernels."""
    cpu_target.typing_context.refresh()
    return cpu_target.typing_context.resolve_value_type(value)


# --- functions that only kernels call ---
#
# Numba makes every jitted function a library of its own: optimized, compiled, and then optimized and compiled again in each caller that it
# is linked into, and in callers of callers. A part is linked as it was lowered, and made into machine code in its kernels alone.


def _define_part_compiler() -> type:
    """Define Numba's own pipeline, with another pass that lowers."""
    from numba import _dynfunc
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import CompilerBase, DefaultPassBuilder
    from numba.core.compiler_machinery import PassManager, register_pass
    from numba.core.typed_passes import NativeLowering

    class PartLibrary(JITCodeLibrary):
        """The code of a part of kernels, to be linked into theirs."""

        def _optimize_final_module(self) -> None:
            """Leave that to the kernels."""

        def _finalize_final_module(self) -> None:
            """Give it to no engine, which would compile it."""
            self._finalize_dynamic_globals()
            self._finalized = True

    @register_pass(mutates_CFG=True, analysis_only=False)
    class PartLowering(NativeLowering):
        """Lowering into a part's library; what callers find it by is a function without machine code."""

        _name = "part_lowering"

        def run_pass(self, state: Any) -> bool:
            state.library = PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
            state.flags.no_compile = True
            super().run_pass(state)
            lowered = state["cr"]
            description = lowered.fndesc
            key = _dynfunc.make_function(description.lookup_module(), description.qualname, "", 0, lowered.env, (state.library,))
            state.targetctx.insert_user_function(key, description, [state.library])
            state["cr"] = lowered._replace(cfunc=key)
            return True

    class PartCompiler(CompilerBase):
        """Numba's own pipeline for parts."""

        def define_pipelines(self) -> list[PassManager]:
            manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
            manager.passes = [(PartLowering if each is NativeLowering else each, says) for each, says in manager.passes]
            manager.finalize()
            return [manager]

    return PartCompiler


PART_OPTIONS: dict[str, Any] = {"pipeline_class": _define_part_compiler()} if _has("parts") else {}


# --- kernels on the disk, and amid interrupts ---

_HAS_HOOKS = _has("hooks")
KernelCache: Any = resolve_name("numba.core.caching:NullCache") if _HAS_HOOKS else object
Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]


def add_hooks(kernel: Any, cache: Any, call: Wrapper, compile_types: Wrapper, compile_once: Wrapper) -> None:
    """Have a dispatcher ask a cache for machine code, and compile within wrappers.

    Parameters
    ----------
    kernel : Dispatcher
    cache : KernelCache
    call, compile_types, compile_once : callable
        Wrap what Numba calls for arguments of new types, for types, and once for each that is not in the cache.
    """
    if not (_HAS_HOOKS and hasattr(kernel, "_cache") and hasattr(getattr(kernel, "_compiler", None), "compile")):
        return
    kernel._cache = cache
    kernel._compile_for_args = call(kernel._compile_for_args)
    kernel.compile = compile_types(kernel.compile)
    kernel._compiler.compile = compile_once(kernel._compiler.compile)


def load_kernel(content: bytes, context: Any) -> Any:
    """Rebuild a compiled kernel from what `dump_kernel` made of it; of the context, compiled code needs its runtime alone."""
    resolve_name("numba.core.runtime:rtsys").initialize(context)
    return resolve_name("numba.core.compiler:CompileResult")._rebuild(context, *pickle.loads(content))


def dump_kernel(result: Any) -> bytes:
    """Serialise a compiled kernel.

    Raises
    ------
    ValueError
        If its code holds addresses of this process.
    """
    if result.library.has_dynamic_globals:
        raise ValueError("its code holds addresses of this process")
    content: bytes = resolve_name("numba.core.serialize:dumps")(result._reduce())
    return content
