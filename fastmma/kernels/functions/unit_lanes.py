"""LLVM IR of the special function unit's squarer, interpolator and ex2 for 16 lanes of AVX-512, by its products of bytes and half words.

The squarer's columns are products of single bits of x by what lies above them: bytes, which masks of these bits leave out, and of which an
instruction adds four. The products of c1 and c2, in one word, by x and s are sums of two of 16 bits; so c1 counts from a number in the
middle of its range, whose products `fastmma.kernels.functions.unit` adds.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastmma.kernels.functions.expression import constant
from fastmma.kernels.functions.lookup import SIXTEEN, WORDS, in_registers, variants, vector
from fastmma.kernels.llvm import cpu

_FEATURES = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512bitalg", "avx512vbmi", "avx512vnni"})
_BYTES, _HALVES, _FLOATS, _BITS = "<64 x i8>", "<32 x i16>", "<16 x float>", "<64 x i1>"
_DOT, _PAIRS, _SHIFT = "llvm.x86.avx512.vpdpbusd.512", "llvm.x86.avx512.pmaddw.d.512", "llvm.x86.avx512.pmultishift.qb.512"
_ADDED_PAIRS, _CHOSEN_BITS = "llvm.x86.avx512.vpdpwssds.512", "llvm.x86.avx512.vpshufbitqmb.512"
_NEARER, _FIXED = "llvm.x86.avx512.mask.range.ps.512", "llvm.x86.avx512.mask.fixupimm.ps.512"
_SQUARES = {"square_": 0, "top_square_": 15}  # how far up x lies
# ranges into which numbers are moved: of ex2; of exp's x, beyond which the whole part of a power of two is the last one; and of what that
# part leaves, in units of ex2, from which on results are 0 or infinite
_LIMITS = {"within_128": 128.0, "within_wholes": float.fromhex("0x1.5d58ap+6"), "within_rest": 100.0 * 2**23}
_LOG2E, _LOG2E_REST, _LOG2E_OF_252 = (float.fromhex(each) for each in ("0x1.715476p+0", "0x1.4ae0cp-26", "0x1.77313ap-8"))
_WHOLE = 1.5 * 2**23 + 1
_ZEROS = 24  # a bit from which words of x have zeros alone
_UPPER = 10  # the bit from which on x is squared
# of the bytes of two words: from which bit on they are taken of x, which bit of x says whether they count, and how often
_ABOVE = (10, 10, 11, 12), (13, 14, 15, 16)
_COUNTED = (9, 8, 7, 6), (5, 4, 3, 2)
_TIMES = (2, 1, 1, 1), (1, 1, 1, 1)
_ZERO_UNLESS_NAN = 0x88888800  # by classes of numbers, 4 bits each, the first of which are quiet and other NaN: 0 keeps, 8 is zero


def has_lanes() -> bool:
    """Tell whether this CPU has these instructions."""
    return in_registers() and cpu.usable() >= _FEATURES


def _bytes(numbers: Sequence[int]) -> str:
    return f"<{', '.join(f'i8 {number}' for number in numbers)}>"


def _fields(bits: Sequence[int]) -> str:
    """Name the bits of two words that the instruction takes, for all bytes of both."""
    return _bytes([bit + 32 * word for _ in range(8) for word in (0, 1) for bit in bits])


def _floats(number: str) -> str:
    return f"<{', '.join([f'float {number}'] * 16)}>"


def _all(word: int) -> str:
    return vector([word] * 16)


def _of_bits(index: int, up: int) -> str:
    """Add to a square what some bits of x, moved `up`, make with the bits above them."""
    d, added = "%d", ""
    for number, (above, bit, times) in enumerate(zip(_ABOVE[index], _COUNTED[index], _TIMES[index], strict=True)):
        added += (
            f" %b{number} = and i32 %x, {1 << bit + up}\n %z{number} = icmp eq i32 %b{number}, 0\n"
            f" %h{number} = lshr i32 %x, {above + up}\n"
            f" %t{number} = mul i32 %h{number}, {times}\n %p{number} = select i1 %z{number}, i32 0, i32 %t{number}\n"
            f" %d{number} = add i32 {d}, %p{number}\n"
        )
        d = f"%d{number}"
    return f"{added} ret i32 {d}\n"


def _start(up: int) -> str:
    return f" %u = lshr i32 %x, {_UPPER + up}\n %uu = mul i32 %u, %u\n %r = shl i32 %uu, 1\n ret i32 %r\n"


_PAIRS_OF_ONE = """ %a0 = shl i32 %a, 16
 %a1 = ashr i32 %a0, 16
 %a2 = ashr i32 %a, 16
 %b0 = shl i32 %b, 16
 %b1 = ashr i32 %b0, 16
 %b2 = ashr i32 %b, 16
 %low = mul i32 %a1, %b1
 %high = mul i32 %a2, %b2
 %both = add i32 %low, %high
 %r = add i32 %sum, %both
 ret i32 %r
