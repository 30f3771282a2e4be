"""LLVM IR for CPUs of what NVVM's intrinsics compute: the definitions that libdevice's functions call."""

from __future__ import annotations

from functools import lru_cache

from fastmma.kernels.functions.hyperbolic import TANGENT_DEFINITIONS, tangents
from fastmma.kernels.functions.nvvm_directed import INLINE_DIRECTED, ROUNDED, UP_AND_FLUSHED, flush
from fastmma.kernels.functions.nvvm_float64 import FLOAT64, INLINE_FLOAT64, MIXED
from fastmma.kernels.functions.rounding import DIRECTED, down_to_whole
from fastmma.kernels.functions.sines import SINE_DEFINITIONS, SINES
from fastmma.kernels.functions.unit import special_functions

_HEAD = """
declare float @llvm.fma.f32(float, float, float)
declare double @llvm.fma.f64(double, double, double)
declare float @llvm.fabs.f32(float)
declare double @llvm.fabs.f64(double)
declare float @llvm.sqrt.f32(float)
declare double @llvm.sqrt.f64(double)
declare float @llvm.floor.f32(float)
declare double @llvm.floor.f64(double)
declare float @llvm.ceil.f32(float)
declare float @llvm.trunc.f32(float)
declare double @llvm.trunc.f64(double)
declare float @llvm.roundeven.f32(float)
declare double @llvm.roundeven.f64(double)
declare float @llvm.minnum.f32(float, float)
declare float @llvm.maxnum.f32(float, float)
declare i32 @llvm.fptosi.sat.i32.f32(float)
declare i32 @llvm.fptosi.sat.i32.f64(double)
declare i32 @llvm.fptoui.sat.i32.f32(float)
declare float @llvm.copysign.f32(float, float)
declare i32 @llvm.umin.i32(i32, i32)
declare i32 @llvm.umax.i32(i32, i32)
declare i32 @llvm.smin.i32(i32, i32)
declare i32 @llvm.smax.i32(i32, i32)
"""


# what __CUDA_FTZ, __CUDA_PREC_DIV and __CUDA_PREC_SQRT, and __CUDA_ARCH are to nvcc by default, and to Triton's compiler
_REFLECTED = {"nvcc": (0, 1, 900), "triton": (1, 0, 900)}
_REFLECT = """
define internal i32 @__nvvm_reflect(ptr %name) alwaysinline {{
 %fourth = getelementptr i8, ptr %name, i64 7
 %c = load i8, ptr %fourth
 %is_flush = icmp eq i8 %c, 70
 %is_precise = icmp eq i8 %c, 80
 %is_arch = icmp eq i8 %c, 65
 %f = select i1 %is_flush, i32 {}, i32 0
 %p = select i1 %is_precise, i32 {}, i32 %f
 %r = select i1 %is_arch, i32 {}, i32 %p
 ret i32 %r
}}
"""


def _function(name: str, arguments: str, body: str, returned: str = "float") -> str:
    """Write a definition; `arguments` are letters of the parameters, of the type that is returned."""
    types = ", ".join(f"{'float' if returned == 'i32' else returned} %{letter}" for letter in arguments)
    return f"define internal {returned} @{name}({types}) alwaysinline {{\n{body}\n ret {returned} %r\n}}\n"


