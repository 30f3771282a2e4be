"""``python -m bench.emulator``: the emulator as CUDA kernels on the GPU in the machine, in multiply-adds a second."""

from __future__ import annotations

from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

import fastmma
from fastmma.backends.call import Operands
from fastmma.backends.gpu import device
from fastmma.backends.gpu.emulator import Emulator
from fastmma.backends.resolve import operation_of
from fastmma.isa.codes import encode, from_codes
from fastmma.isa.formats import format_of
from fastmma.isa.instruction import Instruction
from fastmma.study.speed.cases import GPU, Case, cases
from fastmma.study.speed.measure import interleaved
from fastmma.verification import inputs

_DRAWN = 1 << 16  # codes that operands repeat


_SCALE_CODES = {"ue8m0": (110, 140), "ue4m3": (20, 100)}


def operands(ins: Instruction, n: int) -> Operands:
    """Codes of random integers, or of normally distributed numbers: an infinity or a NaN would send its lines through the slow kernel."""
    generator = np.random.default_rng(0)

    def draw(fmt: str) -> NDArray[Any]:
        floats = format_of(fmt).kind == "float"
        drawn = encode(generator.standard_normal(_DRAWN), fmt, saturate=True) if floats else inputs.codes(fmt, "bits", _DRAWN, generator)
        return np.resize(drawn, (n, n))

    a, b = draw(ins.atype), draw(ins.btype)
    if not ins.scale_vec_size:
        return Operands(a[None], b[None], None)
    scales = generator.integers(*_SCALE_CODES[ins.stype], (n, -(-n * ins.scale_vec_size // ins.k)), dtype=np.uint8)
    return Operands(a[None], b[None], None, None, scales[None], np.ascontiguousarray(scales.T)[None])


def speeds(case: Case, emulator: Emulator, backend: str, n: int, rounds: int) -> tuple[float, float]:
    """Multiply-adds a second of `fastmma.gemm` from and to NumPy arrays, and of the kernels on arrays that lie on the machine."""
    ins = case.product.instruction()
    operation, given = operation_of(ins, case.target), operands(ins, n)
    sent = emulator.sent(operation, given)
    scales = {name: from_codes(codes[0], ins.stype) for name in ("scale_a", "scale_b") if (codes := getattr(given, name)) is not None}
    a, b = from_codes(given.a[0], ins.atype), from_codes(given.b[0], ins.btype)
    corner = np.empty((1, 1), ins.operands["d"].format.code_dtype)
    found = interleaved(
        {
            "call": lambda: fastmma.gemm(a, b, instruction=ins, target=case.target, backend=backend, **scales),
            # reading one result waits for all
            "kernels": lambda: emulator.machine.copy_to_host(emulator.product(operation, sent, (1, n, n))[0, :1, :1], corner),
        },
        rounds,
    )
    return n**3 / found["call"], n**3 / found["kernels"]


def table(emulator: Emulator, backend: str, n: int, rounds: int) -> list[str]:
    """The lines of a Markdown table, one a case."""
    lines = ["| product | multiply-adds/s, NumPy arrays | arrays on the GPU |", "| --- | --- | --- |"]
    for case in cases(GPU):
        call, kernels = speeds(case, emulator, backend, n, rounds)
        lines.append(f"| {case.title} | {call:.2e} | {kernels:.2e} |")
    return lines


@click.command()
@click.option("--size", type=click.IntRange(min=1), default=8192, help="Rows, columns and k of the matrices.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, help="Rounds, of which the median counts.")
def measure(
    size: int,
    rounds: int,
) -> None:
    """Measure ``backend="cupy-emulate"``."""
    click.echo("\n".join(table(Emulator(device), "cupy-emulate", size, rounds)))


if __name__ == "__main__":
    measure()
