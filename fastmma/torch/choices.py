"""What torch's Python code chooses for tensors of a GPU: optimizers that take lists of tensors at once, and steps that are captured."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from fastmma.host.replacing import replace

# functions that list the devices that can do something
_LISTS = ("_get_foreach_kernels_supported_devices", "_get_capturable_supported_devices")
# of modules that ask
_ASKING = (*(f"torch.optim.{each.name}" for each in pkgutil.iter_modules(torch.optim.__path__)), "torch.utils._foreach_utils")


def _places() -> list[Any]:
    """List torch's modules that ask, of those that are imported."""
    return [sys.modules[name] for name in _ASKING if name in sys.modules]


def _also_on_cpu(devices: Callable[..., list[str]], asks: Callable[[], bool]) -> Callable[..., list[str]]:
    def listed(*args: Any, **kwargs: Any) -> list[str]:
        return [*devices(*args, **kwargs), *(["cpu"] if asks() else [])]

    return listed


@contextmanager
def chosen_as_on_gpu(asks: Callable[[], bool]) -> Iterator[None]:
    """Within the ``with``, what a GPU's tensors can do, those of threads that `asks` says yes to can, too."""
    with ExitStack() as stack:
        for module in _places():
            for name in _LISTS:
                if hasattr(module, name):
                    replace(stack, module, name, _also_on_cpu(getattr(module, name), asks))
        yield
