"""Other libraries that compute such products, exactly or not, where they are installed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.isa.targets import architecture
from fastmma.study.speed.products import ScaledProduct, Shape, TimedProduct, operand

Result = Callable[[], NDArray[Any]]
# MMA-Sim's names of architectures
_SIMULATED = {"sm_70": "Volta", "sm_75": "Turing", "sm_80": "Ampere", "sm_89": "Ada Lovelace", "sm_90": "Hopper", "sm_100": "Blackwell"}
_SIMULATED |= {"sm_120": "RTX Blackwell"}
_PROFILES = {"sm_90": "hopper", "sm_89": "ada"}  # mmaemu's


class Peer(NamedTuple):
    """A library beside fastmma.

    Attributes
    ----------
    name : str
    module : str
        What must be installed.
    exact : bool
        Whether it means to have the bits of the GPU.
    what : str
        What it computes, in a few words.
    macs : int
        Multiply-adds of a measurement, at most: larger products are cut to that.
    product : callable
        From a product and its shape to a function that computes it as float32 or wider; None where it has no such product.
    """

    name: str
    module: str
    exact: bool
    what: str
    macs: int
    product: Callable[[Any, Shape], Result | None]

    def installed(self) -> bool:
        """Tell whether it can be imported."""
        return find_spec(self.module) is not None

    def shape(self, shape: Shape, tile: tuple[int, int] = (64, 64)) -> Shape:
        """The product cut to what it may take: rows and columns first, in whole tiles, then k."""
        (m, n, k), (rows, columns) = shape, tile
        while m * n * k > self.macs and (m > rows or n > columns):
            m, n = (_halve(m, rows), n) if m > rows and (m >= n or n <= columns) else (m, _halve(n, columns))
        while m * n * k > self.macs and k > 128:
            k = max(128, k // 2)
        return m, n, k


def _halve(size: int, tile: int) -> int:
    """About half of it, in whole tiles, at least one of them."""
    return max(1, size // 2 // tile) * tile


def _dequantise(product: TimedProduct | ScaledProduct, shape: Shape) -> Result | None:
    """Values in float32 (of f64 in float64), multiplied by NumPy: what fake quantisation does."""
    if isinstance(product, ScaledProduct):
        left, right = product.operands(shape)
        return lambda: np.asarray(left.dequantize() @ right.dequantize())
    a, b = product.operands(shape)
    wide = np.dtype(np.float64 if product.atype == "f64" else np.float32)
    return lambda: np.asarray(np.matmul(a.astype(wide), b.astype(wide)))


def _tensor(codes: NDArray[Any], dtype: Any) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(codes).view(f"i{codes.itemsize}" if codes.itemsize > 1 else "u1").copy()).view(dtype)


def _mmasim(product: TimedProduct | ScaledProduct, shape: Shape) -> Result | None:
    """Tile by tile, with D fed back as C."""
    if not isinstance(product, TimedProduct) or product.atype in ("f64", "s8", "b1"):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from mmasim.nv_ptx import sim
    ins = product.instruction()
    forms = {
        "wgmma": ("WGMMA", ins.opcode.removeprefix("wgmma.mma_async.sync.aligned.")),
        "mma": ("MMA", ins.opcode.removeprefix("mma.sync.aligned.").replace(".row.col", "")),
        "tcgen05": ("TCGen05MMA", f"m{ins.m}n{ins.n}k{ins.k}.kind::{ins.kind}.{ins.dtype}.{ins.atype}.{ins.btype}"),
    }
    (m, n, k), base = shape, architecture(product.target)
    if base not in _SIMULATED or ins.op not in forms or m % ins.m or n % ins.n or k % ins.k:
        return None
    form, name = forms[ins.op]
    try:
        model = getattr(sim, form)(_SIMULATED[base], name)
    except (KeyError, ValueError, AssertionError):  # it has no such instruction
        return None
    a, b = product.operands(shape)
    left, right = _tensor(a, model.a_type), _tensor(b.T, model.b_type)

    def run() -> NDArray[Any]:
        d = torch.zeros(m, n, dtype=model.c_type)
        for i in range(0, m, ins.m):
            for j in range(0, n, ins.n):
                tile = d[i : i + ins.m, j : j + ins.n]
                for at in range(0, k, ins.k):
                    tile = model(left[i : i + ins.m, at : at + ins.k], right[j : j + ins.n, at : at + ins.k].T, tile)
                d[i : i + ins.m, j : j + ins.n] = tile
        found: NDArray[Any] = d.numpy()
        return found

    return run


def _mmaemu(product: TimedProduct | ScaledProduct, shape: Shape) -> Result | None:
    profile = _PROFILES.get(architecture(product.target))
    if not isinstance(product, TimedProduct) or product.atype not in ("e4m3", "e5m2") or profile is None:
        return None
    import mmaemu
    import torch

    dtype = torch.float8_e4m3fn if product.atype == "e4m3" else torch.float8_e5m2
    a, b = product.operands(shape)
    left, right = _tensor(a, dtype), _tensor(b.T, dtype)

    def run() -> NDArray[Any]:
        found: NDArray[Any] = mmaemu.accumulate(left, right, use_fast_accum=True, profile=profile, splitk=1).numpy()
        return found

    return run


def _scaled_mm(product: TimedProduct | ScaledProduct, shape: Shape) -> Result | None:
    """torch on this CPU; it takes e4m3 there."""
    if not isinstance(product, TimedProduct) or product.atype != "e4m3":
        return None
    import torch

    a, b = product.operands(shape)
    left, right, one = _tensor(a, torch.float8_e4m3fn), _tensor(b.T, torch.float8_e4m3fn), torch.tensor(1.0)

    def run() -> NDArray[Any]:
        found: NDArray[Any] = torch._scaled_mm(left, right.T, one, one, out_dtype=torch.float32).numpy()
        return found

    return run


def _torchao(product: TimedProduct | ScaledProduct, shape: Shape) -> Result | None:
    """Tensors of its own, whose product it emulates by dequantising them."""
    if not isinstance(product, ScaledProduct) or product.schemes[0] not in ("mxfp8_e4m3", "mxfp4", "nvfp4"):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import torch
            from torchao.prototype.mx_formats.mx_tensor import MXTensor
            from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor
        except ImportError:  # other versions have them elsewhere
            return None
    m, n, k = shape
    elements = {"mxfp8_e4m3": torch.float8_e4m3fn, "mxfp4": torch.float4_e2m1fn_x2}.get(product.schemes[0])
    x, y = (torch.from_numpy(operand("f32", each, seed)) for seed, each in enumerate(((m, k), (n, k))))
    left, right = (NVFP4Tensor.to_nvfp4(each) if elements is None else MXTensor.to_mx(each, elements, 32) for each in (x, y))

    def run() -> NDArray[Any]:
        found: NDArray[Any] = (left @ right.t()).float().numpy()
        return found

    return run


PEERS = (
    Peer("NumPy float32", "numpy", False, "values widened, NumPy's product", 1 << 34, _dequantise),
    Peer("MMA-Sim", "mmasim", True, "its models of the instruction, in torch", 1 << 20, _mmasim),
    Peer("mmaemu", "mmaemu", True, "its accumulator of an H100 PCIe or an RTX 4060", 1 << 21, _mmaemu),
    Peer("torch._scaled_mm", "torch", False, "torch on this CPU", 1 << 32, _scaled_mm),
    Peer("torchao", "torchao", False, "its tensors, dequantised and multiplied", 1 << 32, _torchao),
)
