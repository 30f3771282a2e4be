"""LLVM IR that rounds float64 to float32 in a direction, exactly: a result and its error tell on which side of it the exact number lies."""

from __future__ import annotations

from fastmma.kernels.functions.lookup import SIXTEEN, in_registers, variants

DIRECTED = """
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
"""
# a * b + c of 0 <= a * b <= c / 2, where c has as many bits before the point as a significand has: what is left of a sum is a float32
_DOWN_TO_WHOLE = """ %q = call float @llvm.fma.f32(float %a, float %b, float %c)
 %z = fsub float %q, %c
 %m = fneg float %z
 %d = call float @llvm.fma.f32(float %a, float %b, float %m)
 %over = fcmp olt float %d, 0.0
 %less = fsub float %q, 1.0
 %r = select i1 %over, float %less, float %q
 ret float %r
"""
_FLOATS, _FMA, _DOWN = "<16 x float>", "llvm.x86.avx512.vfmadd.ps.512", 9  # rounded down, without exceptions


def down_to_whole() -> str:
    """Write that sum, which AVX-512 rounds down in one instruction."""
    parameters = "float %a", "float %b", "float %c"
    if not in_registers():
        return f"define internal float @down_to_whole({', '.join(parameters)}) alwaysinline {{\n{_DOWN_TO_WHOLE}}}\n"
    name, given = f"down_to_whole{SIXTEEN}", ", ".join(f"{_FLOATS} %{each}" for each in "abc")
    return f"""declare {_FLOATS} @{_FMA}({_FLOATS}, {_FLOATS}, {_FLOATS}, i32)
define {_FLOATS} @{name}({given}) alwaysinline {{
 %r = call {_FLOATS} @{_FMA}({given}, i32 {_DOWN})
 ret {_FLOATS} %r
}}
{variants("down_to_whole", parameters, "float", _DOWN_TO_WHOLE, name)}"""


# calls of NVVM's intrinsics by how their text begins, and functions that compute them in float32: exponentials round a number from 0 to 1,
# times 252 and added to 1.5 * 2^23 + 1
IN_FLOAT32 = {
    r"@llvm\.nvvm\.fma\.rm(?:\.ftz)?\.f\((?=float %[\w.]+, float 2\.520000e\+02, )": "@down_to_whole(",
}
