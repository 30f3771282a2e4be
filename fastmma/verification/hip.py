"""Recording what an AMD GPU computes, by HIP's runtime and its compiler hipRTC: no library of Python is needed.

No AMD GPU was at hand: this was run against stand-ins of both libraries only.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
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

_RUNTIME, _COMPILER = ("libamdhip64.so", "amdhip64.dll"), ("libhiprtc.so", "hiprtc.dll")
_TO_DEVICE, _TO_HOST = 1, 2  # hipMemcpyKind
_PROPERTIES_BYTES = 4096  # at least those of hipDeviceProp_tR0600
_PROCESSOR = re.compile(rb"gfx[0-9a-f]+(?::[a-z]+[+-])*")  # gcnArchName among its bytes, such as gfx942:sramecc+:xnack-
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


def _load(names: tuple[str, ...]) -> Any:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise BackendError(f"there is no {names[0]} on this machine: HIP's runtime and hipRTC are needed, which ROCm brings")


class Hip:
    """The first AMD GPU of the machine.

    Parameters
    ----------
    runtime, compiler
        HIP's runtime and hipRTC; those of the machine where they are left out.

    Raises
    ------
    BackendError
        Here or by the methods: what a library answers, or that there is none.
    """

    def __init__(self, runtime: Any = None, compiler: Any = None) -> None:
        self._runtime, self._compiler = runtime or _load(_RUNTIME), compiler or _load(_COMPILER)
        self._call(self._runtime, "hipInit", 0)
        properties = ctypes.create_string_buffer(_PROPERTIES_BYTES)
        self._call(self._runtime, "hipGetDevicePropertiesR0600", properties, 0)
        self.name = properties.value.decode()
        found = _PROCESSOR.search(properties.raw)
        if found is None:
            raise BackendError(f"HIP does not say which architecture {self.name} has")
        self.processor = found[0].decode()
        self.target = self.processor.partition(":")[0]

    @staticmethod
    def _call(library: Any, name: str, *values: Any) -> None:
        status = getattr(library, name)(*values)
        if status:
            raise BackendError(f"{name} answers {status}")

    def compile(self, source: str) -> bytes:
        """Machine code of HIP C++."""
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._call(self._compiler, "hiprtcCreateProgram", ctypes.byref(program), source.encode(), b"run.hip", 0, None, None)
        options = (ctypes.c_char_p * 1)(f"--offload-arch={self.processor}".encode())
        self._call(self._compiler, "hiprtcCompileProgram", program, 1, options)
        self._call(self._compiler, "hiprtcGetCodeSize", program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        self._call(self._compiler, "hiprtcGetCode", program, code)
        self._call(self._compiler, "hiprtcDestroyProgram", ctypes.byref(program))
        return code.raw

    def _upload(self, array: NDArray[Any]) -> ctypes.c_void_p:
        place = ctypes.c_void_p()
        self._call(self._runtime, "hipMalloc", ctypes.byref(place), ctypes.c_size_t(array.nbytes))
        self._call(self._runtime, "hipMemcpy", place, array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes), _TO_DEVICE)
        return place

    def multiply(self, ins: Instruction, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> NDArray[Any]:
        """Execute an instruction once on the registers (waves, 64, registers) of each wave."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call(self._runtime, "hipModuleLoadData", ctypes.byref(module), self.compile(kernel_source(ins)))
        self._call(self._runtime, "hipModuleGetFunction", ctypes.byref(function), module, b"run")
        d = np.zeros_like(np.ascontiguousarray(c))
        places = [self._upload(np.ascontiguousarray(each)) for each in (a, b, c, d)]
        arguments = (ctypes.c_void_p * len(places))(*(ctypes.cast(ctypes.byref(place), ctypes.c_void_p) for place in places))
        grid, block = (len(c), 1, 1), (ins.lanes, 1, 1)
        self._call(self._runtime, "hipModuleLaunchKernel", function, *grid, *block, 0, None, arguments, None)
        self._call(self._runtime, "hipMemcpy", d.ctypes.data_as(ctypes.c_void_p), places[-1], ctypes.c_size_t(d.nbytes), _TO_HOST)
        for place in places:
            self._call(self._runtime, "hipFree", place)
        self._call(self._runtime, "hipModuleUnload", module)
        return d


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


def record(folder: Path, *, seed: int = 0, hip: Hip | None = None, progress: Callable[[int, int], None] | None = None) -> Path:
    """Execute every dense v_mfma of the AMD GPU in the machine on adversarial inputs, and write what came out.

    Parameters
    ----------
    folder : Path
        A folder named after the target is made in it, with ``v_mfma.npz`` and ``manifest.json``; `fastmma verify --folder` replays it.
    seed : int
    hip : Hip, optional
        By default that of the machine.
    progress : callable, optional
        Called with the number of trials done and their total.

    Returns
    -------
    Path
        The manifest.

    Raises
    ------
    BackendError
        If there is no AMD GPU, or HIP's libraries refuse.
    TargetError
        If fastmma does not know its architecture.

    Examples
    --------
    >>> record(Path("golden"))  # doctest: +SKIP
    """
    gpu = hip or Hip()
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
