"""Would the GPU accept the call? torch's own checks of CUDA tensors, asked on tensors that hold nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import _meta_registrations as registrations
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_unflatten

from fastmma.host.bounded import Bounded
from fastmma.torch.recipes import B128, L128

_DEVICES = "torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9, or ROCm MI300+"
_NAMES = {torch.float32: "Float", torch.float64: "Double"}
WORD = 4  # bytes: columns of bytes begin at multiples of them
_HOPPER = (9, 0)
_THIN, _DEEP = 32, 128  # columns of the result, up to which, and k, from which on bytes may lie as they like
_accepted: Bounded[Any, bool] = Bounded()


def check_cuda(name: str, *args: Any) -> None:
    """Run torch's checks of a call as if its tensors were on a GPU; what passed once is not asked again.

    Raises
    ------
    RuntimeError, ValueError, NotImplementedError
        What torch raises.
    """
    leaves, spec = tree_flatten(args)
    key = (name, spec, *(_seen(leaf) for leaf in leaves))
    if key in _accepted:
        return
    check = getattr(registrations, name)  # called by name: through its operator, torch would log the error, too
    pairs = any(isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float8_e8m0fnu for leaf in leaves)
    with _disable_current_modes(), FakeTensorMode():
        check(*tree_unflatten([_on_cuda(leaf, pairs) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], spec))
    _accepted.keep(key, True)


def _seen(leaf: Any) -> Any:
    """Return what checks see of an argument."""
    return (leaf.dtype, leaf.shape, leaf.stride()) if isinstance(leaf, torch.Tensor) else leaf


def _on_cuda(tensor: torch.Tensor, pairs: bool) -> torch.Tensor:
    """A tensor that holds nothing; float4 pairs of MX products are counted twice, as the check counts their bytes for elements."""
    shape, stride = list(tensor.shape), list(tensor.stride())
    if pairs and tensor.dtype is torch.float4_e2m1fn_x2:
        along = stride.index(1)
        shape[along] *= 2
        stride = [step if place == along else 2 * step for place, step in enumerate(stride)]
    return torch.empty_strided(shape, stride, dtype=tensor.dtype, device="cuda")


def check_scaled(capability: tuple[int, int], name: str, *args: Any) -> None:
    """The checks of a scaled product, by the name of torch's function that has them, and those of a GPU's library."""
    if capability < (8, 9):
        raise RuntimeError(_DEVICES)
    check_cuda(name, *args)
    tensors = [leaf for leaf in tree_flatten(args)[0] if isinstance(leaf, torch.Tensor)]
    if tensors[0].dtype is tensors[1].dtype is torch.float8_e5m2:
        raise ValueError("Multiplication of two Float8_e5m2 matrices is not supported")
    if capability < (10, 0) and any(each.dtype in (torch.float8_e8m0fnu, torch.float4_e2m1fn_x2) for each in tensors):
        raise RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmulAlgoGetHeuristic`")


def check_bias(bias: torch.Tensor | None, out: torch.dtype) -> None:
    """The checks of a scaled product's bias, which only its CUDA kernel has."""
    if bias is None:
        return
    if out is torch.float32:
        raise RuntimeError("Bias is not supported when out_dtype is set to Float32")
    if bias.dtype not in (torch.float16, torch.bfloat16):
        raise RuntimeError(f"Bias must be BFloat16 or Half, but got {_NAMES.get(bias.dtype, bias.dtype)}")


def check_fast(fast: bool, recipes: Sequence[int]) -> None:
    """The check of a scaled product with fast accumulation, which cuBLAS has not for scales of 128 k."""
    block = "128x128" if B128 in recipes else "1x128" if L128 in recipes else ""
    if fast and block:
        raise RuntimeError(f"scaled_gemm doesn't support fast accum with {block} blockwise scaling")


def check_int_mm(capability: tuple[int, int], a: torch.Tensor, b: torch.Tensor) -> None:
    """The checks of torch._int_mm, which only its CUDA kernel has, and those of cuBLASLt: on Hopper, and the known ones of others."""
    for wrong, what in (
        (a.shape[0] <= 16, f"self.size(0) needs to be greater than 16, but got {a.shape[0]}"),
        (not a.shape[1] or a.shape[1] % 8, f"self.size(1) needs to be greater than 0 and a multiple of 8, but got {a.shape[1]}"),
        (not b.shape[1] or b.shape[1] % 8, f"mat2.size(1) needs to be greater than 0 and a multiple of 8, but got {b.shape[1]}"),
    ):
        if wrong:
            raise RuntimeError(what)
    left, right = _Bytes.of(a), _Bytes.of(b)
    aligned = not any(number % WORD for each in (left, right) for number in (each.lead, each.offset))
    if not aligned or (capability == _HOPPER and not _has_kernel(left, right)):
        (m, k), n = a.shape, b.shape[1]
        sides = f"transpose_mat1 {right.turned:d} transpose_mat2 {left.turned:d} m {n} n {m} k {k} mat1_ld {right.lead} mat2_ld {left.lead}"
        types = "abType 3 cType 10 computeType 72 scaleType 10"
        raise RuntimeError(f"CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling cublasLtMatmul with {sides} result_ld {n} {types}")


class _Bytes(NamedTuple):
    """A matrix of bytes as torch gives it to cuBLASLt: with gaps within rows and within columns it is copied before."""

    size: tuple[int, int]
    turned: bool  # whether its columns are contiguous
    lead: int
    offset: int

    @classmethod
    def of(cls, matrix: torch.Tensor) -> _Bytes:
        (rows, columns), (down, along) = matrix.shape, matrix.stride()
        if along == 1 and down >= columns:
            return cls((rows, columns), turned=False, lead=down, offset=matrix.storage_offset())
        if down == 1 and along >= rows:
            return cls((rows, columns), turned=True, lead=along, offset=matrix.storage_offset())
        return cls((rows, columns), turned=False, lead=columns, offset=0)


def _has_kernel(a: _Bytes, b: _Bytes) -> bool:
    """Tell whether cuBLASLt 13.1 has a kernel on Hopper for bytes that lie so; for all where the k of both are contiguous."""
    (m, k), n = a.size, b.size[1]
    thin, deep = n < _THIN, k >= _DEEP
    if not a.turned:
        return b.turned or thin or deep or m % 32 == 0
    if not b.turned:
        return thin or deep or m % 8 == 0
    return m % 4 == 0 and (thin or deep or (m % 8 == 0 and n % 32 == 0))
