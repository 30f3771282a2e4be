"""Object files that are put into memory compute as LLVM's linker has them, and what needs a linker is left to it."""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from llvmlite import binding

import fastmma
from fastmma.kernels.llvm import cpuid, folders, host_cpu, machine_code, object_code

pytestmark = pytest.mark.skipif(not machine_code.PLACES, reason="object files are placed on x86-64 Linux alone")

_KIND = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
_TABLE = ", ".join(f"i64 {number * number + 3}" for number in range(9))
PLACED = {
    "a constant": """
        define i64 @f(i64 %x) {
          %y = sitofp i64 %x to double
          %z = fmul double %y, 0x400921FB54442D18
          %r = fptosi double %z to i64
          ret i64 %r
        }
    """,
    "a table": f"""
        @table = private constant [9 x i64] [{_TABLE}], align 64
        define i64 @f(i64 %x) {{
          %at = urem i64 %x, 9
          %place = getelementptr [9 x i64], [9 x i64]* @table, i64 0, i64 %at
          %r = load i64, i64* %place
          ret i64 %r
        }}""",
    "functions that call each other": """
        define internal i64 @half(i64 %x) noinline { %r = ashr i64 %x, 1 ret i64 %r }
        define i64 @f(i64 %x) { %y = call i64 @half(i64 %x) %z = call i64 @g(i64 %y) ret i64 %z }
        define i64 @g(i64 %x) noinline { %r = mul i64 %x, 7 ret i64 %r }""",
}
_CALLS = """
    declare double @cos(double)
    declare double @ldexp(double, i32)
    declare i64 @labs(i64)
    define i64 @f(i64 %x) {
      %y = sub i64 %x, 20
      %z = call i64 @labs(i64 %y)
      %real = sitofp i64 %z to double
      %one = call double @cos(double %real)
      %two = call double @cos(double %one)
      %large = call double @ldexp(double %two, i32 40)
      %r = fptosi double %large to i64
      ret i64 %r
    }
    define i64 @g(i64 %x) { %r = tail call i64 @labs(i64 %x) ret i64 %r }
"""
LEFT = {
    "a function that nobody has": "declare i64 @nobodys(i64) define i64 @f(i64 %x) { %r = call i64 @nobodys(i64 %x) ret i64 %r }",
    "the address of a function": "declare i64 @labs(i64) define i64 (i64)* @f() { ret i64 (i64)* @labs }",
    "memory of the process": "@environ = external global i64 define i64 @f() { %r = load i64, i64* @environ ret i64 %r }",
    "memory that changes": "@n = global i64 5 define i64 @f(i64 %x) { store i64 %x, i64* @n ret i64 %x }",
    "memory of zeros": "@n = internal global [64 x i64] zeroinitializer define [64 x i64]* @f() { ret [64 x i64]* @n }",
    "memory of a thread": "@n = thread_local global i64 5 define i64 @f(i64 %x) { store i64 %x, i64* @n ret i64 %x }",
    "an address": "@table = constant [1 x i64 (i64)*] [i64 (i64)* @f] define i64 @f(i64 %x) { ret i64 %x }",
}


def compiled(text: str, **how: Any) -> bytes:
    object_code._target_machine()  # which has LLVM know the CPU
    machine = binding.Target.from_default_triple().create_target_machine(**{"opt": 0, "jit": True, **object_code._HOW, **how})
    code: bytes = machine.emit_object(binding.parse_assembly(text))
    return code


@pytest.mark.parametrize("text", PLACED.values(), ids=PLACED)
def test_placed_functions_compute_as_linked_ones(text: str) -> None:
    code = compiled(text)
    placed = machine_code.place_object(code)
    assert placed is not None
    engine = object_code._linked_engine(code)
    for name, address in placed.items():
        ours, its = _KIND(address), _KIND(engine.get_function_address(name))
        assert [ours(value) for value in range(40)] == [its(value) for value in range(40)], name


_FAR = """
import ctypes, mmap, sys
from llvmlite import binding
from fastmma.kernels.llvm import object_code

machine = object_code._target_machine()
code = machine.emit_object(binding.parse_assembly(sys.argv[1]))
library = ctypes.CDLL(None)
library.mmap.restype = ctypes.c_void_p
library.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
library.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
kind, no_reserve, where_nothing_is = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0x4000, 0x100000
maps = [[int(each, 16) for each in line.split()[0].split("-")] for line in open("/proc/self/maps")]
gaps = [(end, start - end) for (_, end), (start, _) in zip(maps, maps[1:]) if end > 1 << 46 and start - end < 1 << 40]
for start, size in gaps:
    library.mmap(start, size, 0, kind | no_reserve | where_nothing_is, -1, 0)
parts = [library.mmap(None, size, 0, kind | no_reserve, -1, 0) for size in (1 << 21, 1 << 32) * 20]
for part in parts[::2]:
    library.munmap(part, mmap.PAGESIZE)  # now all free pages are 4 GB apart from each other
engine = object_code._linked_engine(code)
function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(engine.get_function_address("f"))
print([function(value) for value in range(9)])
"""


