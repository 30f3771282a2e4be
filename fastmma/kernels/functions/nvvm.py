"""LLVM IR for CPUs of what NVVM's intrinsics compute: the definitions that libdevice's functions call.

Rounding in a direction is exact: a result in float64 and its error tell on which side of it the exact number lies.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from fastmma.kernels.functions.sines import SINE_DEFINITIONS, SINES
from fastmma.kernels.functions.tables import NAMES, powers

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

; the float32 next to a double s, and what is left: s is a + b or a * b rounded, e its error
define internal float @toward_zero(double %s, double %e) alwaysinline {
 %t = fptrunc double %s to float
 %w = fpext float %t to double
 %d = fsub double %w, %s
 %over = fcmp ogt double %d, %e
 %under = fcmp olt double %d, %e
 %b = bitcast float %t to i32
 %negative = icmp slt i32 %b, 0
 %away = select i1 %negative, i1 %under, i1 %over
 %zero = fcmp oeq float %t, 0.0
 %keep = xor i1 %zero, true
 %step = and i1 %away, %keep
 %less = sub i32 %b, 1
 %c = select i1 %step, i32 %less, i32 %b
 %r = bitcast i32 %c to float
 ret float %r
}
define internal float @down(double %s, double %e) alwaysinline {
 %t = fptrunc double %s to float
 %w = fpext float %t to double
 %d = fsub double %w, %s
 %over = fcmp ogt double %d, %e
 %b = bitcast float %t to i32
 %negative = icmp slt i32 %b, 0
 %up = add i32 %b, 1
 %less = sub i32 %b, 1
 %zero = fcmp oeq float %t, 0.0
 %n = select i1 %negative, i32 %up, i32 %less
 %m = select i1 %zero, i32 -2147483647, i32 %n
 %c = select i1 %over, i32 %m, i32 %b
 %r = bitcast i32 %c to float
 ret float %r
}
define internal double @error_of_sum(double %a, double %b, double %s) alwaysinline {
 %bb = fsub double %s, %a
 %aa = fsub double %s, %bb
 %da = fsub double %a, %aa
 %db = fsub double %b, %bb
 %e = fadd double %da, %db
 %finite = fcmp ord double %e, 0.0
 %r = select i1 %finite, double %e, double 0.0
 ret double %r
}
define internal i32 @__nvvm_reflect(ptr %name) alwaysinline {
 %n = load i8, ptr %name
 %fourth = getelementptr i8, ptr %name, i64 7
 %c = load i8, ptr %fourth
 %is_precise = icmp eq i8 %c, 80
 %is_arch = icmp eq i8 %c, 65
 %p = select i1 %is_precise, i32 1, i32 0
 %r = select i1 %is_arch, i32 900, i32 %p
 ret i32 %r
}
"""


def _function(name: str, arguments: str, body: str, returned: str = "float") -> str:
    """Write a definition; `arguments` are letters of the parameters, of the type that is returned."""
    types = ", ".join(f"{'float' if returned == 'i32' else returned} %{letter}" for letter in arguments)
    return f"define internal {returned} @{name}({types}) alwaysinline {{\n{body}\n ret {returned} %r\n}}\n"


