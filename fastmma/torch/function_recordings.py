"""Recordings of another version of torch: what its functions compute on a GPU, and which have the bits of the recorded version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch

import fastmma
from fastmma.host.calls import named_keywords
from fastmma.host.errors import OperandError
from fastmma.isa.gpus import TargetName
from fastmma.torch.function_calls import CALLS, Call, compute
from fastmma.torch.mode import emulate
from fastmma.torch.recordings import keep_of
from fastmma.torch.report import EMULATED, PASSED, UNSEEN
from fastmma.torch.versions import RECORDED, FunctionAgreement, base_name

_FORMAT = 1


class _Found(NamedTuple):
    """What a call computed: digests of its results, operators that were emulated, and whether all were."""

    digests: list[str]
    operators: frozenset[str]
    whole: bool


def _digests(tensors: list[torch.Tensor]) -> list[str]:
    return [f"{each.dtype} {tuple(each.shape)} {keep_of('', each, 1).digest}" for each in tensors]


@named_keywords
def record_functions(path: str | Path) -> dict[str, Any]:
    """Record what the functions of this version of torch compute on this GPU.

    The calls are those of `fastmma.torch.function_calls`: functions of each element, sums, softmax, norms, losses, random numbers,
    optimizers and attention, most of them in three formats and with gradients. Each runs twice.

    Parameters
    ----------
    path : str or Path
        A JSON file to write, with versions and digests.

    Returns
    -------
    dict
        What the file has: the GPU, the versions of torch and CUDA, and by call the digests of its results.

    Raises
    ------
    OperandError
        If torch finds no GPU.

    Examples
    --------
    >>> record_functions("torch-2.12.json")
    Traceback (most recent call last):
    ...
    fastmma.OperandError: record_functions needs a GPU, and torch finds none
    """
    if not torch.cuda.is_available():
        raise OperandError("record_functions needs a GPU, and torch finds none")
    return _write(path, torch.cuda.get_device_name(), torch.version.cuda or "", "cuda")


def _write(path: str | Path, gpu: str, cuda: str, device: str) -> dict[str, Any]:
    calls, unrepeated = dict[str, list[str]](), list[str]()
    for call in CALLS:
        for dtype in call.dtypes:
            name = _name(call.name, dtype)
            first, second = (_digests(compute(call, dtype, device)) for _ in range(2))
            calls[name] = first
            unrepeated += [name] * (first != second)
    versions = {"torch": torch.__version__, "CUDA": cuda}
    made = {"format": _FORMAT, "gpu": gpu, "versions": versions, "fastmma": fastmma.__version__, "calls": calls, "unrepeated": unrepeated}
    Path(path).write_text(json.dumps(made, indent=1))
    return made


def _name(call: str, dtype: torch.dtype) -> str:
    return f"{call} {str(dtype).removeprefix('torch.')}"


def _read(path: str | Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(Path(path).read_text())
        if found["format"] != _FORMAT or not all(isinstance(found[name], dict) for name in ("versions", "calls")):
            raise ValueError("it has another format")
    except (KeyError, TypeError, ValueError) as error:
        raise OperandError(f"{path} is no recording of functions: {error}") from None
    return found


@named_keywords
def compare_functions(path: str | Path, *, target: TargetName | None = None) -> FunctionAgreement:
    """Compare a recording of another version of torch with the version that fastmma knows, whose functions this CPU computes.

    Parameters
    ----------
    path : str or Path
        The file that `record_functions` wrote.
    target : str, optional
        The GPU; by default that of the recording.

    Returns
    -------
    FunctionAgreement
        Which operators have the same bits. Given to ``emulate(functions=...)``, it makes the report call the others assumed.

    Raises
    ------
    OperandError
        If the file is not such a recording.
    TargetError
        If its GPU is not known.
    """
    recording = _read(path)
    equal, differ, calls = set[str](), set[str](), list[str]()
    unrepeated = tuple(recording["unrepeated"])
    for call in CALLS:
        for dtype in call.dtypes:
            name = _name(call.name, dtype)
            if name not in recording["calls"] or name in unrepeated:
                continue
            found = _emulated(call, dtype, target or recording["gpu"])
            same = found.digests == recording["calls"][name]
            if not (same or found.whole):
                continue  # a function that this machine leaves to torch may be the cause
            (equal if same else differ).update(found.operators)
            calls += [name] * (not same)
    versions = tuple(sorted(recording["versions"].items(), reverse=True))
    return FunctionAgreement(recording["gpu"], versions, frozenset(equal - differ), frozenset(differ), tuple(calls), unrepeated)


def _emulated(call: Call, dtype: torch.dtype, target: TargetName) -> _Found:
    with emulate(target, as_cuda=True, unknown="one") as emulation:
        digests = _digests(compute(call, dtype, "cuda"))
    report = emulation.report
    operators = frozenset(base_name(line.operator) for line, _ in report.lines(EMULATED) if line.how.startswith(str(RECORDED)))
    return _Found(digests, operators, not report.lines(PASSED, UNSEEN))
