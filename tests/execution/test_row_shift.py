"""tcgen05.mma with .ashift: each CTA's rows of A are read one lane further, but for the last."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference.tensor_memory_machine import PAIR, Machine, extras, instruction

import fastmma
from fastmma import TargetError, tcgen05

FORMS: tuple[tuple[str, str, int, int, dict[str, Any]], ...] = (
    ("f16", "f16", 128, 16, {}),
    ("f16", "f16", 256, 16, PAIR),
    ("f8f6f4", "e4m3", 128, 32, PAIR),
    ("f16", "f16", 128, 16, {"sparse": True}),
    ("f8f6f4", "e4m3", 256, 16, {"sparse": True, **PAIR}),
    ("tf32", "tf32", 128, 16, {}),
)


def shifting(plain: fastmma.Instruction) -> Any:
    """The instruction with .ashift."""
    opcode, _, word = plain.opcode.partition(" idesc=")
    return fastmma.instruction(f"{opcode}.ashift", idesc=int(word, 16))


@pytest.mark.parametrize(("kind", "name", "m", "n", "more"), FORMS)
def test_rows_come_from_the_next_lane(kind: str, name: str, m: int, n: int, more: dict[str, Any]) -> None:
    plain = instruction(kind, "f32", name, name, m, n, **more)
    machine = Machine(plain, m + n)
    places = machine.put_d(), machine.put_a(), machine.put_shared("b", 0)
    extra = extras(machine)
    for operand in {"a", "metadata"} & set(machine.given):
        rows = machine.given[operand]
        own = m // plain.cta_group
        machine.given[operand] = np.stack([rows[i if (i + 1) % own == 0 else i + 1] for i in range(m)])
    expected = machine.expected(machine.product())
    np.testing.assert_array_equal(machine.run(*places, ins=shifting(plain), **extra), expected)


def test_strict_mode_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = instruction("f16", "f32", "f16", "f16", 128, 16)
    machine = Machine(plain, 0)
    places = machine.put_d(), machine.put_a(), machine.put_shared("b", 0)
    monkeypatch.setenv("FASTMMA_STRICT", "1")
    with pytest.raises(TargetError, match=r"what \.ashift shifts is only reported"):
        tcgen05.mma(shifting(plain), *places, tmem=machine.tmem[0], memory=machine.memory[0], target="sm_100a")
