"""ptxas referees the table: it takes an opcode on a target exactly when the table does.

The candidates are many more than the legal opcodes: each that some target takes is tried on every target, of the others a fixed share.
"""

from __future__ import annotations

import itertools
import re
import zlib
from functools import cache
from pathlib import Path

import pytest
from reference.fragments import CONTAINER_BITS
from reference.ptxas import accepted, known_targets, needs_ptxas, registers, version

import fastmma
from fastmma import instruction

pytestmark = needs_ptxas
KNOWN = known_targets()
SHARE = 24  # one candidate in so many that no target takes is tried on a target: most are on one or two of them

SHAPES = [(8, 8, k) for k in (4, 8, 16, 32, 64, 128)] + [(16, 8, k) for k in (4, 8, 16, 32, 64, 128, 256)] + [(16, 16, 16), (8, 16, 16)]
MULTIPLICANDS = ("f64", "tf32", "f16", "bf16", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "s8", "u8", "s4", "u4", "b1", "f32")
ACCUMULATORS = (("f16", "f16"), ("f32", "f32"), ("f32", "f16"), ("f16", "f32"), ("s32", "s32"), ("f64", "f64"), ("bf16", "bf16"))
LAYOUTS = ("row.col", "row.row", "col.row", "col.col")
MODIFIERS = ("", ".satfinite", ".rn", ".rz", ".rm", ".rp", ".rni", ".kind::f8f6f4", ".xor.popc", ".and.popc", ".or.popc", ".xor", ".relu")


@cache
def table() -> dict[str, tuple[str, ...]]:
    """The targets of every legal opcode, in the ways in which candidates write it."""
    found: dict[str, tuple[str, ...]] = {}
    for ins in fastmma.instructions():
        found[ins.opcode] = ins.targets
        if isinstance(ins, fastmma.Movement):
            *before, last = ins.opcode.rsplit(".", 2 if ".b8x16." in ins.opcode or ins.opcode.endswith(".s8.s4") else 1)
            for space in ins.spaces:
                found[".".join([ins.opcode.removesuffix("." + ".".join([*before[1:], last])), space, *before[1:], last])] = ins.targets
        elif ins.op == "wmma" and ins.rounding == "rn":
            found[ins.opcode.replace(f".{ins.shape}", f".{ins.shape}.rn")] = ins.targets
        elif ins.op == "wmma" and ins.bit_op:
            operation = f".{ins.bit_op}.popc"
            found[ins.opcode.replace(operation, "") + operation] = ins.targets
        elif ins.kind in ("mxf8f6f4", "mxf4"):
            written = f".block_scale.scale_vec::{'1X' if ins.kind == 'mxf8f6f4' else '2X'}"
            found[ins.opcode.replace(".block_scale", written)] = ins.targets
        elif ins.op == "mma" and ins.rounding == "rn":
            found[f"{ins.opcode}.rn"] = ins.targets
        elif ins.op == "mma" and ins.atype in ("s4", "u4") and not ins.sparse:  # ptxas ignores operations: the machine code is the same
            found |= {f"{ins.opcode}{operation}": ins.targets for operation in (".xor.popc", ".and.popc", ".or.popc", ".xor")}
    return found


def legal(opcode: str, target: str) -> bool:
    return target in table().get(opcode, ()) and instruction(opcode).ptx <= version()


def share(text: str, target: str, of: int = SHARE) -> bool:
    """Whether a candidate that no target takes is tried on a target."""
    return zlib.crc32(f"{text} {target}".encode()) % of == 0


