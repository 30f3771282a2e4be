"""Where a step differs from its recording: the first tensor, how far, what computed it, and what was assumed or passed before."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.torch.recordings import Kept, Recording, kept_places
from fastmma.torch.report import ASSUMED, PASSED, UNSEEN, Line, Report
from fastmma.torch.versions import RECORDED
from fastmma.torch.watch import Watch

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_SHOWN = 8  # lines of a report


class StepDiffersError(AssertionError):
    """A tensor of a training step does not have the recorded bits.

    Attributes
    ----------
    name : str
        The first such tensor.
    ulp : int or None
        The largest distance between kept numbers; None if none of them differs, or they are not floating-point numbers.
    lines : list of Line
        The operations that computed it, since the tensor before it.
    """

    def __init__(self, text: str, name: str, ulp: int | None, lines: list[Line]) -> None:
        super().__init__(text)
        self.name, self.ulp, self.lines = name, ulp, lines


def compared(recording: Recording, steps: int, watch: Watch, report: Report) -> int:
    """Compare what the first steps computed with their recording, and count the tensors.

    Raises
    ------
    StepDiffersError
        If the step has other tensors than the recorded ones, or one has other bits.
    """
    later = tuple(f"step {number}:" for number in range(steps + 1, recording.steps + 1))
    recorded = {each.name: each for each in recording.tensors if not each.name.startswith(later)}
    found = {each.name: each for each in watch.tensors}
    for name in dict.fromkeys((*recorded, *found)):
        if name not in found or name not in recorded:
            what = "computed, but not recorded" if name in found else "recorded, but not computed"
            raise StepDiffersError(f"{name} is {what} ({recording})", name, None, [])
    left_out = frozenset(recording.unrepeated)
    names = [each.name for each in watch.tensors if each.name not in left_out]
    wrong = [name for name in names if recorded[name][1:4] != found[name][1:4]]
    if not wrong:
        return len(names)
    first = wrong[0]
    place = next(index for index, each in enumerate(watch.tensors) if each.name == first)
    ulp, how = _difference(recorded[first], found[first], recording.keep)
    marks = watch.marks
    computed = report.between(marks[place - 1] if place else None, marks[place])
    doubtful = [each for each in report.between(None, marks[place]) if each.status in (ASSUMED, PASSED, UNSEEN)]
    text = [f"{first} differs from the recording ({recording}):", f"  {how}", *_of_other_version(recording)]
    text += ["computed since the tensor before it by", *_listed(computed)]
    text += ["assumed, passed or unseen up to it:", *_listed(doubtful)]
    text.append(f"of {len(names)} tensors {names.index(first)} before it have the recorded bits, and {len(wrong) - 1} after it differ")
    raise StepDiffersError("\n".join(text), first, ulp, computed)


def _of_other_version(recording: Recording) -> list[str]:
    """Say that a GPU ran another version of torch than the one whose kernels are known."""
    version = recording.versions.get("torch", "")
    if recording.emulated or version.startswith(f"{RECORDED.torch}."):
        return []
    return [
        f"the GPU ran torch {version}, and fastmma computes as PyTorch {RECORDED.torch} does",
        "(fastmma.torch.record_functions records there what its functions compute, and compare_functions says which of them differ)",
    ]


def _listed(lines: list[Line]) -> list[str]:
    shown = [f"  {line.status:<8}  {line}" for line in lines[:_SHOWN]]
    return [*(shown or ["  nothing"]), *([f"  and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else [])]


def _difference(recorded: Kept, found: Kept, keep: int) -> tuple[int | None, str]:
    """Say how two tensors differ, as far as their kept numbers show it."""
    if recorded[1:3] != found[1:3]:
        return None, f"{recorded.dtype} {recorded.shape} is recorded, {found.dtype} {found.shape} is computed"
    what = f"{recorded.dtype} {recorded.shape}"
    count = len(recorded.codes)
    places = np.flatnonzero(recorded.codes != found.codes)
    if not len(places):
        return None, f"{what}: none of the {count} numbers that are kept differs, but others do"
    at = np.unravel_index(kept_places(int(np.prod(recorded.shape)), keep)[places[0]], recorded.shape)
    where = ", ".join(str(int(each)) for each in at)
    several = f"{what}: {len(places)} of {count} kept numbers differ"
    if recorded.dtype not in _FLOATS:
        return None, f"{several}, first at ({where})"
    ordered = [_ascending(each.codes[places]) for each in (recorded, found)]
    ulp = max(abs(one - other) for one, other in zip(*ordered, strict=True))
    return ulp, f"{several}, by at most {ulp} ulp, first at ({where})"


def _ascending(codes: NDArray[Any]) -> list[int]:
    """Return floating-point codes as integers in the order of their numbers; both zeros are one."""
    sign = 1 << (8 * codes.itemsize - 1)
    return [sign - code if code >= sign else code for code in map(int, codes)]
