"""tcgen05.mma: opcodes against ptxas, descriptors against PTX's tables, and layouts in Tensor Memory against PTX's text."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from fastmma.tcgen05 import InstructionDescriptor

from fastmma import InstructionError, instruction, tcgen05
from fastmma.isa.tcgen05.syntax import parsed

TEMPLATES = Path(__file__).with_name("tcgen05_templates.txt")
SIX = ("sm_100a", "sm_100f", "sm_103a", "sm_103f", "sm_110a", "sm_110f")
E4M3 = "tcgen05.mma.cta_group::1.kind::f8f6f4"


def templates(op: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Opcode with a collector, operands and targets."""
    found = []
    for line in TEMPLATES.read_text().splitlines():
        if not line.startswith(op):
            continue
        statement, collectors, targets = (each.strip() for each in line.split("|"))
        opcode, operands = statement.rstrip(";").split(" ", 1)
        taken = {"all": SIX, "none": ()}.get(targets, tuple(targets.split()))
        tails = ["" if each == "-" else f".collector::{each}" for each in collectors.split() or ["-"]]
        found += [(opcode.replace("{.collector}", tail), operands, taken) for tail in tails]
    return found


def test_ptxas_takes_what_the_table_takes() -> None:
    # what is written with registers are single experiments with operands
    statements = [each for each in templates("tcgen05.mma") if not re.search(r"\b[qr]\d", each[1])]
    assert len(statements) > 2_000
    wrong = []
    for opcode, operands, taken in statements:
        try:
            syntax = parsed(opcode)
        except InstructionError:
            targets: tuple[str, ...] = ()
        else:
            masks = re.search(r"\{([^}]*)\}", operands)
            assert masks is None or len(masks[1].split(",")) == 4 * syntax.cta_group
            targets = syntax.targets_with(
                a_in_tensor_memory="[a-tmem]" in operands,
                lane_mask=masks is not None,
                scale_input_d="scale-input-d" in operands,
                zero_column_mask="zero-column-mask" in operands,
            )
        if tuple(target for target in SIX if target in targets) != taken:
            wrong.append((opcode, operands, taken, targets))
    assert wrong == []


@pytest.mark.parametrize(
    ("opcode", "why"),
    [
        ("tcgen05.mma.kind::f16", "it is written tcgen05.mma"),
        ("tcgen05.mma.cta_group::1.kind::ti16", "there is no .kind::ti16"),
        ("tcgen05.mma.cta_group::1.kind::mxf8f6f4", "needs .block_scale"),
        ("tcgen05.mma.cta_group::1.kind::f16.block_scale", "takes no .block_scale"),
        ("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale", r"takes \.block16 or \.scale_vec::4X"),
        ("tcgen05.mma.ws.cta_group::2.kind::f16", r"\.ws takes no block scaling, no \.ashift, and \.cta_group::1 only"),
        ("tcgen05.mma.cta_group::1.kind::f16.collector::b0::fill", r"\.collector::a is for instructions without \.ws"),
        ("tcgen05.mma.cta_group::1.kind::f16.ashift.collector::a::use", r"\.ashift goes with"),
        ("tcgen05.mma.cta_group::1.kind::f16", "types and shape stand in the instruction descriptor"),
        (E4M3 + " idesc=0x0840001G", "behind tcgen05.mma there may stand idesc="),
    ],
)
def test_opcodes_that_are_wrong_say_why(opcode: str, why: str) -> None:
    with pytest.raises(InstructionError, match=why):
        instruction(opcode)


def test_opcode_and_word_are_one_text() -> None:
    ins = instruction(E4M3, idesc=0x08400010)
    assert str(ins) == f"{E4M3} idesc=0x08400010"
    assert instruction(str(ins)) == instruction(f"{E4M3}.collector::a::fill, idesc=0x08400010;") == ins
    assert (ins.shape, ins.types, ins.ptx) == ("m128n256k32", "f32.e4m3.e4m3.f32", (8, 6))
    assert tcgen05.instruction("f8f6f4", "f32", "e4m3", "e4m3") == ins
    with pytest.raises(InstructionError, match="another descriptor"):
        instruction(str(ins), idesc=0x08400090)
    with pytest.raises(InstructionError, match="idesc belongs to"):
        instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", idesc=0)


