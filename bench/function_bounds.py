"""``python -m bench.function_bounds``: loops of functions of float32, over what their instructions allow on this core, and over torch's.

Operands and results stay in near caches. torch's functions have other bits.
"""

from __future__ import annotations

import ctypes
import re
import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import click
import torch
from torch.nn import functional

from bench.cores import Bound, bound_of, this_core
from bench.instructions import CPUS, innermost
from bench.loops import NAME, Loops, check
from fastmma.kernels.functions.machine_code import Form, source
from fastmma.kernels.functions.pointwise import FORMULAS
from fastmma.kernels.llvm.disk_cache import KernelFiles
from fastmma.kernels.llvm.object_code import assembly_of_text, link_text
from fastmma.study.speed.report import describe

# of an operator: its formula, and torch's function
FUNCTIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "exp": ("expf", torch.exp),
    "log": ("logf", torch.log),
    "tanh": ("tanhf", torch.tanh),
    "erf": ("erff", torch.erf),
    "rsqrt": ("rsqrtf", torch.rsqrt),
    "sigmoid": ("sigmoid", torch.sigmoid),
    "silu": ("silu", functional.silu),
    "gelu": ("gelu", functional.gelu),
}
_ELEMENTS, _ROWS = 4096, 8
_LANES = 16
_STORE = re.compile(r"^vmov\w+\s+%zmm\d+, [^,]*\((?!%rsp)")  # which is not on the stack
_FORM = Form(("f32",), ("f32",), (True,))
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 5)


def _loop(text: str, x: torch.Tensor, out: torch.Tensor) -> Callable[[], Any]:
    """What computes all elements, some times."""
    (address,) = link_text(KernelFiles(_loop), zlib.crc32(text.encode()), lambda: text, ("loop",))
    return partial(_ENTRY(address), x.data_ptr(), 0, out.data_ptr(), 0, 0, _ROWS, 0, _ELEMENTS)


def _torchs(function: Callable[..., Any], x: torch.Tensor) -> None:
    function(x)


class Cycles(NamedTuple):
    """Cycles of 16 elements of a function: the loop's, torch's, the least that this core allows, None if it is not known; instructions."""

    ours: float
    torchs: float
    least: Bound | None
    instructions: float


def cycles(name: str, rounds: int) -> Cycles:
    """Measure a function: the least of interleaved rounds."""
    core, loops, (formula, theirs) = this_core(NAME), Loops(), FUNCTIONS[name]
    x, out = (torch.rand(_ELEMENTS, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    many = torch.rand(_ELEMENTS * _ROWS, generator=torch.Generator().manual_seed(1))
    text = source(FORMULAS[formula], _FORM)
    body = max(innermost(assembly_of_text(text)), key=lambda each: sum("%zmm" in line for line in each))
    runs = {"ours": _loop(text, x, out), "torch": partial(_torchs, theirs, many)}
    found, cycle = dict.fromkeys(runs, float("inf")), float("inf")
    for _ in range(rounds):
        cycle = min(cycle, loops.cycle())
        for which, run in runs.items():
            for _ in range(10):
                began = time.perf_counter()
                run()
                found[which] = min(found[which], time.perf_counter() - began)
    ours, torchs = (found[which] / cycle / (_ELEMENTS * _ROWS / _LANES) for which in ("ours", "torch"))
    at_once = sum(_STORE.search(line) is not None for line in body)  # registers of results of a pass
    count = sum(CPUS[NAME].vector.search(line) is not None for line in body) / at_once
    return Cycles(ours, torchs, None if core is None else bound_of(body, 1 / at_once, core), count)


def rows(rounds: int) -> list[str]:
    """A Markdown table: cycles of 16 elements, the least of interleaved rounds."""
    lines = [
        f"| {_LANES} elements | instructions | cycles at least | taken by | measured | part | torch's | over torch's | at least |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in FUNCTIONS:
        ours, torchs, least, count = cycles(name, rounds)
        cells = ("", "", "") if least is None else (f"{least.cycles:.1f}", least.by, f"{least.cycles / ours:.2f}")
        most = "" if least is None else f"{least.cycles / torchs:.1f}"
        lines.append(
            f"| {name} | {count:.0f} | {cells[0]} | {cells[1]} | {ours:.1f} | {cells[2]} | {torchs:.1f} | {ours / torchs:.1f} | {most} |"
        )
    return lines


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=400, help="Rounds, of which the least counts.")
def main(rounds: int) -> None:
    """Measure functions on one thread, and print them beside their bounds; on a CPU with registers of 64 bytes."""
    check()
    if NAME != "AVX-512":
        raise click.ClickException("the table counts 16 elements of a register")
    torch.set_num_threads(1)
    click.echo("\n".join([f"{describe()}, torch {torch.__version__}; the least of {rounds} rounds", "", *rows(rounds)]))


if __name__ == "__main__":
    main()