"""
_NAN_OF_ONE = """ %given = fcmp ord float %x, 0.0
 %nan = bitcast i32 2147483647 to float
 %r = select i1 %given, float 0.0, float %nan
 ret float %r
"""


_LESS_OF_ONE = """ %below = fcmp ole float %x, -1.0
 %less = sub i32 %steps, 1
 %r = select i1 %below, i32 %less, i32 %steps
 ret i32 %r
"""


def lanes() -> str:
    """Write the steps of the unit: each is one instruction or two, so that a loop's vectors take turns.

    The square of x begins with `square_start` and goes on with `square_upper` and `square_lower`; `add_pairs` adds products of half words,
    `within_128` moves a number into this range, and `zero_unless_nan` has a GPU's NaN.
    """
    from fastmma.kernels.llvm.library import binding

    old = binding.llvm_version_info[0] < 21
    operands, pairs = (WORDS, WORDS) if old else (_BYTES, _HALVES)
    text = f"""declare {WORDS} @{_DOT}({WORDS}, {operands}, {operands})
declare {WORDS} @{_PAIRS}({_HALVES}, {_HALVES})
declare {_BYTES} @{_SHIFT}({_BYTES}, {_BYTES})
declare {WORDS} @{_ADDED_PAIRS}({WORDS}, {pairs}, {pairs})
declare {_BITS} @{_CHOSEN_BITS}({_BYTES}, {_BYTES})
declare {_FLOATS} @{_NEARER}({_FLOATS}, {_FLOATS}, i32, {_FLOATS}, i16, i32)
declare {_FLOATS} @{_FIXED}({_FLOATS}, {_FLOATS}, {WORDS}, i32, i16, i32)
define {WORDS} @add_pairs{SIXTEEN}({WORDS} %sum, {WORDS} %a, {WORDS} %b) alwaysinline {{
 %x = bitcast {WORDS} %a to {pairs}
 %y = bitcast {WORDS} %b to {pairs}
 %r = call {WORDS} @{_ADDED_PAIRS}({WORDS} %sum, {pairs} %x, {pairs} %y)
 ret {WORDS} %r
}}
define {_FLOATS} @zero_unless_nan{SIXTEEN}({_FLOATS} %x) alwaysinline {{
 %nan = bitcast {WORDS} {_all(0x7FFFFFFF)} to {_FLOATS}
 %r = call {_FLOATS} @{_FIXED}({_FLOATS} %nan, {_FLOATS} %x, {WORDS} {_all(_ZERO_UNLESS_NAN)}, i32 0, i16 -1, i32 4)
 ret {_FLOATS} %r
}}
"""
    # a -1 that LLVM does not know is added under a mask, in one instruction
    text += f"""define {WORDS} @less_below{SIXTEEN}({WORDS} %steps, {_FLOATS} %x) alwaysinline {{
 %below = fcmp ole {_FLOATS} %x, {_floats("-1.0")}
 %unknown = call {_BYTES} @{_SHIFT}({_BYTES} zeroinitializer, {_BYTES} {_bytes([-1] * 64)})
 %minus = bitcast {_BYTES} %unknown to {WORDS}
 %less = add {WORDS} %steps, %minus
 %r = select <16 x i1> %below, {WORDS} %less, {WORDS} %steps
 ret {WORDS} %r
}}
"""
    steps = {
        "less_below": (("i32 %steps", "float %x"), "i32", _LESS_OF_ONE),
        "add_pairs": (("i32 %sum", "i32 %a", "i32 %b"), "i32", _PAIRS_OF_ONE),
        "zero_unless_nan": (("float %x",), "float", _NAN_OF_ONE),
    }
    text += "".join(variants(name, *step, f"{name}{SIXTEEN}") for name, step in steps.items())
    text += "".join(_squares(prefix, up, operands) for prefix, up in _SQUARES.items())
    return text + "".join(_within(*each) for each in _LIMITS.items())


def _squares(prefix: str, up: int, operands: str) -> str:
    """Write the steps of a squarer of x that lies `up` bits above the lowest one."""
    zeros = 0 if up else _ZEROS
    text = f"""define {WORDS} @{prefix}start{SIXTEEN}({WORDS} %x) alwaysinline {{
 %b = bitcast {WORDS} %x to {_BYTES}
 %a = call {_BYTES} @{_SHIFT}({_BYTES} {_fields([_UPPER + up, zeros] * 2)}, {_BYTES} %b)
 %u = bitcast {_BYTES} %a to {_HALVES}
 %r = call {WORDS} @{_PAIRS}({_HALVES} %u, {_HALVES} %u)
 ret {WORDS} %r
}}
"""
    for name, above, bits, times in zip(("upper", "lower"), _ABOVE, _COUNTED, _TIMES, strict=True):
        fields, counted = ([bit + up for bit in each] for each in (above, bits))
        text += f"""define {WORDS} @{prefix}{name}{SIXTEEN}({WORDS} %d, {WORDS} %x) alwaysinline {{
 %b = bitcast {WORDS} %x to {_BYTES}
 %a = call {_BYTES} @{_SHIFT}({_BYTES} {_fields(fields)}, {_BYTES} %b)
 %k = call {_BITS} @{_CHOSEN_BITS}({_BYTES} %b, {_BYTES} {_fields(counted)})
 %t = select {_BITS} %k, {_BYTES} %a, {_BYTES} zeroinitializer
 %p = bitcast {_BYTES} %t to {operands}
 %q = bitcast {_BYTES} {_bytes(times * 16)} to {operands}
 %r = call {WORDS} @{_DOT}({WORDS} %d, {operands} %p, {operands} %q)
 ret {WORDS} %r
}}
"""
    steps = {
        "start": (("i32 %x",), "i32", _start(up)),
        "upper": (("i32 %d", "i32 %x"), "i32", _of_bits(0, up)),
        "lower": (("i32 %d", "i32 %x"), "i32", _of_bits(1, up)),
    }
    return text + "".join(variants(f"{prefix}{name}", *step, f"{prefix}{name}{SIXTEEN}") for name, step in steps.items())


def _within(name: str, limit: float) -> str:
    """Write what moves a number into a range."""
    number, least = constant(limit), constant(-limit)
    body = f""" %under = fcmp olt float %x, {number}
 %h1 = select i1 %under, float %x, float {number}
 %over = fcmp ogt float %h1, {least}
 %r = select i1 %over, float %h1, float {least}
 ret float %r
