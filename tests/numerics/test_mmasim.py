"""Every form that MMA-Sim 2.1.1 has too, tcgen05 and AMD's among them: equal bits on random and adversarial operands, but for some NaNs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fastmma
from fastmma import Instruction, gemm, mma, tcgen05

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    isa_mma = pytest.importorskip("mmasim.nv_ptx.isa_mma", reason="mmasim is not installed")
    from mmasim import amd
    from mmasim.nv_ptx import isa_tcgen05mma, isa_wgmma, sim

TARGETS = {
    "Volta": "sm_70",
    "Turing": "sm_75",
    "Ampere": "sm_80",
    "Ada Lovelace": "sm_89",
    "Hopper": "sm_90a",
    "Blackwell": "sm_100a",
    "RTX Blackwell": "sm_120a",
}
KINDS = ("bits", "near", "cancelling", "tiny")


def plain(text: str) -> Instruction:
    """m16n8k16.f32.f16.f16.f32, with a kind and block scaling as MMA-Sim writes them."""
    shape, *rest = text.split(".")
    kind = [token for token in rest if token.startswith("kind")]
    block = [token for token in rest if token.startswith("block")]
    types = [token for token in rest if token not in (*kind, *block)]
    scaling = {("kind::mxf4nvf4", "block32"): ".block_scale.scale_vec::2X", ("kind::mxf4nvf4", "block16"): ".block_scale.scale_vec::4X"}
    middle = "".join("." + each for each in kind) + ("" if not block else scaling.get((kind[0], block[0]), ".block_scale"))
    found = fastmma.instruction(f"mma.sync.aligned.{shape}.row.col{middle}.{'.'.join(types)}")
    assert isinstance(found, Instruction)
    return found


def fifth(text: str) -> Instruction:
    """The same of tcgen05."""
    shape, kind, *rest = text.split(".")
    block = int(rest.pop(0)[5:]) if rest[0].startswith("block") else None
    m, n = (int(each) for each in shape[1:].partition("k")[0].split("n"))
    return tcgen05.instruction(kind[6:], *rest[:3], m=m, n=n, block=block, scale=rest[3] if block else None)


def narrow(names: list[str]) -> list[str]:
    """Those of n = 8: the others differ in nothing but n."""
    return [name for name in names if name.partition("k")[0].endswith("n8")]


def forms() -> list[tuple[str, str, str]]:
    found = [(arch, "MMA", name) for arch, names in isa_mma.mma_shape_and_type.items() for name in names]
    found += [(arch, "MMABlockScale", name) for arch, names in isa_mma.mma_block_scale_shape_and_type.items() for name in names]
    found += [("Hopper", "WGMMA", name) for name in narrow(isa_wgmma.hopper_wgmma_shape_and_type)]
    for form, names in (
        ("TCGen05MMA", isa_tcgen05mma.blackwell_tcgen05mma_shape_and_type),
        ("TCGen05MMABlockScale", isa_tcgen05mma.blackwell_tcgen05mma_block_scale_shape_and_type),
    ):
        found += [("Blackwell", form, name) for name in narrow(names)]
    return found


FORMS = forms()


def drawn(rng: np.random.Generator, fmt: Any, shape: tuple[int, int], kind: str) -> NDArray[Any]:
    """Codes of a float format."""
    bits = fmt.bits - fmt.padding
    code = rng.integers(0, 1 << bits, shape, np.uint64)
    if kind != "bits":
        field_bits = fmt.exponent_bits
        low, high = {"near": (0.4, 0.55), "cancelling": (0.48, 0.5), "tiny": (0.0, 0.1)}[kind]
        top = (1 << field_bits) - 1
        fields = rng.integers(int(low * top), max(int(high * top), int(low * top) + 1) + 1, shape).astype(np.uint64)
        mantissa = rng.integers(0, 1 << fmt.mantissa_bits, shape).astype(np.uint64) if kind != "cancelling" else np.zeros(shape, np.uint64)
        sign = rng.integers(0, 2, shape).astype(np.uint64) if fmt.signed else np.zeros(shape, np.uint64)
        code = sign << np.uint64(bits - 1) | fields << np.uint64(fmt.mantissa_bits) | mantissa
        code[rng.random(shape) < 0.1] = 0
    return (code << np.uint64(fmt.padding)).astype(fmt.code_dtype)


def tensor(codes: NDArray[Any], name: str, dtype: Any, *, unpadded: bool = False) -> Any:
    """As MMA-Sim takes it: 6-bit elements in a byte, 4-bit ones in its central bits, or two in a byte."""
    if name == "e2m1" and not unpadded:
        codes = codes << 2
    signed = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[codes.itemsize]
    raw = torch.from_numpy(np.ascontiguousarray(codes).view(f"{'u' if codes.itemsize == 1 else 'i'}{codes.itemsize}").copy()).view(signed)
    return raw if dtype is torch.uint8 else raw.view(dtype)


@pytest.mark.parametrize(("arch", "form", "name"), FORMS, ids=lambda each: each.replace(" ", "_") if isinstance(each, str) else None)
def test_equal_bits(arch: str, form: str, name: str) -> None:
    model = getattr(sim, form)(arch, name)
    if form == "WGMMA":
        ins = fastmma.instruction(f"wgmma.mma_async.sync.aligned.{name}")
    else:
        ins = fifth(name) if form.startswith("TC") else plain(name)
    rng = np.random.default_rng(len(name) * 1000 + FORMS.index((arch, form, name)))
    formats = ins.formats
    packed = getattr(model, "packing", 1) == 2
    for kind in KINDS:
        a, b = drawn(rng, formats.a, (ins.m, ins.k), kind), drawn(rng, formats.b, (ins.k, ins.n), kind)
        c = drawn(rng, formats.c, (ins.m, ins.n), kind)
        if kind == "near":
            c[:] = drawn(rng, formats.c, c.shape, "tiny")
        scales: dict[str, NDArray[Any]] = {}
        extra = []
        if ins.stype:
            low, high = (0, 256) if kind == "bits" else (100, 150) if ins.stype == "ue8m0" else (0, 0x7F)
            scales = {
                "scale_a": rng.integers(low, high, (ins.m, ins.scale_vec_size)).astype(np.uint8),
                "scale_b": rng.integers(low, high, (ins.scale_vec_size, ins.n)).astype(np.uint8),
            }
            if ins.stype == "ue4m3":
                scales = {key: each & 0x7F for key, each in scales.items()}
            extra = [torch.from_numpy(each.copy()).view(model.s_type) for each in scales.values()]
        x, y = a, b
        if packed:  # MMA-Sim takes the high nibble first
            x, y = a[:, ::2] << 4 | a[:, 1::2], b[::2] << 4 | b[1::2]
        want = model(
            tensor(x, ins.atype, model.a_type, unpadded=packed),
            tensor(y.T.copy(), ins.btype, model.b_type, unpadded=packed).T,
            tensor(c, ins.ctype, model.c_type),
            *extra,
        )
        expected = (
            want.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[want.element_size()]).numpy().view(formats.d.code_dtype)
        )
        given = {key: each.view(formats.scale.dtype) for key, each in scales.items()} if formats.scale else {}
        got = mma(ins, a.view(formats.a.dtype), b.view(formats.b.dtype), c.view(formats.c.dtype), target=TARGETS[arch], **given)
        result = got.view(formats.d.code_dtype)
        if ins.dtype == "f64":
            nan = np.isnan(got) & np.isnan(expected.view(np.float64))
            result, expected = np.where(nan, 0, result), np.where(nan, 0, expected)
        wrong = np.argwhere(result != expected)
        assert len(wrong) == 0, (kind, len(wrong), wrong[0], hex(int(result[tuple(wrong[0])])), hex(int(expected[tuple(wrong[0])])))


CDNA = {"CDNA1": "gfx908", "CDNA2": "gfx90a", "CDNA3": "gfx942"}
CDNA_FORMS = [(arch, name) for arch, names in amd.sim.isa_mfma.arch_mfma_suffix.items() for name in names]
CDNA_KINDS = (*KINDS, "wide")
DEEPEST = 4096  # k of a product


def modelled(arch: str, name: str) -> tuple[Instruction, Any]:
    """An instruction of AMD's, and MMA-Sim's model of it."""
    found = fastmma.instruction(f"v_mfma_{name}")
    assert isinstance(found, Instruction)
    return found, amd.MFMA(arch, name)


Codes = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


def differing(model: Any, operands: Codes, ins: Instruction, got: NDArray[Any]) -> NDArray[np.intp]:
    """Where bits differ; NaNs are alike. With 8-bit floats the model forgets a NaN of c next to large products."""
    a, b, c = operands
    want = model(tensor(a, ins.atype, model.a_type), tensor(b.T.copy(), ins.btype, model.b_type).T, tensor(c, ins.ctype, model.c_type))
    expected = want.contiguous().numpy()
    alike = np.isnan(got) & (np.isnan(expected) | (ins.formats.a.bits == 8))
    return np.argwhere((got.view(ins.formats.d.code_dtype) != expected.view(ins.formats.d.code_dtype)) & ~alike)


def drawn_for(ins: Instruction, kind: str, rng: np.random.Generator, k: int) -> Codes:
    """Codes of A, B and C; of wide ones, products reach down to where sums are subnormal, and up to where they are infinite."""
    formats = ins.formats
    shapes = ((ins.m, k), (k, ins.n), (ins.m, ins.n))
    kinds = {"wide": ("bits", "bits", "near"), "near": ("near", "near", "tiny")}.get(kind, (kind,) * 3)
    a, b, c = (drawn(rng, fmt, shape, each) for fmt, shape, each in zip(formats[:3], shapes, kinds, strict=True))
    if kind == "wide":
        for codes, fmt in ((a, formats.a), (b, formats.b)):
            codes[fmt.is_special(codes >> fmt.padding)] = 0
    return a, b, c


@pytest.mark.parametrize(("arch", "name"), CDNA_FORMS)
def test_equal_bits_of_cdna(arch: str, name: str) -> None:
    ins, model = modelled(arch, name)
    rng = np.random.default_rng(CDNA_FORMS.index((arch, name)))
    for kind in CDNA_KINDS:
        a, b, c = drawn_for(ins, kind, rng, ins.k)
        got = mma(ins, a.view(ins.formats.a.dtype), b.view(ins.formats.b.dtype), c.view(ins.formats.c.dtype), target=CDNA[arch])
        wrong = differing(model, (a, b, c), ins, got)
        assert len(wrong) == 0, (kind, len(wrong), wrong[0], got[tuple(wrong[0])].tobytes().hex())


def test_there_are_64_forms_of_cdna() -> None:
    assert len(CDNA_FORMS) == 64


@pytest.mark.best_kernels
@pytest.mark.parametrize(("arch", "name"), CDNA_FORMS)
def test_equal_bits_of_products_of_cdna(arch: str, name: str) -> None:
    """gemm, and MMA-Sim's model called once for each k of its instruction."""
    ins, model = modelled(arch, name)
    rng = np.random.default_rng(1000 + CDNA_FORMS.index((arch, name)))
    for kind, k in (("near", DEEPEST), ("wide", 16 * ins.k), ("cancelling", 7 * ins.k)):
        a, b, c = drawn_for(ins, kind, rng, k)
        given = (each.view(fmt.dtype) for each, fmt in zip((a, b, c), ins.formats, strict=False))
        got = gemm(*given, instruction=ins, target=CDNA[arch])
        for first in range(0, k, ins.k):
            part = slice(first, first + ins.k)
            want = model(
                tensor(a[:, part], ins.atype, model.a_type),
                tensor(b[part].T.copy(), ins.btype, model.b_type).T,
                tensor(c, ins.ctype, model.c_type),
            )
            c = want.contiguous().numpy().view(ins.formats.c.code_dtype)
        expected = c.view(got.dtype)
        alike = np.isnan(got) & (np.isnan(expected) | (ins.formats.a.bits == 8))
        wrong = np.argwhere((got.view(c.dtype) != c) & ~alike)
        assert len(wrong) == 0, (kind, k, len(wrong), wrong[0])
