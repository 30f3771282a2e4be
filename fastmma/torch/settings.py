"""The choices of a caller: the GPU, and what happens with what is not known of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fastmma.functions import libdevice
from fastmma.host.environment import variable
from fastmma.host.errors import OperandError
from fastmma.host.threads import thread_count
from fastmma.isa.gpus import TargetName, target_named
from fastmma.isa.targets import target_of
from fastmma.products.cublas.book import check_book
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.library_gpu import library_gpu
from fastmma.torch.report import EMULATED
from fastmma.torch.versions import RECORDED, FunctionAgreement

Plans = Mapping[tuple[int, int, int], int | GemmPlan] | str | Path
_ALLOWED: dict[str, tuple[str | bool | None, ...]] = {
    "library": ("cublas", None),
    "unknown": ("one", "warn", "error"),
    "other": ("pass", "warn", "error"),
    "attention": ("fused", "math", "pass", "error"),
    "fp32": ("tf32", "ieee", None),
    "check": ("cuda", None),
}


class Modes(NamedTuple):
    """The freedom that torch's settings give a library with the products of a dtype."""

    tf32: bool = False
    half_sums: bool = False  # float16 products summed in float16
    narrow_joins: bool = True  # parts of k joined through memory of 16 bits
    split_k: bool = True


_RECORDED = ("H100", "H200")  # of 132 multiprocessors, which decide how sums are shared
USUAL = Modes()
_OF_FLOAT32 = (USUAL, Modes(tf32=True))
# what torch gives cuBLAS and cuBLASLt on Hopper, in KiB, unless the environment says another size
_CONFIG, _LT_SIZE, _WORKSPACE, _LT_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", 32 << 10, "1024"
# whether parts of k may be joined in 16 bits, and whether there may be any: what torch.backends.cuda.matmul reads, at a tenth of its cost
_PRECISION = torch._C._get_fp32_precision_getter  # of a backend and an operator: what their `fp32_precision` reads
_REDUCTIONS = {
    torch.bfloat16: torch._C._get_cublas_allow_bf16_reduced_precision_reduction,
    torch.float16: torch._C._get_cublas_allow_fp16_reduced_precision_reduction,
}


