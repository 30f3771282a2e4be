"""The micro-kernels for AArch64, as LLVM makes them on any machine: as few instructions as those for x86."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fastmma.kernels.fused.micro_kernel import SLAB
from fastmma.kernels.fused.packed import config_of
from fastmma.kernels.params import Element, Fused, Specials
from fastmma.kernels.tiles import BITS, BYTES, CHAINS, FUSED, GROUPS, fit

NEON = frozenset({"neon", "fp-armv8"})
HALF = Element(5, 10, 15, 0, Specials.IEEE)


def test_register_tiles() -> None:
    """Dot products serve bytes and groups; a CPU without them multiplies first, and has the same tiles else."""
    dotprod = NEON | {"dotprod"}
    assert [(fit(BYTES, features).words, fit(GROUPS, features).dot) for features in (NEON, dotprod)] == [
        ("pairs", "smull"),
        ("bytes_alike", "sdot"),
    ]
    assert all(fit(table, NEON) is fit(table, dotprod) is not None for table in (FUSED, CHAINS, BITS))


def test_instructions() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.instructions"], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()[2:]]
    assert len(rows) == 14
    for name, *_, ratio, stack in rows:
        assert float(ratio) <= 1.3, name
        assert float(stack.strip("% ")) <= 25, name


@pytest.mark.parametrize("half", [False, True])
def test_modes_and_calls(half: bool) -> None:
    """The rounding mode is set around the sums, which call nothing; f16 sums are rounded by an instruction that does not follow it."""
    p = Fused(HALF, HALF, 16, 25, -14 if half else -133, 10 if half else 23, int(half), 0)
    code = SLAB.assembly(config_of(p, fit(FUSED, NEON)), "aarch64-unknown-linux-gnu", "generic", "+neon")
    instructions = [line.split() for line in code.splitlines() if line.startswith("\t")]
    assert [each[0] for each in instructions if each[0] in ("bl", "mrs", "msr")] == ["mrs", "msr", "bl", "msr"]
    assert ("frintn" in code) == half
