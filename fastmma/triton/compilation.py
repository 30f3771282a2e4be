"""Compile kernels by Triton's own compiler, which needs no GPU."""

from __future__ import annotations

from typing import Any

from triton import knobs
from triton.runtime.jit import JITFunction, MockTensor

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.compiled import FILE, CompiledKernel
from fastmma.triton.compilers import assembly_of
from fastmma.triton.machine.executable import Executable
from fastmma.triton.reasons import explain, refusal, refuses
from fastmma.triton.twins import all_of_kind, callees, convert_kind, list_functions

_COMPILE = JITFunction.run
_KEPT = "_fastmma_kernel"  # kept by Triton's answer


def _read(compiled: Any) -> CompiledKernel:
    found: CompiledKernel | None = vars(compiled).get(_KEPT)
    if found is None:
        ptx, gcn = assembly_of(compiled.asm)
        executable = Executable.of(compiled) if ptx else None
        found = CompiledKernel.read(compiled.asm["ttir"], compiled.asm["ttgir"], ptx, gcn, executable)
        setattr(compiled, _KEPT, found)
    return found


_ELSEWHERE = "_fastmma_elsewhere"  # kept by functions whose code names files that nobody can tell


def compile_function(function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The compiler's answer, or one that Triton keeps on the disk, if that names the files where the functions are now."""

    def answer() -> Any:
        return _COMPILE(function, *map(MockTensor.wrap_dtype, arguments), grid=(1,), warmup=True, **options)

    def is_of_other_files(compiled: Any) -> bool:
        if "ttir" not in compiled.asm:  # Gluon's kernels call methods of classes, too, which nobody lists
            return f'loc("{function.fn.__code__.co_filename}":' not in compiled.asm["ttgir"]
        files = {one.fn.__code__.co_filename for one in callees(function)}
        return any(name not in files for name, _, _ in FILE.findall(compiled.asm["ttir"]))

    compiled = answer()
    if _KEPT in vars(compiled):
        return compiled
    if is_of_other_files(compiled) and not hasattr(function, _ELSEWHERE):
        function.device_caches.clear()
        with knobs.compilation.scope():
            knobs.compilation.always_compile = True
            compiled = answer()
        if is_of_other_files(compiled):
            setattr(function, _ELSEWHERE, True)
    return compiled


def compiled_kernel(kernel: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> CompiledKernel | str:
    """Compile a kernel for the active driver's target; a string says why the compiler did not take it.

    Raises
    ------
    NotEmulatedError
        If the compiler refuses what the kernel says.
    """
    others = list_functions((*arguments, *options.values()))
    try:
        with all_of_kind(kernel, JITFunction, *others) as function:
            return _compiled(function, arguments, options)
    except NotEmulatedError:
        raise
    except Exception as error:
        return explain(error)


def _compiled(function: JITFunction[Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> CompiledKernel:
    given = tuple(convert_kind(value, JITFunction) for value in arguments)
    named = {name: convert_kind(value, JITFunction) for name, value in options.items()}
    try:
        return _read(compile_function(function, given, named))
    except Exception as error:
        if not refuses(error):
            raise
        reached = callees(function, *list_functions((*given, *named.values())))
        raise NotEmulatedError(refusal(function, reached, error)) from error
