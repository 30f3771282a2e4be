"""CUDA's generators of random numbers where there is no GPU: each has a seed, and an offset that says how much was drawn.

torch keeps the seeds that CUDA is to be told once there is a GPU; so ``torch.manual_seed`` sets them here, too, before and within
`emulate`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock
from weakref import WeakValueDictionary

import torch

_STEP = 4  # words of a call of a thread, of which offsets are multiples
_SEED = 67280421310721  # of a generator that nobody has seeded
_KEEPERS = frozenset({"torch.utils.checkpoint", "torch.random"})  # which put back the states of all devices
_lock = threading.Lock()


class State:
    """What a generator draws from.

    Attributes
    ----------
    seed, offset : int
    """

    def __init__(self, seed: int = _SEED, offset: int = 0) -> None:
        self.seed, self.offset = seed, offset

    def take(self, count: int) -> tuple[int, int]:
        """Return the seed and the offset, which then grows by a multiple of 4 that is at least `count`."""
        with _lock:
            offset = self.offset
            self.offset += -(-count // _STEP) * _STEP
        return self.seed, offset


class Generator(torch.Generator):
    """What ``torch.Generator(device="cuda")`` makes where a GPU is pretended."""

    def __init__(self, device: Any = "cuda") -> None:
        self.state = State()
        _made[self._cdata] = self

    @property
    def device(self) -> torch.device:
        """A GPU."""
        return torch.device("cuda", 0)

    def manual_seed(self, seed: int) -> Generator:
        """Begin the sequence of a seed."""
        self.state.seed, self.state.offset = int(seed) % (1 << 64), 0
        return self

    def seed(self) -> int:
        """Begin a sequence that nobody knows."""
        self.manual_seed(super().seed())
        return self.state.seed

    def initial_seed(self) -> int:
        """Return the seed."""
        return self.state.seed

    def get_offset(self) -> int:
        """Return how much was drawn."""
        return self.state.offset

    def set_offset(self, offset: int) -> None:
        """Go to another place of the sequence."""
        self.state.offset = int(offset)

    def get_state(self) -> torch.Tensor:
        """Return the bytes of the seed and the offset, as CUDA's generator does."""
        numbers = self.state.seed, self.state.offset
        return torch.frombuffer(bytearray(b"".join(each.to_bytes(8, "little") for each in numbers)), dtype=torch.uint8)

    def set_state(self, new_state: torch.Tensor) -> Generator:
        """Take bytes that `get_state` has returned."""
        code = bytes(new_state.tolist())
        self.state.seed, self.state.offset = int.from_bytes(code[:8], "little"), int.from_bytes(code[8:16], "little")
        return self

    def clone_state(self) -> Generator:
        """Return another generator at the same place."""
        return Generator().set_state(self.get_state())


_made: WeakValueDictionary[int, Generator] = WeakValueDictionary()  # by the generators' places in memory, which torch's operators name
DEFAULT = Generator()
_told: Any = None  # the last seed that torch keeps for CUDA and that was taken from there


def of_call(generator: torch.Generator | None) -> State | None:
    """Return the state that an operator draws from; None where its generator is the CPU's."""
    if generator is None:
        return default()
    found = _made.get(generator._cdata)
    return found and found.state


def default() -> State:
    """Return the state of the GPU's own generator, at which ``torch.manual_seed`` aims."""
    global _told
    kept = torch.cuda._lazy_seed_tracker.get_calls()
    if not kept and _told is None:
        _told = ()
        DEFAULT.manual_seed(torch.initial_seed())
    elif kept and kept[-1] is not _told:
        _told = kept[-1]
        callback = _told[0]
        DEFAULT.manual_seed(callback.__closure__[callback.__code__.co_freevars.index("seed")].cell_contents)
    return DEFAULT.state


def take(count: int) -> tuple[int, int]:
    """Return the seed and the offset of the GPU's own generator, which then grows by a multiple of 4 that is at least `count`.

    Examples
    --------
    >>> _ = torch.manual_seed(7)
    >>> take(4), take(10), take(1)
    ((7, 0), (7, 4), (7, 16))
    """
    return default().take(count)


@contextmanager
def checkpointed() -> Iterator[None]:
    """Within the ``with``, the state that checkpoints keep of a CPU's generator brings along that of the GPU's."""
    get, put = torch.random.get_rng_state, torch.random.set_rng_state

    def get_both() -> torch.Tensor:
        found = get()
        if sys._getframe(1).f_globals.get("__name__") in _KEEPERS:
            state = default()
            found.of_gpu = (state.seed, state.offset)
        return found

    def put_both(new_state: torch.Tensor) -> None:
        put(new_state)
        if sys._getframe(1).f_globals.get("__name__") in _KEEPERS and hasattr(new_state, "of_gpu"):
            state = default()
            state.seed, state.offset = new_state.of_gpu

    patches = {"get_rng_state": get_both, "set_rng_state": put_both}
    with mock.patch.dict(vars(torch), patches), mock.patch.dict(vars(torch.random), patches):
        yield
