"""The GPU in the machine, through CuPy: what it can execute, modules and launches. CuPy is imported only when asked for."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.gpu.ptx import ENTRY
from fastmma.host.errors import BackendError, TargetError
from fastmma.isa.instruction import Instruction
from fastmma.isa.targets import NVIDIA, TARGETS, architecture

# a block has that much shared memory without asking for more
_STATIC_SHARED_BYTES = 48 * 1024
SPECIFIC = "#define WARPGROUP 1\n"  # in source that is for one architecture
_ASYNCHRONOUS_COPIES = 80  # the compute capability that has them
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


@cache
def _cupy() -> Any:
    """The cupy module, with a usable device.

    Raises
    ------
    BackendError
        If CuPy is not installed or there is no GPU.
    """
    try:
        import cupy
    except ImportError as error:
        raise BackendError(
            f"the GPU backends need CuPy, which cannot be imported here ({error}); fastmma[cuda12] or [cuda13] has it"
        ) from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendError(f"the GPU backends need an NVIDIA GPU, and there is none ({error})") from None
    if count == 0:
        raise BackendError("the GPU backends need an NVIDIA GPU, and there is none")
    return cupy


def available() -> bool:
    """Tell whether there is a GPU that CuPy can use."""
    try:
        _cupy()
    except BackendError:
        return False
    return True


@cache
def native_target() -> str:
    """The most specific target of the GPU in the machine, for example ``"sm_90a"``.

    Raises
    ------
    BackendError
        If there is no GPU, or its architecture is not in the table.
    """
    capability = _cupy().cuda.Device().compute_capability
    found = next((row.usual for row in NVIDIA if row.capability == divmod(int(capability), 10)), None)
    if found is None:
        raise BackendError(f"the GPU is of architecture sm_{capability}, which is not in the table")
    return found


def executes(ins: Instruction) -> bool:  # noqa: ARG001 - as a machine has it
    """Tell whether kernels may use an instruction of `native_target`: they copy to shared memory as sm_80 and later do."""
    return int(_cupy().cuda.Device().compute_capability) >= _ASYNCHRONOUS_COPIES


def name() -> str:
    """The name of the GPU in the machine."""
    found: str = _cupy().cuda.runtime.getDeviceProperties(_cupy().cuda.Device().id)["name"].decode()
    return found


def executable_targets() -> tuple[str, ...]:
    """The targets that the GPU in the machine executes: its own architecture in every variant."""
    native = architecture(native_target())
    return tuple(target for target in TARGETS if architecture(target) == native)


def check_target(target: str) -> None:
    """Ask for a GPU that executes the target.

    Raises
    ------
    BackendError, TargetError
        If there is no GPU, or it is not the named one: code for an older architecture would run, but with this GPU's arithmetic.
    """
    if target not in executable_targets():
        raise TargetError(f"the GPU here executes {', '.join(executable_targets())}, not {target}")


def to_device(array: NDArray[Any]) -> Any:
    """A copy in GPU memory, contiguous and in the machine's byte order; what lies there contiguous already is not copied."""
    if is_device_array(array):
        return _cupy().ascontiguousarray(array)
    return _cupy().asarray(np.asarray(array, array.dtype.newbyteorder("="), order="C"))


def empty(shape: tuple[int, ...], dtype: Any) -> Any:
    """Uninitialised GPU memory."""
    return _cupy().empty(shape, dtype=dtype)


def to_host(array: Any) -> NDArray[Any]:
    """A copy in main memory."""
    host: NDArray[Any] = _cupy().asnumpy(array)
    return host


def copy_to_host(array: Any, out: NDArray[Any]) -> None:
    """Elements to an array in main memory of the same shape; at once where it is contiguous and of the same dtype."""
    if out.flags.c_contiguous and out.dtype == array.dtype:
        array.get(out=out)
    else:
        out[...] = to_host(array)


def is_device_array(array: Any) -> bool:
    """Tell whether an array is CuPy's, without importing CuPy."""
    module: str = type(array).__module__
    return module == "cupy" or module.startswith("cupy.")