# PTX's tables: kind, dtype, atype, btype, m, n -> the word
WORDS = {
    ("f16", "f32", "bf16", "bf16", 128, 128): 0x08200490,
    ("f16", "f32", "f16", "f16", 128, 128): 0x08200010,
    ("f8f6f4", "f32", "e4m3", "e4m3", 128, 256): 0x08400010,
    ("mxf4nvf4", "f32", "e2m1", "e2m1", 128, 128): 0x08200480,
    ("tf32", "f32", "tf32", "tf32", 64, 8): 64 // 16 << 24 | 1 << 17 | 2 << 10 | 2 << 7 | 1 << 4,
    ("i8", "s32", "u8", "s8", 128, 32): 8 << 24 | 4 << 17 | 1 << 10 | 0 << 7 | 2 << 4,
    ("f8f6f4", "f16", "e2m3", "e3m2", 64, 16): 4 << 24 | 2 << 17 | 4 << 10 | 3 << 7,
    ("mxf8f6f4", "f32", "e5m2", "e2m1", 256, 64): 2 << 27 | 1 << 23 | 8 << 17 | 5 << 10 | 1 << 7,
}


@pytest.mark.parametrize(("fields", "word"), WORDS.items(), ids=str)
def test_descriptor_words(fields: tuple[str, str, str, str, int, int], word: int) -> None:
    descriptor = InstructionDescriptor(*fields)
    assert descriptor.encode() == word
    assert InstructionDescriptor.decode(fields[0], word) == descriptor


@pytest.mark.parametrize(
    ("kind", "change", "bits"),
    [
        ("f16", {"sparse": True, "sparsity_selector": 1}, 0b101),
        ("i8", {"saturate": True}, 1 << 3),
        ("f16", {"negate_a": True}, 1 << 13),
        ("f16", {"negate_b": True}, 1 << 14),
        ("f16", {"transpose_a": True}, 1 << 15),
        ("f16", {"transpose_b": True}, 1 << 16),
        ("f16", {"max_shift": 32}, 3 << 30),
        ("mxf8f6f4", {"scale_b_id": 3}, 3 << 4),
        ("mxf8f6f4", {"scale_a_id": 2}, 2 << 29),
        ("mxf4", {"k": 96}, 1 << 31),
        ("mxf4nvf4", {"stype": "ue8m0"}, 1 << 23),
    ],
)
def test_fields_of_descriptors(kind: str, change: dict[str, object], bits: int) -> None:
    types = {"f16": ("f32", "f16", "f16"), "i8": ("s32", "u8", "u8"), "mxf8f6f4": ("f32", "e4m3", "e4m3")}.get(
        kind, ("f32", "e2m1", "e2m1")
    )
    plain = InstructionDescriptor(kind, *types, 128, 64)
    changed = InstructionDescriptor(kind, *types, 128, 64, **change)  # type: ignore[arg-type]
    assert changed.encode() ^ plain.encode() == bits
    assert InstructionDescriptor.decode(kind, changed.encode()) == changed


