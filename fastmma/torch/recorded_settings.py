"""torch's settings that decide which kernels a GPU runs: read when a step is recorded, and set again when it is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch

from fastmma.host.errors import OperandError


class _Setting(NamedTuple):
    """How a setting is read, and set."""

    read: Callable[[], Any]
    write: Callable[[Any], Any]


def _attribute(place: Any, name: str) -> _Setting:
    return _Setting(lambda: getattr(place, name), lambda value: setattr(place, name, value))


_CUDA, _CUDNN = torch.backends.cuda, torch.backends.cudnn
_MATMUL = _CUDA.matmul
_SETTINGS = {
    "float32_matmul_precision": _Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "cudnn.allow_tf32": _attribute(_CUDNN, "allow_tf32"),
    "cudnn.benchmark": _attribute(_CUDNN, "benchmark"),
    "cudnn.deterministic": _attribute(_CUDNN, "deterministic"),
    "deterministic_algorithms": _Setting(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "matmul.allow_bf16_reduced_precision_reduction": _attribute(_MATMUL, "allow_bf16_reduced_precision_reduction"),
    "matmul.allow_fp16_accumulation": _attribute(_MATMUL, "allow_fp16_accumulation"),
    "matmul.allow_fp16_reduced_precision_reduction": _attribute(_MATMUL, "allow_fp16_reduced_precision_reduction"),
    "sdp.cudnn": _Setting(_CUDA.cudnn_sdp_enabled, _CUDA.enable_cudnn_sdp),
    "sdp.flash": _Setting(_CUDA.flash_sdp_enabled, _CUDA.enable_flash_sdp),
    "sdp.math": _Setting(_CUDA.math_sdp_enabled, _CUDA.enable_math_sdp),
    "sdp.math_reduction": _Setting(_CUDA.fp16_bf16_reduction_math_sdp_allowed, _CUDA.allow_fp16_bf16_reduction_math_sdp),
    "sdp.memory_efficient": _Setting(_CUDA.mem_efficient_sdp_enabled, _CUDA.enable_mem_efficient_sdp),
}


def read_settings() -> dict[str, Any]:
    """Read all settings, as values that JSON has."""
    return {name: setting.read() for name, setting in _SETTINGS.items()}


@contextmanager
def applied(settings: Mapping[str, Any]) -> Iterator[None]:
    """Apply settings within the ``with``.

    Raises
    ------
    OperandError
        If one is not known.
    """
    unknown = sorted(set(settings) - set(_SETTINGS))
    if unknown:
        raise OperandError(f"the recording has a setting {unknown[0]!r} that this version of fastmma does not know")
    with ExitStack() as stack:
        for name, value in settings.items():
            setting = _SETTINGS[name]
            before = setting.read()
            if value != before:
                stack.callback(setting.write, before)
                setting.write(value)
        yield
