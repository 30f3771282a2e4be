"""Modes of the floating-point control register, read and written as they are, and a program that runs operations in them.

``python -m reference.float_modes MODE sample|every SEED`` imports fastmma in a mode, and prints JSON: the digests of operations by mode.
"""

from __future__ import annotations

import ctypes
import json
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from llvmlite import binding, ir

MACHINE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
# the default, and the bits of each mode: flushed results, flushed operands, and roundings
REGISTERS = {
    "x86_64": (0x1F80, {"FTZ": 0x8000, "DAZ": 0x0040, "down": 0x2000, "up": 0x4000, "zero": 0x6000}),
    "aarch64": (0, {"FZ": 1 << 24, "up": 1 << 22, "down": 2 << 22, "zero": 3 << 22}),
}
_MASKS = {"x86_64": 0xFFC0, "aarch64": 0x01C00000}  # without the flags of exceptions
_ASSEMBLY = {"x86_64": ("stmxcsr ($0)", "ldmxcsr ($0)"), "aarch64": ("mrs x9, fpcr\nstr w9, [$0]", "ldr w9, [$0]\nmsr fpcr, x9")}
DEFAULT = "default"


def modes() -> dict[str, int]:
    """The register of every mode; the last names are of ``fesetround``, which writes it together with that of x87."""
    default, bits = REGISTERS[MACHINE]
    flushes = [name for name in bits if name.isupper()]
    roundings = [name for name in bits if name.islower()]
    found = {DEFAULT: default} | {name: default | bits[name] for name in bits}
    both = default
    for name in flushes:
        both |= bits[name]
    if len(flushes) > 1:
        found["+".join(flushes)] = both
    found |= {f"{'+'.join(flushes)}+{name}": both | bits[name] for name in roundings}
    return found | {f"fesetround {name}": bits[name] for name in roundings}


@cache
def _functions() -> tuple[ctypes._CFuncPtr, ctypes._CFuncPtr, object]:
    """What stores the register at an address, what loads it from there, and what keeps both alive."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    binding.initialize_native_asmparser()
    kind = ir.FunctionType(ir.VoidType(), [ir.IntType(32).as_pointer()])
    module = ir.Module()
    for name, text in zip(("read", "write"), _ASSEMBLY[MACHINE], strict=True):
        function = ir.Function(module, kind, name)
        builder = ir.IRBuilder(function.append_basic_block())
        clobbers = ",~{memory}" + (",~{x9}" if MACHINE == "aarch64" else "")
        builder.asm(kind, text, f"r{clobbers}", [function.args[0]], True)
        builder.ret_void()
    machine = binding.Target.from_default_triple().create_target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(str(module)), machine)
    engine.finalize_object()
    prototype = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
    return prototype(engine.get_function_address("read")), prototype(engine.get_function_address("write")), engine


def register() -> int:
    """The control bits of this thread's register."""
    word = ctypes.c_uint32()
    _functions()[0](ctypes.addressof(word))
    return word.value & _MASKS[MACHINE]


def write(value: int) -> None:
    """Set the register."""
    word = ctypes.c_uint32(value)
    _functions()[1](ctypes.addressof(word))


def _x87_rounding(mode: str) -> int:
    """What ``fesetround`` takes: on x86 the two bits of x87's word, on Arm those of FPCR."""
    return REGISTERS[MACHINE][1][mode.removeprefix("fesetround ")] >> (3 if MACHINE == "x86_64" else 0)


@contextmanager
def mode(name: str) -> Iterator[int]:
    """Code in a mode; gives the register that it is left with, if nothing changes it."""
    library = ctypes.PyDLL(None)
    try:
        if name.startswith("fesetround"):
            assert library.fesetround(_x87_rounding(name)) == 0
        else:
            write(modes()[name])
        yield register()
    finally:
        library.fesetround(0)
        write(modes()[DEFAULT])


@contextmanager
def kept(name: str) -> Iterator[None]:
    """Code in a mode that it must leave as it was."""
    with mode(name) as before:
        yield
        assert register() == before, "the caller's floating-point mode was changed"


def main(imported: str, every: bool, seed: int) -> None:
    """Every operation in every mode, on two threads and on one (with a sample, in turn); the pool of threads starts in the first mode."""
    with mode(imported):
        from reference.operations import operations
    listed = list(operations(seed, every=every))
    found: dict[str, dict[str, str]] = {}
    left: list[str] = []
    for number, name in enumerate((imported, *(each for each in modes() if each != imported))):
        for threads in (2, 1):
            for place, (operation, call) in enumerate(listed):
                if not every and name != DEFAULT and (place + number + threads) % 2:
                    continue
                with mode(name) as before:
                    digest = call(threads)
                    after = register()
                found.setdefault(operation, {})[f"{name}, {threads} threads"] = digest
                if before != after:
                    left.append(f"{operation} in {name}: {before:#x} became {after:#x}")
    print(json.dumps({"digests": found, "left": left}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "every", int(sys.argv[3]))