_WIDE = " %a = fpext float %x to double\n %b = fpext float %y to double\n"
_SUM = " %s = fadd double %a, %b\n %e = call double @error_of_sum(double %a, double %b, double %s)\n"
_FUSED = """ %a = fpext float %x to double
 %b = fpext float %y to double
 %c = fpext float %z to double
 %p = fmul double %a, %b
 %s = fadd double %p, %c
 %e = call double @error_of_sum(double %p, double %c, double %s)
"""
_TABLE = """
@ex2_table = internal global ptr null
@rcp_table = internal global ptr null
@rsqrt_table = internal global ptr null
@sqrt_table = internal global ptr null
@lg2_table = internal global ptr null
define void @set_tables(ptr %ex2, ptr %rcp, ptr %rsqrt, ptr %sqrt, ptr %lg2) {
 store ptr %ex2, ptr @ex2_table
 store ptr %rcp, ptr @rcp_table
 store ptr %rsqrt, ptr @rsqrt_table
 store ptr %sqrt, ptr @sqrt_table
 store ptr %lg2, ptr @lg2_table
 ret void
}
; 2 to the k, for k from -126 to 127
define internal float @power(i32 %k) alwaysinline {
 %e = add i32 %k, 127
 %c = shl i32 %e, 23
 %r = bitcast i32 %c to float
 ret float %r
}
; a positive number, correctly rounded, corrected by the entry of a table
define internal float @corrected(double %exact, ptr %table, i64 %place) alwaysinline {
 %t = fptrunc double %exact to float
 %c = bitcast float %t to i32
 %byte = lshr i64 %place, 2
 %p = getelementptr i8, ptr %table, i64 %byte
 %four = load i8, ptr %p
 %wide = zext i8 %four to i32
 %low = trunc i64 %place to i32
 %which = and i32 %low, 3
 %shift = shl i32 %which, 1
 %moved = lshr i32 %wide, %shift
 %two = and i32 %moved, 3
 %d = sub i32 %two, 2
 %e = add i32 %c, %d
 %r = bitcast i32 %e to float
 ret float %r
}
define internal float @ex2_of(float %x, i1 %flush) alwaysinline {
 %table = load ptr, ptr @ex2_table
 %tiny = fcmp olt float %x, -126.0
 %precise = xor i1 %flush, true
 %low = and i1 %tiny, %precise
 %half = fmul float %x, 0.5
 %h = select i1 %low, float %half, float %x
 %number = fcmp ord float %h, 0.0
 %h0 = select i1 %number, float %h, float 0.0
 %h1 = call float @llvm.minnum.f32(float %h0, float 512.0)
 %h2 = call float @llvm.maxnum.f32(float %h1, float -512.0)
 %d = fpext float %h2 to double
 %m = call double @llvm.fabs.f64(double %d)
 %f = fmul double %m, 8388608.0
 %steps = fptosi double %f to i64
 %fraction = and i64 %steps, 8388607
 %whole = icmp eq i64 %fraction, 0
 %minus = sub i64 0, %steps
 %inverted = xor i64 %steps, -1
 %n = select i1 %whole, i64 %minus, i64 %inverted
 %negative = fcmp olt float %h2, 0.0
 %code = select i1 %negative, i64 %n, i64 %steps
 %place = and i64 %code, 8388607
 %segment = lshr i64 %place, 18
 %sp = getelementptr double, ptr @powers, i64 %segment
 %base = load double, ptr %sp
 %rest = and i64 %place, 262143
 %restd = sitofp i64 %rest to double
 %y = fmul double %restd, 0x3E80000000000000
POLYNOMIAL
 %exact = fmul double %base, %q0
 %t = call float @corrected(double %exact, ptr %table, i64 %place)
 %e64 = ashr i64 %code, 23
 %e = trunc i64 %e64 to i32
 %big = icmp sgt i32 %e, 127
 %small = icmp slt i32 %e, -126
 %e1 = call i32 @llvm.smin.i32(i32 %e, i32 127)
 %e2 = call i32 @llvm.smax.i32(i32 %e1, i32 -126)
 %scale = call float @power(i32 %e2)
 %r0 = fmul float %t, %scale
 %r1 = select i1 %big, float 0x7FF0000000000000, float %r0
 %r2 = select i1 %small, float 0.0, float %r1
 %square = fmul float %r2, %r2
 %r3 = select i1 %low, float %square, float %r2
 %given = fcmp ord float %x, 0.0
 %nan = bitcast i32 2147483647 to float
 %r = select i1 %given, float %r3, float %nan
 ret float %r
}
define internal float @rcp_of(float %x) alwaysinline {
 %table = load ptr, ptr @rcp_table
 %c = bitcast float %x to i32
 %place = and i32 %c, 8388607
 %place64 = zext i32 %place to i64
 %m0 = or i32 %place, 1065353216
 %m1 = bitcast i32 %m0 to float
 %m = fpext float %m1 to double
 %exact = fdiv double 1.0, %m
 %t = call float @corrected(double %exact, ptr %table, i64 %place64)
 %biased = lshr i32 %c, 23
 %be = and i32 %biased, 255
 %k = sub i32 127, %be
 %k1 = call i32 @llvm.smax.i32(i32 %k, i32 -126)
 %k2 = call i32 @llvm.smin.i32(i32 %k1, i32 127)
 %scale = call float @power(i32 %k2)
 %r0 = fmul float %t, %scale
 %flushed = fcmp olt float %r0, 0x3810000000000000
 %under = icmp slt i32 %k, -126
 %gone = or i1 %flushed, %under
 %r1 = select i1 %gone, float 0.0, float %r0
 %subnormal = icmp eq i32 %be, 0
 %r2 = select i1 %subnormal, float 0x7FF0000000000000, float %r1
 %r3 = call float @llvm.copysign.f32(float %r2, float %x)
 %given = fcmp ord float %x, 0.0
 %nan = bitcast i32 2147483647 to float
 %r = select i1 %given, float %r3, float %nan
 ret float %r
}
define internal float @root_of(float %x, ptr %table, i1 %inverse) alwaysinline {
 %c = bitcast float %x to i32
 %biased = lshr i32 %c, 23
 %be = and i32 %biased, 255
 %e = sub i32 %be, 127
 %odd = and i32 %e, 1
 %f = and i32 %c, 8388607
 %upper = shl i32 %odd, 23
 %place = or i32 %f, %upper
 %place64 = zext i32 %place to i64
 %one = or i32 %f, 1065353216
 %two = or i32 %f, 1073741824
 %is_odd = icmp ne i32 %odd, 0
 %bits = select i1 %is_odd, i32 %two, i32 %one
 %number = bitcast i32 %bits to float
 %m = fpext float %number to double
 %root = call double @llvm.sqrt.f64(double %m)
 %inverted = fdiv double 1.0, %root
 %exact = select i1 %inverse, double %inverted, double %root
 %t = call float @corrected(double %exact, ptr %table, i64 %place64)
 %even = sub i32 %e, %odd
 %k0 = ashr i32 %even, 1
 %minus = sub i32 0, %k0
 %k = select i1 %inverse, i32 %minus, i32 %k0
 %scale = call float @power(i32 %k)
 %r0 = fmul float %t, %scale
 %subnormal = icmp eq i32 %be, 0
 %zero = select i1 %inverse, float 0x7FF0000000000000, float 0.0
 %signed = call float @llvm.copysign.f32(float %zero, float %x)
 %infinite = icmp eq i32 %c, 2139095040
 %end = select i1 %inverse, float 0.0, float 0x7FF0000000000000
 %r1 = select i1 %infinite, float %end, float %r0
 %r2 = select i1 %subnormal, float %signed, float %r1
 %below = icmp slt i32 %c, 0
 %normal = xor i1 %subnormal, true
 %invalid = and i1 %below, %normal
 %missing = fcmp uno float %x, 0.0
 %no = or i1 %invalid, %missing
 %nan = bitcast i32 2147483647 to float
 %r = select i1 %no, float %nan, float %r2
 ret float %r
}
; of x and 1: octaves from 1 to 2 and from 1/2 to 1 are in the table, others are cut off sums of them and of an exponent
define internal float @lg2_of(float %x) alwaysinline {
 %table = load ptr, ptr @lg2_table
 %c = bitcast float %x to i32
 %biased = lshr i32 %c, 23
 %be = and i32 %biased, 255
 %e = sub i32 %be, 127
 %below1 = icmp slt i32 %e, 0
 %f = and i32 %c, 8388607
 %upper = select i1 %below1, i32 8388608, i32 0
 %place = or i32 %f, %upper
 %place64 = zext i32 %place to i64
 %p = getelementptr float, ptr %table, i64 %place64
 %t = load float, ptr %p
 %one = zext i1 %below1 to i32
 %more = add i32 %e, %one
 %whole = sitofp i32 %more to double
 %d = fpext float %t to double
 %s = fadd double %d, %whole
 %cut = call float @toward_zero(double %s, double 0.0)
 %near = icmp eq i32 %more, 0
 %r0 = select i1 %near, float %t, float %cut
 %infinite = icmp eq i32 %c, 2139095040
 %r1 = select i1 %infinite, float 0x7FF0000000000000, float %r0
 %subnormal = icmp eq i32 %be, 0
 %r2 = select i1 %subnormal, float 0xFFF0000000000000, float %r1
 %negative = icmp slt i32 %c, 0
 %normal = xor i1 %subnormal, true
 %invalid = and i1 %negative, %normal
 %missing = fcmp uno float %x, 0.0
 %no = or i1 %invalid, %missing
 %nan = bitcast i32 2147483647 to float
 %r = select i1 %no, float %nan, float %r2
 ret float %r
}
; a subnormal x is multiplied by 2^24 first
define internal float @scaled_up(float %x) alwaysinline {
 %m = call float @llvm.fabs.f32(float %x)
 %small = fcmp olt float %m, 0x3810000000000000
 %more = fmul float %x, 16777216.0
 %r = select i1 %small, float %more, float %x
 ret float %r
}
define internal i1 @is_small(float %x) alwaysinline {
 %m = call float @llvm.fabs.f32(float %x)
 %r = fcmp olt float %m, 0x3810000000000000
 ret i1 %r
}
"""
_SCALED = " %s = call float @scaled_up(float %x)\n %small = call i1 @is_small(float %x)\n"
_DEFINITIONS = {
    "add.rn.f": ("xy", " %r = fadd float %x, %y"),
    "sub.rn.f": ("xy", " %r = fsub float %x, %y"),
    "mul.rn.f": ("xy", " %r = fmul float %x, %y"),
    "fma.rn.f": ("xyz", " %r = call float @llvm.fma.f32(float %x, float %y, float %z)"),
    "add.rz.f": ("xy", _WIDE + _SUM + " %r = call float @toward_zero(double %s, double %e)"),
    "mul.rz.f": ("xy", _WIDE + " %s = fmul double %a, %b\n %r = call float @toward_zero(double %s, double 0.0)"),
    "fma.rz.f": ("xyz", _FUSED + " %r = call float @toward_zero(double %s, double %e)"),
    "fma.rm.f": ("xyz", _FUSED + " %r = call float @down(double %s, double %e)"),
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
    "rsqrt.approx.ftz.f": ("x", " %t = load ptr, ptr @rsqrt_table\n %r = call float @root_of(float %x, ptr %t, i1 true)"),
    "sqrt.approx.ftz.f": ("x", " %t = load ptr, ptr @sqrt_table\n %r = call float @root_of(float %x, ptr %t, i1 false)"),
    "rsqrt.approx.f": (
        "x",
        _SCALED + " %t = load ptr, ptr @rsqrt_table\n %q = call float @root_of(float %s, ptr %t, i1 true)\n"
        " %u = fmul float %q, 4096.0\n %r = select i1 %small, float %u, float %q",
    ),
    "sqrt.approx.f": (
        "x",
        _SCALED + " %t = load ptr, ptr @sqrt_table\n %q = call float @root_of(float %s, ptr %t, i1 false)\n"
        " %u = fmul float %q, 0x3F30000000000000\n %r = select i1 %small, float %u, float %q",
    ),
    "lg2.approx.ftz.f": ("x", " %r = call float @lg2_of(float %x)"),
    "lg2.approx.f": (
        "x",
        _SCALED + " %q = call float @lg2_of(float %s)\n %u = fsub float %q, 24.0\n %r = select i1 %small, float %u, float %q",
    ),
    "div.approx.ftz.f": ("xy", " %q = call float @rcp_of(float %y)\n %r = fmul float %x, %q"),
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
# inline PTX by its text's beginning: the function that computes it
INLINE = {
    "rcp.approx.ftz.f32": "nvvm_rcp_approx_ftz_f",
    "sub.rn.f32": "nvvm_sub_rn_f",
    "sub.rn.ftz.f32": "nvvm_sub_rn_f",
    "{\\0A\\09mad.lo.cc.u32": "multiply_add_wide",
}
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


def _double(number: float) -> str:
    return f"0x{np.float64(number).view(np.uint64):016X}"


def _polynomial(degree: int = 6) -> str:
    """Write 2 to the y, for y below 1/32, as a polynomial: its coefficients are powers of log(2), divided by factorials."""
    steps = [f" %q{degree} = fadd double {_double(math.log(2) ** degree / math.factorial(degree))}, 0.0"]
    for power in range(degree - 1, -1, -1):
        coefficient = _double(math.log(2) ** power / math.factorial(power))
        steps += [f" %w{power} = fmul double %q{power + 1}, %y", f" %q{power} = fadd double %w{power}, {coefficient}"]
    return "\n".join(steps)


@cache
def definitions() -> str:
    """Return the IR of all of them; forms that flush subnormals exist as those that do not: libdevice asks which it shall take."""
    entries = ", ".join(f"double {_double(power)}" for power in powers())
    tabulated = f"@powers = internal constant [{len(powers())} x double] [{entries}]\n"
    found = [_HEAD, tabulated, _TABLE.replace("POLYNOMIAL", _polynomial()), SINES, _MULTIPLY_ADD]
    for name, (arguments, body) in (_DEFINITIONS | SINE_DEFINITIONS).items():
        found.append(_function(local_name(f"nvvm.{name}"), arguments, body))
        flushing = name.replace(".f", ".ftz.f", 1) if not name.endswith(".f32") else name.replace(".f32", ".ftz.f32")
        if "ftz" not in name and flushing not in _DEFINITIONS:
            found.append(_function(local_name(f"nvvm.{flushing}"), arguments, body))
    for name, body in _INTEGERS.items():
        found += [_function(local_name(f"nvvm.{each}"), "x", body, "i32") for each in (name, f"{name}.ftz")]
    return "".join(found)


def needed_tables(code: str) -> str:
    """Write a function that tells, by bits in the order of `NAMES`, which tables code looks into."""
    used = {name for name in NAMES if f"@nvvm_{name}_approx" in code} | ({"rcp"} if "@nvvm_div_approx" in code else set())
    return f"define i32 @needed_tables() {{\n ret i32 {sum(1 << NAMES.index(name) for name in used)}\n}}\n"
