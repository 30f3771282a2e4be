"""Products of tensors on a GPU: the emulator's CUDA kernels read them where they are, on torch's stream, and leave results there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from fastmma.backends.gpu import device
from fastmma.backends.gpu.resident import Resident
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.resident import resident_product
from fastmma.torch.arrays import CODES


def available() -> bool:
    """Tell whether there is what runs kernels on tensors of a GPU."""
    return device.available()


def resides(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor lies on a GPU."""
    found: bool = tensor.is_cuda
    return found


@cache
def backend() -> Resident:
    """Return what multiplies in a GPU's memory."""
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
    matrices = a.dim() == 2
    with on_stream(a.device):
        x, y = (codes_of(each[None] if matrices else each) for each in (a, b))
        added = None if c is None else array_of(c[None] if matrices else c)
        row = None if bias is None else array_of(bias)
        result = tensor_of(resident_product(backend(), plan, x, y, alpha=alpha, beta=beta, c=added, bias=row), out)
    return result[0] if matrices else result


@contextmanager
def on_stream(where: torch.device) -> Iterator[None]:
    """CuPy on a device, on torch's stream there, with memory from torch's own allocator."""
    import cupy

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


def codes_of(tensor: torch.Tensor) -> Any:
    """The memory of a tensor as an array of codes."""
    return array_of(tensor.view(CODES[tensor.dtype.itemsize])).view(np.dtype(f"u{tensor.dtype.itemsize}"))


def array_of(tensor: torch.Tensor) -> Any:
    """The memory of a tensor of a dtype that CuPy has."""
    import cupy

    return cupy.from_dlpack(tensor.detach())


def tensor_of(codes: Any, dtype: torch.dtype) -> torch.Tensor:
    """An array of codes as a tensor."""
    return torch.from_dlpack(codes.view(np.dtype(f"i{codes.itemsize}"))).view(dtype)
