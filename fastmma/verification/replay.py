"""Verification: the emulator against recordings that ship with the package, and against the GPU in the machine."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.gpu import device
from fastmma.host.calls import public_call
from fastmma.host.errors import FastmmaError, OperandError
from fastmma.host.float_mode import default_floats
from fastmma.isa.gpus import target_named
from fastmma.isa.instruction import Instruction, Movement
from fastmma.isa.table import instructions
from fastmma.verification import tensor_trials
from fastmma.verification.explain import explain
from fastmma.verification.manifest import GOLDEN, manifest
from fastmma.verification.recordings import Recorded, checksums, load
from fastmma.verification.trials import Trial, draw, elements, labels_of, variants


@dataclass
class Outcome:
    """The outcome of a comparison for one opcode with one set of arguments.

    Attributes
    ----------
    opcode : str
    arguments : dict of str to int
        Selectors and other immediates.
    warps : int
        Executions compared: of warps, or of warpgroups.
    elements : int
        Elements of the results.
    wrong : int
        Registers (bytes of memory, for stores) that differ.
    worst : str
        One difference in full.
    """

    opcode: str
    arguments: dict[str, int] = field(default_factory=dict)
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


def _farthest(got: NDArray[Any], expected: NDArray[Any], ins: Instruction | Movement) -> tuple[int, ...]:
    """Return where the results differ most: by their values where both are finite numbers, else anywhere."""
    places = np.argwhere(got != expected)
    fmt = None if isinstance(ins, Movement) else ins.formats.d
    if fmt is not None and fmt.kind == "float" and fmt.bits == got.dtype.itemsize * 8:
        with np.errstate(all="ignore"):
            apart = np.abs(got.view(fmt.dtype).astype(np.float64) - expected.view(fmt.dtype).astype(np.float64))
        distance = np.nan_to_num(apart[tuple(places.T)], nan=0.0)
        return tuple(int(each) for each in places[int(np.argmax(distance))])
    return tuple(int(each) for each in places[0])


def describe(trial: Trial, got: NDArray[Any], expected: NDArray[Any], target: str) -> str:
    """The worst difference between two results of a trial: lane, register, the bits of both, and how the emulator adds the element up."""
    ins = trial.instruction
    where = _farthest(got, expected, ins)
    width = 2 * got.dtype.itemsize
    label = trial.labels[where[0]] if where[0] < len(trial.labels) else ""
    place = f"lane {where[1]}, register {where[2]}" if len(where) == 3 else f"{'byte' if got.dtype == np.uint8 else 'lane'} {where[1]}"
    lines = [
        f"{ins}{f' {trial.arguments}' if trial.arguments else ''}, execution {where[0]} ({label}), {place}: "
        f"emulated 0x{int(got[where]):0{width}x}, real 0x{int(expected[where]):0{width}x}"
    ]
    if isinstance(ins, Instruction):
        layout = ins.operands["d"].layout
        wrong = int(got[where]) ^ int(expected[where])
        per_register = layout.register_bits // layout.bits
        element = where[-1] * per_register + ((wrong & -wrong).bit_length() - 1) // layout.bits
        row, col = int(layout.rows[where[1], element]), int(layout.cols[where[1], element])
        tile = 0 if layout.tiles == 1 else int(layout.tile[where[1], element])
        lines.append(explain(trial, target, where[0], row, col, tile))
    return "\n".join(lines)


def compare(outcome: Outcome, trial: Trial, got: NDArray[Any], expected: NDArray[Any], target: str) -> None:
    """Count one trial's results in an outcome."""
    wrong = int((got != expected).sum())
    outcome.warps += len(got)
    outcome.elements += elements(trial.instruction, got)
    outcome.wrong += wrong
    if wrong and not outcome.worst:
        outcome.worst = describe(trial, got, expected, target)


def _compare_checksums(outcome: Outcome, trial: Trial, got: NDArray[Any], expected: NDArray[np.uint32]) -> None:
    differ = checksums(got) != expected
    outcome.warps += len(got)
    outcome.elements += elements(trial.instruction, got)
    outcome.wrong += int(differ.sum())
    if differ.any() and not outcome.worst:
        execution, register = (int(each) for each in np.argwhere(differ)[0])
        outcome.worst = f"{trial.opcode} {trial.arguments}, execution {execution}: checksum of register {register} over all lanes"


