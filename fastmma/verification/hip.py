"""Recording what an AMD GPU computes, by HIP's runtime and its compiler hipRTC: a program in C, which the machine's compiler makes.

No AMD GPU was at hand: the program was run against stand-ins of both libraries only.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import BackendError, TargetError
from fastmma.host.files import make_folder
from fastmma.isa.amd.table import first_name
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import instructions
from fastmma.isa.targets import architecture
from fastmma.verification.recordings import Recorded, save
from fastmma.verification.trials import Trial, draw, labels_of

PROGRAM = Path(__file__).with_name("programs") / "record_hip.c"
_ROCM, _COMPILER = "/opt/rocm", "cc"
_SECONDS = 600  # of one kernel, and of the compilation of the program
_BEFORE_MFMA = ("gfx908", "gfx90a")  # builtins of what these have keep the earlier names
# the types of a compiler's builtins: of A and B by format and registers, of C by format
_TYPES = {
    ("f32", 1): "float",
    ("f64", 1): "double",
    ("f16", 2): "half4",
    ("bf16", 1): "short2_",
    ("bf16", 2): "short4_",
    ("tf32", 2): "float2_",
    ("s8", 1): "int",
    ("s8", 2): "long",
    ("e4m3fnuz", 2): "long",
    ("e5m2fnuz", 2): "long",
}
_SCALARS = {"f32": "float", "f64": "double", "s32": "int"}
_SOURCE = """
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef short short2_ __attribute__((ext_vector_type(2)));
typedef short short4_ __attribute__((ext_vector_type(4)));
typedef float float2_ __attribute__((ext_vector_type(2)));
typedef {scalar} sums __attribute__((ext_vector_type({count})));
typedef {sums} result;

// one wave a block: {opcode}
extern "C" __global__ void run(const char* a, const char* b, const char* c, char* d)
{{
    const unsigned long lane = blockIdx.x * 64ul + threadIdx.x;
    {a} x;
    {b} y;
    result z;
    __builtin_memcpy(&x, a + lane * sizeof x, sizeof x);
    __builtin_memcpy(&y, b + lane * sizeof y, sizeof y);
    __builtin_memcpy(&z, c + lane * sizeof z, sizeof z);
    z = __builtin_amdgcn_{builtin}(x, y, z, 0, 0, 0);
    __builtin_memcpy(d + lane * sizeof z, &z, sizeof z);
}}
"""


def is_recorded(ins: Instruction) -> bool:
    """Tell whether there is a builtin of an instruction, with these types."""
    types = all((operand.format.name, operand.registers) in _TYPES for operand in (ins.operands["a"], ins.operands["b"]))
    return ins.op == "v_mfma" and "f8f6f4" not in ins.opcode and " " not in ins.opcode and types


def kernel_source(ins: Instruction) -> str:
    """HIP C++ of a kernel that executes an instruction once on the registers of each wave.

    Examples
    --------
    >>> from fastmma.isa.amd.table import read
    >>> [line for line in kernel_source(read("v_mfma_f32_32x32x4_2b_f16")).splitlines() if "z = " in line]
    ['    z = __builtin_amdgcn_mfma_f32_32x32x4f16(x, y, z, 0, 0, 0);']
    """
    a, b, d = (ins.operands[name] for name in "abd")
    earlier = set(_BEFORE_MFMA) & set(ins.targets)
    builtin = (first_name(ins) if earlier else ins.opcode).removeprefix("v_")
    scalar = _SCALARS[ins.dtype]
    return _SOURCE.format(
        scalar=scalar,
        count=d.registers,
        sums="sums" if d.registers > 1 else scalar,
        opcode=ins.opcode,
        a=_TYPES[a.format.name, a.registers],
        b=_TYPES[b.format.name, b.registers],
        builtin=builtin,
    )


def compilation(program: Path) -> list[str]:
    """List the command that compiles the program: ``CC`` names the compiler, and ``ROCM_PATH`` the folder of ROCm."""
    rocm = os.environ.get("ROCM_PATH") or _ROCM
    libraries = [f"-L{rocm}/lib", f"-Wl,-rpath,{rocm}/lib", "-lamdhip64", "-lhiprtc"]
    return [os.environ.get("CC") or _COMPILER, "-O1", str(PROGRAM), f"-I{rocm}/include", *libraries, "-o", str(program)]


def _answer(command: Sequence[str]) -> str:
    """Run a program; return what it prints."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise BackendError(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        raise BackendError(f"{' '.join(command)}: {done.stderr.strip() or f'status {done.returncode}'}")
    return done.stdout


