"""torch's plain products: each operator as a function of tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from fastmma.torch import vectors
from fastmma.torch.checks import check_int_mm
from fastmma.torch.emulation import Emulation
from fastmma.torch.plans import UnknownError


def mm(run: Emulation, name: str, a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None) -> Tensor:
    """``a @ b``."""
    return vectors.thin(run, name, a, b) if vectors.are_thin(run, a, b) else run.product(name, a, b, out_dtype=out_dtype)


def mv(run: Emulation, name: str, a: Tensor, x: Tensor) -> Tensor:
    """A matrix times a vector, which cuBLAS is given as a matrix of one column; for float32 it has other kernels."""
    if a.dtype is torch.float32:
        return vectors.product(run, name, a, x)
    return run.product(name, a, x[:, None])[:, 0]


def addmv(run: Emulation, name: str, y: Tensor, a: Tensor, x: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * y + alpha * a @ x``."""
    if a.dtype is torch.float32:
        return vectors.product(run, name, a, x, y, alpha, beta)
    column = y.expand(a.shape[0])[:, None]
    return addmm(run, name, column, a, x[:, None], beta=beta, alpha=alpha)[:, 0]


def addmm(
    run: Emulation, name: str, c: Tensor, a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """``beta * c + alpha * a @ b``; a c of one dimension without gaps is the bias of cuBLASLt's epilogue, where beta is 1."""
    if vectors.are_thin(run, a, b):
        return vectors.thin(run, name, a, b, c, float(alpha), float(beta))
    if beta == 0:
        return run.product(name, a, b, out_dtype=out_dtype, alpha=float(alpha))
    if c.dim() == 1 and beta == 1 and c.shape[0] == b.shape[1] and c.is_contiguous():
        return run.product(name, a, b, out_dtype=out_dtype, bias=c, alpha=float(alpha))
    return run.product(name, a, b, out_dtype=out_dtype, c=c, alpha=float(alpha), beta=float(beta))


def addmm_activation(
    run: Emulation, name: str, c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1, use_gelu: bool = False
) -> Tensor:
    """``relu(c + alpha * a @ b)``: of the result, which is rounded and has its bias. The GELU is that of cuBLASLt's epilogue."""
    if use_gelu:
        if c.dim() != 1 or c.shape[0] != b.shape[1] or beta != 1 or alpha != 1 or a.is_cuda:
            raise UnknownError("the GELU of cuBLASLt's epilogue is known only for a bias that is not scaled, and computed on CPUs only")
        return run.product(name, a, b, bias=c, activation="gelu")
    with_relu = c.dim() == len("mn") and beta == 1 and not vectors.are_thin(run, a, b)
    summed = run.guessing("how cuBLASLt adds a matrix before relu was not recorded") if with_relu else run
    return torch.relu(addmm(summed, name, c, a, b, beta=beta, alpha=alpha))


def bmm(run: Emulation, name: str, a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None) -> Tensor:
    """A batch of products."""
    if vectors.are_outer(run, a, b):
        return vectors.outer(run, name, a, b)
    return run.product(name, a, b, out_dtype=out_dtype)


def baddbmm(
    run: Emulation, name: str, c: Tensor, a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """A batch of products, and c."""
    if beta == 0:
        return run.product(name, a, b, out_dtype=out_dtype, alpha=float(alpha))
    return run.product(name, a, b, out_dtype=out_dtype, c=c, alpha=float(alpha), beta=float(beta))


def addbmm(run: Emulation, name: str, c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """A batch of products that are added to c one after another."""
    total, factor = c.expand(a.shape[1], b.shape[2]), beta
    for x, y in zip(a, b, strict=True):
        total, factor = addmm(run, name, total, x, y, beta=factor, alpha=alpha), 1
    return total if a.shape[0] else total * beta


def int_mm(run: Emulation, name: str, a: Tensor, b: Tensor) -> Tensor:
    """Bytes with signs, summed in 32 bits; with unsigned activations, as on CPUs, cuBLAS has no such product."""
    if run.settings.check == "cuda" and a.dtype is torch.int8:
        check_int_mm(run.settings.capability, a, b)
    if a.dtype is not torch.int8:
        raise UnknownError(f"cuBLAS has no product of {a.dtype} and {b.dtype}")
    return run.product(name, a, b)


def grouped_mm(
    run: Emulation,
    name: str,
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Products of groups of rows, of columns or of k, which end at `offs`; a group without k is zeros."""
    if bias is not None:
        raise UnknownError("grouped products have no bias on a GPU")
    dtype = out_dtype or a.dtype
    grouped = a.dtype is torch.bfloat16  # others are multiplied one by one
    if a.dim() == 3 and b.dim() == 3:
        return run.product(name, a, b, out_dtype=dtype, grouped=grouped)
    if offs is None:
        raise UnknownError("offs is not given")
    ends = [int(end) for end in offs.tolist()]
    groups = list(zip([0, *ends[:-1]], ends, strict=True))
    if a.dim() == 2 and b.dim() == 3:
        out = a.new_zeros((a.shape[0], b.shape[2]), dtype=dtype)
        for index, (start, stop) in enumerate(groups):
            if stop > start:
                out[start:stop] = run.product(name, a[start:stop], b[index], out_dtype=dtype, grouped=grouped)
        return out
    if a.dim() == 3:
        out = a.new_zeros((a.shape[1], b.shape[1]), dtype=dtype)
        for index, (start, stop) in enumerate(groups):
            if stop > start:
                out[:, start:stop] = run.product(name, a[index], b[:, start:stop], out_dtype=dtype, grouped=grouped)
        return out
    each = ((a[:, start:stop], b[start:stop]) for start, stop in groups)
    return torch.stack([run.product(name, x, y, out_dtype=dtype, grouped=grouped) for x, y in each])
