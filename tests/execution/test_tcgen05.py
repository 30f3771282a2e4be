"""tcgen05.mma on memory: operands put where PTX has them give the result of the matrices, where PTX has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fastmma.tcgen05 import InstructionDescriptor, MatrixDescriptor
from numpy.typing import NDArray
from reference import tcgen05 as facts

import fastmma
from fastmma import FORMATS, Instruction, OperandError, tcgen05

BYTES = 1 << 17
LEGAL = np.array([0x4, 0x8, 0xC, 0x9, 0xD, 0xE], np.uint8)
# K-major: no swizzle, and three; (leading, stride, swizzle)
PLAIN, SWIZZLES = (128, 512, 0), ((0, 256, 32), (0, 512, 64), (0, 1024, 128))


class Case:
    """An instruction with random operands, in matrices and in memory."""

    def __init__(
        self, ins: Instruction, seed: int, *, where: tuple[int, int, int] = PLAIN, a_in_tensor: bool = False, selector: int = 0
    ) -> None:
        self.ins, rng = ins, np.random.default_rng(seed)
        self.form = ins.m, ins.n, ins.cta_group, ins.ws, bool(ins.sparse)
        formats = ins.formats
        self.a, self.b = self.drawn(rng, formats.a, (ins.m, ins.stored_k)), self.drawn(rng, formats.b, (ins.k, ins.n))
        self.c = self.drawn(rng, formats.c, (ins.m, ins.n))
        chunk = {"tf32": 2, "mxf4": 8, "mxf4nvf4": 8}.get(ins.kind, 4)
        words = LEGAL[[0, 5]] if ins.kind == "tf32" else LEGAL
        self.metadata = rng.choice(words, (ins.m, ins.k // chunk)) if ins.sparse else None
        self.scales = {}
        if ins.stype:
            low, high = (0x30, 0x50) if ins.stype == "ue4m3" else (120, 135)
            self.scales = {
                "a": rng.integers(low, high, (ins.m, ins.scale_vec_size)),
                "b": rng.integers(low, high, (ins.n, ins.scale_vec_size)),
            }
        self.shared = rng.integers(0, 256, (ins.cta_group, BYTES), np.uint64).astype(np.uint8)
        self.tensor = rng.integers(0, 1 << 32, (ins.cta_group, 128, 512), np.uint64).astype(np.uint32)
        self.where, self.selector = where, selector
        self.d, self.at_a, self.at_metadata, self.at_scale_a, self.at_scale_b = 3, 270, 300, 310, 320
        self.base = {"a": 1024, "b": 1024 + (1 << 16)}
        self.put(a_in_tensor)

    @staticmethod
    def drawn(rng: np.random.Generator, fmt: Any, shape: tuple[int, int]) -> NDArray[Any]:
        if fmt.kind == "float" and fmt.bits >= 16:
            values = rng.integers(-8, 9, shape) * 2.0 ** rng.integers(-4, 4, shape)
            return fastmma.encode(values, fmt)
        bits = rng.integers(0, 1 << fmt.bits, shape, np.uint64)
        return (bits & ~np.uint64(0x40) if fmt.name in ("e4m3", "e5m2") else bits).astype(fmt.code_dtype)

    def cell(self, cta: int, lane: int, column: int, bit: int, width: int, value: int) -> None:
        mask = ((1 << width) - 1) << bit
        self.tensor[cta, lane, column] = int(self.tensor[cta, lane, column]) & ~mask | int(value) << bit

    def put(self, a_in_tensor: bool) -> None:
        ins = self.ins
        padded = ins.kind in ("f8f6f4", "mxf8f6f4")
        for name, codes in (("a", self.a), ("b", self.b.T)):
            fmt = ins.formats.a if name == "a" else ins.formats.b
            share = len(codes) // ins.cta_group
            for cta in range(ins.cta_group):
                if name == "b" or not a_in_tensor:
                    part = codes[cta * share : (cta + 1) * share]
                    facts.write_k_major(self.shared[cta], part, fmt.bits, padded and fmt.bits < 8, (self.base[name], *self.where))
        if a_in_tensor:
            self.put_a()
        width = ins.formats.d.bits
        for (r, j), code in np.ndenumerate(self.c):
            cta, lane, column = facts.d_place(*self.form, r, j)
            self.cell(cta, lane, self.d + column, 0, width, int(code))
        if self.metadata is not None:
            for (r, chunk), word in np.ndenumerate(self.metadata):
                for cta, lane, column, bit in facts.metadata_cells(ins.kind, ins.m, ins.cta_group, ins.ws, r, chunk, self.selector):
                    self.cell(cta, lane, self.at_metadata + column, bit, 4, int(word))
        for name, codes in self.scales.items():
            for (i, j), code in np.ndenumerate(codes):
                for cta, lane, column, bit in facts.scale_cells(ins.m, ins.n, ins.cta_group, name, i, j):
                    self.cell(cta, lane, (self.at_scale_a if name == "a" else self.at_scale_b) + column, bit, 8, int(code))

    def put_a(self) -> None:
        ins = self.ins
        bits = {"tf32": 32, "f16": 16, "mxf4": 4, "mxf4nvf4": 4}.get(ins.kind, 8)
        shift = 2 if ins.formats.a.bits == 4 and bits == 8 else 0
        for (r, k), code in np.ndenumerate(self.a):
            for cta, lane in facts.a_lanes(*self.form, r):
                self.cell(cta, lane, self.at_a + k * bits // 32, k * bits % 32, bits, int(code) << shift)

    def run(self, **more: Any) -> NDArray[np.uint32]:
        ins = self.ins
        addresses = {
            "a": MatrixDescriptor(self.base["a"], *self.where),
            "d": self.d,
            "idesc": ins.idesc,
            "b": MatrixDescriptor(self.base["b"], *self.where),
        }
        extra: dict[str, Any] = {"metadata": self.at_metadata} if ins.sparse else {}
        if self.scales:
            extra |= {"scale_a": self.at_scale_a, "scale_b": self.at_scale_b}
        opcode = ins.opcode.split(" ")[0]
        return tcgen05.mma(opcode, self.tensor, self.shared, **{**addresses, "target": "sm_100a", **extra, **more})

    def expected(self, *, c: NDArray[Any] | None = None) -> NDArray[np.uint32]:
        """Tensor Memory afterwards."""
        ins, formats = self.ins, self.ins.formats
        extra: dict[str, Any] = {} if self.metadata is None else {"metadata": self.metadata}
        if self.scales:
            dtype = FORMATS[ins.stype].dtype
            extra |= {
                "scale_a": self.scales["a"].astype(np.uint8).view(dtype),
                "scale_b": self.scales["b"].T.astype(np.uint8).copy().view(dtype),
            }
        operands = [
            each.view(fmt.dtype) for each, fmt in ((self.a, formats.a), (self.b, formats.b), (self.c if c is None else c, formats.c))
        ]
        d = fastmma.mma(ins, *operands, target="sm_100a", **extra).view(formats.d.code_dtype)
        tensor = self.tensor.copy()
        for (r, j), code in np.ndenumerate(d):
            cta, lane, column = facts.d_place(*self.form, r, j)
            tensor[cta, lane, self.d + column] = code
        return tensor


FORMS: list[tuple[tuple[str, str, str, str], dict[str, Any]]] = [
    (("f16", "f32", "bf16", "bf16"), {"m": 128, "n": 16}),
    (("f16", "f16", "f16", "f16"), {"m": 64, "n": 8}),
    (("tf32", "f32", "tf32", "tf32"), {"m": 64, "n": 64, "ws": True}),
    (("f8f6f4", "f32", "e4m3", "e2m1"), {"m": 32, "n": 64, "ws": True}),
    (("f8f6f4", "f32", "e3m2", "e2m3"), {"m": 128, "n": 16}),
    (("f16", "f32", "f16", "f16"), {"m": 256, "n": 16, "cta_group": 2}),
    (("i8", "s32", "s8", "u8"), {"m": 128, "n": 32, "cta_group": 2}),
    (("mxf8f6f4", "f32", "e5m2", "e2m3"), {"m": 128, "n": 40}),
    (("mxf4", "f32", "e2m1", "e2m1"), {"m": 256, "n": 48, "cta_group": 2}),
    (("mxf4nvf4", "f32", "e2m1", "e2m1"), {"m": 128, "n": 128, "cta_group": 2}),
]
SPARSE: list[tuple[tuple[str, str, str, str], dict[str, Any]]] = [
    (("f16", "f32", "f16", "f16"), {"m": 128, "n": 8}),
    (("tf32", "f32", "tf32", "tf32"), {"m": 32, "n": 64, "ws": True}),
    (("f8f6f4", "f32", "e4m3", "e4m3"), {"m": 64, "n": 8}),
    (("i8", "s32", "u8", "u8"), {"m": 128, "n": 32, "cta_group": 2}),
    (("mxf4nvf4", "f32", "e2m1", "e2m1"), {"m": 128, "n": 16}),
]


@pytest.mark.parametrize("a_in_tensor", [False, True])
@pytest.mark.parametrize(("types", "form"), FORMS, ids=str)
def test_dense(types: tuple[str, str, str, str], form: dict[str, Any], a_in_tensor: bool) -> None:
    case = Case(tcgen05.instruction(*types, **form), FORMS.index((types, form)), a_in_tensor=a_in_tensor)
    more = {"a": None, "a_address": case.at_a} if a_in_tensor else {}
    np.testing.assert_array_equal(case.run(**more), case.expected())


@pytest.mark.parametrize(("types", "form"), SPARSE, ids=str)
def test_sparse(types: tuple[str, str, str, str], form: dict[str, Any]) -> None:
    case = Case(tcgen05.instruction(*types, **form, sparse=True), SPARSE.index((types, form)))
    np.testing.assert_array_equal(case.run(), case.expected())


@pytest.mark.parametrize("where", SWIZZLES, ids=str)
@pytest.mark.parametrize(
    "types", [("f16", "f32", "f16", "f16"), ("f8f6f4", "f32", "e2m1", "e4m3"), ("mxf4", "f32", "e2m1", "e2m1")], ids=str
)
def test_swizzles(types: tuple[str, str, str, str], where: tuple[int, int, int]) -> None:
    case = Case(tcgen05.instruction(*types, n=16), 7, where=where)
    np.testing.assert_array_equal(case.run(), case.expected())


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("types", [("f16", "f32", "bf16", "bf16"), ("f8f6f4", "f32", "e5m2", "e4m3"), ("i8", "s32", "u8", "s8")], ids=str)
def test_mn_major(types: tuple[str, str, str, str], swizzle: int) -> None:
    case = Case(tcgen05.instruction(*types, n=128), 8)
    ins, size = case.ins, case.ins.formats.a.bits // 8
    lines = (swizzle or 16) // size
    leading, stride = (8 * swizzle * (ins.k // 8), 8 * swizzle) if swizzle else (128 * (128 // lines), 128)
    case.shared[:] = 0
    facts.write_mn_major(case.shared[0], case.a, size, (0, leading, stride, swizzle))
    facts.write_mn_major(case.shared[0], case.b.T, size, (1 << 16, leading, stride, swizzle))
    word = InstructionDescriptor(types[0], *types[1:], 128, 128, transpose_a=True, transpose_b=True).encode()
    matrices = {name: MatrixDescriptor(at, leading, stride, swizzle) for name, at in (("a", 0), ("b", 1 << 16))}
    np.testing.assert_array_equal(case.run(idesc=word, **matrices), case.expected())


def test_mn_major_tf32_has_wide_atoms() -> None:
    case = Case(tcgen05.instruction("tf32", "f32", "tf32", "tf32", n=32), 9)
    case.shared[:] = 0
    leading, stride = 1024, 512
    facts.write_mn_major(case.shared[0], case.a, 4, (0, leading, stride, 128), wide=True)
    facts.write_mn_major(case.shared[0], case.b.T, 4, (1 << 16, leading, stride, 128), wide=True)
    word = InstructionDescriptor("tf32", "f32", "tf32", "tf32", 128, 32, transpose_a=True, transpose_b=True).encode()
    matrices = {name: MatrixDescriptor(at, leading, stride, 128, wide_atoms=True) for name, at in (("a", 0), ("b", 1 << 16))}
    np.testing.assert_array_equal(case.run(idesc=word, **matrices), case.expected())
    with pytest.raises(OperandError, match="an MN-major matrix of tf32, and no other, needs"):
        case.run(idesc=word, a=MatrixDescriptor(0, leading, stride, 128), b=matrices["b"])


def test_fields_that_change_what_is_done() -> None:
    case = Case(tcgen05.instruction("f16", "f32", "f16", "f16", n=16), 10)
    zero = np.zeros_like(case.c)
    np.testing.assert_array_equal(case.run(enable_input_d=False), case.expected(c=zero))
    word = InstructionDescriptor("f16", "f32", "f16", "f16", 128, 16, negate_a=True).encode()
    other = Case(case.ins, 10)
    other.a ^= np.uint16(0x8000)
    np.testing.assert_array_equal(case.run(idesc=word), other.expected())
    both = InstructionDescriptor("f16", "f32", "f16", "f16", 128, 16, negate_a=True, negate_b=True).encode()
    np.testing.assert_array_equal(case.run(idesc=both), case.expected())
    masked = case.expected()
    masked[0, 35], masked[0, 127] = case.tensor[0, 35], case.tensor[0, 127]
    np.testing.assert_array_equal(case.run(lane_mask=[0, 1 << 3, 0, 1 << 31]), masked)
    shifted = Case(tcgen05.instruction("f16", "f32", "f16", "f16", n=8, sparse=True), 11, selector=1)
    word = InstructionDescriptor("f16", "f32", "f16", "f16", 128, 8, sparse=True, sparsity_selector=1).encode()
    np.testing.assert_array_equal(shifted.run(idesc=word), shifted.expected())


def test_scale_ids_and_leading_dimensions() -> None:
    case = Case(tcgen05.instruction("mxf8f6f4", "f32", "e4m3", "e4m3", n=16), 12)
    expected = case.expected()
    word = InstructionDescriptor("mxf8f6f4", "f32", "e4m3", "e4m3", 128, 16, scale_a_id=2, scale_b_id=3).encode()
    for at, byte in ((case.at_scale_a, 2), (case.at_scale_b, 3)):
        columns = slice(at, at + 4)
        moved = (case.tensor[:, :, columns] & np.uint32(0xFF)) << np.uint32(8 * byte)
        case.tensor[:, :, columns] = moved
        expected[:, :, columns] = moved
    stack = np.stack([case.tensor, case.tensor])
    got = tcgen05.mma(
        case.ins.opcode.split(" ")[0],
        stack,
        case.shared,
        case.d,
        MatrixDescriptor(case.base["a"], *PLAIN).encode(),
        MatrixDescriptor(case.base["b"], *PLAIN).encode(),
        word,
        target="sm_100a",
        scale_a=case.at_scale_a,
        scale_b=case.at_scale_b,
    )
    np.testing.assert_array_equal(got, np.stack([expected, expected]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d": 500}, "d at lane 0, column 500 reaches lane 127, column 515"),
        ({"d": 16 << 16}, "d must start at lane 0 and a column below 512, not at 16, 0"),
        ({"a": MatrixDescriptor(BYTES - 4096, *PLAIN)}, "a reads byte 0x2.... of shared memory, which has 131072 bytes"),
        ({"a": 1 << 46 | 3 << 61}, "a: matrix descriptor .* the swizzle .bits 61 to 63. is 3, which means nothing"),
        ({"b": 5}, "b: matrix descriptor .*: bits 46 to 48 must be 1, not 0; those of wgmma have 0"),
        ({"a": None}, "a_address must be given"),
        ({"a_address": 4}, "a_address must be left out"),
        ({"metadata": 4}, "metadata must be left out"),
        ({"scale_a": 4}, "scale_a must be left out"),
        ({"lane_mask": [1, 2]}, "lane_mask must be 4 integers of 32 bits"),
        ({"opcode": "tcgen05.mma.cta_group::1.kind::f16.ashift"}, r"what \.ashift does is not known well enough"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], message: str) -> None:
    case = Case(tcgen05.instruction("f16", "f32", "f16", "f16", n=16), 13)
    given = {"opcode": case.ins.opcode.split(" ")[0], **change}
    opcode = given.pop("opcode")
    addresses = {"d": 3, "a": MatrixDescriptor(1024, *PLAIN), "b": MatrixDescriptor(1 << 16, *PLAIN), "idesc": case.ins.idesc, **given}
    with pytest.raises(OperandError, match=message):
        tcgen05.mma(opcode, case.tensor, case.shared, **addresses, target="sm_100a")


def test_copies_that_differ_and_words_without_meaning() -> None:
    case = Case(tcgen05.instruction("mxf4", "f32", "e2m1", "e2m1", n=16), 14)
    case.tensor[0, 65, case.at_scale_a] ^= 1
    with pytest.raises(OperandError, match="scale_a: copy 2 in Tensor Memory differs from the first, at row 1, column 0"):
        case.run()
    case = Case(tcgen05.instruction("f8f6f4", "f32", "e4m3", "e4m3", n=64, m=32, ws=True), 15, a_in_tensor=True)
    case.tensor[0, 33, case.at_a] ^= 1
    with pytest.raises(OperandError, match="a: its copies in Tensor Memory differ"):
        case.run(a=None, a_address=case.at_a)
    case = Case(tcgen05.instruction("f8f6f4", "f32", "e4m3", "e4m3", n=8, sparse=True), 16)
    case.cell(0, 5, case.at_metadata, 8, 4, 0)
    with pytest.raises(OperandError, match="metadata of row 5, chunk 2 is 0x0, which names no places"):
        case.run()


def test_matrix_descriptors() -> None:
    rng = np.random.default_rng(2)
    for _ in range(200):
        address, leading, stride = (int(each) * 16 for each in rng.integers(0, 1 << 14, 3))
        swizzle = int(rng.choice([0, 32, 64, 128]))
        made = MatrixDescriptor(address, leading, stride, swizzle, bool(swizzle == 128 and rng.integers(2)), int(rng.integers(8)))
        assert MatrixDescriptor.decode(made.encode()) == made
        assert made.encode() >> 46 & 7 == 1
    assert MatrixDescriptor(0x1000, 16, 1024, 128).encode() == 0x4000404000010000 + (0x1000 >> 4)
    for wrong in ({"address": 8}, {"address": 1 << 18}, {"swizzle": 16}, {"swizzle": 64, "wide_atoms": True}, {"base_offset": 8}):
        with pytest.raises(OperandError, match=f"a matrix descriptor's {next(iter(wrong))}"):
            MatrixDescriptor(**{"address": 0, **wrong})
