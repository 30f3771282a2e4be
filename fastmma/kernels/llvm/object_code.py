"""Functions of LLVM code, compiled on their own: emitted, compiled to object code, kept on the disk and linked into the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from fastmma.host.notice import compiling
from fastmma.kernels.llvm import cpu, settings
from fastmma.kernels.llvm.collection import uncollected
from fastmma.kernels.llvm.disk_cache import KernelFiles
from fastmma.kernels.llvm.locks import LOCK
from fastmma.kernels.llvm.machine_code import PLACES, place_object

_OPTIMIZATION = 1  # of emitted vector code, which higher levels take longer over and make no faster
_OPTIMIZATION_OF_LOOPS = 2  # of code that is written as text
_HOW = {"reloc": "pic", "codemodel": "small"} if PLACES else {"reloc": "static", "codemodel": "jitdefault"}
_WIDE_LOOPS = ",-prefer-256-bit"  # LLVM takes half registers on Intel's CPUs, where a loop of 8 lanes calls functions of 16 one by one
_linked: list[Any] = []  # engines, which own the memory that compiled code lies in


def linked(files: KernelFiles, compiled_for: tuple[Any, ...], emit: Callable[[ir.Module], None], function: str) -> int:
    """Return where the function of this name is that `emit` adds to a module for these records or types."""
    with LOCK:
        code = files.found(compiled_for)
        if code is None:
            with compiling():
                compiled = code = _compiled(emit)
            files.keep(compiled_for, lambda: compiled)
        return _addresses(code, [function])[0]


def _target_machine(tuning: str = "") -> Any:
    """A compiler for this CPU; every engine takes one of its own."""
    from fastmma.kernels.llvm.library import binding

    triple, name, features = cpu.machine()
    level = min(settings.OPTIMIZATION, 2)
    return binding.Target.from_triple(triple).create_target_machine(cpu=name, features=features + tuning, opt=level, jit=True, **_HOW)


def link_text(files: KernelFiles, record: Any, write: Callable[[], str], functions: Sequence[str]) -> list[int]:
    """Return where functions are of a module that `write` writes as LLVM's text for a record, its loops vectorised."""
    with LOCK:
        code = files.found((record,))
        if code is None:
            with compiling():
                compiled = code = _compiled_text(write())
            files.keep((record,), lambda: compiled)
        return _addresses(code, functions)


def _compiled_text(text: str) -> bytes:
    machine, module = _vectorized(text)
    code: bytes = machine.emit_object(module)
    return code


def assembly_of_text(text: str) -> str:
    """The assembly language of a module that is given as LLVM's text, for this CPU, to be looked at."""
    machine, module = _vectorized(text)
    lines: str = machine.emit_assembly(module)
    return lines


def _vectorized(text: str) -> tuple[Any, Any]:
    """A compiler, and the module of a text as LLVM has it before it chooses instructions, its loops vectorised."""
    from fastmma.kernels.llvm.library import INLINES_LATE, binding

    machine = _target_machine(_WIDE_LOOPS if "avx512f" in cpu.usable() else "")
    module = binding.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    tuning = binding.create_pipeline_tuning_options(min(settings.OPTIMIZATION, _OPTIMIZATION_OF_LOOPS))
    tuning.loop_vectorization = True
    passes = binding.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    if INLINES_LATE:  # functions of vectors that vectorised loops have come to call
        inlining = binding.create_new_module_pass_manager()
        inlining.add_always_inliner_pass()
        inlining.run(module, passes)
    return machine, module


def assembly(emit: Callable[[ir.Module], None], triple: str, name: str, features: str) -> str:
    """The assembly language of a module for any CPU that LLVM knows, to be looked at."""
    from fastmma.kernels.llvm.library import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = binding.Target.from_triple(triple).create_target_machine(cpu=name, features=features, opt=2, reloc="static")
    text: str = machine.emit_assembly(_optimized(emit, machine))
    return text


def _compiled(emit: Callable[[ir.Module], None]) -> bytes:
    """The object code of a module for this CPU."""
    machine = _target_machine()
    code: bytes = machine.emit_object(_optimized(emit, machine))
    return code


def _optimized(emit: Callable[[ir.Module], None], machine: Any) -> Any:
    """A module as LLVM has it before it chooses instructions."""
    from fastmma.kernels.llvm.library import binding

    with uncollected():
        module = ir.Module()
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        emit(module)
        text = str(module)
        _taken_apart(module)
    parsed = binding.parse_assembly(text)
    passes = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(min(settings.OPTIMIZATION, _OPTIMIZATION)))
    simplified = passes.getFunctionPassManager()  # that of modules takes twice as long and makes emitted code no faster
    for function in parsed.functions:
        if not function.is_declaration:
            simplified.run(function, passes)
    return parsed


def _addresses(code: bytes, functions: Sequence[str]) -> list[int]:
    """Return where functions of object code are, which is put into memory."""
    placed = place_object(code)
    if placed is not None:
        return [placed[function] for function in functions]
    engine = _linked_engine(code)
    return [engine.get_function_address(function) for function in functions]


def _linked_engine(code: bytes) -> Any:
    """Link object code into the process."""
    from fastmma.kernels.llvm.library import binding

    # one piece of memory for all sections: far from each other, as they may lie in a large process, small code cannot reach them
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _target_machine(), use_lmm=PLACES or None)
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _linked.append(engine)
    return engine


def _taken_apart(module: ir.Module) -> None:
    """Free instructions, which their blocks and each other hold: the collector would look through the whole process for them."""
    for function in module.functions:
        for block in function.blocks:
            block.instructions.clear()
            block.terminator = None
