"""Verification: the emulator against recordings that ship with the package, and against the GPU in the machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma import inputs, warp, warpgroup
from fastmma.errors import FastmmaError
from fastmma.formats import format_of
from fastmma.fragment import scatter, stored_dtype
from fastmma.gpu import device
from fastmma.gpu.engine import immediates
from fastmma.isa.descriptor import Descriptor
from fastmma.isa.model import Instruction, Operand
from fastmma.isa.sparsity import pattern_of, selectors
from fastmma.isa.table import multiplications, multiply

GOLDEN = Path(__file__).parent / "golden"
Registers = dict[str, NDArray[Any]]


@dataclass
class Outcome:
    """What a comparison found for one opcode (and selector)."""

    opcode: str
    selector: int = 0
    warps: int = 0
    elements: int = 0
    wrong: int = 0
    worst: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))


@dataclass
class Report:
    """All outcomes of a run."""

    target: str
    reference: str
    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def elements(self) -> int:
        """Output elements compared."""
        return sum(outcome.elements for outcome in self.outcomes)

    @property
    def wrong(self) -> int:
        """Registers that differ."""
        return sum(outcome.wrong for outcome in self.outcomes)


def _describe(got: NDArray[Any], expected: NDArray[Any], ins: Instruction, where: str) -> str:
    """The first difference: warp, lane, register, and the bits of both."""
    index = tuple(int(each) for each in np.argwhere(got != expected)[0])
    width = got.dtype.itemsize * 2
    return (
        f"{where}: warp {index[0]}, lane {index[-2]}, register {index[-1]} of d ({ins.dtype}): "
        f"emulated 0x{int(got[index]):0{width}x}, recorded 0x{int(expected[index]):0{width}x}"
    )


def _compare(outcome: Outcome, ins: Instruction, got: NDArray[Any], expected: NDArray[Any], where: str) -> None:
    wrong = int((got != expected).sum())
    outcome.warps += len(got)
    outcome.elements += got.size * got.dtype.itemsize * 8 // format_of(ins.dtype).bits
    outcome.wrong += wrong
    if wrong and not outcome.worst:
        outcome.worst = _describe(got, expected, ins, where)


@cache
def _archive(path: Path) -> Registers:
    with np.load(path) as archive:
        return dict(archive)


def golden_files(target: str = "sm_90a") -> dict[str, Any]:
    """The manifest of the recordings of a target.

    Raises
    ------
    FastmmaError
        If there are none.
    """
    path = GOLDEN / target / "manifest.json"
    if not path.is_file():
        known = sorted(each.parent.name for each in GOLDEN.glob("*/manifest.json"))
        raise FastmmaError(f"there are no recordings of {target}; there are some of {', '.join(known)}")
    manifest: dict[str, Any] = json.loads(path.read_text())
    return manifest


def replay(target: str = "sm_90a", *, backend: str = "numba", progress: Callable[[int, int], None] | None = None) -> Report:
    """Replay the recorded registers of every ``mma``, ``mma.sp`` and ``wmma.mma`` opcode on the emulator.

    Parameters
    ----------
    target : str
    backend : {"numba", "reference", "cupy"}
    progress : callable, optional
        Called with the number of opcodes done and their total.

    Examples
    --------
    >>> report = replay()  # doctest: +SKIP
    >>> report.wrong  # doctest: +SKIP
    0
    """
    manifest = golden_files(target)
    report = Report(target, f"{manifest['gpu']}, driver {manifest['driver']}")
    todo = [
        (file, key)
        for file in (*manifest["files"], *manifest["cases"])
        for key in dict.fromkeys(name.rpartition("|")[0] for name in _archive(GOLDEN / target / file))
        if key.startswith(("mma.", "wmma.mma."))
    ]
    start = time.perf_counter()
    for done, (file, key) in enumerate(todo):
        archive = _archive(GOLDEN / target / file)
        opcode, _, selector = key.partition("|")
        recorded = {name: archive[f"{key}|{name}"] for name in "abcde" if f"{key}|{name}" in archive}
        ins = multiply(opcode)
        extra: dict[str, Any] = {"metadata": recorded["e"], "selector": int(selector)} if ins.sparse else {}
        outcome = Outcome(opcode, int(selector or 0))
        got = warp.mma(ins, recorded["a"], recorded["b"], recorded["c"], target=target, backend=backend, **extra)
        _compare(outcome, ins, got, recorded["d"], file)
        report.outcomes.append(outcome)
        if progress is not None:
            progress(done + 1, len(todo))
    report.seconds = time.perf_counter() - start
    return report


def _registers(operand: Operand, kind: str, distribution: str, warps: int, generator: np.random.Generator) -> NDArray[Any]:
    layout = operand.layout
    drawn = inputs.codes(operand.format, distribution, warps * layout.tiles * layout.shape[0] * layout.shape[1], generator)
    matrices = drawn.astype(stored_dtype(operand)).reshape(warps, *((layout.tiles,) if layout.tiles > 1 else ()), *layout.shape)
    return scatter(matrices, operand, kind=kind)


def _metadata(ins: Instruction, warps: int, generator: np.random.Generator) -> NDArray[np.uint32]:
    rule = pattern_of(ins)
    words = np.array([word for word, _ in rule.words[: rule.ordered if ins.ordered_metadata else None]], dtype=np.uint32)
    drawn = generator.choice(words, (warps, ins.lanes, 8)) << (4 * np.arange(8, dtype=np.uint32))
    return np.asarray(np.bitwise_or.reduce(drawn, axis=-1), dtype=np.uint32)


def _pairs(ins: Instruction) -> tuple[tuple[str, str], ...]:
    return inputs.PAIRS if format_of(ins.atype).kind == "float" else inputs.INTEGER_PAIRS


def _warp_trial(
    ins: Instruction, selector: int, pair: tuple[str, str], warps: int, generator: np.random.Generator
) -> Iterator[NDArray[Any]]:
    """The registers of d, emulated and real."""
    operands = ins.operands
    a, b, c = (_registers(operands[name], ins.kind, pair[name == "c"], warps, generator) for name in "abc")
    extra: dict[str, Any] = {"metadata": _metadata(ins, warps, generator), "selector": selector} if ins.sparse else {}
    for target, backend in ((device.native_target(), "numba"), ("native", "cupy")):
        yield warp.mma(ins, a, b, c, target=target, backend=backend, **extra)


def _warpgroup_trial(
    ins: Instruction, selector: int, pair: tuple[str, str], groups: int, generator: np.random.Generator
) -> Iterator[NDArray[Any]]:
    operands, bits = ins.operands, format_of(ins.btype).bits
    a, d = (_registers(operands[name], "", pair[name == "d"], groups, generator) for name in "ad")
    size = ins.n * ins.k * bits // 8
    drawn = inputs.codes(ins.btype, pair[0], groups * ins.n * ins.k, generator)
    memory = np.packbits(drawn.astype(np.uint8), bitorder="little") if bits < 8 else drawn.view(np.uint8)
    units = ins.k * bits // 128
    b = Descriptor(0, leading=128, stride=128 * units)
    extra: dict[str, Any] = {"metadata": _metadata(ins, groups, generator), "selector": selector} if ins.sparse else {}
    signs = tuple(int(each) for each in generator.choice([1, -1], 2)) if len(immediates(ins)) > 1 else (1, 1)
    for target, backend in ((device.native_target(), "numba"), ("native", "cupy")):
        yield warpgroup.mma(
            ins,
            d,
            a,
            b,
            target=target,
            memory=memory.reshape(groups, size),
            backend=backend,
            imm_scale_a=signs[0],
            imm_scale_b=signs[1],
            **extra,
        )


def compare_with_gpu(
    minutes: float = 1.0, *, warps: int = 4096, seed: int = 0, progress: Callable[[float, Report], None] | None = None
) -> Report:
    """Compare emulator and silicon on fresh adversarial inputs: sweeps over all opcodes, with another distribution in each.

    Parameters
    ----------
    minutes : float
        A sweep that has begun is finished, and there is at least one.
    warps : int
        Warps a trial; fewer warpgroups, by their size.
    seed : int
    progress : callable, optional
        Called with the elapsed seconds and the report so far.

    Raises
    ------
    BackendError
        If there is no GPU.
    """
    target = device.native_target()
    report = Report(target, "the GPU in this machine")
    todo = [(ins, selector) for ins in multiplications(target) for selector in (selectors(ins) if ins.sparse else (0,))]
    outcomes = {(ins.opcode, selector): Outcome(ins.opcode, selector) for ins, selector in todo}
    report.outcomes = list(outcomes.values())
    start, sweep = time.perf_counter(), 0
    while sweep == 0 or time.perf_counter() - start < 60 * minutes:
        for index, (ins, selector) in enumerate(todo):
            pairs = _pairs(ins)
            pair = pairs[(sweep + index) % len(pairs)]
            generator = np.random.default_rng((seed, sweep, index))
            trial = _warpgroup_trial if ins.op == "wgmma" else _warp_trial
            count = max(1, warps * 8 // (ins.lanes * max(1, ins.n // 32))) if ins.op == "wgmma" else warps
            emulated, real = trial(ins, selector, pair, count, generator)
            where = f"multiplicands {pair[0]}, accumulators {pair[1]}, sweep {sweep}, seed {seed}"
            _compare(outcomes[ins.opcode, selector], ins, emulated, real, where)
            if progress is not None:
                progress(time.perf_counter() - start, report)
        sweep += 1
    report.seconds = time.perf_counter() - start
    return report
