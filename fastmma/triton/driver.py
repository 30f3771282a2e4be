"""A Triton driver without a device: kernels ask it for the target, and the autotuner takes its first configuration."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from fastmma.triton.compilers import gpu_of

# shared memory of a block, in bytes, and multiprocessors, of one GPU of each compute capability
_DEVICES = {
    80: (166912, 108),
    86: (101376, 84),
    87: (166912, 16),
    89: (101376, 142),
    90: (232448, 132),
    100: (232448, 148),
    103: (232448, 148),
    120: (101376, 170),
    121: (101376, 48),
}


class Driver(DriverBase):
    """A stand-in that Triton takes for the driver of the GPU that is emulated.

    Parameters
    ----------
    capability : callable
        Tells the number of the GPU that is emulated, as `compilers` has it: 90 for sm_90a.
    """

    def __init__(self, capability: Callable[[], int]) -> None:
        self._capability = capability
        self.utils = SimpleNamespace(get_device_properties=self._properties)

    def _properties(self, _device: Any = None) -> dict[str, int]:
        memory, processors = _DEVICES.get(self._capability(), _DEVICES[80])
        lanes = gpu_of(self._capability()).warp_size
        return {"max_shared_mem": memory, "max_num_regs": 65536, "multiprocessor_count": processors, "warpSize": lanes}

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
        """torch's functions of that device."""
        import torch

        return torch.cpu

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
