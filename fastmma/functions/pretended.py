"""Experimental: code that asks torch for a GPU finds one, and its tensors live on the CPU.

torch is imported where a GPU is pretended, and the generators of its random numbers are the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any
from unittest import mock

from fastmma.functions.streams import Device, Event, Graph, Stream
from fastmma.isa.targets import target_of

# what libraries read of a GPU beside its capability: its name, the number of its multiprocessors, and a block's shared memory in bytes
_GPUS = {
    "sm_80": ("NVIDIA A100-SXM4-80GB", 108, 166912),
    "sm_86": ("NVIDIA GeForce RTX 3090", 82, 101376),
    "sm_87": ("Orin", 16, 166912),
    "sm_89": ("NVIDIA L40S", 142, 101376),
    "sm_90a": ("NVIDIA H100 80GB HBM3", 132, 232448),
    "sm_100a": ("NVIDIA B200", 148, 232448),
    "sm_103a": ("NVIDIA B300", 148, 232448),
    "sm_120a": ("NVIDIA GeForce RTX 5090", 170, 101376),
    "sm_121a": ("NVIDIA GB10", 48, 101376),
    "gfx90a": ("AMD Instinct MI250X", 104, 65536),
    "gfx942": ("AMD Instinct MI300X", 304, 65536),
    "gfx950": ("AMD Instinct MI355X", 256, 163840),
}
_GENERATORS: ContextVar[Any] = ContextVar("fastmma.functions.pretended", default=None)  # those of the pretence around

_MEMORY, _SHARED_MEMORY, _CACHE = 80 << 30, 48 << 10, 50 << 20
# functions that take a device among their positional arguments
_PLACED = frozenset({"to", "tensor", "new_empty", "new_zeros", "new_ones", "new_full", "new_tensor"})


def _is_cuda(value: Any, *, numbers: bool = False) -> bool:
    """Tell whether a value names a device of CUDA: by a number, where numbers are devices."""
    if type(value) is int:
        return numbers
    if isinstance(value, str):
        return value.partition(":")[0] == "cuda"
    return getattr(value, "type", None) == "cuda" and hasattr(value, "index")


def _on_cpu(value: Any, *, numbers: bool = False) -> Any:
    """A device of CUDA as the CPU; anything else as it is."""
    return "cpu" if _is_cuda(value, numbers=numbers) else value


def _make_mode(generators: Any) -> Any:
    """Make the mode of torch's functions in which CUDA means the CPU."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Devices(TorchFunctionMode):
        """CUDA means the CPU, for every function of torch."""

        def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
            is_placed = _is_cuda((kwargs or {}).get("device"), numbers=True) and getattr(func, "__name__", "") not in _PLACED
            with generators.placed_on_gpu() if is_placed and generators else nullcontext():
                return self._place(func, args, kwargs or {})

        def _place(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if func is torch.Tensor.cuda or func is torch.Tensor.pin_memory:
                return args[0]
            if func is torch.Tensor.record_stream:
                return None
            if func == vars(torch._C.TensorBase)["is_cuda"].__get__:
                return True
            if func == vars(torch._C.TensorBase)["device"].__get__:
                return torch.device("cuda", 0)
            if func is torch.Tensor.get_device:
                return 0
            if func is torch.device:
                numbered = args if args and type(args[0]) is int else ()  # which torch takes for the accelerator it finds itself
                return torch.device("cuda", *numbered) if numbered else torch.device(*args, **kwargs)
            name = getattr(func, "__name__", "")
            placed = {key: _on_cpu(value, numbers=True) if key == "device" else value for key, value in kwargs.items()}
            if name in _PLACED:
                args = tuple(_on_cpu(value, numbers=name == "to") for value in args)
            return func(*args, **placed)

    return Devices()


def _make_generator_type(generators: Any) -> type:
    """Make what stands for ``torch.Generator``: it makes one of the CPU, or of the GPU."""
    import torch

    class GeneratorType(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, torch._C.Generator)

    class EitherGenerator(metaclass=GeneratorType):
        def __new__(cls, device: Any = "cpu") -> Any:
            return generators.CudaGenerator() if generators and _is_cuda(device) else torch._C.Generator("cpu")

    return EitherGenerator


def _seed(value: int) -> None:
    import torch

    torch.default_generator.manual_seed(int(value))


def _state(*_device: Any) -> Any:
    import torch

    return torch.get_rng_state()


def _set_state(state: Any, *_device: Any) -> None:
    import torch

    torch.set_rng_state(state)


# the CPU's generator in place of the GPU's
_OF_CPU = {"manual_seed": _seed, "manual_seed_all": _seed, "get_rng_state": _state, "set_rng_state": _set_state}


def _modules(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Make what finds a device's module: torch's own keeps its answers, which must not be those of a pretence."""
    import torch

    def find(device: Any = None) -> Any:
        return torch.cuda if device is None or _is_cuda(device) else plain(device)

    return find


def describe(target: str) -> Any:
    """Return what ``torch.cuda.get_device_properties`` tells of a GPU.

    Examples
    --------
    >>> describe("sm_90a").multi_processor_count
    132
    """
    row = target_of(target)
    major, minor = row.capability
    name, multiprocessors, shared = _GPUS.get(target, (f"{row.vendor} {target}", 132, 101376))
    return SimpleNamespace(
        major=major,
        minor=minor,
        name=name,
        multi_processor_count=multiprocessors,
        total_memory=_MEMORY,
        warp_size=row.lanes,
        shared_memory_per_block=_SHARED_MEMORY,
        shared_memory_per_block_optin=shared,
        shared_memory_per_multiprocessor=shared + 1024,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048 if minor == 0 and major < 12 else 1536,
        max_threads_per_block=1024,
        L2_cache_size=_CACHE,
        clock_rate=1980000,
        memory_clock_rate=2619000,
        memory_bus_width=5120,
        is_integrated=False,
        is_multi_gpu_board=False,
        gcnArchName="",
    )


def _answers(target: str) -> dict[str, Any]:
    """Return what names of torch.cuda hold."""
    properties = describe(target)
    capability = properties.major, properties.minor
    stream = Stream()
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "get_device_capability": lambda *_: capability,
        "get_device_name": lambda *_: properties.name,
        "get_device_properties": lambda *_: properties,
        "get_arch_list": lambda: [f"sm_{properties.major}{properties.minor}"],
        "is_bf16_supported": lambda *_, **__: properties.major >= 8,
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
        "memory_allocated": lambda *_: 0,
        "max_memory_allocated": lambda *_: 0,
        "memory_reserved": lambda *_: 0,
        "reset_peak_memory_stats": lambda *_: None,
        "mem_get_info": lambda *_: (_MEMORY, _MEMORY),
        "device": Device,
        "device_of": Device,
        "_DeviceGuard": Device,
        "Stream": Stream,
        "Event": Event,
        "stream": lambda _stream: nullcontext(),
        "set_stream": lambda _stream: None,
        "current_stream": lambda *_: stream,
        "default_stream": lambda *_: stream,
        "is_current_stream_capturing": lambda: False,
        "ipc_collect": lambda: None,
        "CUDAGraph": Graph,
        "range_push": lambda *_, **__: 0,
        "range_pop": lambda: 0,
        "mark": lambda *_, **__: None,
    }


def _of_accelerators() -> dict[str, Any]:
    """Return what names of torch.accelerator hold."""
    import torch

    gpu = torch.device("cuda")
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_accelerator": lambda *_, **__: gpu,
        "current_device_index": lambda: 0,
        "current_stream": lambda *_: Stream(),
        "synchronize": lambda *_: None,
        "is_initialized": lambda: True,
    }


def _of_devices() -> dict[tuple[Any, str], Any]:
    """Return functions that take a device and ask no mode, by their places: of torch, and of its tensors."""
    import torch

    default, load, wrap = torch.set_default_device, torch.load, torch.Tensor._make_wrapper_subclass

    def make_wrapper(*args: Any, **kwargs: Any) -> Any:
        return wrap(*args, **{key: _on_cpu(value) if key == "device" else value for key, value in kwargs.items()})

    return {
        (torch, "set_default_device"): lambda device: default(_on_cpu(device, numbers=True)),
        (torch, "load"): lambda file, map_location=None, *more, **options: load(file, _on_cpu(map_location), *more, **options),
        (torch.Tensor, "_make_wrapper_subclass"): staticmethod(make_wrapper),
    }


@contextmanager
def pretended(target: str, generators: Any = None) -> Iterator[None]:
    """Make torch say that there is a GPU within the ``with``, to all threads; only tensors of this thread go to it.

    Parameters
    ----------
    target : str
    generators : module, optional
        The module that draws random numbers as the GPU does; by default that of the enclosing pretence. If there is none, the CPU's
        generator draws them, and takes the GPU's seeds.
    """
    import torch
    import torch.utils._triton as of_triton

    from fastmma.functions.autocast import casting

    generators = generators or _GENERATORS.get()
    drawing = _OF_CPU if generators is None else {"default_generators": (generators.DEFAULT,)}
    with ExitStack() as stack:
        for name, answer in (_answers(target) | drawing).items():
            for module in (torch.cuda, torch.cuda.random, torch.cuda.graphs, torch.cuda.nvtx):  # which import some of them by name
                if hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, answer))
        for name, answer in _of_accelerators().items():
            if hasattr(torch.accelerator, name):
                stack.enter_context(mock.patch.object(torch.accelerator, name, answer))
        stack.enter_context(mock.patch.object(torch, "get_device_module", _modules(torch.get_device_module)))
        for (holder, name), answer in _of_devices().items():
            stack.enter_context(mock.patch.object(holder, name, answer))
        stack.enter_context(mock.patch.object(torch.version, "cuda", "13.0"))
        stack.enter_context(mock.patch.object(of_triton, "has_triton", return_value=True))
        stack.enter_context(mock.patch.object(torch, "Generator", _make_generator_type(generators)))
        stack.enter_context(casting())
        stack.enter_context(_make_mode(generators))
        token = _GENERATORS.set(generators)
        try:
            yield
        finally:
            _GENERATORS.reset(token)
