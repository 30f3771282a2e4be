"""The recordings that ship with the package: what an H200 computed, for every opcode that is legal on it."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from reference.paths import PATHS, taking

import fastmma
from fastmma.isa.codes import decode
from fastmma.isa.descriptor import Descriptor
from fastmma.isa.instruction import Instruction, Movement
from fastmma.isa.sparsity import selectors
from fastmma.verification import recordings, replay, scenes
from fastmma.verification.manifest import GOLDEN, manifest
from fastmma.verification.recordings import Recorded
from fastmma.verification.stream import Stream
from fastmma.verification.trials import Trial, labels_of, variants

TARGET = "sm_90a"
FILES = tuple(manifest(TARGET)["files"])
ALL = [ins for ins in fastmma.instructions(TARGET) if isinstance(ins, Instruction) or not ins.unknown]
WGMMA = [ins for ins in ALL if isinstance(ins, Instruction) and ins.op == "wgmma"]
F16 = fastmma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")


@cache
def everything() -> list[Recorded]:
    """All recordings; not read where none of these tests runs."""
    return [recorded for file in FILES for recorded in recordings.load(TARGET, files=(file,))]


def difference(recorded: Recorded, backend: str) -> str:
    outcome = replay.Outcome(recorded.trial.opcode, recorded.trial.arguments)
    replay.check(recorded, outcome, TARGET, backend)
    assert outcome.elements
    return outcome.worst


# files of every N, which changes where elements lie and no kernel, are replayed on the best kernels alone
REPLAYED = [(path, file) for path in PATHS for file in FILES if path == "fast" or not file.endswith("_shapes.npz")]


@pytest.mark.parametrize(("path", "file"), REPLAYED)
def test_replay(path: str, file: str) -> None:
    with taking(path):
        wrong = [difference(recorded, "numba") for recorded in recordings.load(TARGET, files=(file,))]
    assert [each for each in wrong if each] == []


def one_execution(recorded: Recorded, index: int) -> Recorded:
    trial, at = recorded.trial, index % len(recorded.trial.labels)
    operands = {name: array[at : at + 1] for name, array in trial.operands.items()}
    one = Trial(trial.opcode, operands, trial.arguments, trial.labels[at : at + 1])
    kept = {
        name: None if array is None else array[at : at + 1] for name, array in vars(recorded).items() if name in ("result", "checksums")
    }
    return Recorded(one, **kept)


@pytest.mark.parametrize("part", range(16))
def test_replay_by_the_reference(part: int) -> None:
    """The reference takes its time: an execution of each opcode with a warp's registers, and of each arithmetic of wgmma."""
    slow = [recorded for recorded in everything() if not isinstance(recorded.trial.instruction, Movement) and not recorded.drawn]
    wrong = [difference(one_execution(recorded, index), "reference") for index, recorded in list(enumerate(slow))[part::16]]
    assert [each for each in wrong if each] == []


def test_every_legal_opcode_is_recorded_with_every_selector() -> None:
    expected = {(str(ins), chosen.get("selector", 0)) for ins in ALL for chosen in variants(ins)}
    assert {(recorded.trial.opcode, recorded.trial.arguments.get("selector", 0)) for recorded in everything()} == expected
    sparse = [ins for ins in ALL if isinstance(ins, Instruction) and ins.sparse]
    assert {(ins.opcode, each) for ins in sparse for each in selectors(ins)} <= expected


def test_dense_opcodes_meet_every_distribution() -> None:
    for recorded in everything():
        ins = recorded.trial.instruction
        if isinstance(ins, Instruction) and ins.op == "mma" and not ins.sparse:
            assert set(recorded.trial.labels) == set(labels_of(ins))


def test_memory_operands_meet_every_swizzle_and_transposition() -> None:
    described = set()
    for trial in (recorded.trial for recorded in everything() if "a" in recorded.trial.arguments):
        for operand in "ab":
            swizzle = Descriptor.decode(trial.arguments[operand]).swizzle
            described.add((operand, swizzle, trial.arguments.get(f"imm_trans_{operand}", 0), trial.opcode.count(".sp")))
    assert described == set(itertools.product("ab", (0, 32, 64, 128), (0, 1), (0, 1))) - {("b", 32, 0, 1)}
    # 64 bytes of k do not fit into the rows of a swizzle of 32; where B is transposed, A may
    arithmetics = {(ins.types, ins.k, bool(ins.sparse)) for ins in WGMMA}
    in_memory = [recorded.trial.instruction for recorded in everything() if "a" in recorded.trial.arguments]
    assert {(ins.types, ins.k, bool(ins.sparse)) for ins in in_memory if isinstance(ins, Instruction)} == arithmetics


def test_recordings_are_small() -> None:
    assert sum(path.stat().st_size for path in (GOLDEN / TARGET).iterdir()) <= 8 << 20
    about = manifest(TARGET)
    assert about["target"] == TARGET
    assert set(about) == {"gpu", "driver", "target", "seed", "files"}


def test_streams_are_splitmix64() -> None:
    stream = Stream()
    stream.state = np.uint64(0)
    assert [hex(each) for each in stream.bits(3).tolist()] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]
    again = Stream()
    again.state = np.uint64(0)
    assert again.bits(1).tolist() + again.bits(2).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    drawn = Stream("a", 1).integers(-3, 4, 1000)
    assert set(drawn.tolist()) == set(range(-3, 4))
    assert Stream("a", 1).bits(4).tolist() != Stream("a", 2).bits(4).tolist()


def terms(name: str, count: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Magnitudes of the products and of c of every element of d."""
    drawn = scenes.matrices(F16, name, count, Stream("scene", name))
    a, b, c = (np.abs(np.asarray(decode(drawn[x], fmt), np.float64)) for x, fmt in (("a", "f16"), ("b", "f16"), ("c", "f32")))
    return a[:, :, None, :] * b.swapaxes(1, 2)[:, None], c


def test_ladders_meet_every_alignment() -> None:
    products, _ = terms("ladder of powers")
    largest = products.max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        apart = np.log2(largest) - np.log2(products)
    assert set(range(1, 30)) <= set(np.unique(apart[np.isfinite(apart)]).astype(int).tolist())


def test_ties_are_half_a_unit_in_the_last_place() -> None:
    products, c = terms("tie")
    exponent = np.floor(np.log2(c))
    half = 2.0 ** (exponent - 24)
    assert (products == half[..., None]).any(axis=-1).mean() > 0.5
    assert (c.astype(np.float32).view(np.uint32) & 1 == 1).all()


def test_carries_and_overflow_start_at_the_top() -> None:
    _, ones = terms("carry")
    assert (ones.astype(np.float32).view(np.uint32) & 0x7FFFFF == 0x7FFFFF).all()
    _, largest = terms("overflow edge")
    assert (largest >= float(np.finfo(np.float32).max) * (1 - 2.0**-21)).all()
