"""Explanations end in what an H200 computed: an element of many recorded multiplications, explained from the registers and memory."""

from __future__ import annotations

import numpy as np
import pytest

import fastmma
from fastmma.isa.instruction import Instruction
from fastmma.verification import recordings
from fastmma.verification.explain import explain
from fastmma.verification.manifest import manifest

TARGET = "sm_90a"


@pytest.mark.parametrize("file", tuple(manifest(TARGET)["files"]))
def test_recorded_elements(file: str) -> None:
    rng = np.random.default_rng(0)
    for recorded in recordings.load(TARGET, files=(file,)):
        trial, ins = recorded.trial, recorded.trial.instruction
        if recorded.result is None or not isinstance(ins, Instruction) or rng.random() < 0.6:
            continue
        execution = int(rng.integers(len(recorded.result)))
        matrices = fastmma.gather(recorded.result[execution], ins.operands["d"], kind=ins.kind)
        tile = int(rng.integers(ins.tiles))
        row, col = int(rng.integers(ins.m)), int(rng.integers(ins.n))
        wanted = int((matrices[tile] if ins.tiles > 1 else matrices)[row, col])
        first = explain(trial, TARGET, execution, row, col, tile).splitlines()[0]
        assert first.startswith(f"d[{row}, {col}] = ")
        assert int(first.split(" = ")[1].split()[0], 16) == wanted, (trial.opcode, trial.arguments, execution)