def check(recorded: Recorded, outcome: Outcome, target: str, backend: str = "numba") -> None:
    """Execute a recorded trial and compare it with what was recorded."""
    trial, result, sums = recorded.trial, recorded.result, recorded.checksums
    got = trial.run(target, backend)
    if result is not None and (result.shape, result.dtype) == (got.shape, got.dtype):
        compare(outcome, trial, got, result, target)
    elif sums is not None and sums.dtype == np.uint32 and got.ndim == 3 and sums.shape == (len(got), got.shape[-1]):
        _compare_checksums(outcome, trial, got, sums)
    else:
        held = result if result is not None else sums
        what = "nothing" if held is None else f"{held.dtype} {held.shape}"
        raise FastmmaError(f"{trial.opcode} gives {got.dtype} {got.shape}, but its recording holds {what}; record again")


@public_call
def replay(
    target: str = "sm_90a", *, folder: Path = GOLDEN, backend: str = "numba", progress: Callable[[int, int], None] | None = None
) -> Report:
    """Replay what a GPU was recorded to compute, for every opcode that is legal on it.

    Parameters
    ----------
    target : str
    folder : Path
        Where the folder of the target lies: by default the recordings that ship with the package.
    backend : {"numba", "reference", "cupy", "cupy-emulate"}
    progress : callable, optional
        Called with the number of trials done and their total.

    Raises
    ------
    FastmmaError
        If there are no recordings of the target, or their files are damaged.

    Examples
    --------
    >>> report = replay()  # doctest: +SKIP
    >>> report.wrong  # doctest: +SKIP
    0
    """
    target = target_named(target)
    about = manifest(target, folder)
    report = Report(target, f"{about['gpu']}, driver {about['driver']}")
    total = sum(len(entry["trials"]) for entry in about["files"].values())
    outcomes: dict[tuple[str, str], Outcome] = {}
    start = time.perf_counter()
    for done, recorded in enumerate(load(target, folder)):
        trial = recorded.trial
        outcome = outcomes.setdefault((trial.opcode, str(trial.arguments)), Outcome(trial.opcode, trial.arguments))
        check(recorded, outcome, target, backend)
        if progress is not None:
            progress(done + 1, total)
    report.outcomes = list(outcomes.values())
    report.seconds = time.perf_counter() - start
    return report


def _count(ins: Instruction | Movement, warps: int) -> int:
    """Executions a trial: fewer of those that have more lanes and columns."""
    if isinstance(ins, Movement) or not ins.in_place:
        return warps
    return max(1, warps * 8 // (ins.lanes * max(1, ins.n // 32)))


def _fresh(todo: Sequence[tuple[Instruction | Movement, dict[str, int]]], warps: int, seed: int) -> Generator[Trial]:
    """Trials of all that is to be tried, in sweep after sweep; the next is drawn while one is used."""

    @default_floats
    def drawn(sweep: int, index: int) -> Trial:
        ins, chosen = todo[index]
        labels = labels_of(ins)
        return draw(ins, (labels[(sweep + index) % len(labels)],), _count(ins, warps), seed, sweep, **chosen)

    places = ((sweep, index) for sweep in itertools.count() for index in range(len(todo)))
    with ThreadPoolExecutor(1, "fastmma-draw") as pool:
        coming = pool.submit(drawn, *next(places))
        while True:
            trial = coming.result()
            coming = pool.submit(drawn, *next(places))
            yield trial


@public_call
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
    OperandError
        If the minutes are no finite number from 0, or there is less than a warp.
    BackendError
        If there is no GPU.

    Examples
    --------
    >>> compare_with_gpu(2.5).wrong  # doctest: +SKIP
    0
    """
    if not (math.isfinite(minutes) and minutes >= 0 and warps >= 1):
        raise OperandError(f"minutes must be a finite number from 0 and warps at least 1, not {minutes} and {warps}")
    target = device.native_target()
    report = Report(target, f"{device.name()} in this machine")
    known = [ins for ins in instructions(target) if isinstance(ins, Instruction) or not ins.unknown]
    todo = [(ins, chosen) for ins in (*known, *tensor_trials.tried(target)) for chosen in variants(ins)]
    report.outcomes = [Outcome(str(ins), chosen) for ins, chosen in todo]
    start, sweep = time.perf_counter(), 0
    with closing(_fresh(todo, warps, seed)) as trials:
        while sweep == 0 or time.perf_counter() - start < 60 * minutes:
            for outcome in report.outcomes:
                trial = next(trials)
                emulated, real = (trial.run(*where) for where in ((target, "numba"), ("native", "cupy")))
                compare(outcome, trial, emulated, real, target)
                if progress is not None:
                    progress(time.perf_counter() - start, report)
            sweep += 1
    report.seconds = time.perf_counter() - start
    return report
