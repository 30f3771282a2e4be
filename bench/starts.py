"""How long commands take to start, and to end, as docs/command_line.md has it.

``python -m bench.starts`` prints the table, of the `fastmma` that is installed for the Python which runs it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

# what a command does before it ends, and lines of it; a.npy and b.npy are 64 x 64
COMMANDS = {
    "prints help": ("--help", "gemm --help"),
    "ends with an error": (
        "gemm a.npy nowhere.npy",
        "gemm a.npy b.npy --target H10",
        "study nowhere",
        "study",
        "study --preset nowhere",
        "agree H100 H200 --model nowhere",
        "bench --family nowhere",
        "verify --target H10",
        "record book.npz --cublas --shapes nowhere",
    ),
    "prints tables": (
        "list --summary",
        "show mma.m16n8k16.f32.f16",
        "layout mma.m16n8k16.f32.f16",
        "trace mma.m16n8k16.f32.f16 --d 4,5",
        "gpus",
        "evidence",
        "evidence --arithmetic",
        "doctor --route 16x4096x4096 --type f16 --target H100",
    ),
    "computes": (
        "gemm a.npy b.npy",
        "explain a.npy b.npy --row 3 --col 5",
        "compare a.npy b.npy",
        "compare a.npy b.npy --target H100 --against A100",
        "identify d.npy a.npy b.npy --target H200",
        "agree H100 H200 --layer 4096x4096 --rows 16",
        "invariance 4096 4096 --rows 1-64",
        "study --format e4m3 --shape 64x64x256",
        "doctor",
    ),
}
_ROUNDS = 7
# runs the command line until a command's work is imported and is to be called, with the options checked
_UNTIL_WORK = """
import os, sys
import click
invoke = click.Context.invoke
def stop(context, called, *arguments, **options):
    if called.__module__ != "fastmma.cli.app":
        os._exit(0)
    return invoke(context, called, *arguments, **options)
click.Context.invoke = stop
from fastmma.__main__ import main
sys.exit(main())
"""


def _command() -> list[str]:
    """The installed program, whose start is what users wait for."""
    path = Path(sys.executable).with_name("fastmma")
    return [str(path)] if path.exists() else [sys.executable, "-m", "fastmma"]


def seconds(command: list[str], line: str, folder: Path) -> tuple[float, float]:
    """Run a command, and return its seconds by the clock and of CPU."""
    before, began = os.times(), time.perf_counter()
    subprocess.run([*command, *shlex.split(line)], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    clock, after = time.perf_counter() - began, os.times()
    return clock, after.children_user + after.children_system - before.children_user - before.children_system


def _least(command: list[str], line: str, folder: Path) -> tuple[float, float]:
    clock, cpu = zip(*(seconds(command, line, folder) for _ in range(_ROUNDS)), strict=True)
    return min(clock), min(cpu)


def main() -> None:
    """Measure, and print the table."""
    rng = np.random.default_rng(0)
    print("| what it does | command | starts | of CPU | ends | of CPU |\n| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in "abd":
            np.save(folder / f"{each}.npy", rng.standard_normal((64, 64)).astype(np.float16))
        for does, lines in COMMANDS.items():
            for line in lines:
                whole, begin = _command(), [sys.executable, "-c", _UNTIL_WORK]
                seconds(whole, line, folder)  # reads files, and keeps kernels, for those that count
                cells = [f"{each:.2f}" for command in (begin, whole) for each in _least(command, line, folder)]
                print(f"| {does} | `fastmma {line}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