"""
    return f"""define {_FLOATS} @{name}{SIXTEEN}({_FLOATS} %x) alwaysinline {{
 %r = call {_FLOATS} @{_NEARER}({_FLOATS} %x, {_FLOATS} {_floats(number)}, i32 2, {_FLOATS} zeroinitializer, i16 -1, i32 4)
 ret {_FLOATS} %r
}}
{variants(name, ("float %x",), "float", body, f"{name}{SIXTEEN}")}"""


_STEPS = """ %d0 = call i32 @square_start(i32 %x)
 %d1 = call i32 @square_upper(i32 %d0, i32 %x)
 %d2 = call i32 @square_lower(i32 %d1, i32 %x)
"""
SQUARE = f"{_STEPS} ret i32 %d2\n"


def rise_body(bias: int, cut: int) -> str:
    """Write the part of a result that c1 and c2, in a word, make, rounded down to a multiple of 2^`cut`."""
    return f"""{_STEPS} %s = shl i32 %d2, 16
 %lower = and i32 %x, {(1 << cut) - 1}
 %both = or i32 %s, %lower
 %e = call i32 @add_pairs(i32 {bias}, i32 %word, i32 %both)
 %f = ashr i32 %e, {cut}
 %upper = lshr i32 %x, {cut}
 %r = call i32 @add_pairs(i32 %f, i32 %word, i32 %upper)
 ret i32 %r
"""


# libdevice's expf: e^x is 2^k times ex2 of what k leaves. Both are computed in units of 2^-23, as ex2 takes them. Numbers below 0 are no
# whole numbers there, but for some whose results are subnormal, and rounded to the same
EXPONENTIAL = f"""define internal float @exp_of(float %x) alwaysinline {{
 %h = call float @within_wholes(float %x)
 %t = call float @llvm.fma.f32(float %h, float {constant(_LOG2E_OF_252)}, float 0.5)
 %j = call float @down_to_whole(float %t, float 252.0, float {constant(_WHOLE)})
 %k = call float @llvm.fma.f32(float %j, float -8388608.0, float {constant((_WHOLE + 126) * 2**23)})
 %f0 = call float @llvm.fma.f32(float %x, float {constant(_LOG2E * 2**23)}, float %k)
 %f1 = call float @llvm.fma.f32(float %x, float {constant(_LOG2E_REST * 2**23)}, float %f0)
 %f = call float @within_rest(float %f1)
 %steps = fptosi float %f to i32
 %code = call i32 @less_below(i32 %steps, float %f)
 %c = call i32 @power_code(i32 %code)
 %p = bitcast i32 %c to float
 %jc = bitcast float %j to i32
 %sc = shl i32 %jc, 23
 %scale = bitcast i32 %sc to float
 %result = fmul float %p, %scale
 %given = fcmp ord float %x, 0.0
 %nan = bitcast i32 2147483647 to float
 %r = select i1 %given, float %result, float %nan
 ret float %r
}}
"""
