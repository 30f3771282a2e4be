"""Linear layers of a model on disk: outputs and inputs of each, from the shapes of its tensors and from its config."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastmma.host.errors import OperandError
from fastmma.host.files import opened
from fastmma.study.checkpoints import (
    CONFIG,
    files_of,
    holds_experts,
    is_expert_transposed,
    is_linear,
    is_stored_transposed,
    model_types,
    read_object,
)
from fastmma.study.safetensors import SUFFIX, tensors_in

# names that configs have for a size, the usual one first
_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
_KV_HEADS = ("num_key_value_heads", "n_head_kv", "num_kv_heads")
_INNER = ("intermediate_size", "n_inner", "ffn_dim", "d_ff", "encoder_ffn_dim", "ffn_hidden_size")
_OF_EXPERT = ("moe_intermediate_size", "expert_intermediate_size")
_OF_SHARED = ("shared_expert_intermediate_size",)
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_MOST = 1 << 28  # of a size in a config


def linear_layers(folder: Path) -> list[tuple[int, int]]:
    """Return outputs and inputs of a model's linear layers, each once: as its tensors have them, and as libraries fuse them by the config.

    Raises
    ------
    OperandError
        If the folder has neither a config nor tensors, or they are damaged.
    BackendError
        If there are safetensors files, and the package is not there.

    Examples
    --------
    >>> import json, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     config = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 500}
    ...     _ = (Path(folder) / "config.json").write_text(json.dumps(config))
    ...     linear_layers(Path(folder))
    [(32, 64), (64, 64), (64, 96), (96, 64), (128, 64), (192, 64), (500, 64)]
    """
    config = read_object(folder / CONFIG) if os.path.isfile(folder / CONFIG) else None
    has_tensors = folder.is_dir() and any(each.name.endswith(SUFFIX) for each in folder.iterdir())
    if config is None and not has_tensors:
        raise OperandError(f"{folder}: has neither {CONFIG} nor {SUFFIX} files")
    found = set(_of_tensors(folder)) if has_tensors else set[tuple[int, int]]()
    for part in (config, *(config or {}).values()):
        found |= set(_of_config(part)) if isinstance(part, dict) else set()
    if not found:
        raise OperandError(f"{folder}: names no linear layers; its config needs {_HIDDEN[0]} and {_HEADS[0]}")
    return sorted(found)


def _of_tensors(folder: Path) -> Iterator[tuple[int, int]]:
    """Yield what the headers of a model's files have."""
    types = model_types(folder)
    for path, names in files_of(folder):
        with opened(path) as file:
            shapes = {name: tensor.shape for name, tensor in tensors_in(file, path).items()}
        for name, shape in shapes.items():
            if names is not None and name not in names:
                continue
            if holds_experts(name, shape):
                yield (shape[2], shape[1]) if is_expert_transposed(types) else (shape[1], shape[2])
            elif len(shape) == 2 and is_linear(name) and 0 not in shape:
                yield (shape[1], shape[0]) if is_stored_transposed(name, types) else (shape[0], shape[1])


def _of_config(config: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """Yield what the sizes of a config mean: projections of attention, alone and fused, feed-forward layers, experts and the head."""
    hidden, heads = _size(config, _HIDDEN), _size(config, _HEADS)
    if not hidden or not heads:
        return
    of_head = _size(config, ("head_dim",)) or hidden // heads
    q, kv = heads * of_head, (_size(config, _KV_HEADS) or heads) * of_head
    yield from ((q, hidden), (kv, hidden), (q + 2 * kv, hidden), (hidden, q))
    for inner in {_size(config, names) for names in (_INNER, _OF_EXPERT, _OF_SHARED)} - {0}:
        yield from ((inner, hidden), (2 * inner, hidden), (hidden, inner))
    for count in {_size(config, _EXPERTS), _size(config, ("vocab_size",))} - {0}:
        yield count, hidden


def _size(config: dict[str, Any], names: tuple[str, ...]) -> int:
    """Return the first of some sizes that a config has; 0 where it has none."""
    return next((value for name in names if type(value := config.get(name)) is int and 0 < value < _MOST), 0)
