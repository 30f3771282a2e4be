"""Experimental: code that asks for a GPU finds one, and its tensors live on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from fastmma.isa.targets import target_of

# what libraries read of a GPU beside its capability: its name and the number of its multiprocessors
_GPUS = {
    "sm_80": ("NVIDIA A100-SXM4-80GB", 108),
    "sm_89": ("NVIDIA L40S", 142),
    "sm_90a": ("NVIDIA H100 80GB HBM3", 132),
    "sm_100a": ("NVIDIA B200", 148),
    "sm_103a": ("NVIDIA B300", 148),
    "sm_120a": ("NVIDIA GeForce RTX 5090", 170),
}
_MEMORY, _SHARED_MEMORY = 80 << 30, 232448
# functions that take a device among their positional arguments
_PLACED = frozenset({"to", "device", "tensor", "new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", "set_default_device"})


def _on_cpu(value: Any) -> Any:
    """A device of CUDA as the CPU; anything else as it is."""
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return "cpu"
    return value


class Devices(TorchFunctionMode):
    """CUDA means the CPU, for every function of torch."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        placed = {name: _on_cpu(value) if name == "device" else value for name, value in (kwargs or {}).items()}
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.pin_memory:
            return args[0]
        if func == torch.Tensor.is_cuda.__get__:
            return True
        if getattr(func, "__name__", "") in _PLACED:
            args = tuple(_on_cpu(value) for value in args)
        return func(*args, **placed)


def _answers(target: str) -> dict[str, Callable[..., Any]]:
    """Return what functions of torch.cuda say."""

    def seed(value: int) -> None:  # torch.manual_seed calls it
        torch.default_generator.manual_seed(int(value))

    row = target_of(target)
    major, minor = row.capability
    name, multiprocessors = _GPUS.get(target, (f"{row.vendor} {target}", 132))
    properties = SimpleNamespace(
        major=major,
        minor=minor,
        name=name,
        multi_processor_count=multiprocessors,
        total_memory=_MEMORY,
        warp_size=row.lanes,
        shared_memory_per_block_optin=_SHARED_MEMORY,
    )
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "get_device_capability": lambda *_: (major, minor),
        "get_device_name": lambda *_: name,
        "get_device_properties": lambda *_: properties,
        "is_bf16_supported": lambda *_, **__: major >= 8,
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
        "manual_seed": seed,
        "manual_seed_all": seed,
    }


@contextmanager
def pretended(target: str) -> Iterator[None]:
    """Within the ``with``, torch says that there is a GPU; what it says is the process's, where tensors go is the thread's."""
    with ExitStack() as stack:
        for name, answer in _answers(target).items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        stack.enter_context(mock.patch.object(torch.version, "cuda", "13.0"))
        stack.enter_context(Devices())
        yield
