"""Reports and pictures of studies, and the command."""

from __future__ import annotations

import itertools
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reference.studies import check_files, lines

from fastmma import study
from fastmma.cli import main
from fastmma.host.figures.style import HEIGHT
from fastmma.study.report import markdown


def tiny(grid: study.Grid) -> study.Grid:
    """The same grid with small shapes: two depths that every promotion of it divides or exceeds."""
    depths = dict.fromkeys(96 if shape[2] == max(shape[2] for shape in grid.shapes) else 64 for shape in grid.shapes)
    return replace(grid, shapes=tuple((5, 4, depth) for depth in depths))


@pytest.mark.parametrize("name", study.PRESETS)
def test_presets(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    preset = study.PRESETS[name]
    assert preset.name == name
    cases = [case for grid in preset.grids for case in grid.cases()]
    assert len(set(cases)) == len(cases) > 10
    small = replace(preset, grids=tuple(map(tiny, preset.grids)))
    monkeypatch.setitem(study.PRESETS, name, small)
    monkeypatch.setattr("fastmma.study.pictures.save", lambda *_: [])
    assert main(["study", "--preset", name, "--output", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    wanted = {case.key for grid in small.grids for case in grid.cases()}
    records = lines(tmp_path)
    assert {record["case"] for record in records} == wanted
    assert all(record["left_out"] == 0 for record in records)
    report = (tmp_path / "report.md").read_text()
    told = study.answer(records)
    assert report.startswith(f"# {preset.question}\n\n{' '.join(told)}\n\n```sh\nfastmma study --preset {name} --output {tmp_path}\n```\n")
    assert len(told) > 1
    assert said.startswith("\n".join(told))
    assert all(f"| {record['format']} | {record['target']}" in report for record in records)
    for file in ("report.md", "results.csv", "results.jsonl"):
        assert file in said


def test_the_report_names_the_command_that_makes_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastmma.study.pictures.save", lambda *_: [])
    np.save(tmp_path / "w.npy", np.ones((3, 64), np.float32))
    options = ["--format", "e4m3", "--format", "e4m3,e5m2", "--target", "sm_90a", "--shape", "4x3x64", "--distribution", "uniform"]
    options += ["--promote-every", "0", "--promote-every", "32", "--split-k", "2", "--input", f"{tmp_path}/w.npy", "--seed", "7"]
    assert main(["study", *options, "--sample", "2", "--output", str(tmp_path / "first")]) == 0
    command = (tmp_path / "first" / "report.md").read_text().split("```")[1].removeprefix("sh\n")
    words = shlex.split(command)
    assert words[:2] == ["fastmma", "study"]
    words[words.index("--output") + 1] = str(tmp_path / "again")
    assert main(words[1:]) == 0
    assert len(lines(tmp_path / "first")) == 4
    check_files(tmp_path / "again", lines(tmp_path / "first"))


@pytest.fixture(scope="module")
def pictured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study of two depths, on a GPU's own arithmetic and on others."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("pictured")
    command = ["study", "--format", "e4m3", "--target", "sm_90a", "--shape", "4x4x64", "--shape", "4x4x128", "--output", str(folder)]
    for own in ("", "align_bits=3", "align_bits=5", "align_bits=3,rounding=rn", "align_rounding=exact"):
        command += ["--arithmetic", own]
    assert main(command) == 0
    return folder


def test_pictures(pictured: Path) -> None:
    from fastmma.study.pictures import lines as pictures

    report = (pictured / "report.md").read_text()
    assert report.index("![The answer](answer.png)") < report.index("```sh")
    for name in ("answer", "error_against_k", "accumulation_against_k", "sqnr", "ulp_histogram", "error_against_align_bits"):
        for suffix, magic in ((".png", b"\x89PNG\r\n\x1a\n"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
            assert (pictured / f"{name}{suffix}").read_bytes().startswith(magic)
        assert f"({name}.png)" in report
    assert pictures.accumulation_against_depth([record for record in lines(pictured) if record["k"] == 64]) == []


def test_a_report_of_alignment_bits(pictured: Path) -> None:
    text = (pictured / "report.md").read_text()
    assert "Products of 4 x 4 x 128;" in text
    assert "| e4m3 | sm_90a, align_bits=3, rounding=rn |" in text
    assert "sm_90a (own)" in text


def test_many_lines_fit_into_the_pictures() -> None:
    pytest.importorskip("matplotlib")
    from fastmma.study.pictures import bars, lines

    (record,) = study.run(study.Case("e4m3", "sm_90a", 4, 4, 64))
    records = [record | {"promote_every": 32 * i, "distribution": law} for i in range(1, 41) for law in ("normal", "uniform")]
    names = {f"sm_90a, promoted every {32 * i}" for i in range(1, 41)}
    several = [record | {"k": k, "accumulation_error": 0.0 if k == 64 else 0.1} for record in records for k in (64, 128)]
    depths = (lines.error_against_depth(several), lines.accumulation_against_depth(several))
    for figures in (*depths, bars.sqnr(records), bars.ulp_histogram(records)):
        seen: list[str] = []
        for figure in figures:
            assert figure.get_figheight() <= HEIGHT
            figure.draw_without_rendering()
            for axes in figure.axes:
                texts = [text for text in axes.texts if text.get_text() in names] or axes.get_yticklabels()
                seen += [text.get_text() for text in texts]
                extents = sorted((text.get_window_extent() for text in texts), key=lambda extent: extent.y0)
                assert all(0 <= extent.x0 < extent.x1 <= figure.bbox.width for extent in extents)
                assert extents[0].y0 >= 0
                assert extents[-1].y1 <= figure.bbox.height
                assert all(below.y1 <= above.y0 for below, above in itertools.pairwise(extents))
        assert sorted(seen) == sorted([*names, *names])  # of two sources
    zeros = depths[1][0].axes[0]
    assert zeros.get_yticklabels()[0].get_text() == "0"
    assert min(line.get_ydata()[0] for line in zeros.lines if len(line.get_xdata()) == 2) == zeros.get_yticks()[0] > 0


def test_names_of_files_are_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither markup of a terminal nor formulas of matplotlib; and a long one takes more lines, and is not cut."""
    pytest.importorskip("matplotlib")
    from fastmma.study.pictures.bars import sqnr

    folder = tmp_path / "[" / "red]"
    folder.mkdir(parents=True)
    file = folder / ("x" * 80 + "$\\frac$.npy")
    np.save(file, np.ones((4, 64), np.float32))
    monkeypatch.setenv("FORCE_COLOR", "1")
    command = ["study", "--format", "e4m3", "--target", "sm_90a", "--shape", "4x4x64", "--input", str(file), "--output", str(tmp_path)]
    assert main(command) == 0
    (figure,) = sqnr(lines(tmp_path))
    figure.draw_without_rendering()
    title = figure.axes[0]._left_title
    assert "".join(title.get_text().split()) == "".join(f"sm_90a, weights {file}, activations drawn (normal), K = 64".split())
    extent = title.get_window_extent()
    assert 0 <= extent.x0 < extent.x1 <= figure.bbox.width


def test_no_pictures_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for module in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    assert main(["study", "--format", "e4m3", "--target", "sm_90a", "--shape", "4x4x64", "--output", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "no pictures were drawn: pictures need matplotlib: pip install 'fastmma[plots]'" in said
    assert "png" not in (tmp_path / "report.md").read_text()


def test_command_prints_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["study", "--format", "e4m3", "--target", "sm_90a", "--shape", "4x4x256", "--promote-every", "0", "--promote-every", "128"]
    assert main(command) == 0
    table = capsys.readouterr().out
    assert "sm_90a, promoted every 128" in table
    assert "SQNR" in table
    assert main([*command, "--json", "--seed", "3", "--seed", "4", "--threads", "1"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [(record["seed"], record["promote_every"]) for record in records] == [(3, None), (3, 128), (4, None), (4, 128)]


def test_command_with_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "w.npy", np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32))
    assert main(["study", "--format", "e4m3", "--target", "sm_90a", "--input", f"{tmp_path}/w.npy", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["n"], record["k"]) == (6, 64)
    assert record["weights"].startswith(f"{tmp_path}/w.npy ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --preset (fp8-accumulators, "),
        (["--target", "H100"], "at least --format"),
        (["--preset", "none"], "no preset 'none'"),
        (["--preset", "promotion", "--format", "e4m3"], "leave out --format"),
        (["--preset", "promotion", "--seed", "1"], "leave out --seed"),
        (
            ["--format", "e4m3", "--target", "sm_90a", "--shape", "4x4"],
            "--shape takes a size such as 1024x1024x1024 (M x N x K), not '4x4'",
        ),
        (["--format", "e4m3", "--target", "sm_70"], "sm_70 has no instruction"),
        (["--format", "e4m3", "--target", "sm_90a", "--input", "none.npy"], "none.npy: there is no such file"),
        (["--format", "e4m3", "--target", "sm_90a", "--output", "/dev/null/x"], "cannot write results there"),
        (["--format", "e4m3", "--target", "sm_90a", "--promote-every", "33"], "multiple of the instruction's k"),
    ],
)
def test_command_refuses_bad_input(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_a_report_keeps_sizes_and_seeds_apart() -> None:
    grid = study.Grid(("e4m3",), ("sm_90a",), ((3, 4, 32), (5, 4, 32), (5, 4, 64)), seeds=(1, 2))
    text = markdown(study.run(grid), title="A title")
    headings = [line for line in text.splitlines() if line.startswith("## operands")]
    assert headings == [f"## operands drawn (normal), {m} x 4, seed {seed}: N(0, 1)" for seed in (1, 2) for m in (3, 5)]
    assert text.count("| e4m3 | sm_90a |") == 4


def test_report_of_undefined_metrics() -> None:
    (record,) = study.run(study.Case("e4m3", "sm_90a", 2, 2, 32))
    text = markdown([{**record, "sqnr_db": None, "ulp_histogram": None}], title="A title")
    assert text.startswith("# A title\n")
    assert "| - |" in text
