"""CUDA's generators of random numbers where there is no GPU: each has a seed, and an offset that says how much was drawn.

torch keeps the seeds that CUDA is to be told once there is a GPU; so ``torch.manual_seed`` sets them here, too, before and within
`emulate`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakValueDictionary

import torch

from fastmma.functions.philox import Generator
from fastmma.host.replacing import replace

_GPU = torch.device("cuda", 0)  # which a mode that pretends would take for the CPU
_KEEPERS = frozenset({"torch.utils.checkpoint", "torch.random"})  # which put back the states of all devices


class CudaGenerator(torch.Generator):
    """What ``torch.Generator(device="cuda")`` makes where a GPU is pretended."""

    def __init__(self, device: Any = "cuda") -> None:
        self._state = Generator()
        _made[self._cdata] = self

    @property
    def state(self) -> Generator:
        """What it draws from; the GPU's own one follows ``torch.manual_seed``."""
        if self is DEFAULT:
            _hear(self._state)
        return self._state

    @property
    def device(self) -> torch.device:
        """A GPU."""
        return _GPU

    def manual_seed(self, seed: int) -> CudaGenerator:
        """Begin the sequence of a seed."""
        self.state.move(int(seed) % (1 << 64))
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
        self.state.move(self.state.seed, int(offset))

    def get_state(self) -> torch.Tensor:
        """Return the bytes of the seed and the offset, as CUDA's generator does."""
        numbers = self.state.seed, self.state.offset
        return torch.frombuffer(bytearray(b"".join(each.to_bytes(8, "little") for each in numbers)), dtype=torch.uint8)

    def set_state(self, new_state: torch.Tensor) -> CudaGenerator:
        """Take bytes that `get_state` has returned."""
        code = bytes(new_state.tolist())
        self.state.move(int.from_bytes(code[:8], "little"), int.from_bytes(code[8:16], "little"))
        return self

    def clone_state(self) -> CudaGenerator:
        """Return another generator at the same place."""
        return CudaGenerator().set_state(self.get_state())


_made: WeakValueDictionary[int, CudaGenerator] = WeakValueDictionary()  # by the generators' places in memory, which torch's operators name
DEFAULT = CudaGenerator()
_thread = threading.local()
_told: Any = None  # the last seed that torch keeps for CUDA and that was taken from there


def of_call(generator: torch.Generator | None) -> Generator | None:
    """Return the state that an operator draws from; None where its generator is the CPU's."""
    if generator is None:
        return default()
    found = _made.get(generator._cdata)
    return found and found.state


def default() -> Generator:
    """Return the state of the GPU's own generator."""
    return DEFAULT.state


def _hear(state: Generator) -> None:
    """Take the seed that torch keeps for CUDA, if it is a new one."""
    global _told
    kept = torch.cuda._lazy_seed_tracker.get_calls()
    if not kept and _told is None:
        _told = ()
        state.move(torch.initial_seed() % (1 << 64))
    elif kept and kept[-1] is not _told:
        _told = kept[-1]
        callback = _told[0]
        state.move(int(callback.__closure__[callback.__code__.co_freevars.index("seed")].cell_contents) % (1 << 64))


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
def placed_on_gpu() -> Iterator[None]:
    """Within the ``with``, this thread's new tensors are the GPU's."""
    before, _thread.on_gpu = on_gpu(), True
    try:
        yield
    finally:
        _thread.on_gpu = before


def on_gpu() -> bool:
    """Tell whether this thread's new tensors are the GPU's."""
    return getattr(_thread, "on_gpu", False)


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
            default().move(*new_state.of_gpu)

    with ExitStack() as stack:
        for place in (torch, torch.random):
            replace(stack, place, "get_rng_state", get_both)
            replace(stack, place, "set_rng_state", put_both)
        yield