@dataclass(frozen=True)
class Settings:
    """The options of `emulate`, checked; `fastmma.torch.emulate` says what they mean.

    Raises
    ------
    OperandError, TargetError
    """

    target: TargetName = "sm_90a"
    library: str | None = "cublas"
    plans: Plans | None = field(default=None, hash=False)
    unknown: str = "warn"
    other: str = "pass"
    attention: str = "fused"
    fp32: str | None = None
    check: str | None = "cuda"
    functions: bool | str | FunctionAgreement = True
    strict: bool | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "architecture", target_named(self.target))
        for name, allowed in _ALLOWED.items():
            value = getattr(self, name)
            if value not in allowed:
                raise OperandError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
        _check_functions(self.functions, self.target)
        if self.threads is not None:
            thread_count(self.threads)
        if self.plans is not None and not isinstance(self.plans, str | Path):
            _check_plans(self.plans)
        elif self.plans is not None:
            check_book(self.plans, self.target)

    architecture: str = field(init=False, default="")

    @property
    def book(self) -> str | Path | None:
        """The file of plans, if the caller names one."""
        return self.plans if isinstance(self.plans, str | Path) else None

    def said(self, m: int, n: int, k: int) -> int | GemmPlan | None:
        """Return what the caller says of a shape."""
        return self.plans.get((m, n, k)) if isinstance(self.plans, Mapping) else None

    @cached_property
    def computes_functions(self) -> bool:
        """Tell whether functions have the bits of the GPU, as far as they are recorded."""
        return self.functions != "torch" and library_gpu(self.target) in _RECORDED

    def status_of(self, operator: str) -> tuple[str, str]:
        """Say whether an operator has the bits of the GPU's version of torch, which that is, and whose libdevice is here."""
        release, _ = libdevice.required_release()
        status, how = self.functions.status_of(operator) if isinstance(self.functions, FunctionAgreement) else (EMULATED, str(RECORDED))
        return status, f"{how}, libdevice of {release}"

    @cached_property
    def other_workspace(self) -> str:
        """Say that the environment gives cuBLAS another workspace than torch's own, which was recorded; empty where it does not."""
        if self.library is None or self.book is not None:
            return ""
        config, lt = variable(_CONFIG), variable(_LT_SIZE)
        sizes = re.findall(r":(\d+):(\d+)", config or "")
        if sizes and sum(int(size) * int(count) for size, count in sizes) != _WORKSPACE:
            return f"{_CONFIG}={config} is another workspace than was recorded"
        return f"{_LT_SIZE}={lt} is another workspace than was recorded" if lt and lt != _LT_WORKSPACE else ""

    @property
    def computes_attention(self) -> bool:
        """Tell whether fused attention has the bits of the GPU, as far as they are known."""
        return self.computes_functions and self.attention in ("fused", "error")

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability of the GPU."""
        return target_of(self.architecture).capability

    def modes(self, dtype: torch.dtype) -> Modes:
        """Read torch's settings for products of a dtype."""
        if dtype is torch.float32:
            return _OF_FLOAT32[self.takes_tf32()]
        reductions = _REDUCTIONS.get(dtype)
        if reductions is None:
            return USUAL
        narrow, split = reductions()
        half_sums = dtype is torch.float16 and torch.backends.cuda.matmul.allow_fp16_accumulation
        return USUAL if narrow and split and not half_sums else Modes(False, half_sums, narrow, split)

    def takes_tf32(self) -> bool:
        """Tell whether products of float32 are in TF32: what the caller said, or else torch's own settings, the most special first."""
        if self.fp32 is not None:
            return self.fp32 == "tf32"
        said = _PRECISION("cuda", "matmul")  # which is that of all operators where nothing is said of this one, unless CUDA has no such
        if said == "none":
            if torch._C._get_float32_matmul_precision() == "highest":
                return False
            said = _PRECISION("generic", "all")
        return bool(said in ("tf32", "none"))


def _check_functions(functions: Any, target: TargetName) -> None:
    if isinstance(functions, FunctionAgreement):
        if library_gpu(functions.gpu) != library_gpu(target):
            raise OperandError(f"functions: the recording is of {functions.gpu}, not of {target}")
    elif functions is not True and functions != "torch":
        raise OperandError(f"functions must be True, 'torch' or the result of compare_functions, not {functions!r}")


def _check_plans(plans: Any) -> None:
    if not isinstance(plans, Mapping):
        raise OperandError(f"plans must be a mapping of (M, N, K) to parts of k or a GemmPlan, or the name of a file, not {plans!r}")
    for shape, plan in plans.items():
        if not (isinstance(shape, tuple) and len(shape) == 3 and all(isinstance(each, int) for each in shape)):
            raise OperandError(f"plans: a shape must be (M, N, K), three integers, not {shape!r}")
        if isinstance(plan, bool) or not isinstance(plan, int | GemmPlan) or (isinstance(plan, int) and plan < 1):
            raise OperandError(f"plans: {shape} must have parts of k, an integer from 1, or a GemmPlan, not {plan!r}")


def settings_of(target: Any, options: dict[str, Any]) -> Settings:
    """Settings from what a public function was given.

    Raises
    ------
    OperandError, TargetError
    """
    known = {name for name, each in Settings.__dataclass_fields__.items() if each.init} - {"target"}
    wrong = sorted(set(options) - known)
    if wrong:
        from difflib import get_close_matches

        nearest = "".join(f"; the nearest is {each!r}" for each in get_close_matches(wrong[0], known, 1))
        raise OperandError(f"there is no option {wrong[0]!r}{nearest}; there are {', '.join(sorted(known))}")
    return Settings(target, **options)
