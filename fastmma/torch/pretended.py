"""Experimental: code that asks for a GPU finds one, and its tensors live on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from fastmma.isa.targets import target_of
from fastmma.torch import generators

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


def _is_cuda(value: Any) -> bool:
    return value.type == "cuda" if isinstance(value, torch.device) else isinstance(value, str) and value.partition(":")[0] == "cuda"


def _on_cpu(value: Any) -> Any:
    """A device of CUDA as the CPU; anything else as it is."""
    if not _is_cuda(value):
        return value
    return "cpu" if isinstance(value, str) else torch.device("cpu")


class _GeneratorType(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, torch._C.Generator)


class _EitherGenerator(metaclass=_GeneratorType):
    """``torch.Generator``, which makes one of the CPU, or of the GPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return generators.CudaGenerator() if _is_cuda(device) else torch._C.Generator(device)


class Devices(TorchFunctionMode):
    """CUDA means the CPU, for every function of torch."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        if _is_cuda((kwargs or {}).get("device")) and getattr(func, "__name__", "") not in _PLACED:
            with generators.placed_on_gpu():
                return self._place(func, args, kwargs or {})
        return self._place(func, args, kwargs or {})

    def _place(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        placed = {name: _on_cpu(value) if name == "device" else value for name, value in kwargs.items()}
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.pin_memory:
            return args[0]
        if func == torch.Tensor.is_cuda.__get__:
            return True
        if getattr(func, "__name__", "") in _PLACED:
            args = tuple(_on_cpu(value) for value in args)
        return func(*args, **placed)


def _answers(target: str) -> dict[str, Any]:
    """Return what names of torch.cuda hold."""

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
        "default_generators": (generators.DEFAULT,),
    }


def _seed(value: int) -> None:
    torch.default_generator.manual_seed(int(value))


@contextmanager
def pretended(target: str, *, draws: bool) -> Iterator[None]:
    """Within the ``with``, torch says that there is a GPU; what it says is the process's, where tensors go is the thread's.

    Parameters
    ----------
    target : str
    draws : bool
        Whether random numbers are drawn as the GPU does; else the CPU's generator draws them, and is seeded for the GPU's.
    """
    answers = _answers(target) | ({} if draws else {"manual_seed": _seed, "manual_seed_all": _seed})
    with ExitStack() as stack:
        for name, answer in answers.items():
            for module in (torch.cuda, torch.cuda.random):  # which imports some of them by name
                if hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, answer))
        stack.enter_context(mock.patch.object(torch.version, "cuda", "13.0"))
        stack.enter_context(mock.patch.object(torch, "Generator", _EitherGenerator))
        stack.enter_context(Devices())
        yield
