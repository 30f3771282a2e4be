"""The command line: what it prints, what it computes, and how it refuses bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from reference.command_line import run

import fastmma
from fastmma.cli.gemm import _blocks
from fastmma.cli.inputs import as_elements, generate
from fastmma.isa.formats import format_of

OPCODE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def report(*arguments: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The JSON report of a gemm that must succeed."""
    status, out, err = run("gemm", *arguments, "--json", capsys=capsys)
    assert (status, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def halves(*shape: int) -> NDArray[np.float16]:
    """Reproducible f16 numbers."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float16)


def save(folder: Path, **arrays: NDArray[Any]) -> list[str]:
    """One .npy file an array; their paths."""
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return [str(folder / f"{name}.npy") for name in arrays]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version", capsys=capsys)[:2] == (0, f"fastmma {fastmma.__version__}\n")


def test_no_arguments_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys=capsys)
    assert status == 0
    assert all(command in out for command in ("list", "show", "evidence", "gemm"))


def test_starts_without_compiler() -> None:
    program = """
import sys
from fastmma.cli import main
for command in ["--version"], ["evidence"], ["list"], ["show", sys.argv[1]]:
    assert main(command) == 0, command
    assert "numba" not in sys.modules, command
"""
    subprocess.run([sys.executable, "-c", program, OPCODE], check=True, stdout=subprocess.DEVNULL)


def test_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "fastmma", "show", "mma.nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("fastmma: 'mma.nothing' is no legal opcode")
    assert done.stderr.count("\n") == 1


def test_gemm_says_what_the_other_name_of_the_gpu_takes(capsys: pytest.CaptureFixture[str]) -> None:
    for target, other in (("sm_90a", "sm_90 takes mma.sync"), ("sm_90", "sm_90a takes wgmma"), ("sm_89", None)):
        status, out, _ = run("gemm", "--random", "8x8x32", "--type", "e4m3", "--target", target, "--no-compare", capsys=capsys)
        assert status == 0
        lines = [line.split(maxsplit=1)[1] for line in out.splitlines() if line.startswith("elsewhere")]
        assert [line[: len(other or "")] for line in lines] == ([other] if other else [])
        assert all(line.endswith(", with other bits") for line in lines)


def test_show_formulas_are_the_layout(capsys: pytest.CaptureFixture[str]) -> None:
    for opcode in (OPCODE, "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "wgmma.mma_async.sync.aligned.m64n24k32.f32.e4m3.e4m3"):
        shown = json.loads(run("show", opcode, "--json", capsys=capsys)[1])
        for name, operand in fastmma.instruction(opcode).operands.items():
            layout = operand.layout
            lane, i = np.indices((layout.lanes, layout.elements))
            for axis, expected in (("row", layout.rows), ("col", layout.cols)):
                formula = shown["operands"][name][axis].replace("/", "//")
                found = np.broadcast_to(eval(formula, {"lane": lane, "i": i}), lane.shape)
                assert (found == expected).all(), (opcode, name, axis)
            assert shown["operands"][name]["registers"] == layout.registers


@pytest.mark.parametrize("index", range(0, 900, 60))
def test_show_takes_every_kind_of_instruction(index: int, capsys: pytest.CaptureFixture[str]) -> None:
    everything = fastmma.instructions()
    ins = everything[index % len(everything)]
    shown = json.loads(run("show", ins.opcode, "--json", capsys=capsys)[1])
    assert [each["target"] for each in shown["targets"]] == list(ins.targets)


def test_gemm_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, c = halves(20, 33), halves(33, 17), halves(20, 17).astype(np.float32)
    out = tmp_path / "d.npy"
    found = report(*save(tmp_path, a=a, b=b, c=c), "--target", "sm_80", "--output", str(out), capsys=capsys)
    expected = fastmma.gemm(a, b, c, target="sm_80")
    assert np.load(out).tobytes() == expected.tobytes()
    assert found["shape"] == [20, 17, 33]
    assert found["instruction"] == OPCODE
    exact = a.astype(np.float64) @ b.astype(np.float64) + c
    relative = np.abs(expected - exact) / np.abs(exact)
    assert found["error"]["max_relative"] == pytest.approx(relative.max())
    assert found["error"]["mean_relative"] == pytest.approx(relative.mean())
    assert found["error"]["relative_error"] == pytest.approx(np.linalg.norm(expected - exact) / np.linalg.norm(exact))


def test_gemm_counts_differences_from_ieee(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, c = halves(9, 70), halves(70, 300), halves(9, 300).astype(np.float32)
    total = c.copy()
    for k in range(70):
        total += a[:, k : k + 1].astype(np.float32) * b[k : k + 1].astype(np.float32)
    found = report(*save(tmp_path, a=a, b=b, c=c), capsys=capsys)
    assert found["ieee_f32"]["different"] == np.count_nonzero(total != fastmma.gemm(a, b, c))
    exact = a.astype(np.float64) @ b.astype(np.float64) + c
    assert found["ieee_f32"]["mean_relative"] == pytest.approx((np.abs(total - exact) / np.abs(exact)).mean())


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn, ml_dtypes.int4]
)
def test_gemm_views_raw_bytes(dtype: type, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (halves(*shape).clip(-3, 3).astype(dtype) for shape in ((5, 40), (40, 6)))
    files = save(tmp_path, a=a, b=b)
    name = format_of(dtype).name
    target = "sm_120a" if name == "e2m1" else "sm_80" if name == "s4" else "sm_90a"
    out = tmp_path / "d.npy"
    np.savez(tmp_path / "ab.npz", a=a, b=b)
    for given in (files, [str(tmp_path / "ab.npz")]):
        report(*given, "--type", name, "--target", target, "--output", str(out), capsys=capsys)
        assert np.load(out).tobytes() == fastmma.gemm(a, b, target=target).tobytes()
    status, _, err = run("gemm", *files, capsys=capsys)
    assert status == 2
    assert "--type" in err


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
def test_gemm_rounds_floats(dtype: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (np.random.default_rng(0).standard_normal(shape).astype(dtype) for shape in ((7, 50), (50, 8)))
    out = tmp_path / "d.npy"
    report(*save(tmp_path, a=a, b=b), "--type", "e5m2,e4m3", "--output", str(out), capsys=capsys)
    rounded = a.astype(np.float64).astype(ml_dtypes.float8_e5m2), b.astype(np.float64).astype(ml_dtypes.float8_e4m3fn)
    assert np.load(out).tobytes() == fastmma.gemm(*rounded).tobytes()


def test_gemm_of_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, c = halves(4, 16), halves(16, 4), halves(4, 4)
    np.savez_compressed(tmp_path / "abc.npz", a=a, b=b, c=c)
    out = tmp_path / "result"
    report(str(tmp_path / "abc.npz"), "--accumulate", "f16", "--output", str(out), capsys=capsys)
    assert np.load(out).tobytes() == fastmma.gemm(a, b, c).tobytes()


def test_gemm_options_reach_the_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = halves(16, 200), halves(200, 8)
    files = save(tmp_path, a=a, b=b)
    out = tmp_path / "d.npy"
    options = {"promote_every": 32, "split_k": 2}
    found = report(
        *files, "--instruction", OPCODE, "--promote-every", "32", "--split-k", "2", "--threads", "1", "--output", str(out), capsys=capsys
    )
    assert np.load(out).tobytes() == fastmma.gemm(a, b, instruction=OPCODE, **options).tobytes()
    assert found["threads"] == 1
    found = report(*files, "--instruction", OPCODE, "--arithmetic", "align_bits=5, rounding=rn", "--output", str(out), capsys=capsys)
    own = replace(fastmma.arithmetic(OPCODE, "sm_90a"), align_bits=5, rounding="rn")
    assert np.load(out).tobytes() == fastmma.gemm(a, b, instruction=OPCODE, arithmetic=own).tobytes()
    assert (found["numerics"], found["evidence"]["level"]) == (own.family, "own")


def test_gemm_in_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules["fastmma.cli.gemm"].__dict__["_WORK"], "numba", 1)
    monkeypatch.setitem(sys.modules["fastmma.cli.gemm"].__dict__["_LEAST"], "numba", 13)
    assert len(list(_blocks(50, 40, 30, "numba"))) == 16
    a, b = halves(50, 30), halves(30, 40)
    out = tmp_path / "d.npy"
    report(*save(tmp_path, a=a, b=b), "--output", str(out), capsys=capsys)
    assert np.load(out).tobytes() == fastmma.gemm(a, b).tobytes()


@pytest.mark.parametrize("shape", [(0, 0, 0), (1, 0, 5), (3000, 5, 7), (5, 2000, 1), (1024, 1024, 1 << 20)])
@pytest.mark.parametrize("backend", ["numba", "reference"])
def test_blocks_tile_the_result(shape: tuple[int, int, int], backend: str) -> None:
    held = np.zeros(shape[:2], int)
    for rows, columns in _blocks(*shape, backend):
        held[rows, columns] += 1
    assert (held == 1).all()


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", "e4m3", "e5m2", "f64", "s8", "u8", "b1"])
@pytest.mark.parametrize("distribution", ["normal", "uniform", "positive", "wide", "bits"])
def test_gemm_of_random_numbers(name: str, distribution: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--random", "20x24x40", "--type", name, "--distribution", distribution)
    found = report(*arguments, capsys=capsys)
    assert found["results"] == 480
    assert ("ieee_f32" in found) == (name not in ("f64", "s8", "u8", "b1"))
    if name in ("s8", "u8", "b1"):
        assert found["error"]["max_relative"] == 0


def test_random_numbers_depend_on_the_seed_alone() -> None:
    fmt = format_of("e4m3")
    first, again, other = (generate((3000, 700), fmt, np.random.default_rng(seed), "normal") for seed in (1, 1, 2))
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_gemm_by_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--random", "20x20x20", "--type", "tf32", "--seed", "3")
    fast, slow = (report(*arguments, "--backend", backend, capsys=capsys) for backend in ("numba", "reference"))
    assert fast["error"] == slow["error"]
    assert fast["ieee_f32"] == slow["ieee_f32"]


def test_gemm_report_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run("gemm", "--random", "64x64x64", capsys=capsys)
    assert (status, err) == (0, "")
    assert "GMAC/s" in out
    assert "IEEE f32" in out


def test_gemm_without_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    assert "error" not in report("--random", "8x8x8", "--no-compare", capsys=capsys)


def test_as_elements_keeps_the_input() -> None:
    raw = halves(4, 4).astype(ml_dtypes.bfloat16).view("V2")
    before = raw.tobytes()
    as_elements(raw, format_of("bf16"), "a")[...] = 0
    assert raw.tobytes() == before


def bad_files(folder: Path) -> dict[str, list[str]]:
    """Arguments that must be refused, by what is wrong with them."""
    good, tall, real = save(folder, good=halves(8, 8), tall=halves(9, 8), real=np.ones((8, 8), np.float32))
    np.savez(folder / "half.npz", a=halves(8, 8))
    return {
        "missing": [good, str(folder / "nothing.npy")],
        "folder": [good, str(folder)],
        "one file": [good],
        "four files": [good] * 4,
        "shapes": [good, tall],
        "c of another shape": [good, good, tall],
        "float32 without a type": [real, real],
        "float as integer": [good, good, "--type", "s8"],
        "names": [str(folder / "half.npz")],
        "archive among files": [good, str(folder / "half.npz")],
        "files and random": [good, good, "--random", "8x8x8"],
        "output": [good, good, "--output", str(folder / "no" / "d.npy")],
    }


def test_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, arguments in bad_files(tmp_path).items():
        status, out, err = run("gemm", *arguments, capsys=capsys)
        assert (status, out, err.count("\n")) == (2, "", 1), (name, err)
        assert err.startswith("fastmma: "), name


@pytest.mark.parametrize(
    "arguments",
    [
        ["gemm"],
        ["gemm", "--random", "8x8"],
        ["gemm", "--random", "8x8x-8"],
        ["gemm", "--random", "9999999x9999999x1"],
        ["gemm", "--random", "8x8x8", "--type", "f17"],
        ["gemm", "--random", "8x8x8", "--type", "f16,f16,f16"],
        ["gemm", "--random", "8x8x8", "--type", "f16,e4m3"],
        ["gemm", "--random", "8x8x8", "--type", "bf16", "--instruction", OPCODE],
        ["gemm", "--random", "8x8x8", "--accumulate", "f16", "--instruction", OPCODE],
        ["gemm", "--random", "8x8x8", "--accumulate", "bf16"],
        ["gemm", "--random", "8x8x8", "--target", "sm_1"],
        ["gemm", "--random", "8x8x8", "--target", "sm_80", "--type", "e4m3"],
        ["gemm", "--random", "8x8x8", "--instruction", "mma"],
        ["gemm", "--random", "8x8x8", "--threads", "0"],
        ["gemm", "--random", "8x8x8", "--threads", "many"],
        ["gemm", "--random", "8x8x8", "--split-k", "0"],
        ["gemm", "--random", "8x8x8", "--promote-every", "3"],
        ["gemm", "--random", "8x8x8", "--arithmetic", "align_bits"],
        ["gemm", "--random", "8x8x8", "--backend", "abacus"],
        ["gemm", "--random", "8x8x8", "--distribution", "cauchy"],
        ["gemm", "--random", "8x8x8", "--seed", "-1"],
        ["gemm", "--random", "8x8x8", "--instruction", "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"],
        ["show"],
        ["show", ""],
        ["show", OPCODE, OPCODE],
        ["list", "--colour"],
    ],
    ids=" ".join,
)
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(*arguments, capsys=capsys)
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("fastmma: ")


@pytest.mark.parametrize(("given", "meant"), [("shew", "show"), ("studdy", "study"), ("gem", "gemm"), ("verfy", "verify")])
def test_an_unknown_command_names_the_nearest(given: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(given, capsys=capsys) == (2, "", f"fastmma: there is no command {given!r}; did you mean {meant!r}?\n")
    assert run("xyzzy", capsys=capsys)[2].startswith("fastmma: there is no command 'xyzzy'; there are list, show, ")


def test_failed_run_leaves_the_output_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "d.npy"
    out.write_text("precious")
    assert run("gemm", "--random", "8x8x8", "--split-k", "0", "--output", str(out), capsys=capsys)[0] == 2
    assert out.read_text() == "precious"