def test_linked_parts_are_near_each_other() -> None:
    """In a large process, free memory may be farther apart than code reaches."""
    done = subprocess.run([sys.executable, "-c", _FAR, PLACED["a table"]], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{[number * number + 3 for number in range(9)]}\n"), done.stderr


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_what_needs_a_linker_is_left_to_it(text: str) -> None:
    assert machine_code.place_object(compiled(text)) is None


def test_functions_of_the_process_are_called() -> None:
    placed = machine_code.place_object(compiled(_CALLS))
    assert placed is not None
    f, g = (_KIND(placed[name]) for name in "fg")
    assert [f(value) for value in range(40)] == [int(math.cos(math.cos(abs(value - 20))) * 2**40) for value in range(40)]
    assert [g(value) for value in (-5, 7)] == [5, 7]


def test_objects_of_another_kind_are_left() -> None:
    code = compiled(PLACED["a table"])
    assert machine_code.place_object(compiled(PLACED["a table"], reloc="static", codemodel="large")) is None
    for place, value in ((0, 0), (4, 1), (5, 2), (16, 3), (18, 183)):  # magic, 32 bits, the highest byte first, a library, AArch64
        assert machine_code.place_object(code[:place] + bytes([value]) + code[place + 1 :]) is None


def test_code_that_is_executed_cannot_be_written() -> None:
    start = machine_code.place(bytes.fromhex("488d4701c3"))  # lea rax, [rdi + 1]; ret
    assert _KIND(start)(41) == 42
    line = next(each for each in Path("/proc/self/maps").read_text().splitlines() if int(each.partition("-")[0], 16) == start)
    assert line.split()[1] == "r-xp"


def test_all_cores_say_the_same_of_the_cpu() -> None:
    allowed = os.sched_getaffinity(0)
    found = set()
    try:
        for core in sorted(allowed)[:8]:
            os.sched_setaffinity(0, {core})
            found.add(cpuid.identity())
    finally:
        os.sched_setaffinity(0, allowed)
    assert len(found) == 1


def test_llvm_is_asked_once_for_a_cpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, asked = host_cpu._asked(), list[int]()

    def ask() -> host_cpu.HostCpu:
        asked.append(1)
        return told

    monkeypatch.setattr(host_cpu, "_asked", ask)

    def is_asked() -> bool:
        asked.clear()
        assert host_cpu._host_cpu() == told
        return bool(asked)

    assert is_asked()
    assert not is_asked()
    for place, value in (("identity", lambda: b"another"), ("llvmlite.__version__", "0.1"), ("sources.digest_of", lambda _: "0" * 16)):
        with monkeypatch.context() as patch:
            patch.setattr(f"fastmma.kernels.llvm.host_cpu.{place}", value)
            assert is_asked()
            assert not is_asked()
    for path in folder.rglob("*.cpu"):
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert is_asked()
    assert not is_asked()
    folder.chmod(0o777)  # others may write there
    assert is_asked()
    folder.chmod(0o755)
    for system in ("identity", "folders.list_folders"):  # one that lets nothing be executed, and no folder

        def fails() -> Any:
            raise OSError

        with monkeypatch.context() as patch:
            patch.setattr(f"fastmma.kernels.llvm.host_cpu.{system}", fails if system == "identity" else lambda: [Path("/dev/null/kernels")])
            assert is_asked()
            assert is_asked()
    assert folders.list_folders() == [folder]


_WARM = """
import sys
import numpy as np, fastmma
a = np.arange(300 * 300).reshape(300, 300) % 7
for dtype in (np.float16, np.int8):
    fastmma.gemm(a.astype(dtype), a.astype(dtype))
print(*({"numba", "llvmlite.binding", "ml_dtypes", "json"} & set(sys.modules)))
"""


def test_kernels_on_the_disk_need_neither_numba_nor_llvm(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(fastmma.__file__).parents[1])}
    told = [subprocess.run([sys.executable, "-c", _WARM], env=environment, capture_output=True, text=True, check=True) for _ in range(2)]
    assert told[0].stdout.split() == ["llvmlite.binding"]
    assert told[1].stdout.split() == []