def test_every_word_is_read_or_names_its_field() -> None:
    rng = np.random.default_rng(1)
    for kind in ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"):
        read, problems = 0, set()
        for bits in rng.integers(0, 1 << 32, 2000).tolist():
            word = bits & 0x5F7FFDB7 if kind in ("f16", "f8f6f4") else bits
            try:
                descriptor = InstructionDescriptor.decode(kind, word)
            except InstructionError as error:
                problems.add(str(error).split(": ")[0])
            else:
                assert descriptor.encode() == word
                read += 1
        assert problems <= {f"instruction descriptor of kind::{kind}"}
        assert read > 0 or kind not in ("f16", "f8f6f4")
    for wrong in (-1, 1 << 32, 1.0, True, "0", None):
        with pytest.raises(InstructionError, match="must be an integer of 32 bits"):
            InstructionDescriptor.decode("f16", wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ({"kind": "f16", "d": "f32", "a": "bf16", "b": "f16"}, "must be the same: the hardware traps"),
        ({"kind": "f16", "d": "f16", "a": "bf16", "b": "bf16"}, "dtype f16 needs atype and btype f16"),
        ({"kind": "tf32", "d": "f16", "a": "tf32", "b": "tf32"}, "dtype must be f32, not 'f16'"),
        ({"kind": "i8", "d": "s32", "a": "s8", "b": "u8", "n": 40}, "takes n of 8, 16, ... 256, not 40"),
        ({"kind": "f16", "d": "f32", "a": "f16", "b": "f16", "m": 256}, "takes m of 64, 128, not 256"),
        ({"kind": "f16", "d": "f32", "a": "f16", "b": "f16", "n": 24, "ws": True}, "takes n of 64, 128, 256, not 24"),
        ({"kind": "mxf4", "d": "f32", "a": "e2m1", "b": "e2m1", "m": 64}, "m must be one of 0, 128, 256, 384, not 64"),
        ({"kind": "mxf4", "d": "f32", "a": "e2m1", "b": "e4m3"}, "btype must be e2m1, not 'e4m3'"),
        ({"kind": "mxf4", "d": "f32", "a": "e2m1", "b": "e2m1", "scale": "ue4m3"}, "scale must be ue8m0, not 'ue4m3'"),
        ({"kind": "mxf4nvf4", "d": "f32", "a": "e2m1", "b": "e2m1", "scale": "ue4m3", "block": 32}, "block must be 16, not 32"),
        ({"kind": "f16", "d": "f32", "a": "f16", "b": "f16", "scale": "ue8m0"}, "there is no block scaling"),
        ({"kind": "f16", "d": "f32", "a": "f16", "b": "f16", "saturate": True}, "saturate is for i8 only"),
        ({"kind": "mxf4", "d": "f32", "a": "e2m1", "b": "e2m1", "k": 96, "sparse": True}, "k 96 is for dense instructions only"),
        ({"kind": "f16", "d": "f32", "a": "f16", "b": "f16", "cta_group": 3}, "cta_group must be 1 or 2, not 3"),
        ({"kind": "ti16", "d": "s32", "a": "s8", "b": "s8"}, "there is no kind 'ti16'"),
    ],
)
def test_illegal_descriptors_name_the_field(call: dict[str, object], why: str) -> None:
    with pytest.raises(InstructionError, match=re.escape(why).replace(r"\.\.\.", "...")):
        tcgen05.instruction(**call)  # type: ignore[arg-type]


def test_k_and_targets() -> None:
    depth = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
    for ins in tcgen05.instructions():
        assert ins.k == depth[ins.kind] * (2 if ins.sparse else 1)
        assert ins.targets
        assert set(ins.targets) <= {*SIX, "sm_107a", "sm_107f"}
        assert ins.scale_vec_size == 0 or ins.k // ins.scale_vec_size in ((16, 32) if not ins.sparse else (32, 64))
    ins = tcgen05.instruction("mxf4nvf4", "f32", "e2m1", "e2m1", k=96)
    assert (ins.k, ins.scale_vec_size, ins.targets) == (96, 6, ("sm_103a",))
    assert tcgen05.instruction("i8", "s32", "s8", "u8").targets == ("sm_100a", "sm_110a")


def test_atoms_of_tensor_layouts() -> None:
    """Every SM100 atom is an instruction, but those with bf16 operands and an f16 result, which PTX does not have."""
    atoms = pytest.importorskip("tensor_layouts.atoms_nv")
    names = [name for name in vars(atoms) if re.fullmatch(r"SM100_\d+x\d+x\d+_\w+_SS", name)]
    assert len(names) == 26
    for name in names:
        m, n, k, types = re.fullmatch(r"SM100_(\d+)x(\d+)x(\d+)_(\w+)_SS", name).groups()  # type: ignore[union-attr]
        d, a = re.match(r"(F16|F32)(TF32|BF16|F16)", types).groups()  # type: ignore[union-attr]
        call = ("tf32" if a == "TF32" else "f16", d.lower(), a.lower(), a.lower())
        if (d, a) == ("F16", "BF16"):
            with pytest.raises(InstructionError, match="dtype f16 needs"):
                tcgen05.instruction(*call, m=int(m), n=int(n))
        else:
            ins = tcgen05.instruction(*call, m=int(m), n=int(n))
            assert ins.k == int(k)
            assert getattr(atoms, name).shape_mnk == (ins.m, ins.n, ins.k)
