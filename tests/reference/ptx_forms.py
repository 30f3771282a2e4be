"""What a GPU computes for single instructions of PTX, on numbers drawn here: cubins built without a GPU, launched there.

``python -m tests.reference.ptx_forms build FILE`` assembles one kernel for each form with the ptxas that Triton brings along. ``python
ptx_forms.py record FILE RESULTS SEED`` on the machine with the GPU, which needs this module, NumPy and CuPy, writes every result.
``python -m tests.reference.ptx_forms compare RESULTS`` executes the forms here, and prints which differ; ``keep RESULTS`` writes a part
for tests/integrations/triton/test_ptx_forms.py.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

KEPT = Path(__file__).parents[1] / "integrations" / "triton" / "recordings" / "forms_h200.npz"
ROWS = 1 << 13  # threads, each with four words
_BLOCK = 128
_FRAME = """
.version 8.5
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 .ptr .global p0, .param .u64 .ptr .global p1)
.reqntid 128
{
 .reg .pred %p<9>;
 .reg .b16 %rs<9>;
 .reg .b32 %r<19>;
 .reg .b64 %rd<9>;
 ld.param.b64 %rd1, [p0];
 ld.param.b64 %rd2, [p1];
 mov.u32 %r1, %tid.x;
 mov.u32 %r6, %ctaid.x;
 shl.b32 %r7, %r6, 7;
 add.u32 %r8, %r7, %r1;
 mad.wide.u32 %rd3, %r8, 16, %rd1;
 mad.wide.u32 %rd4, %r8, 4, %rd2;
 ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd3];
 cvt.u16.u32 %rs1, %r2;
 cvt.u16.u32 %rs2, %r3;
 cvt.u16.u32 %rs3, %r4;
 BODY
 st.global.b32 [%rd4], %r9;
 ret;
}
"""
# the operands of a form: one 16-bit result of words, one of halves, one word of words, one word of a half
_TO_HALF, _OF_HALVES, _TO_WORD, _OF_ONE_HALF = (
    "{0} %rs4, {1}; cvt.u32.u16 %r9, %rs4;",
    "{0} %rs4, {2}; cvt.u32.u16 %r9, %rs4;",
    "{0} %r9, {1};",
    "{0} %r9, %rs1;",
)
_SATURATIONS = ("", ".relu", ".satfinite", ".relu.satfinite")


def _form(opcode: str, operands: int, shape: str = _TO_WORD) -> tuple[str, str]:
    words, halves = (", ".join(f"{name}{index + first}" for index in range(operands)) for name, first in (("%r", 2), ("%rs", 1)))
    return opcode, shape.format(opcode, words, halves)


FORMS: dict[str, str] = dict(
    [
        *(_form(f"cvt.{way}{mode}.{to}.f32", 1, _TO_HALF) for way in ("rn", "rz") for mode in _SATURATIONS for to in ("f16", "bf16")),
        *(_form(f"cvt.{way}{mode}.{to}x2.f32", 2) for way in ("rn", "rz") for mode in _SATURATIONS for to in ("f16", "bf16")),
        *(_form(f"cvt.{way}{mode}.tf32.f32", 1) for way in ("rn", "rz") for mode in ("", ".relu")),
        *(_form(f"cvt.rna{mode}.tf32.f32", 1) for mode in ("", ".satfinite")),
        *(_form(f"cvt.rn.satfinite{mode}.{to}x2.f32", 2, _TO_HALF) for mode in ("", ".relu") for to in ("e4m3", "e5m2")),
        *(_form(f"cvt.rn.satfinite{mode}.{to}x2.f16x2", 1, _TO_HALF) for mode in ("", ".relu") for to in ("e4m3", "e5m2")),
        *(_form(f"cvt.rn{mode}.f16x2.{source}x2", 1, _OF_ONE_HALF) for mode in ("", ".relu") for source in ("e4m3", "e5m2")),
        *(_form(f"fma.rn{mode}.{kind}", 3, _OF_HALVES) for mode in ("", ".relu") for kind in ("f16", "bf16")),
        *(_form(f"fma.rn{mode}.{kind}x2", 3) for mode in ("", ".relu") for kind in ("f16", "bf16")),
        *(
            _form(f"fma.rn.ftz{mode}.f16{pair}", 3, shape)
            for mode in ("", ".relu", ".sat")
            for pair, shape in (("", _OF_HALVES), ("x2", _TO_WORD))
        ),
        *(_form(f"{name}.ftz{mode}.f16x2", 2) for name in ("add", "mul") for mode in ("", ".sat")),
        *(
            _form(f"{name}{mode}.{kind}", 2, _TO_WORD if kind[-1] == "2" else _OF_HALVES)
            for name in ("min", "max")
            for mode in ("", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs")
            for kind in ("f16", "bf16", "f16x2", "bf16x2", "f32")
        ),
        *(
            _form(f"{name}{mode}.{kind}", 2)
            for name in ("min", "max")
            for mode, kind in ((".relu", "s32"), (".relu", "s16x2"), ("", "s16x2"), ("", "u16x2"))
        ),
        *(_form(f"add.{kind}", 2) for kind in ("s16x2", "u16x2")),
        *(_form(f"cvt.pack.sat.{kind}.s32.b32", 3) for kind in ("u8", "s8")),
        *(_form(f"cvt.pack.sat.{kind}.s32", 2) for kind in ("u16", "s16")),
        *(_form(f"dp2a.{half}.{signs}", 3) for half in ("lo", "hi") for signs in ("u32.u32", "s32.u32", "s32.s32")),
        *(_form(f"mul24.{half}.{kind}", 2) for half in ("lo", "hi") for kind in ("u32", "s32")),
        *(_form(f"bmsk.{mode}.b32", 2) for mode in ("clamp", "wrap")),
        *(_form(f"szext.{mode}.{kind}", 2) for mode in ("clamp", "wrap") for kind in ("u32", "s32")),
        *(_form(f"set.{name}.{to}.f32", 2) for name in ("lt", "geu") for to in ("u32", "f32")),
    ]
)


# zeros, infinities, NaN, the largest numbers of formats and their neighbours, and pairs of halves like these
_SPECIAL = (
    *(0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0x7F800001, 0xFF801000, 0x00000001, 0x80000001),
    *(0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F7F7FFF, 0x7F7F8000, 0xFF7F8000, 0x477FE000, 0x477FEFFF, 0x477FF000, 0xC77FF000),
    *(0x43E00000, 0x43E80000, 0xC3E80000, 0x47600000, 0x47680000, 0x33000000, 0xB3000000, 0x3F800000, 0xBF800000, 0x4F000000, 0xCF000000),
    *(0x7C007C00, 0xFC00FC00, 0x7E007E00, 0xFE00FE00, 0x7BFFFBFF, 0x80008000, 0x00010001, 0x03FF0400, 0x3C003C00, 0x7F807F80, 0x7F7FFF7F),
)


def draw(seed: int) -> Any:
    """Words for each thread: floats of all magnitudes that matter, halves, ties, and what is special."""
    generator = np.random.default_rng(seed)
    shape = ROWS, 4
    bits = generator.integers(0, 1 << 32, shape, dtype=np.uint64).astype(np.uint32)
    exponents = generator.integers(-32, 20, shape)
    wide = (generator.standard_normal(shape) * np.exp2(exponents)).astype(np.float32).view(np.uint32)
    keeps = generator.choice(
        np.array([0xFFFFFFFF, 0xFFFFE000, 0xFFFFF000, 0xFFFF8000, 0xFFFF0000, 0xFFF80000, 0xFFF00000], np.uint32), shape
    )
    special = generator.choice(np.array(_SPECIAL, np.uint32), shape)
    which = generator.integers(0, 8, shape)
    return np.select([which < 3, which < 6], [bits, wide & keeps], special)


def ptx(body: str) -> str:
    return _FRAME.replace("BODY", body)


def build(file: Path) -> None:
    """Assemble all forms; those that ptxas refuses are left out."""
    import triton

    ptxas = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    made: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        for name, body in FORMS.items():
            source, target = Path(folder, "form.ptx"), Path(folder, "form.cubin")
            source.write_text(ptx(body))
            told = subprocess.run([ptxas, "-arch=sm_90a", source, "-o", target], capture_output=True, text=True, check=False)
            if told.returncode:
                print(name, told.stderr.strip().splitlines()[0])
            else:
                made[name] = np.frombuffer(target.read_bytes(), np.uint8)
    np.savez_compressed(file, **made)
    print(len(made), "of", len(FORMS), "forms,", file.stat().st_size, "bytes")


def record(file: Path, results: Path, seed: int) -> None:
    """Launch all forms, and write what they left."""
    import cupy

    given = cupy.asarray(draw(seed))
    left: dict[str, Any] = {"seed": np.array(seed)}
    with np.load(file) as built, TemporaryDirectory() as folder:
        for index, name in enumerate(built.files):
            try:
                cubin = Path(folder, f"{index}.cubin")
                cubin.write_bytes(built[name].tobytes())
                out = cupy.zeros(ROWS, np.uint32)
                cupy.RawModule(path=str(cubin)).get_function("kernel")((ROWS // _BLOCK,), (_BLOCK,), (given, out))
                left[name] = cupy.asnumpy(out)
            except Exception as error:  # one form that fails leaves the others
                print(name, type(error).__name__, error, flush=True)
    np.savez_compressed(results, **left)
    print(len(left) - 1, "forms")


def execute(body: str, given: Any) -> Any:
    """Execute a form here."""
    from fastmma.triton.machine.kernel import Machine

    given, out = np.ascontiguousarray(given), np.zeros(len(given), np.uint32)
    machine = Machine(ptx(body), 0, "sm_90a")
    with np.errstate(all="ignore"):
        machine.run(
            (len(given) // _BLOCK, 1, 1), b"".join(address.to_bytes(8, "little") for address in (given.ctypes.data, out.ctypes.data))
        )
    return out


def compare(results: Path) -> None:
    """Print what differs from a recording."""
    from fastmma.host.errors import NotEmulatedError

    right, wrong, refused = 0, [], []
    with np.load(results) as recorded:
        given = draw(int(recorded["seed"]))
        for name in recorded.files:
            if name == "seed":
                continue
            try:
                found = execute(FORMS[name], given)
            except NotEmulatedError as error:
                refused.append(f"{name}: {error}")
                continue
            different = np.nonzero(found != recorded[name])[0]
            right += not different.size
            if different.size:
                row = int(different[0])
                words = " ".join(f"{word:08x}" for word in given[row])
                wrong.append(f"{name}: {different.size} of {found.size}, {words}: here {found[row]:08x}, the GPU {recorded[name][row]:08x}")
    print(*wrong, *refused, f"{right} forms equal, {len(wrong)} differ, {len(refused)} not executed", sep="\n")


def keep(results: Path) -> None:
    """Write a part of each form's results for the repository's test."""
    with np.load(results) as recorded:
        kept = {name: recorded[name][:: ROWS // 512] for name in recorded.files if name != "seed"}
        np.savez_compressed(KEPT, seed=recorded["seed"], **kept)


if __name__ == "__main__":
    if sys.argv[1] == "build":
        build(Path(sys.argv[2]))
    elif sys.argv[1] == "record":
        record(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1] == "keep":
        keep(Path(sys.argv[2]))
    else:
        compare(Path(sys.argv[2]))
