"""Every command says what it takes."""

from __future__ import annotations

import re
import subprocess
import sys

import click
import pytest
from reference.command_line import run

from fastmma.agreement.layer import CUTS, LAYOUTS, LEAST_RATE
from fastmma.agreement.layer import PRESETS as LIBRARIES
from fastmma.agreement.ranks import ALL_REDUCES
from fastmma.cli.app import COMMANDS, app
from fastmma.products.cublas.book_file import TYPES
from fastmma.study.grid import SAMPLE
from fastmma.study.presets import PRESETS
from fastmma.study.speed.peers import PEERS
from fastmma.study.speed.products import FAMILIES
from fastmma.verification.cublas_requests import USUAL_ROWS


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(*command, "--help", capsys=capsys)
    assert (status, err) == (0, "")
    assert out.split()[:3] == ["Usage:", "fastmma", *(command or ["[OPTIONS]"])]
    assert "--help" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_narrow_terminal(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    status, out, _ = run(command, "--help", capsys=capsys)
    assert status == 0
    assert [line for line in out.splitlines() if len(line) > 60] == []


def test_the_list_of_commands_has_the_first_word_of_each() -> None:
    context = click.Context(app)
    for name, entry in COMMANDS.items():
        command = app.get_command(context, name)
        assert command is not None
        assert (command.help or "").split()[0] == entry.summary.split()[0], name


ENDED = """
gemm nowhere.npy b.npy
gemm --random 8x8x8 --target H10
gemm --random 8x8x8 --seed x
explain nowhere.npz
compare nowhere.npy b.npy
identify d.npy a.npy b.npy
agree H100 H200 --model nowhere
agree H100 H10
invariance 64
invariance 64 64 --target H10
study --seed x
study --preset nowhere
study nowhere
study --format e4m3 --input nowhere.npy::x
verify --folder nowhere
verify --target H10
record x --cublas --shapes nowhere
bench --target H10
warm --target H10
study
study --preset layers --seed 1
record book.npz --cublas
agree H100 H200
doctor --type f16
doctor --target H10
"""
# of commands that compute nothing, and what they must not import: it takes longer than a command may take to start
IMPORTS = {
    **dict.fromkeys(ENDED.strip().splitlines(), ("numpy", "shutil", "fastmma.isa.table", "fastmma.products")),
    **dict.fromkeys(("list", "list --summary --target H100", "show mma.m16n8k16.f32.f16", "gpus"), ("numpy", "shutil")),
    **{f"{name} --help": ("numpy", "fastmma.isa") for name in COMMANDS},
}
# of commands that compute, for which NumPy is needed
COMPUTING = {
    "layout mma.m16n8k16.f32.f16": ("fastmma.products", "zipfile", "numpy.random"),
    "trace mma.m16n8k16.f32.f16 --d 4,5": ("fastmma.products", "zipfile", "numpy.random"),
    "evidence": ("fastmma.products", "zipfile", "numpy.random"),
    "agree H100 H200 --layer 4096x4096 --rows 2-4": ("numba", "numpy.random", "fastmma.study", "fastmma.explanation"),
    "gemm --random 8x8x8 --threads 1": ("numba", "fastmma.study", "fastmma.verification", "fastmma.explanation"),
    "explain --instruction mma.m8n8k4.f64.f64 --target sm_80 --a 3ff0000000000000,0,0,0 --b 0,0,0,0": (
        *("numba", "zipfile", "numpy.random", "fastmma.study", "fastmma.verification"),
    ),
}


def found_after(lines: dict[str, tuple[str, ...]]) -> str:
    """Run commands in a process that ends at the first that imports what it must not; modules of the ISA are removed in between."""
    script = f"""
import contextlib, io, sys
from fastmma.cli import main
for line, modules in {lines}.items():
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main(line.split())
    found = [name for name in modules if name in sys.modules]
    assert not found, (line, found)
    for name in [name for name in sys.modules if name.startswith("fastmma.isa")]:
        del sys.modules[name]
"""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False).stderr


def test_commands_import_what_they_need() -> None:
    assert found_after(IMPORTS) == ""


@pytest.mark.parametrize("line", COMPUTING)
def test_commands_that_compute_import_what_they_need(line: str) -> None:
    assert found_after({line: COMPUTING[line]}) == ""


# what the help of an option lists, from the table that has it: help imports no table
LISTED = {
    ("study", "preset"): PRESETS,
    ("record", "types"): TYPES,
    ("bench", "families"): FAMILIES,
    ("bench", "peers"): [peer.name for peer in PEERS],
    ("invariance", "layout"): LAYOUTS,
    ("invariance", "preset"): LIBRARIES,
    ("invariance", "cut"): CUTS,
    ("invariance", "all_reduce"): ALL_REDUCES,
}
DEFAULTS = {
    ("study", "sample"): SAMPLE,
    ("record", "rows"): USUAL_ROWS,
    ("invariance", "least_rate"): LEAST_RATE,
    ("agree", "least_rate"): LEAST_RATE,
}


def parameter(command: str, name: str) -> click.Option:
    found = app.get_command(click.Context(app), command)
    assert found is not None
    (option,) = (each for each in found.params if each.name == name)
    assert isinstance(option, click.Option)
    return option


@pytest.mark.parametrize(("command", "name"), LISTED)
def test_help_lists_what_the_table_has(command: str, name: str) -> None:
    told = parameter(command, name).help or ""
    assert [each for each in LISTED[command, name] if not re.search(rf"(?<![\w-]){re.escape(each)}(?![\w-])", told)] == []


@pytest.mark.parametrize(("command", "name"), DEFAULTS)
def test_defaults_are_those_of_the_functions(command: str, name: str) -> None:
    option = parameter(command, name)
    assert option.type.convert(option.default, option, click.Context(app)) == DEFAULTS[command, name]


def test_commands_share_their_defaults() -> None:
    """A target, a type and threads that are not given are those of one table; what names several GPUs or all formats has none."""
    shared = {"target": "H200", "types": "bf16", "threads": None}
    for name in COMMANDS:
        command = app.get_command(click.Context(app), name)
        assert command is not None
        for option in command.params:
            if option.name in shared and not option.multiple:
                given = command.make_context(name, [], resilient_parsing=True).params[option.name]
                assert given in (shared[option.name], None), (name, option.name)
                told = getattr(option, "help", None) or ""
                assert "by default" not in told or (shared[option.name] or "all cores") in told, (name, told)
