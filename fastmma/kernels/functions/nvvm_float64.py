"""LLVM IR for CPUs of NVVM's intrinsics of float64, and of what libdevice writes in PTX for its functions of float64.

The special function unit looks at 20 bits of a fraction of float64: its rcp and rsqrt are those of float32, cut off to 20 bits.
"""

from __future__ import annotations

FLOAT64 = {
    "add.rn.d": ("xy", " %r = fadd double %x, %y"),
    "sub.rn.d": ("xy", " %r = fsub double %x, %y"),
    "mul.rn.d": ("xy", " %r = fmul double %x, %y"),
    "div.rn.d": ("xy", " %r = fdiv double %x, %y"),
    "rcp.rn.d": ("x", " %r = fdiv double 1.0, %x"),
    "fma.rn.d": ("xyz", " %r = call double @llvm.fma.f64(double %x, double %y, double %z)"),
    "sqrt.rn.d": ("x", " %r = call double @llvm.sqrt.f64(double %x)"),
    "fabs.f64": ("x", " %r = call double @llvm.fabs.f64(double %x)"),
    "floor.d": ("x", " %r = call double @llvm.floor.f64(double %x)"),
    "ceil.d": ("x", " %r = call double @llvm.ceil.f64(double %x)"),
    "trunc.d": ("x", " %r = call double @llvm.trunc.f64(double %x)"),
    "round.d": ("x", " %r = call double @llvm.roundeven.f64(double %x)"),
    "fmin.d": ("xy", " %r = call double @llvm.minnum.f64(double %x, double %y)"),
    "fmax.d": ("xy", " %r = call double @llvm.maxnum.f64(double %x, double %y)"),
    "add.rz.d": (
        "xy",
        " %s = fadd double %x, %y\n %e = call double @error_of_sum(double %x, double %y, double %s)\n"
        " %m = call double @llvm.copysign.f64(double 1.0, double %s)\n %p = fmul double %e, %m\n %over = fcmp olt double %p, 0.0\n"
        " %c = bitcast double %s to i64\n %less = sub i64 %c, 1\n %d = select i1 %over, i64 %less, i64 %c\n %r = bitcast i64 %d to double",
    ),
    "rcp.approx.ftz.d": ("x", " %r = call double @rcp64_of(double %x)"),
    "rsqrt.approx.ftz.d": ("x", " %r = call double @rsqrt64_of(double %x)"),
    "rsqrt.approx.d": ("x", " %r = call double @rsqrt64_refined(double %x)"),
}
# those that take or return integers, whole definitions
MIXED = """
declare double @llvm.ceil.f64(double)
declare double @llvm.minnum.f64(double, double)
declare double @llvm.maxnum.f64(double, double)
declare double @llvm.copysign.f64(double, double)
define internal i32 @nvvm_d2i_hi(double %x) alwaysinline {
 %c = bitcast double %x to i64
 %h = lshr i64 %c, 32
 %r = trunc i64 %h to i32
 ret i32 %r
}
define internal i32 @nvvm_d2i_lo(double %x) alwaysinline {
 %c = bitcast double %x to i64
 %r = trunc i64 %c to i32
 ret i32 %r
}
define internal double @nvvm_lohi_i2d(i32 %x, i32 %y) alwaysinline {
 %l = zext i32 %x to i64
 %h = zext i32 %y to i64
 %s = shl i64 %h, 32
 %c = or i64 %s, %l
 %r = bitcast i64 %c to double
 ret double %r
}
define internal i32 @nvvm_d2i_rn(double %x) alwaysinline {
 %n = call double @llvm.roundeven.f64(double %x)
 %r = call i32 @llvm.fptosi.sat.i32.f64(double %n)
 ret i32 %r
}
define internal { i64, i64 } @split(i128 %s) alwaysinline {
 %l = trunc i128 %s to i64
 %w = lshr i128 %s, 64
 %h = trunc i128 %w to i64
 %r0 = insertvalue { i64, i64 } undef, i64 %l, 0
 %r1 = insertvalue { i64, i64 } %r0, i64 %h, 1
 ret { i64, i64 } %r1
}
define internal i128 @joined(i64 %l, i64 %h) alwaysinline {
 %a = zext i64 %l to i128
 %b = zext i64 %h to i128
 %c = shl i128 %b, 64
 %r = or i128 %c, %a
 ret i128 %r
}
define internal { i64, i64 } @add_128(i64 %x, i64 %y, i64 %z, i64 %w) alwaysinline {
 %a = call i128 @joined(i64 %x, i64 %y)
 %b = call i128 @joined(i64 %z, i64 %w)
 %s = add i128 %a, %b
 %r = call { i64, i64 } @split(i128 %s)
 ret { i64, i64 } %r
}
define internal { i64, i64 } @subtract_128(i64 %x, i64 %y, i64 %z, i64 %w) alwaysinline {
 %a = call i128 @joined(i64 %x, i64 %y)
 %b = call i128 @joined(i64 %z, i64 %w)
 %s = sub i128 %a, %b
 %r = call { i64, i64 } @split(i128 %s)
 ret { i64, i64 } %r
}
define internal { i64, i64 } @multiply_wide(i64 %x, i64 %y) alwaysinline {
 %r = call { i64, i64 } @multiply_add_128(i64 %x, i64 %y, i64 0)
 ret { i64, i64 } %r
}
define internal { i64, i64 } @multiply_add_128(i64 %x, i64 %y, i64 %z) alwaysinline {
 %a = zext i64 %x to i128
 %b = zext i64 %y to i128
 %c = zext i64 %z to i128
 %p = mul i128 %a, %b
 %s = add i128 %p, %c
 %r = call { i64, i64 } @split(i128 %s)
 ret { i64, i64 } %r
}
; a float32 from 1 to 2 of the upper 20 bits of a fraction
define internal float @upper_part(i64 %c) alwaysinline {
 %m = lshr i64 %c, 29
 %f = trunc i64 %m to i32
 %g = and i32 %f, 8388600
 %b = or i32 %g, 1065353216
 %r = bitcast i32 %b to float
 ret float %r
}
; the upper 20 bits of a positive float32's fraction, times 2^k; 0 below the normal numbers
define internal double @cut_off(float %y, i64 %k) alwaysinline {
 %c = bitcast float %y to i32
 %w = zext i32 %c to i64
 %e0 = lshr i64 %w, 23
 %e = add i64 %e0, 896
 %f0 = lshr i64 %w, 3
 %f = and i64 %f0, 1048575
 %e1 = add i64 %e, %k
 %h0 = shl i64 %e1, 20
 %h = or i64 %h0, %f
 %d = shl i64 %h, 32
 %small = icmp slt i64 %e1, 1
 %z = select i1 %small, i64 0, i64 %d
 %r = bitcast i64 %z to double
 ret double %r
}
define internal double @rcp64_of(double %x) alwaysinline {
 %c = bitcast double %x to i64
 %m = call float @upper_part(i64 %c)
 %t = call float @rcp_of(float %m)
 %be0 = lshr i64 %c, 52
 %be = and i64 %be0, 2047
 %k = sub i64 1023, %be
 %q = call double @cut_off(float %t, i64 %k)
 %subnormal = icmp eq i64 %be, 0
 %infinite = icmp eq i64 %be, 2047
 %r0 = select i1 %infinite, double 0.0, double %q
 %r1 = select i1 %subnormal, double 0x7FF0000000000000, double %r0
 %r2 = call double @llvm.copysign.f64(double %r1, double %x)
 %missing = fcmp uno double %x, 0.0
 %nan = bitcast i64 9223372032559808512 to double
 %r = select i1 %missing, double %nan, double %r2
 ret double %r
}
define internal double @rsqrt64_of(double %x) alwaysinline {
 %c = bitcast double %x to i64
 %be0 = lshr i64 %c, 52
 %be = and i64 %be0, 2047
 %e = sub i64 %be, 1023
 %odd = and i64 %e, 1
 %is_odd = icmp ne i64 %odd, 0
 %m0 = call float @upper_part(i64 %c)
 %m1 = fmul float %m0, 2.0
 %m = select i1 %is_odd, float %m1, float %m0
 %t = call float @rsqrt_of(float %m)
 %even = sub i64 %e, %odd
 %half = ashr i64 %even, 1
 %k = sub i64 0, %half
 %q = call double @cut_off(float %t, i64 %k)
 %subnormal = icmp eq i64 %be, 0
 %infinite = icmp eq i64 %c, 9218868437227405312
 %r0 = select i1 %infinite, double 0.0, double %q
 %s = call double @llvm.copysign.f64(double 0x7FF0000000000000, double %x)
 %r1 = select i1 %subnormal, double %s, double %r0
 %below = icmp slt i64 %c, 0
 %normal = xor i1 %subnormal, true
 %invalid = and i1 %below, %normal
 %missing = fcmp uno double %x, 0.0
 %no = or i1 %invalid, %missing
 %nan = bitcast i64 9223372032559808512 to double
 %r = select i1 %no, double %nan, double %r1
 ret double %r
}
; one step of refinement: y + y * e * (1/2 + 3/8 e), where e = 1 - x * y * y
define internal double @rsqrt64_refined(double %x) alwaysinline {
 %c = bitcast double %x to i64
 %be0 = lshr i64 %c, 52
 %be = and i64 %be0, 2047
 %subnormal = icmp eq i64 %be, 0
 %more = fmul double %x, 0x4350000000000000
 %x0 = select i1 %subnormal, double %more, double %x
 %y = call double @rsqrt64_of(double %x0)
 %yy = fmul double %y, %y
 %n = fneg double %x0
 %e = call double @llvm.fma.f64(double %n, double %yy, double 1.0)
 %s = call double @llvm.fma.f64(double %e, double 3.750000e-01, double 5.000000e-01)
 %ey = fmul double %e, %y
 %q = call double @llvm.fma.f64(double %s, double %ey, double %y)
 %up = fmul double %q, 0x41A0000000000000
 %r0 = select i1 %subnormal, double %up, double %q
 %zero = fcmp oeq double %x, 0.0
 %infinite = icmp eq i64 %be, 2047
 %as_it_is = or i1 %zero, %infinite
 %r1 = select i1 %as_it_is, double %y, double %r0
 %below = fcmp olt double %x, 0.0
 %r2 = select i1 %below, double 0x7FF8000000000000, double %r1
 ret double %r2
}
"""
# PTX by a part of its text: the function that computes it
INLINE_FLOAT64 = {
    "rsqrt.approx.ftz.f64": "nvvm_rsqrt_approx_ftz_d",
    "sub.rn.f64": "nvvm_sub_rn_d",
    "{\\0A\\09.reg .u32 r0, r1, r2, r3, alo, ahi, blo, bhi;": "multiply_wide",
    "{\\0A\\09.reg .u32 r0, r1, r2, r3, alo, ahi, blo, bhi, clo": "multiply_add_128",
    "add.cc.u32      r0, a0, b0": "add_128",
    "sub.cc.u32      r0, a0, b0": "subtract_128",
}
