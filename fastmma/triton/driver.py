"""A Triton driver without a device: kernels ask it for the target, and the autotuner takes its first configuration."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from fastmma.functions.pretended import describe
from fastmma.functions.streams import Event
from fastmma.isa.targets import target_of
from fastmma.triton.compilers import gpu_of, number_of
from fastmma.triton.emulation import Emulation

_MEASURED = "triton.testing.do_bench measures this machine, not the GPU"


class Driver(DriverBase):
    """A stand-in that Triton takes for the driver of the GPU that is emulated.

    Parameters
    ----------
    current : callable
        Tells which emulation is in effect.
    """

    def __init__(self, current: Callable[[], Emulation]) -> None:
        self._current = current
        self.utils = SimpleNamespace(get_device_properties=self._properties)

    def _properties(self, _device: Any = None) -> dict[str, int]:
        found = describe(self._current().target)
        return {
            "max_shared_mem": found.shared_memory_per_block_optin,
            "max_num_regs": found.regs_per_multiprocessor,
            "multiprocessor_count": found.multi_processor_count,
            "warpSize": found.warp_size,
            "sm_clock_rate": found.clock_rate,
            "mem_clock_rate": found.memory_clock_rate,
            "mem_bus_width": found.memory_bus_width,
        }

    def _capability(self) -> int:
        return number_of(target_of(self._current().target))

    @classmethod
    def is_active(cls) -> bool:
        """Always."""
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Nothing is launched, so any name does."""
        return ty

    def get_current_target(self) -> GPUTarget:
        """The GPU that is emulated."""
        return gpu_of(self._capability())

    def get_active_torch_device(self) -> Any:
        """Return where tensors live: on the CPU."""
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        """torch's functions of that device, whose events take this machine's time."""
        import torch

        event: Any = torch.cuda.Event
        return torch.cuda if event is Event else SimpleNamespace(**{**vars(torch.cpu), "Event": Event})

    def get_empty_cache_for_benchmark(self) -> None:
        """Note that somebody measures; there is no cache."""
        self._current().report.notes[_MEASURED] += 1

    def clear_cache(self, _cache: None) -> None:
        """Do nothing."""

    def get_benchmarker(self) -> Any:
        """A benchmark that runs nothing: all configurations take the same time, so that the first is taken."""
        return lambda _call, quantiles=(0.5,), **_: [0.0] * len(quantiles)

    def get_current_device(self) -> int:
        """A number of its own for each GPU, since Triton keeps compiled kernels by device."""
        return self._capability()

    def set_current_device(self, device: int) -> None:
        """The target says which it is."""

    def get_current_stream(self, _device: int) -> int:
        """The default stream."""
        return 0

    def get_device_capability(self, _device: int = 0) -> tuple[int, int]:
        """The compute capability that is emulated."""
        return divmod(self._capability(), 10)
