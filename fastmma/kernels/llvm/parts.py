"""How Numba compiles functions that only kernels call.

Numba makes every jitted function a library of its own: optimized, compiled, and then optimized and compiled again in each caller that it is
linked into, and in callers of callers. Here a function that only kernels call is linked as it was lowered, and made into machine code in
its kernels alone.
"""

from __future__ import annotations

from typing import Any

from numba import _dynfunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering


class _PartLibrary(JITCodeLibrary):
    """The code of a part of kernels, to be linked into theirs."""

    def _optimize_final_module(self) -> None:
        """Leave that to the kernels."""

    def _finalize_final_module(self) -> None:
        """Give it to no engine, which would compile it."""
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
    """Lowering into a part's library; what callers find it by is a function without machine code."""

    _name = "part_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        description = lowered.fndesc
        key = _dynfunc.make_function(description.lookup_module(), description.qualname, "", 0, lowered.env, (state.library,))
        state.targetctx.insert_user_function(key, description, [state.library])
        state["cr"] = lowered._replace(cfunc=key)
        return True


class PartCompiler(CompilerBase):
    """Numba's own pipeline, with another pass that lowers."""

    def define_pipelines(self) -> list[PassManager]:
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [(_PartLowering if each is NativeLowering else each, says) for each, says in manager.passes]
        manager.finalize()
        return [manager]
