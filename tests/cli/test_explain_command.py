"""``fastmma explain`` and ``fastmma compare``: files, registers and codes of one instruction, and what cannot be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from reference.methods import F16_F32, MMA, WGMMA, mixed
from reference.products import bits, elements
from reference.sparse_operands import random_words

import fastmma
from fastmma.cli import main
from fastmma.isa.sparsity import pattern_of

Run = Callable[..., str]
E4M3, E5M2, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def command(*arguments: object, status: int = 0) -> str:
        assert main([*map(str, arguments)]) == status
        shown = capsys.readouterr()
        return shown.err if status == 2 else shown.out

    return command


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    rng = np.random.default_rng(0)
    for name, shape in (("a", (20, 64)), ("b", (64, 24))):
        np.save(tmp_path / f"{name}.npy", rng.standard_normal(shape).astype(np.float16))
    return tmp_path / "a.npy", tmp_path / "b.npy"


def hexadecimal(words: NDArray[Any]) -> str:
    return ",".join(f"{int(word):x}" for word in words.ravel())


def test_archives_with_every_operand(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    sparse = fastmma.instruction("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    a, b = rng.standard_normal((5, 32)).astype(np.float16), rng.standard_normal((64, 6)).astype(np.float16)
    operands = {"metadata": random_words(rng, pattern_of(sparse), (5, 16), ordered=True), "bias": rng.standard_normal(6).astype(np.float32)}
    np.savez(tmp_path / "sparse.npz", a=a, b=b, **operands)
    shown = run("explain", tmp_path / "sparse.npz", "--instruction", sparse, "--plan", "out_dtype=bf16", "--row", 4, "--col", 2)
    assert shown == str(fastmma.explain(a, b, 4, 2, instruction=sparse, out_dtype="bf16", **operands)) + "\n"
    assert "holds metadata, bias, too: fastmma gemm takes a, b and c alone" in run("gemm", tmp_path / "sparse.npz", status=2)
    np.savez(tmp_path / "dense.npz", a=b.T, b=b, metadata=operands["metadata"])
    assert "do not multiply with metadata, where a stores half of the k" in run("explain", tmp_path / "dense.npz", status=2)
    np.savez(tmp_path / "short.npz", a=b.T, b=b, bias=operands["bias"][:5])
    assert "bias must have shape (6,), not (5,)" in run("explain", tmp_path / "short.npz", status=2)
    kind = f"{MMA}m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e5m2.f32.ue8m0"
    a, b = rng.standard_normal((3, 64)).astype(E4M3), rng.standard_normal((64, 4)).astype(E5M2)
    scales = {name: (2.0 ** rng.integers(-3, 4, shape)).astype(E8M0) for name, shape in (("scale_a", (3, 2)), ("scale_b", (2, 4)))}
    np.savez(tmp_path / "scaled.npz", a=a, b=b, **scales)
    given = "--instruction", kind, "--target", "sm_120a"
    shown = run("explain", tmp_path / "scaled.npz", *given, "--row", 2, "--col", 1)
    assert shown == str(fastmma.explain(a, b, 2, 1, instruction=kind, target="sm_120a", **scales)) + "\n"
    assert "all 12 elements are the same" in run("compare", tmp_path / "scaled.npz", *given, "--against", "split_k=1")


def test_elements_of_files(run: Run, files: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = map(np.load, files)
    shown = run("explain", *files, "--row", 3, "--col", 5, "--target", "A100", "--plan", "split_k=2", "--picture", tmp_path / "d.svg")
    assert shown == str(fastmma.explain(a, b, 3, 5, target="sm_80", split_k=2)) + "\n"
    assert (tmp_path / "d.svg").read_text().startswith("<svg")
    shown = run("explain", *files, "--target", "sm_80", "--against", "sm_90a", "--format", "json")
    assert json.loads(shown) == json.loads(fastmma.explain(a, b, 0, 0, target="sm_80", against="sm_90a").json())
    shown = run("explain", *files, "--plan", "out_dtype=bf16,alpha=0.5", "--against", "target=sm_80,split_k=2", "--format", "json")
    other = fastmma.explain(a, b, 0, 0, out_dtype="bf16", alpha=0.5, against={"target": "sm_80", "split_k": 2})
    assert json.loads(shown) == json.loads(other.json())
    shown = run("explain", *files, "--k", "16:32")
    assert shown == fastmma.explain(a, b, 0, 0).text((16, 32)) + "\n"
    assert "--k takes" in run("explain", *files, "--k", "16", status=2)
    assert run("explain", *files, "--format", "markdown") == fastmma.explain(a, b, 0, 0).markdown().rstrip("\n") + "\n"


@pytest.mark.parametrize(
    ("opcode", "target"),
    [
        (F16_F32, "sm_80"),
        (MMA + "m8n8k4.row.col.f32.f16.f16.f16", "sm_70"),
        (MMA + "m8n8k4.row.col.f64.f64.f64.f64", "sm_90a"),
        (MMA + "m16n8k64.row.col.s32.s4.u4.s32", "sm_90a"),
        (MMA + "m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32", "sm_120a"),
        ("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_90a"),
        (MMA + "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", "sm_120a"),
    ],
)
def test_registers_and_codes(run: Run, tmp_path: Path, opcode: str, target: str) -> None:
    """All registers of a warp, from files, and the codes that meet in the element, give the bits of warp.mma."""
    ins = fastmma.instruction(opcode)
    rng = np.random.default_rng(1)
    a, b, c = mixed(opcode, (ins.m, ins.n, ins.k), "finite", "near", "cancel")
    given = {"a": a[:, : ins.stored_k], "b": b, "c": c}
    registers = {}
    for name, codes in given.items():
        operand = ins.operands[name]
        stored = np.repeat(codes[None], 4, axis=0) if ins.tiles > 1 else codes
        stored = stored.astype(np.dtype(f"u{max(8, operand.layout.bits) // 8}"))
        registers[name] = fastmma.scatter(stored, operand, kind=ins.kind)
    row, col = 5, 6
    codes = {"a": given["a"][row], "b": b[:, col], "c": c[row, col : col + 1]}
    options: dict[str, Any] = {}
    if ins.sparse:
        words = random_words(rng, pattern_of(ins).name, (ins.m, ins.k // 4), ordered=True)
        options["metadata"] = registers["metadata"] = fastmma.sparse.pack_metadata(ins, words)
        codes["metadata"] = words[row]
    if ins.scale_vec_size:
        for name in ("scale_a", "scale_b"):
            options[name] = registers[name] = rng.integers(0, 1 << 31, 32, dtype=np.uint32) & 0x77777777
        held = {name: fastmma.placement(ins, name) for name in ("scale_a", "scale_b")}
        for name, place in (("scale_a", [(row, k) for k in range(4)]), ("scale_b", [(k, col) for k in range(4)])):
            cells = [held[name].at(*each) for each in place]
            codes[name] = np.array([registers[name][cell.lane] >> cell.bit & 0xFF for cell in cells])
    d = fastmma.warp.mma(ins, *(registers[name] for name in "abc"), target=target, **options)
    matrices = fastmma.gather(d, ins.operands["d"], kind=ins.kind)
    wanted = int((matrices[2] if ins.tiles > 1 else matrices)[row, col])
    arguments = []
    for name, words in registers.items():
        (tmp_path / f"{name}.hex").write_text(hexadecimal(words).replace(",", "\n"))
        arguments += [f"--{name.replace('_', '-')}", f"@{tmp_path / name}.hex"]
    places = ["--instruction", opcode, "--target", target, "--row", row, "--col", col]
    if ins.tiles > 1:
        places += ["--computation", 2]
    shown = run("explain", *places, *arguments, "--format", "json")
    assert json.loads(shown)["code"] == wanted
    arguments = [text for name, words in codes.items() for text in (f"--{name.replace('_', '-')}", hexadecimal(words))]
    assert run("explain", *places, *arguments, "--format", "json") == shown


def test_registers_of_a_warpgroup(run: Run) -> None:
    """A of a wgmma is in the registers of four warps; D is its c."""
    opcode = WGMMA + "m64n8k16.f32.f16.f16"
    ins = fastmma.instruction(opcode)
    a, b, c = mixed(opcode, (64, 8, 16), "near", "near", "near")
    registers = {name: fastmma.scatter(codes, ins.operands[at]) for name, codes, at in (("a", a, "a"), ("c", c, "d"))}
    d = bits(fastmma.mma(opcode, elements(a, "f16"), elements(b, "f16"), elements(c, "f32"), target="sm_90a"))
    words = [text for name, held in registers.items() for text in (f"--{name}", hexadecimal(held))]
    places = ["--instruction", opcode, "--row", 40, "--col", 7, "--format", "json"]
    assert json.loads(run("explain", *places, *words, "--b", hexadecimal(b[:, 7])))["code"] == d[40, 7]


def test_two_gpus_and_no_accumulator(run: Run) -> None:
    zeros = ",0" * 13
    numbers = ["--a", "6c00,0800,ec00" + zeros, "--b", ",".join(["3c00"] * 16)]
    shown = run("explain", "--instruction", F16_F32, "--target", "sm_90a", "--against", "sm_80", *numbers)
    assert "first difference" in shown
    assert "1 <" in shown


WRONG: list[tuple[list[str], str]] = [
    ([], "give files, or the operands"),
    (["--a", "1", "--b", "2"], "one --instruction"),
    (["--a", "1", "--b", "2", "--instruction", F16_F32, "--plan", "split_k=2"], "without other choices"),
    (["--a", "1", "--b", "2", "--instruction", F16_F32], "a must be 16 codes of f16, or 128 registers of all 32 lanes"),
    (["--a", ",".join(["0"] * 16), "--b", ",".join(["10000"] * 16), "--instruction", F16_F32], "b has 0x10000"),
    (["--a", "xyz", "--b", "2", "--instruction", F16_F32], "hexadecimal numbers"),
    (["--a", "@nowhere.hex", "--b", "2", "--instruction", F16_F32], "nowhere.hex"),
    (["--a", ",".join(["0"] * 16), "--b", ",".join(["0"] * 16), "--instruction", F16_F32, "--row", "16"], "--row"),
    (["--a", ",".join(["0"] * 16), "--b", ",".join(["0"] * 16), "--instruction", F16_F32, "--metadata", "0"], "takes no metadata"),
    (["--format", "svg"], "there is no format 'svg'"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_cannot_be_explained(run: Run, arguments: list[str], message: str) -> None:
    assert message in run("explain", *arguments, status=2)


def test_comparisons(run: Run, files: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = map(np.load, files)
    d, other = fastmma.gemm(a, b, target="sm_90a"), fastmma.gemm(a, b, target="sm_80")
    np.save(tmp_path / "d.npy", d)
    np.save(tmp_path / "other.npy", other)
    wanted = str(fastmma.compare(d, other, tile=(8, 8))) + "\n"
    assert run("compare", tmp_path / "d.npy", tmp_path / "other.npy", "--tile", "8x8", status=1) == wanted
    assert run("compare", *files, "--against", "A100", "--tile", "8x8", status=1) == wanted
    assert run("compare", *files, "--against", tmp_path / "other.npy", "--tile", "8x8", status=1) == wanted
    assert json.loads(run("compare", *files, "--against", tmp_path / "d.npy", "--json"))["different"] == 0
    parts = fastmma.compare(d, fastmma.gemm(a, b, split_k=2))
    assert run("compare", *files, "--against", "split_k=2", status=1) == str(parts) + "\n"
    for wrong in ("split_k", "split_k=x", "threads=2", "=", "split_k=2;"):
        assert "choices of a plan" in (said := run("compare", *files, "--against", "sm_80", "--plan", wrong, status=2)) or "number" in said
    assert "give two files" in run("compare", tmp_path / "d.npy", status=2)
    assert "--tile takes a size" in run("compare", *files, "--tile", "8", status=2)
    raw = d.astype(np.float16).view("V2")
    np.save(tmp_path / "raw.npy", raw)
    assert "--type must say" in run("compare", tmp_path / "raw.npy", tmp_path / "raw.npy", status=2)
    assert run("compare", tmp_path / "raw.npy", tmp_path / "raw.npy", "--type", "f16").startswith("all 480 elements are the same")