@cache
def mma_candidates() -> dict[str, str]:
    """Opcodes and the statements that use them, with as many registers as the matrices need."""
    found = {}

    def add(shape: tuple[int, int, int], layouts: str, types: tuple[str, str, str, str], modifier: str) -> None:
        m, n, k = shape
        d, a, b, c = types
        many = 4 if shape == (8, 8, 4) and a == "f16" else 1  # four computations
        counts = [
            many * rows * bits // 1024 or 1
            for rows, bits in (
                (m * n, CONTAINER_BITS[d]),
                (m * k, CONTAINER_BITS[a]),
                (k * n, CONTAINER_BITS[b]),
                (m * n, CONTAINER_BITS[c]),
            )
        ]
        prefix = "r"
        if "f64" in (d, a):
            prefix, counts = "d", [max(1, count // 2) for count in counts]
        middle, end = (modifier, "") if modifier in (".kind::f8f6f4", ".satfinite") else ("", modifier)
        opcode = f"mma.sync.aligned.m{m}n{n}k{k}.{layouts}{middle}.{d}.{a}.{b}.{c}{end}"
        operands = ", ".join(registers(prefix, 128 * index, count) for index, count in enumerate(counts))
        found[opcode] = f"{opcode} {operands};"

    for shape, a, b, (d, c) in itertools.product(SHAPES, MULTIPLICANDS, MULTIPLICANDS, ACCUMULATORS):
        add(shape, "row.col", (d, a, b, c), "")
        if a[0] == "e" or b[0] == "e":
            add(shape, "row.col", (d, a, b, c), ".kind::f8f6f4")
    shapes_and_types = {
        ((ins.m, ins.n, ins.k), (ins.dtype, ins.atype, ins.btype, ins.ctype)) for ins in fastmma.instructions(op="mma") if not ins.sparse
    }
    for (shape, types), layouts, modifier in itertools.product(sorted(shapes_and_types), LAYOUTS, MODIFIERS):
        add(shape, layouts, types, modifier)
    return found


@cache
def wgmma_candidates(*forms: str) -> dict[str, str]:
    """Dense ones, or sparse ones, which have twice the k."""
    found = {}
    tails = {"f16": "%p1, 1, 1, 0", "bf16": "%p1, 1, 1, 0", "tf32": "%p1, 1, 1", "e4m3": "%p1, 1, 1", "e5m2": "%p1, 1, 1"}
    pairs = [(a, a) for a in ("f16", "bf16", "tf32", "b1", "f64", "s4")] + [("f16", "bf16"), ("e4m3", "s8")]
    pairs += list(itertools.product(("e4m3", "e5m2"), repeat=2)) + list(itertools.product(("s8", "u8"), repeat=2))
    sizes, depths = (*range(8, 257, 8), 4, 12, 264), (8, 16, 32, 64, 128, 512) if forms else (8, 16, 32, 64, 256)
    modifiers = ("", ".satfinite") if forms else ("", ".satfinite", ".and.popc", ".xor.popc")
    for form, n, k, (a, b), d, modifier in itertools.product(forms or ("",), sizes, depths, pairs, ("f16", "f32", "s32"), modifiers):
        if (k * CONTAINER_BITS[a] != (512 if forms else 256) or "::" in form) and n != 64:
            continue
        before, after = ("", modifier) if "popc" in modifier else (modifier, "")
        opcode = f"wgmma.mma_async{form}.sync.aligned.m64n{n}k{k}{before}.{d}.{a}.{b}{after}"
        held, metadata = n // 4 if d == "f16" else n // 2, ", %r400, 0" if forms else ""
        found[opcode] = f"{opcode} {registers('r', 128, held)}, {registers('r', 0, 4)}, %q0{metadata}, {tails.get(a, '%p1')};"
    return found


WGMMA = {"dense": wgmma_candidates(), "sparse": wgmma_candidates(".sp", ".sp::ordered_metadata")}


# ptxas lets 4-bit types pass with shapes that PTX does not give them, on the targets that have 4-bit multipliers
LENIENT = re.compile(
    r"wmma\.mma\.sync\.aligned\.\w+\.\w+\.(m16n16k16|m8n32k16|m32n8k16|m16n16k8|m8n8k4)\.s32\.[su]4\.[su]4\.s32(\.satfinite)?"
)


def disagreements(candidates: dict[str, str], target: str, folder: Path) -> list[str]:
    opcodes = [opcode for opcode in candidates if opcode in table() or share(opcode, target)]
    verdicts = accepted([candidates[opcode] for opcode in opcodes], target, folder)
    return [
        f"ptxas {'takes' if verdict else 'refuses'} {opcode} on {target}"
        for opcode, verdict in zip(opcodes, verdicts, strict=True)
        if verdict != legal(opcode, target) and not LENIENT.fullmatch(opcode)
    ]


@pytest.mark.parametrize("target", KNOWN)
def test_mma(target: str, tmp_path: Path) -> None:
    assert disagreements(mma_candidates(), target, tmp_path) == []


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_90a", "sm_100a", "sm_120a"])
@pytest.mark.parametrize("form", WGMMA)
def test_wgmma(form: str, target: str, tmp_path: Path) -> None:
    assert disagreements(WGMMA[form], target, tmp_path) == []
