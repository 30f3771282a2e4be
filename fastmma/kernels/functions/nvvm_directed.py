"""LLVM IR for CPUs of NVVM's intrinsics of float32 that round in a direction, and of how numbers below the normal ones are flushed."""

from __future__ import annotations

_WIDE = " %a = fpext float %x to double\n %b = fpext float %y to double\n"
_SUM = _WIDE + " %s = fadd double %a, %b\n %e = call double @error_of_sum(double %a, double %b, double %s)\n"
_LESS = " %v = fneg float %y\n" + _SUM.replace("fpext float %y", "fpext float %v")
_PRODUCT = _WIDE + " %s = fmul double %a, %b\n %e = fadd double 0.0, 0.0\n"
_FUSED = """ %a = fpext float %x to double
 %b = fpext float %y to double
 %c = fpext float %z to double
 %p = fmul double %a, %b
 %s = fadd double %p, %c
 %e = call double @error_of_sum(double %p, double %c, double %s)
"""
_QUOTIENT = """ %s = fdiv double %a, %b
 %n = fneg double %s
 %rest = call double @llvm.fma.f64(double %n, double %b, double %a)
 %e0 = fdiv double %rest, %b
 %finite = fcmp ord double %e0, 0.0
 %e = select i1 %finite, double %e0, double 0.0
"""
_ROOT = """ %a = fpext float %x to double
 %s = call double @llvm.sqrt.f64(double %a)
 %n = fneg double %s
 %rest = call double @llvm.fma.f64(double %n, double %s, double %a)
 %e0 = fdiv double %rest, %s
 %finite = fcmp ord double %e0, 0.0
 %e1 = select i1 %finite, double %e0, double 0.0
 %e = fmul double %e1, 5.000000e-01
"""
_OPERATIONS = {
    "add": ("xy", _SUM),
    "sub": ("xy", _LESS),
    "mul": ("xy", _PRODUCT),
    "fma": ("xyz", _FUSED),
    "div": ("xy", _WIDE + _QUOTIENT),
    "rcp": ("x", " %b = fpext float %x to double\n %a = fadd double 1.0, 0.0\n" + _QUOTIENT),
    "sqrt": ("x", _ROOT),
}
_DIRECTIONS = {"rz": "toward_zero", "rm": "down", "rp": "up"}
ROUNDED = {
    f"{name}.{direction}.f": (letters, f"{body} %r = call float @{function}(double %s, double %e)")
    for name, (letters, body) in _OPERATIONS.items()
    for direction, function in _DIRECTIONS.items()
}
ROUNDED["rcp.rn.f"] = ("x", " %r = fdiv float 1.0, %x")
UP_AND_FLUSHED = """
define internal float @up(double %s, double %e) alwaysinline {
 %a = fneg double %s
 %b = fneg double %e
 %t = call float @down(double %a, double %b)
 %r = fneg float %t
 ret float %r
}
; a number below the normal ones as zero
define internal float @flushed(float %x) alwaysinline {
 %m = call float @llvm.fabs.f32(float %x)
 %small = fcmp olt float %m, 0x3810000000000000
 %zero = call float @llvm.copysign.f32(float 0.0, float %x)
 %r = select i1 %small, float %zero, float %x
 ret float %r
}
"""
# PTX by a part of its text: the function that computes it
INLINE_DIRECTED = {
    f"sub.{direction}{flush}.f32": f"nvvm_sub_{direction}{flush.replace('.', '_')}_f" for direction in _DIRECTIONS for flush in ("", ".ftz")
}


def flush(name: str, letters: str) -> str:
    """Write a body that calls an intrinsic, whose operands and result are flushed."""
    lines = [f" %{letter}f = call float @flushed(float %{letter})" for letter in letters]
    given = ", ".join(f"float %{letter}f" for letter in letters)
    return "\n".join([*lines, f" %q = call float @{name}({given})", " %r = call float @flushed(float %q)"])
