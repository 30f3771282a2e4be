"""Every option of every command with values that nobody should give: a result or one line, and never a traceback."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import numpy as np
import pytest
from reference.hostile import seeds

from fastmma.cli import main
from fastmma.cli.app import COMMANDS as NAMES
from fastmma.cli.app import app

SEEDS, CALLS = 2, 10  # calls a seed
OPCODE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
# a quick call of each command that is right, by its name; `record` and `verify --gpu` need a GPU, and say so
CALLED = {
    "list": [],
    "show": [OPCODE],
    "layout": [OPCODE],
    "trace": [OPCODE, "--d", "1,2"],
    "gpus": [],
    "evidence": [],
    "bench": ["--family", "f16", "--target", "A100", "--size", "8x8x8", "--threads", "1", "--rounds", "1", "--peer", "none"],
    "doctor": [],
    "explorer": [],
    "gemm": ["--random", "8x8x8", "--threads", "1"],
    "explain": ["--instruction", OPCODE, "--a", ",".join(["3c00"] * 16), "--b", ",".join(["3c00"] * 16)],
    "compare": ["d.npy", "d.npy"],
    "identify": ["d.npy", "a.npy", "b.npy"],
    "invariance": ["64", "64", "--rows", "1-8"],
    "agree": ["H100", "H200", "--layer", "4096x4096", "--rows", "2-4"],
    "study": ["--format", "e4m3", "--target", "sm_90a", "--shape", "4x4x32", "--threads", "1"],
    "verify": ["--folder", "nowhere"],
    "record": ["/dev/null/nowhere"],
    "warm": ["--target", "sm_70", "--format", "f16", "--jobs", "1"],
}
NUMBERS = (
    *("0", "-0", "-1", "1", "3", "31", "32", "1024", "1025", "65536", "2147483648", "4294967296", "9223372036854775807"),
    *("9223372036854775808", "18446744073709551616", "9" * 40, "9" * 5000, "-" + "9" * 40, "1e3", "1.5", "nan", "inf", "-inf"),
    *("1_0", " 1 ", "+1", "0x10", "٣", "1٣", "²", "½", "\N{FULLWIDTH DIGIT ONE}", "", " ", "None", "True", "1,2", "--"),
    *("\0", "\udcff", "\x1b[31m", "1\n2"),
)
TEXTS = (
    *("text", "json", "svg", "f16", "e4m3,e5m2", "sm_90a", "sm_120a", "mma", "m16n8k16", "m16n8k99", "a", "d", "metadata", "normal"),
    *("8x8x8", "0x0x0", "99999999999999999999x1x1", "9999999999x9999999999x9999999999", "٣x٣x٣", "-1x1x1", "1x1", "1x0x1"),
    *("1,2", "1,2,3", "-1,-1", "99999999999999999999,0", "1.5,2", "٣,٣", ",", "1,", "nan,0", "%s%n", "{}", "{0}", "\\", "[red]x[/red]"),
    *("bits", "numba", "reference", "fp8-accumulators:", "mxfp4:even", "mxfp4:even:odd", "nowhere.npy", "nowhere.npz::a"),
    *("nowhere.safetensors::x::y", "1x1x" + "9" * 5000, "é" * 1000, OPCODE, OPCODE.upper(), OPCODE + ".x" * 2000),
)


def commands() -> dict[str, list[tuple[str, bool]]]:
    """The options of each command, and whether they take a value."""
    found = {}
    for name in NAMES:
        command = app.get_command(click.Context(app), name)
        assert command is not None
        options = [each for each in command.params if each.opts[0].startswith("--")]
        found[name] = [(each.opts[-1], not each.is_flag) for each in options]
    return found


COMMANDS = commands()
CASES = [(name, option) for name, options in COMMANDS.items() for option, takes_value in options if takes_value]


def check(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    """Run a command, which must end with a result or with one line."""
    capsys.readouterr()
    status = main(arguments)
    printed = capsys.readouterr()
    said = "".join(
        line for line in printed.err.splitlines(keepends=True) if not line.startswith(("fastmma study: ", "fastmma bench: "))
    )  # how far it is
    # 1: no plan gives all bits of identify's product, or bits differ; 3: something is not known
    told = {"identify": (1,), "compare": (1,), "invariance": (1, 3), "agree": (1, 3)}
    assert status in (0, 2, *told.get(arguments[0], ())), arguments
    assert (status == 2) == said.startswith("fastmma: "), (arguments, said)
    assert said.count("\n") == (status == 2), (arguments, said)
    assert (printed.out == "") <= (status == 2), arguments
    assert len(said) < 2200
    return status


def test_every_command_is_tried() -> None:
    assert COMMANDS.keys() == CALLED.keys()


class Threads(ThreadPoolExecutor):
    """In place of the processes of `fastmma warm`, which test_warm has: what the option is given is what matters here."""

    def __init__(self, workers: int, **_: object) -> None:
        super().__init__(workers)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that an option happens to name are written where nobody is; those that compare and identify read are there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fastmma.cli.warm.ProcessPoolExecutor", Threads)
    for name, shape in (("d", (4, 4)), ("a", (4, 8)), ("b", (8, 4))):
        np.save(tmp_path / f"{name}.npy", np.full(shape, 8 if name == "d" else 1, np.float32 if name == "d" else np.float16))


@pytest.mark.parametrize("command", CALLED)
def test_calls_that_are_right(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check([command, *CALLED[command]], capsys) == (2 if command in ("verify", "record") else 0)


@pytest.mark.parametrize(("command", "option"), CASES, ids=[f"{command} {option}" for command, option in CASES])
def test_every_option_with_every_value(command: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(f"{command} {option}")
    values = [*NUMBERS, *rng.sample(TEXTS, 10)]
    if command in ("gemm", "identify", "study"):
        values = rng.sample(values, 16)
    if command in ("bench", "explorer", "warm"):  # which take a second or more
        values = rng.sample(values, 6)
    for value in values:
        if not slow(command, [option, value]):
            check([command, *CALLED[command], option, value], capsys)


def slow(command: str, given: list[str]) -> bool:
    """Whether a call would be right, and take long: presets and pictures, and all kernels of a target."""
    return not {"study": {"--preset", "--output"}, "warm": {"--target"}}.get(command, set()).isdisjoint(given[:-1])


@pytest.mark.parametrize("command", CALLED)
def test_options_together(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in seeds(SEEDS):
        rng = random.Random(f"{command} {seed}")
        for _ in range(CALLS):
            arguments = list(CALLED[command]) if rng.randrange(4) or command == "verify" else []
            for option, takes_value in rng.choices(COMMANDS[command], k=rng.randrange(1, 4)):
                arguments += [option, rng.choice(rng.choice((NUMBERS, TEXTS)))] if takes_value else [option]
            if rng.randrange(8) == 0:
                arguments.append(rng.choice(TEXTS))
            if not slow(command, arguments) and "--gpu" not in arguments and "--help" not in arguments:
                check([command, *arguments], capsys)


@pytest.mark.parametrize("name", ["FASTMMA_NUM_THREADS", "FASTMMA_STRICT"])
@pytest.mark.parametrize("value", ["", "0", "-1", "9" * 5000, "nan", "٣", "\udcff"])
def test_every_variable_with_every_value(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    check(["gemm", "--random", "8x8x8"], capsys)


@pytest.mark.parametrize("shape", ["1x0x1", "0x4x4", "99999x99999x99999", "9999999999x1x1", "1x1x9999999999"])
def test_sizes_of_studies(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(["study", "--format", "e4m3", "--target", "sm_90a", "--shape", shape], capsys) == 2


@pytest.mark.parametrize("value", [0.0, 1e-310, 1e-60, 1e60, 1e61, -1e300, np.inf, np.nan])
def test_values_of_tensors(value: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "w.npy", np.full((4, 32), value))
    np.save(tmp_path / "x.npy", np.where(np.eye(4, 32) > 0, value, 1.0))
    beyond = not (1e-60 <= abs(value) <= 1e60 or value == 0 or not np.isfinite(value))
    for name in ("w.npy", "x.npy"):
        for fmt in ("e4m3", "nvfp4"):
            status = check(["study", "--format", fmt, "--target", "sm_120a", "--input", str(tmp_path / name)], capsys)
            assert status == 2 if beyond and (name == "w.npy" or abs(value) > 1) else status == 0 or fmt == "nvfp4"


def test_small_operands_of_a_large_product(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "a.npy", np.ones((1 << 20, 1), np.float16))
    np.save(tmp_path / "b.npy", np.ones((1, 1 << 20), np.float16))
    assert check(["gemm", str(tmp_path / "a.npy"), str(tmp_path / "b.npy")], capsys) == 2
