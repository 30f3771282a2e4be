"""Recordings of training steps: of each tensor its name, its digest and some of its numbers, and on what it was computed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastmma.host.errors import OperandError

_FORMAT = 1
_CODES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.uint64}


class Kept(NamedTuple):
    """What a recording keeps of a tensor.

    Attributes
    ----------
    name : str
    dtype : str
        As torch names it, for example ``"bfloat16"``.
    shape : tuple of int
    digest : str
        Of all bits; all NaNs count as one.
    codes : array of unsigned integers
        The bits of the elements at `kept_places`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str
    codes: NDArray[Any]


def kept_places(size: int, keep: int) -> NDArray[np.int64]:
    """List which of so many elements are kept: all, or about `keep` that are spread over them without a period.

    Examples
    --------
    >>> kept_places(4, 8).tolist(), len(kept_places(10_000, 8))
    ([0, 1, 2, 3], 8)
    """
    if size <= keep:
        return np.arange(size)
    step, index = size // keep, np.arange(keep)
    return index * step + index * 7919 % step


def keep_of(name: str, tensor: torch.Tensor, keep: int) -> Kept:
    """Keep of a tensor what a recording has of it."""
    plain = tensor.detach()
    if plain.is_floating_point() and bool((nans := plain.isnan()).any()):
        plain = plain.masked_fill(nans, math.nan)
    flat = plain.resolve_conj().resolve_neg().contiguous().cpu().reshape(-1)
    held = flat.view(torch.uint8).numpy()
    dtype = str(tensor.dtype).removeprefix("torch.")
    size = flat.element_size()
    codes = held.view(_CODES[size]).reshape(flat.numel(), max(size // 8, 1))
    chosen = codes[kept_places(flat.numel(), keep)]
    return Kept(name, dtype, tuple(tensor.shape), blake2b(held.tobytes(), digest_size=12).hexdigest(), chosen.reshape(-1).copy())


@dataclass(frozen=True)
class Recording:
    """One or more training steps that ran on a GPU or under `emulate`. `record` returns it, and `assert_same_step` compares with it.

    Attributes
    ----------
    gpu : str
        The GPU's name from its driver; the target if the step was emulated.
    emulated : bool
        Whether the step ran under `emulate`.
    versions : dict
        Of torch, CUDA and fastmma.
    settings : dict
        torch's settings that decide which kernels run.
    seed, steps, keep : int
    autocast : str
        The dtype of `torch.autocast`; empty if it was not used.
    given : tuple of Kept
        The weights and the inputs before the step.
    tensors : tuple of Kept
        In the order of computation.
    unrepeated : tuple of str
        Tensors that had other bits when the GPU ran the same step again.
    step : object, optional
        The model, its inputs and the optimizer. A file does not hold them.
    """

    gpu: str
    emulated: bool
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    seed: int
    steps: int
    keep: int
    autocast: str
    given: tuple[Kept, ...] = field(repr=False)
    tensors: tuple[Kept, ...] = field(repr=False)
    unrepeated: tuple[str, ...] = ()
    step: Any = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items() if version)
        how = "emulated" if self.emulated else "recorded"
        return f"{len(self.tensors)} tensors of {self.steps} step{'s' * (self.steps > 1)} {how} on {self.gpu}, {versions}"

    def save(self, path: str | Path) -> None:
        """Write a file in NumPy's npz format. It holds JSON and numbers, and no code.

        Parameters
        ----------
        path : str or Path
        """
        names = ("gpu", "emulated", "versions", "settings", "seed", "steps", "keep", "autocast", "unrepeated")
        meta = {"format": _FORMAT, **{name: getattr(self, name) for name in names}}
        meta |= {name: [each[:4] for each in getattr(self, name)] for name in ("given", "tensors")}
        held = [each.codes.view(np.uint8) for each in (*self.given, *self.tensors)]
        text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        with open(path, "wb") as file:
            np.savez_compressed(file, meta=text, codes=np.concatenate([np.empty(0, np.uint8), *held]))

    @classmethod
    def load(cls, path: str | Path | BinaryIO) -> Recording:
        """Read a file that `save` wrote.

        Parameters
        ----------
        path : str, Path or binary file

        Raises
        ------
        OperandError
            If the file is not a recording, or has another version of the format.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                meta, codes = json.loads(file["meta"].tobytes()), file["codes"]
            if meta.pop("format") != _FORMAT:
                raise OperandError(f"{path} is a recording of another version of fastmma; record the step anew")
            start, lists = 0, dict[str, Any]()
            for which in ("given", "tensors"):
                found = []
                for name, dtype, shape, digest in meta.pop(which):
                    kind = getattr(torch, dtype)
                    count = len(kept_places(math.prod(shape), meta["keep"])) * kind.itemsize
                    part = codes[start : start + count].view(_CODES[kind.itemsize])
                    start += count
                    found.append(Kept(name, dtype, tuple(shape), digest, part))
                lists[which] = tuple(found)
            if start != len(codes):
                raise ValueError("numbers are missing")
            return cls(**{**meta, "unrepeated": tuple(meta["unrepeated"])}, **lists)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, OperandError):
                raise
            raise OperandError(f"{path} is no recording of a step: {error}") from None