_SCALED = " %s = call float @scaled_up(float %x)\n %small = call i1 @is_small(float %x)\n"
_DEFINITIONS = {
    "add.rn.f": ("xy", " %r = fadd float %x, %y"),
    "sub.rn.f": ("xy", " %r = fsub float %x, %y"),
    "mul.rn.f": ("xy", " %r = fmul float %x, %y"),
    "fma.rn.f": ("xyz", " %r = call float @llvm.fma.f32(float %x, float %y, float %z)"),
    "fabs.f32": ("x", " %r = call float @llvm.fabs.f32(float %x)"),
    "fabs.f": ("x", " %r = call float @llvm.fabs.f32(float %x)"),
    "div.rn.f": ("xy", " %r = fdiv float %x, %y"),
    "sqrt.rn.f": ("x", " %r = call float @llvm.sqrt.f32(float %x)"),
    "floor.f": ("x", " %r = call float @llvm.floor.f32(float %x)"),
    "ceil.f": ("x", " %r = call float @llvm.ceil.f32(float %x)"),
    "trunc.f": ("x", " %r = call float @llvm.trunc.f32(float %x)"),
    "round.f": ("x", " %r = call float @llvm.roundeven.f32(float %x)"),
    "fmin.f": ("xy", " %r = call float @llvm.minnum.f32(float %x, float %y)"),
    "fmax.f": ("xy", " %r = call float @llvm.maxnum.f32(float %x, float %y)"),
    "saturate.f": (
        "x",
        " %p = fcmp ogt float %x, 0.0\n %m = select i1 %p, float %x, float 0.0\n"
        " %q = fcmp olt float %m, 1.0\n %r = select i1 %q, float %m, float 1.0",
    ),
    "ex2.approx.ftz.f32": ("x", " %r = call float @ex2_of(float %x, i1 true)"),
    "ex2.approx.f32": ("x", " %r = call float @ex2_of(float %x, i1 false)"),
    "rcp.approx.ftz.f": ("x", " %r = call float @rcp_of(float %x)"),
    "rsqrt.approx.ftz.f": ("x", " %r = call float @rsqrt_of(float %x)"),
    "sqrt.approx.ftz.f": ("x", " %r = call float @sqrt_of(float %x)"),
    "rsqrt.approx.f": (
        "x",
        _SCALED + " %q = call float @rsqrt_of(float %s)\n %u = fmul float %q, 4096.0\n %r = select i1 %small, float %u, float %q",
    ),
    "sqrt.approx.f": (
        "x",
        _SCALED + " %q = call float @sqrt_of(float %s)\n %u = fmul float %q, 0x3F30000000000000\n"
        " %r = select i1 %small, float %u, float %q",
    ),
    "lg2.approx.ftz.f": ("x", " %r = call float @lg2_of(float %x)"),
    "lg2.approx.f": (
        "x",
        _SCALED + " %q = call float @lg2_of(float %s)\n %u = fsub float %q, 24.0\n %r = select i1 %small, float %u, float %q",
    ),
    "div.approx.ftz.f": (
        "xy",
        " %q = call float @rcp_of(float %y)\n %f = call float @flushed(float %x)\n %p = fmul float %f, %q\n"
        " %r = call float @flushed(float %p)",
    ),
    "div.approx.f": (
        "xy",
        " %s = call float @scaled_up(float %y)\n %small = call i1 @is_small(float %y)\n %more = fmul float %x, 16777216.0\n"
        " %n = select i1 %small, float %more, float %x\n %q = call float @rcp_of(float %s)\n %r = fmul float %n, %q",
    ),
}
_INTEGERS = {
    "f2i.rn": " %y = call float @llvm.roundeven.f32(float %x)\n %r = call i32 @llvm.fptosi.sat.i32.f32(float %y)",
    "f2i.rz": " %r = call i32 @llvm.fptosi.sat.i32.f32(float %x)",
}
# inline PTX by a part of its text: the function that computes it
INLINE = {
    "rcp.approx.ftz.f32": "nvvm_rcp_approx_ftz_f",
    "sub.rn.f32": "nvvm_sub_rn_f",
    "sub.rn.ftz.f32": "nvvm_sub_rn_ftz_f",
    "{\\0A\\09mad.lo.cc.u32": "multiply_add_wide",
}
INLINE |= INLINE_DIRECTED | INLINE_FLOAT64
_MULTIPLY_ADD = """
define internal { i32, i32 } @multiply_add_wide(i32 %x, i32 %y, i32 %z) alwaysinline {
 %a = zext i32 %x to i64
 %b = zext i32 %y to i64
 %c = zext i32 %z to i64
 %p = mul i64 %a, %b
 %s = add i64 %p, %c
 %l = trunc i64 %s to i32
 %w = lshr i64 %s, 32
 %h = trunc i64 %w to i32
 %r0 = insertvalue { i32, i32 } undef, i32 %l, 0
 %r1 = insertvalue { i32, i32 } %r0, i32 %h, 1
 ret { i32, i32 } %r1
}
"""


def local_name(intrinsic: str) -> str:
    """Name the function that computes an intrinsic.

    Examples
    --------
    >>> local_name("llvm.nvvm.fma.rm.f")
    'nvvm_fma_rm_f'
    """
    return intrinsic.removeprefix("llvm.").replace(".", "_")


@lru_cache(4)
def definitions(compiler: str = "nvcc") -> str:
    """Return the IR of all of them, as libdevice calls them in code of a compiler, ``"nvcc"`` or ``"triton"``."""
    found = [
        _HEAD,
        _REFLECT.format(*_REFLECTED[compiler]),
        DIRECTED,
        down_to_whole(),
        UP_AND_FLUSHED,
        special_functions(),
        SINES,
        tangents(),
    ]
    found += [_MULTIPLY_ADD, MIXED]
    table = _DEFINITIONS | SINE_DEFINITIONS | TANGENT_DEFINITIONS | ROUNDED
    for name, (arguments, body) in table.items():
        found.append(_function(local_name(f"nvvm.{name}"), arguments, body))
        flushing = name.replace(".f", ".ftz.f", 1) if not name.endswith(".f32") else name.replace(".f32", ".ftz.f32")
        if "ftz" not in name and flushing not in table:
            found.append(_function(local_name(f"nvvm.{flushing}"), arguments, flush(local_name(f"nvvm.{name}"), arguments)))
    found += [_function(local_name(f"nvvm.{name}"), arguments, body, "double") for name, (arguments, body) in FLOAT64.items()]
    for name, body in _INTEGERS.items():
        found += [_function(local_name(f"nvvm.{each}"), "x", body, "i32") for each in (name, f"{name}.ftz")]
    return "".join(found)
