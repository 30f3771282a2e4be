"""Products of tensors on a GPU: the emulator's CUDA kernels read them where they are, on torch's stream, and leave results there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._pytree import tree_map_only

from fastmma.backends.gpu import device
from fastmma.backends.gpu.resident import Resident
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.resident import resident_product
from fastmma.torch.arrays import CODES, DTYPES


def available() -> bool:
    """Whether there is what runs kernels on tensors of a GPU."""
    return device.available()


def described(tensor: torch.Tensor) -> NDArray[Any]:
    """An array of the dtype, the shape, the strides and the alignment of a tensor, whose elements are nobody's."""
    dtype, offset = DTYPES[tensor.dtype], tensor.data_ptr() % 16
    memory = np.empty(64, np.uint8)
    start = -memory.ctypes.data % 16 + offset
    first = memory[start : start + dtype.itemsize].view(dtype)
    strides = tuple(step * dtype.itemsize for step in tensor.stride())
    return np.lib.stride_tricks.as_strided(first, tuple(tensor.shape), strides, writeable=False)


@cache
def _backend() -> Resident:
    return Resident(device)


def multiplied(
    plan: GemmPlan,
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.dtype,
    *,
    alpha: float = 1.0,
    beta: float | None = None,
    c: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """A product of tensors (M, K) and (K, N), or stacks of them, on one GPU, by a plan; c and a bias are float32."""
    import cupy

    matrices = a.dim() == 2
    with _on_stream(cupy, a.device):
        x, y = (_codes(cupy, each[None] if matrices else each) for each in (a, b))
        added = None if c is None else _numbers(cupy, c[None] if matrices else c)
        row = None if bias is None else _numbers(cupy, bias)
        codes = resident_product(_backend(), plan, x, y, alpha=alpha, beta=beta, c=added, bias=row)
        result = torch.from_dlpack(codes.view(np.dtype(f"i{codes.itemsize}"))).view(out)
    return result[0] if matrices else result


def through_main_memory(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The handler of an operator whose tensors on a GPU are copied, as it reads them in main memory; the GPU multiplies."""

    @wraps(handler)
    def wrapped(run: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        where = next((each.device for each in args if isinstance(each, torch.Tensor) and each.is_cuda), None)
        if where is None or not available():
            return handler(run, name, *args, **kwargs)
        given, named = tree_map_only(torch.Tensor, torch.Tensor.cpu, (args, kwargs))
        return handler(run.by("cupy-emulate"), name, *given, **named).to(where)

    return wrapped


@contextmanager
def _on_stream(cupy: Any, where: torch.device) -> Iterator[None]:
    """CuPy on a device, on torch's stream there, with memory from torch's own allocator."""

    def allocated(size: int) -> Any:
        memory = torch.empty(size, dtype=torch.uint8, device=where)
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(memory.data_ptr(), size, memory, where.index), 0)

    stream = _Stream(torch.cuda.current_stream(where).cuda_stream)
    with cupy.cuda.Device(where.index), cupy.cuda.Stream.from_external(stream), cupy.cuda.using_allocator(allocated):
        yield


class _Stream(NamedTuple):
    """A stream as CuPy takes those of others."""

    address: int

    def __cuda_stream__(self) -> tuple[int, int]:
        """The version of the protocol, and the stream."""
        return 0, self.address


def _codes(cupy: Any, tensor: torch.Tensor) -> Any:
    """The memory of a tensor as an array of codes."""
    found = cupy.from_dlpack(tensor.detach().view(CODES[tensor.dtype.itemsize]))
    return found.view(np.dtype(f"u{tensor.dtype.itemsize}"))


def _numbers(cupy: Any, tensor: torch.Tensor) -> Any:
    """The memory of a tensor of float32."""
    return cupy.from_dlpack(tensor.detach())
