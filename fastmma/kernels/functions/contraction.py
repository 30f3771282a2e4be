"""Products that are only added become fused multiply-adds, as compilers for NVIDIA's GPUs make them within a function."""

from __future__ import annotations

import re

_PRODUCT = re.compile(r"^ *(%[\w.]+) = fmul (float|double) ([^,\n]+), ([^,\n]+)$", re.M)
_SUM = re.compile(r"^( *%[\w.]+ = )f(add|sub) (float|double) ([^,\n]+), ([^,\n]+)$", re.M)
_SUFFIX = {"float": "f32", "double": "f64"}


def contract(function: str) -> str:
    """Fuse the products of a function's text with sums and differences; of two products, the one that is used less.

    Examples
    --------
    >>> print(contract(" %1 = fmul float %a, %b\\n %2 = fsub float %1, %c"))
     %1 = fmul float %a, %b
     %n0 = fneg float %c
     %2 = call float @llvm.fma.f32(float %a, float %b, float %n0)
    """
    products = {match[1]: (match[3], match[4]) for match in _PRODUCT.finditer(function)}
    uses = {name: len(re.findall(rf"{re.escape(name)}(?![\\w.])", function)) for name in products}
    count = 0

    def fused(match: re.Match[str]) -> str:
        nonlocal count
        made, operation, kind, first, second = match.groups()
        known = [each for each in (first, second) if each in products]
        if not known:
            return match[0]
        taken = min(known, key=lambda each: uses[each])
        a, b = products[taken]
        other = second if taken == first else first
        negated = other if taken == first else a
        lines = ""
        if operation == "sub":
            lines, count = f" %n{count} = fneg {kind} {negated}\n", count + 1
            other, a = (f"%n{count - 1}", a) if taken == first else (other, f"%n{count - 1}")
        return f"{lines}{made}call {kind} @llvm.fma.{_SUFFIX[kind]}({kind} {a}, {kind} {b}, {kind} {other})"

    return _SUM.sub(fused, function)
