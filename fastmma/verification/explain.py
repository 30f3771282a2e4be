"""One element of d in full: the bits that met, and the aligned terms of each fused step, by the reference arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.execution.shared_memory import matrix_in_memory
from fastmma.host.calls import public_call
from fastmma.host.errors import InstructionError
from fastmma.isa.codes import decode
from fastmma.isa.descriptor import Descriptor
from fastmma.isa.formats import Format
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.numerics import reference
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.numerics.lookup import arithmetic
from fastmma.numerics.reference import Number, Step, number, watching
from fastmma.operands import sparse
from fastmma.operands.registers import gather
from fastmma.operands.scales import unpack_scales
from fastmma.operands.sparse import unpack_metadata
from fastmma.verification.trials import Trial

Codes = NDArray[Any]


def operands_of_tile(trial: Trial, execution: int, tile: int) -> dict[str, Codes]:
    """The matrices of one execution, as codes: a, b and c, and metadata and scales where there are any."""
    ins = trial.instruction
    if not isinstance(ins, Instruction):
        raise InstructionError(f"{ins} multiplies nothing")
    found: dict[str, Codes] = {}
    for name in "abc":
        source = "d" if ins.op == "wgmma" and name == "c" else name
        if source in trial.operands:
            matrices = gather(trial.operands[source][execution], ins.operands[source], kind=ins.kind)
            found[name] = matrices[tile] if ins.tiles > 1 else matrices
        else:
            outer, k, fmt = (ins.m, ins.stored_k, ins.formats.a) if name == "a" else (ins.n, ins.k, ins.formats.b)
            place = Descriptor.decode(trial.arguments[name])
            mn_major = bool(trial.arguments.get(f"imm_trans_{name}", 0))
            lines = matrix_in_memory(trial.operands["memory"][execution], place, outer, k, fmt, mn_major, name)
            found[name] = lines if name == "a" else lines.T
        if trial.arguments.get(f"imm_scale_{name}", 1) < 0:
            sign = 1 << (getattr(ins.formats, name).bits - 1)
            found[name] = found[name] ^ found[name].dtype.type(sign)
    if ins.sparse:
        found["metadata"] = unpack_metadata(ins, trial.operands["metadata"][execution], selector=trial.arguments.get("selector", 0))
    for name in "ab" if ins.scale_vec_size else "":
        ids = (trial.arguments.get(f"{kind}_id_{name}", 0) for kind in ("byte", "thread"))
        scales = unpack_scales(ins, trial.operands[f"scale_{name}"][execution], name, *ids)
        found[f"scale_{name}"] = scales if name == "a" else scales.T
    return found


def _hex(code: int, fmt: Format) -> str:
    return f"0x{code:0{-(-fmt.bits // 4)}x}"


def _number(term: Number) -> str:
    if term.special:
        return ("-" if term.negative else "") + term.special
    return f"{term.significand} * 2^{term.last}"


def _steps(steps: list[Step], row: Arithmetic, accumulator: Format) -> list[str]:
    lines = []
    for index, step in enumerate(steps):
        lines.append(
            f"step {index}: " + (f"terms in units of 2^{step.last}, F = {row.align_bits}" if step.aligned else "a special decides")
        )
        for place, term in enumerate(step.terms):
            label = "accumulator" if place == len(step.terms) - 1 else f"term {place}"
            shown = f"  {label}: {_number(term)}, exponent {term.exponent}"
            if step.aligned:
                exact = term.last - step.last
                lost = exact < 0 and abs(term.significand) & ((1 << -exact) - 1)
                shown += f" -> {step.aligned[place]}" + (" (truncated)" if lost else "")
            lines.append(shown)
        total = f"sum {sum(step.aligned)} " if step.aligned else ""
        lines.append(f"  {total}-> {_hex(step.code, accumulator)}")
    return lines


def _fma_terms(ins: Instruction, a: Codes, b: Codes, c: Codes) -> list[str]:
    """What each fused multiply-add of a chain gives."""
    fmt, total, lines = ins.formats.d, int(c[0, 0]), []
    for k, (x, y) in enumerate(zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)):
        total = reference.fma(number(x, fmt), number(y, fmt), number(total, fmt), fmt, ins.rounding)
        lines.append(f"  fma {k} -> {_hex(total, fmt)}")
    return lines


def _integer_terms(ins: Instruction, a: Codes, b: Codes, c: Codes) -> list[str]:
    """The products, and their sum with c before it is cut to 32 bits."""
    x, y, start = (np.asarray(decode(codes, fmt)).ravel().tolist() for codes, fmt in ((a, ins.atype), (b, ins.btype), (c, ins.ctype)))
    products = [left * right for left, right in zip(x, y, strict=True)]
    return [f"products: {' '.join(map(str, products))}", f"sum {sum(products, start[0])}"]


# how the methods that fuse nothing add up
_UNFUSED = {"f64-fma": _fma_terms, "integer": _integer_terms}


@public_call
def explain(trial: Trial, target: str, execution: int, row: int, col: int, tile: int = 0) -> str:
    """What feeds one element of d, and how the emulator adds it up.

    Parameters
    ----------
    trial : Trial
        Of an instruction that multiplies.
    target : str
    execution : int
        Which of the trial's.
    row, col, tile : int
        The element of d; `tile` is one of four for m8n8k4 with f16.

    Returns
    -------
    str
        Several lines: the codes and values of a, b and c, then each fused step with its terms as integers after alignment; of integers the
        products, and of a chain of fma its results.

    Raises
    ------
    InstructionError
        If the opcode multiplies nothing.
    TargetError
        If what the target computes is not known.

    Examples
    --------
    >>> from fastmma.isa.table import instruction
    >>> from fastmma.verification.trials import draw
    >>> trial = draw(instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), ("tie",), 1, 0)
    >>> print(explain(trial, "sm_90a", 0, 3, 5).splitlines()[0])
    d[3][5] of mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 on sm_90a: fused: L = 16, F = 25, emax >= -133, keep 23
    """
    ins = trial.instruction
    given = operands_of_tile(trial, execution, tile)
    if not isinstance(ins, Instruction):
        raise InstructionError(f"{ins} multiplies nothing")
    rule = arithmetic(ins, target, strict=False)
    a, b, c = given["a"][row : row + 1], given["b"][:, col : col + 1], given["c"][row : row + 1, col : col + 1]
    extra: dict[str, Any] = {name: codes[row : row + 1] for name, codes in given.items() if name in ("metadata", "scale_a")}
    extra |= {"scale_b": given["scale_b"][:, col : col + 1]} if "scale_b" in given else {}
    with watching() as seen:
        code = int(reference.tile(ins, rule, a, b, c, **extra)[0, 0])
    steps = [step for step in seen if step.operation == "fused"]
    lines = [f"d[{row}][{col}] of {ins} on {target}: {rule.family}"]
    for name, codes, fmt in (("a", a, ins.formats.a), ("b", b, ins.formats.b), ("c", c, ins.formats.c)):
        shown = "g" if fmt.kind == "float" else "d"
        pairs = zip(codes.ravel().tolist(), np.asarray(decode(codes.ravel(), fmt)).tolist(), strict=True)
        lines.append(f"{name} ({fmt}): " + " ".join(f"{_hex(code, fmt)}={value:{shown}}" for code, value in pairs))
    for name, codes in extra.items():
        lines.append(f"{name}: " + " ".join(f"0x{int(each):x}" for each in codes.ravel()))
    if rule.method in _UNFUSED:
        dense = sparse.expand(a, extra["metadata"], pattern_of(ins)) if ins.sparse else a
        lines += _UNFUSED[rule.method](ins, dense, b, c)
    return "\n".join([*lines, *_steps(steps, rule, ins.formats.sums), f"d ({ins.dtype}): {_hex(code, ins.formats.d)}"])
