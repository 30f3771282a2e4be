"""What a GPU computes for single instructions of PTX, on numbers drawn here: cubins built without a GPU, launched there.

``python -m tests.reference.ptx_forms build FILE`` assembles one kernel for each form with the ptxas that Triton brings along. ``python
ptx_forms.py record FILE RESULTS SEED`` on the machine with the GPU, which needs this module, NumPy and CuPy, writes every result.
``python -m tests.reference.ptx_forms compare RESULTS`` executes the forms here, and prints which differ; ``keep RESULTS`` writes a part
for tests/integrations/triton/test_ptx_forms.py, and ``page`` puts the table of forms into docs/triton.md.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

KEPT = Path(__file__).parents[1] / "integrations" / "triton" / "recordings" / "forms_h200.npz"
ROWS = 3 << 10  # threads, each with four words
_BLOCK = 128
_FRAME = """
.version 8.5
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 .ptr .global p0, .param .u64 .ptr .global p1)
.reqntid THREADS
{
 .reg .pred %p<9>;
 .reg .b16 %rs<9>;
 .reg .b32 %r<19>;
 .reg .b64 %rd<9>;
 ld.param.b64 %rd1, [p0];
 ld.param.b64 %rd2, [p1];
 mov.u32 %r1, %tid.x;
 mov.u32 %r6, %ctaid.x;
 mad.lo.u32 %r8, %r6, THREADS, %r1;
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
# what inline assembly of kernels may contain, by kind; what stands in braces is one of several
FAMILIES: dict[str, tuple[str, ...]] = {
    "f32": (
        "{add,sub,mul,div}{.rn,.rz,.rm,.rp}{,.ftz}.f32",
        "{add,mul}{,.ftz}.sat.f32",
        "fma{.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32",
        "{rcp,sqrt}{.rn}{,.ftz}.f32",
        "{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.f32",
        "{abs,neg}{,.ftz}.f32",
        "copysign.f32",
    ),
    "f32, by the special function unit": (
        "{ex2,lg2,rsqrt,sqrt,rcp}.approx.ftz.f32",
        "{ex2,lg2,rsqrt,sqrt,sin,cos,tanh}.approx.f32",
        "{sin,cos}.approx.ftz.f32",
        "div{.full,.approx}.f32",
        "div.approx.ftz.f32",
    ),
    "f16 and bf16, alone and in pairs": (
        "{add,sub,mul}{,.rn}.{f16,bf16}{,x2}",
        "{add,sub,mul}.ftz{,.sat}.f16{,x2}",
        "fma.rn{,.relu}.{f16,bf16}{,x2}",
        "fma.rn.ftz{,.relu,.sat}.f16{,x2}",
        "{min,max}{,.NaN}{,.xorsign.abs}.{f16,bf16}{,x2}",
        "{min,max}.ftz.f16{,x2}",
        "{abs,neg}.{f16,bf16}{,x2}",
        "ex2.approx.{f16,ftz.bf16}{,x2}",
        "tanh.approx.{f16,bf16}{,x2}",
    ),
    "conversions": (
        "cvt{.rn,.rz}{,.relu}{,.satfinite}.{f16,bf16}.f32",
        "cvt{.rn,.rz}{,.relu}{,.satfinite}.{f16,bf16}x2.f32",
        "cvt{.rn,.rz}{,.relu}.tf32.f32",
        "cvt.rna{,.satfinite}.tf32.f32",
        "cvt.rn.satfinite{,.relu}.{e4m3,e5m2}x2.{f32,f16x2}",
        "cvt.rn{,.relu}.f16x2.{e4m3,e5m2}x2",
        "cvt.f32.{f16,bf16}",
        "cvt{.rm,.rp}.f16.f32",
        "cvt{,.ftz}.sat.f32.f32",
        "cvt.rn.sat.f16.f32",
        "cvt{.rni,.rzi,.rmi,.rpi}{,.ftz}.f32.f32",
        "cvt{.rni,.rzi,.rmi,.rpi}.f16.f16",
        "cvt{.rni,.rzi,.rmi,.rpi}.{s32,u32}.f32",
        "cvt.rzi.ftz.{s32,u32}.f32",
        "cvt.rzi.{s16,u16,s32,u32}.{f16,f32}",
        "cvt{.rn,.rz,.rm,.rp}.f32.{s32,u32}",
        "cvt.rn.{f16,bf16}.{s32,u32,s16,u16}",
        "cvt.pack.sat.{u16,s16}.s32",
        "cvt.pack.sat.{u8,s8}.s32.b32",
    ),
    "integers": (
        "{add,sub,mul.lo,mul.hi,div,rem,min,max}.{s32,u32}",
        "{mad.lo,mad.hi}.{s32,u32}",
        "{add,sub}.sat.s32",
        "{abs,neg}.s32",
        "sad.{s32,u32}",
        "{min,max}.relu.s32",
        "{min,max}.{s16x2,u16x2}",
        "{min,max}.relu.s16x2",
        "add.{s16x2,u16x2}",
        "{dp4a.,dp2a.lo.,dp2a.hi.}{u32,s32}.{u32,s32}",
        "mul24{.lo,.hi}.{u32,s32}",
        "slct.s32.s32",
    ),
    "bits": (
        "{and,or,xor}.b32",
        "{not,cnot}.b32",
        "{popc,clz,brev}.b32",
        "bfind{,.shiftamt}.{u32,s32}",
        "{shl.b32,shr.u32,shr.s32}",
        "prmt.b32{,.f4e,.b4e,.rc8,.ecl,.ecr,.rc16}",
        "shf{.l,.r}{.wrap,.clamp}.b32",
        "bfe.{u32,s32}",
        "bfi.b32",
        "lop3.b32",
        "bmsk{.clamp,.wrap}.b32",
        "szext{.clamp,.wrap}.{u32,s32}",
    ),
    "comparisons": (
        "set.{lt,le,gt,ge,eq,ne,ltu,leu,gtu,geu,equ,neu,num,nan}.{u32,f32}.f32",
        "set.{lt,geu}.ftz.u32.f32",
        "set.{lt,le,gt,ge,eq,ne}.u32.s32",
        "set.{lo,ls,hi,hs}.u32.u32",
        "testp.{finite,infinite,number,notanumber,normal,subnormal}.f32",
    ),
}
_ONE = {
    "rcp",
    "sqrt",
    "rsqrt",
    "abs",
    "neg",
    "ex2",
    "lg2",
    "sin",
    "cos",
    "tanh",
    "cvt",
    "not",
    "cnot",
    "popc",
    "clz",
    "brev",
    "bfind",
    "testp",
}
_THREE = {"fma", "mad", "sad", "dp4a", "dp2a", "slct", "prmt", "shf", "bfe", "lop3"}
_HALVES = {"f16", "bf16", "s16", "u16", "e4m3x2", "e5m2x2"}  # types in registers of 16 bits
_BRACES = re.compile(r"\{([^{}]*)\}")


def expand(pattern: str) -> list[str]:
    """List the opcodes of a pattern.

    Examples
    --------
    >>> expand("cvt{.rn,.rz}{,.relu}.tf32.f32")
    ['cvt.rn.tf32.f32', 'cvt.rn.relu.tf32.f32', 'cvt.rz.tf32.f32', 'cvt.rz.relu.tf32.f32']
    """
    found = _BRACES.search(pattern)
    if found is None:
        return [pattern]
    return [one for part in found[1].split(",") for one in expand(pattern[: found.start()] + part + pattern[found.end() :])]


def make_body(opcode: str) -> str:
    """Return statements that compute %r9 of the words %r2 to %r5, or of their lower halves."""
    name, *parts = opcode.split(".")
    kinds = [part for part in parts if re.fullmatch(r"(?:[bsu]\d+|t?f\d+|bf16|e\dm\d)(?:x2)?", part)]
    target, source = kinds[0], kinds[-1]
    number = 1 if name in _ONE else 3 if name in _THREE else 4 if name == "bfi" else 2
    if name == "cvt" and (source == "b32" or "pack" in parts or (target.endswith("x2") and source == "f32")):
        number, source = (3 if source == "b32" else 2), "s32" if "pack" in parts else source
        target = "b32" if "pack" in parts else target
    first = "%rs" if source in _HALVES else "%r"
    operands = [f"{first}{index + (1 if first == '%rs' else 2)}" for index in range(number)]
    before = ""
    if name == "lop3":
        operands.append("0xCA")
    if name in ("bfe", "bfi", "bmsk", "szext"):  # places and lengths to 63, beyond which the results are not defined alike
        before = f"and.b32 %r10, {operands[-1]}, 63; "
        operands[-1] = "%r10"
    if name == "testp":
        return f"{opcode} %p1, {operands[0]}; selp.u32 %r9, 1, 0, %p1;"
    if target in _HALVES:
        return f"{before}{opcode} %rs4, {', '.join(operands)}; cvt.u32.u16 %r9, %rs4;"
    return f"{before}{opcode} %r9, {', '.join(operands)};"


FORMS = {opcode: make_body(opcode) for patterns in FAMILIES.values() for pattern in patterns for opcode in expand(pattern)}
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


def choose(rows: Any) -> Any:
    """Take the threads that the repository keeps."""
    return rows[:: ROWS // (2 * _BLOCK)]


def ptx(body: str, threads: int = _BLOCK) -> str:
    return _FRAME.replace("BODY", body).replace("THREADS", str(threads))


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
    """Execute here what makes %r9 of the four words of each thread, %r2 to %r5."""
    from fastmma.triton.machine.kernel import Machine

    given, out = np.ascontiguousarray(given), np.zeros(len(given), np.uint32)
    threads = min(_BLOCK, len(given))
    machine = Machine(ptx(body, threads), 0, "sm_90a")
    with np.errstate(all="ignore"):
        machine.run(
            (len(given) // threads, 1, 1), b"".join(address.to_bytes(8, "little") for address in (given.ctypes.data, out.ctypes.data))
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


HEAD = "| kind | instructions |\n| --- | --- |\n"


def tabulate() -> str:
    """Return the table of docs/triton.md."""
    return HEAD + "".join(f"| {kind} | {', '.join(f'`{one}`' for one in patterns)} |\n" for kind, patterns in FAMILIES.items())


def keep(results: Path) -> None:
    """Write a part of each form's results for the repository's test."""
    with np.load(results) as recorded:
        kept = {name: choose(recorded[name]) for name in recorded.files if name != "seed"}
        np.savez_compressed(KEPT, seed=recorded["seed"], **kept)


if __name__ == "__main__":
    if sys.argv[1] == "build":
        build(Path(sys.argv[2]))
    elif sys.argv[1] == "record":
        record(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1] == "page":
        from tools.pages import fill

        fill("forms", tabulate())
    elif sys.argv[1] == "keep":
        keep(Path(sys.argv[2]))
    else:
        compare(Path(sys.argv[2]))