class Hip:
    """The first AMD GPU of the machine.

    Parameters
    ----------
    folder : Path
        For the program and the files that it reads and writes.
    program : sequence of str, optional
        The command of the program; compiled where it is left out.

    Raises
    ------
    BackendError
        Here or by the methods: what the compiler or the program says.
    """

    def __init__(self, folder: Path, program: Sequence[str] | None = None) -> None:
        self._folder = folder
        if program is None:
            program = [str(folder / "record_hip")]
            _answer(compilation(Path(program[0])))
        self._program = program
        said = _answer(self._program).splitlines()
        if len(said) < 2 or not said[1]:
            raise BackendError("HIP does not say which architecture the GPU has")
        self.name, self.processor = said[:2]
        self.target = self.processor.partition(":")[0]

    def multiply(self, ins: Instruction, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> NDArray[Any]:
        """Execute an instruction once on the registers (waves, 64, registers) of each wave."""
        source, *files = (self._folder / name for name in ("run.hip", "a", "b", "c", "d"))
        source.write_text(kernel_source(ins), encoding="utf-8")
        for file, array in zip(files, (a, b, c), strict=False):
            file.write_bytes(np.ascontiguousarray(array).tobytes())
        _answer([*self._program, str(source), str(len(c)), str(ins.lanes), *map(str, files)])
        return np.frombuffer(files[-1].read_bytes(), c.dtype).reshape(c.shape)


def requests(target: str, seed: int) -> Iterator[Trial]:
    """Everything that is recorded of a target.

    Raises
    ------
    TargetError
        If the GPU is of no architecture that fastmma knows.
    """
    architecture(target)
    for ins in instructions(target):
        if isinstance(ins, Instruction) and is_recorded(ins):
            yield draw(ins, labels_of(ins), 1, seed)


def record(
    folder: Path, *, seed: int = 0, program: Sequence[str] | None = None, progress: Callable[[int, int], None] | None = None
) -> Path:
    """Execute every dense v_mfma of the AMD GPU in the machine on adversarial inputs, and write what came out.

    Parameters
    ----------
    folder : Path
        A folder named after the target is made in it, with ``v_mfma.npz`` and ``manifest.json``; `fastmma verify --folder` replays it.
    seed : int
    program : sequence of str, optional
        The command of the program in C; by default it is compiled.
    progress : callable, optional
        Called with the number of trials done and their total.

    Returns
    -------
    Path
        The manifest.

    Raises
    ------
    BackendError
        If there is no AMD GPU, no compiler or no ROCm, or HIP's libraries refuse.
    TargetError
        If fastmma does not know its architecture.

    Examples
    --------
    >>> record(Path("golden"))  # doctest: +SKIP
    """
    with tempfile.TemporaryDirectory() as place:
        gpu = Hip(Path(place), program)
        todo, found = list(requests(gpu.target, seed)), []
        if not todo:
            raise TargetError(f"{gpu.target} has no v_mfma that is recorded")
        for done, trial in enumerate(todo):
            ins = trial.instruction
            assert isinstance(ins, Instruction)
            found.append(Recorded(trial, gpu.multiply(ins, *(trial.operands[name] for name in "abc"))))
            if progress is not None:
                progress(done + 1, len(todo))
    make_folder(folder / gpu.target)
    return save(folder / gpu.target, {"v_mfma.npz": found}, {"gpu": gpu.name, "driver": "HIP", "target": gpu.target, "seed": seed})
