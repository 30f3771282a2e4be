"""Recording what the GPU in the machine computes: golden files for every opcode that is legal there."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from fastmma.backends.gpu import device
from fastmma.host.files import make_folder
from fastmma.isa.descriptor import Descriptor
from fastmma.isa.instruction import Instruction, Movement
from fastmma.isa.table import instructions
from fastmma.verification import tensor_trials
from fastmma.verification.recordings import Recorded, checksums, save
from fastmma.verification.trials import Trial, draw, labels_of, variants

_SWIZZLES = (0, 32, 64, 128)
_PATTERN_BYTES = 1024  # a swizzled matrix starts at a multiple of its pattern


class Request(NamedTuple):
    """A trial to be recorded, the file it goes to, and whether that holds everything or checksums of what a seed gives again."""

    file: str
    trial: Trial
    whole: bool


def _some(labels: tuple[str, ...], index: int, count: int) -> tuple[str, ...]:
    """`count` of the labels, other ones for every index."""
    return tuple(labels[(index * count + each) % len(labels)] for each in range(min(count, len(labels))))


# executions of each opcode and selector: of how many labels, or of all
_LABELS = {("mma", False): None, ("mma", True): 5, ("wmma", False): 5}


def _multiplications(target: str, *, wgmma: bool) -> list[Instruction]:
    return [ins for ins in instructions(target) if isinstance(ins, Instruction) and (ins.op == "wgmma") == wgmma]


def _warp_level(target: str, seed: int) -> Iterator[Request]:
    todo = [(ins, chosen) for ins in _multiplications(target, wgmma=False) for chosen in variants(ins)]
    for index, (ins, chosen) in enumerate(todo):
        labels = labels_of(ins)
        count = _LABELS[ins.op, bool(ins.sparse)]
        name = ins.op + ("_sp" if ins.sparse else "") + ("_scaled" if ins.scale_vec_size else "")
        yield Request(f"{name}.npz", draw(ins, labels if count is None else _some(labels, index, count), 1, seed, **chosen), True)


def _movements(target: str, seed: int) -> Iterator[Request]:
    for move in instructions(target):
        if isinstance(move, Movement) and not move.unknown:
            yield Request("movement.npz", draw(move, labels_of(move), 2, seed), True)


def _descriptor(outer: int, k: int, bits: int, swizzle: int, mn_major: bool, address: int) -> Descriptor:
    """A matrix without gaps: blocks along k follow each other (K-major without swizzle), or along m or n."""
    if not mn_major:
        return Descriptor(address, 16 if swizzle else 128, 8 * swizzle or k * bits, swizzle)
    if swizzle:
        return Descriptor(address, k * swizzle, 8 * swizzle, swizzle)
    return Descriptor(address, 16 * outer, 128)


def _in_memory(ins: Instruction, swizzle: int, trans: tuple[bool, bool]) -> dict[str, int]:
    """Arguments of a wgmma with A and B in shared memory."""
    bits = ins.formats.a.bits
    a = _descriptor(ins.m, ins.stored_k, bits, swizzle, trans[0], 0)
    end = int(a.offsets(ins.m, ins.stored_k, bits, mn_major=trans[0]).max()) + 2
    b = _descriptor(ins.n, ins.k, bits, swizzle, trans[1], -(-end // _PATTERN_BYTES) * _PATTERN_BYTES)
    transposed = {f"imm_trans_{name}": int(flag) for name, flag in zip("ab", trans, strict=True)} if bits == 16 else {}
    return {"a": a.encode(), "b": b.encode(), **transposed}


def _memory_cases(ins: Instruction) -> Iterator[dict[str, int]]:
    bits = ins.formats.a.bits
    both = (False, True) if bits == 16 else (False,)
    for swizzle, *trans in itertools.product(_SWIZZLES, both, both):
        # a row of the swizzle must hold all of k
        if swizzle and any(not flag and k * bits > 8 * swizzle for flag, k in zip(trans, (ins.stored_k, ins.k), strict=True)):
            continue
        yield _in_memory(ins, swizzle, (trans[0], trans[1]))


def _warpgroup_level(target: str, seed: int) -> Iterator[Request]:
    todo = _multiplications(target, wgmma=True)
    seen: set[tuple[object, ...]] = set()
    for index, ins in enumerate(todo):
        labels = labels_of(ins)
        name = "wgmma" + ("_sp" if ins.sparse else "")
        for chosen in variants(ins):
            yield Request(f"{name}_shapes.npz", draw(ins, _some(labels, index, 1), 1, seed, **chosen), False)
        kind = (ins.types, ins.k, ins.sparse, ins.satfinite)
        if kind in seen:
            continue
        seen.add(kind)  # the narrowest shape comes first
        for chosen in variants(ins):
            yield Request(f"{name}.npz", draw(ins, labels if not ins.sparse else _some(labels, index, 3), 1, seed, **chosen), True)
    seen.clear()
    for index, ins in enumerate(todo):
        kind = (ins.types, ins.k, ins.sparse, ins.satfinite)
        if ins.n == 24 and kind not in seen:
            seen.add(kind)
            for number, arguments in enumerate(_memory_cases(ins)):
                chosen = variants(ins)[number % len(variants(ins))]
                yield Request(
                    "wgmma_memory.npz", draw(ins, _some(labels_of(ins), index + number, 1), 1, seed, **arguments, **chosen), False
                )


def _tensor_level(target: str, seed: int) -> Iterator[Request]:
    for index, ins in enumerate(tensor_trials.tried(target)):
        yield Request("tcgen05.npz", draw(ins, _some(labels_of(ins), index, 3), 1, seed), False)


def requests(target: str, seed: int) -> Iterator[Request]:
    """Everything that is recorded of a target."""
    for part in (_warp_level, _movements, _warpgroup_level, _tensor_level):
        yield from part(target, seed)


def gpu_and_driver() -> tuple[str, str]:
    """The names of the GPU and of its driver's version, as nvidia-smi has them."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return device.name(), "unknown"
    query = [command, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    said = subprocess.run(query, capture_output=True, text=True, check=False)
    if said.returncode or not said.stdout.strip():
        return device.name(), "unknown"
    gpu, _, driver = said.stdout.splitlines()[0].partition(", ")
    return gpu, driver


def record(folder: Path, *, seed: int = 0, progress: Callable[[int, int], None] | None = None) -> Path:
    """Execute every opcode of the GPU in the machine on adversarial inputs, and write what came out.

    Parameters
    ----------
    folder : Path
        A folder named after the target is made in it, with ``.npz`` files and ``manifest.json``.
    seed : int
    progress : callable, optional
        Called with the number of trials done and their total.

    Returns
    -------
    Path
        The manifest: GPU, driver, target, seed; and of each file its sha256 and the opcode, arguments and distributions of its trials.

    Raises
    ------
    BackendError
        If there is no GPU.
    FastmmaError
        If the folder cannot be made.

    Examples
    --------
    >>> record(Path("golden"))  # doctest: +SKIP
    """
    target = device.native_target()
    make_folder(folder / target)
    gpu, driver = gpu_and_driver()
    todo = list(requests(target, seed))
    files: dict[str, list[Recorded]] = {}
    for done, request in enumerate(todo):
        result = request.trial.run("native", "cupy")
        outcome = Recorded(request.trial, result) if request.whole else Recorded(request.trial, None, checksums(result), drawn=True)
        files.setdefault(request.file, []).append(outcome)
        if progress is not None:
            progress(done + 1, len(todo))
    return save(folder / target, files, {"gpu": gpu, "driver": driver, "target": target, "seed": seed})