def place() -> int:
    """The number of the GPU that arrays are sent to."""
    found: int = _cupy().cuda.Device().id
    return found


def holds(array: Any) -> bool:
    """Tell whether an array lies in GPU memory."""
    return is_device_array(array)


@lru_cache(4096)
def function(text: str) -> Any:
    """The kernel of some PTX text, assembled by the driver and loaded.

    Raises
    ------
    BackendError
        If the driver refuses it.
    """
    cupy = _cupy()
    module = cupy.cuda.function.Module()
    try:
        module.load(text.encode())
    except cupy.cuda.driver.CUDADriverError as error:
        raise BackendError(f"the driver does not take the PTX: {error}") from None
    return module.get_function(ENTRY)


def _pass(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Kernel arguments: integers as 64-bit ones, None as a null pointer."""
    return tuple(np.uint64(0 if each is None else each) if not is_device_array(each) else each for each in arguments)


def launch(text: str, grid: tuple[int, int], threads: int, arguments: tuple[Any, ...], shared_bytes: int = 0) -> None:
    """Run a kernel and wait for it. Integers are passed as 64-bit ones; None as a null pointer."""
    kernel = function(text)
    if shared_bytes > _STATIC_SHARED_BYTES:
        _cupy().cuda.driver.funcSetAttribute(kernel.ptr, _MAX_DYNAMIC_SHARED, shared_bytes)
    kernel((*grid, 1), (threads, 1, 1), _pass(arguments), shared_mem=shared_bytes)
    _cupy().cuda.Device().synchronize()


@lru_cache(4096)
def _module(text: str) -> Any:
    """CUDA C++ text as a module, which NVRTC compiles when the first kernel is asked for."""
    return _cupy().RawModule(code=text, options=("--std=c++17",))


@lru_cache(4096)
def _specific_module(text: str) -> Any:
    """CUDA C++ text that uses instructions of this GPU's architecture alone, compiled by NVRTC, which CuPy asks for code of the base.

    Raises
    ------
    BackendError
        If it does not compile.
    """
    from cupy_backends.cuda.libs import nvrtc

    program = nvrtc.createProgram(text, "fastmma.cu", (), ())
    try:
        nvrtc.compileProgram(program, ("--std=c++17", f"--gpu-architecture={native_target()}"))
        module = _cupy().cuda.function.Module()
        module.load(nvrtc.getCUBIN(program))
    except nvrtc.NVRTCError as error:
        raise BackendError(f"NVRTC does not compile the emulator for this GPU: {nvrtc.getProgramLog(program) or error}") from None
    finally:
        nvrtc.destroyProgram(program)
    return module


@lru_cache(4096)
def _compile(text: str, entry: str, shared_bytes: int) -> Any:
    """A kernel of some CUDA C++ text, compiled for the GPU by NVRTC."""
    cupy = _cupy()
    if SPECIFIC in text:
        kernel = _specific_module(text).get_function(entry)
        if shared_bytes > _STATIC_SHARED_BYTES:
            cupy.cuda.driver.funcSetAttribute(kernel.ptr, _MAX_DYNAMIC_SHARED, shared_bytes)
        return kernel
    try:
        kernel = _module(text).get_function(entry)
    except cupy.cuda.compiler.CompileException as error:
        raise BackendError(f"NVRTC does not compile the emulator for this GPU: {error}") from None
    if shared_bytes > _STATIC_SHARED_BYTES:
        kernel.max_dynamic_shared_size_bytes = shared_bytes
    return kernel


def run(text: str, entry: str, blocks: int, threads: int, arguments: tuple[Any, ...], shared_bytes: int = 0) -> None:
    """Run a kernel of some CUDA C++ text, without waiting for it. Integers are passed as 64-bit ones; None as a null pointer.

    Raises
    ------
    BackendError
        If it does not compile.
    """
    _compile(text, entry, shared_bytes)((blocks, 1, 1), (threads, 1, 1), _pass(arguments), shared_mem=shared_bytes)
