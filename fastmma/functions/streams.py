"""Streams, events and devices of ``torch.cuda`` where a GPU is only pretended: all work is done when it is asked for."""

from __future__ import annotations

import time
from typing import Any

from fastmma.host.errors import NotEmulatedError


class Stream:
    """A stream of a pretended GPU: all work is done when it is asked for."""

    cuda_stream, device_index, stream_id, priority = 0, 0, 0, 0

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        """Take what `torch.cuda.Stream` takes."""

    @property
    def device(self) -> Any:
        """The device, which is the CPU."""
        import torch

        return torch.device("cpu")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_error: Any) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Tell that all is done."""
        return True

    def is_capturing(self) -> bool:
        """Tell that no graph is recorded."""
        return False

    def synchronize(self) -> None:
        """Do nothing."""

    def wait_stream(self, _stream: Any) -> None:
        """Do nothing."""

    def wait_event(self, _event: Any) -> None:
        """Do nothing."""

    def record_event(self, event: Any = None) -> Any:
        """Return an event that has happened."""
        found = event or Event()
        found.record()
        return found


class Event:
    """An event of a pretended GPU, which has happened when it is recorded: between two, this machine's time passes."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        """Take what `torch.cuda.Event` takes."""
        self._nanoseconds = 0

    def record(self, _stream: Any = None) -> None:
        """Read the clock."""
        self._nanoseconds = time.perf_counter_ns()

    def wait(self, _stream: Any = None) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Tell that it has happened."""
        return True

    def elapsed_time(self, other: Event) -> float:
        """Return the milliseconds from here to another one."""
        return (other._nanoseconds - self._nanoseconds) / 1e6


class Graph:
    """``torch.cuda.CUDAGraph``, which a pretended GPU has not."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        """Refuse.

        Raises
        ------
        NotEmulatedError
            Always.
        """
        raise NotEmulatedError("torch.cuda.CUDAGraph: no graph is captured where a GPU is only pretended; call the function without one")


class Device:
    """``torch.cuda.device(...)``: there is one GPU, so nothing changes."""

    def __init__(self, _device: Any = None) -> None:
        self.idx, self.prev_idx = 0, 0

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *_error: Any) -> None:
        """Do nothing."""
