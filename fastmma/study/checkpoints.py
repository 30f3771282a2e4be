"""Models on disk: which files hold the tensors of a folder, which of its matrices are linear layers, and how those are stored."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastmma.host.errors import OperandError
from fastmma.host.files import content
from fastmma.host.strict_json import parsed
from fastmma.study.safetensors import SUFFIX

CONFIG, INDEX = "config.json", f"{SUFFIX}.index.json"
_LARGEST = 1 << 25  # bytes of a file of JSON
_CONV1D = frozenset({"c_attn", "c_proj", "c_fc", "q_attn"})
# modules whose weights (K, N) are those of transformers' Conv1D, by the model_type of a config; all others are (N, K), as torch's Linear
STORED_TRANSPOSED: dict[str, frozenset[str]] = {
    "gpt2": _CONV1D,
    "openai-gpt": _CONV1D,
    "imagegpt": _CONV1D,
    "decision_transformer": _CONV1D,
    "clvp": frozenset({"c_proj", "c_fc"}),
}
# models whose fused experts are (experts, K, N); those of others are (experts, N, K)
EXPERTS_TRANSPOSED = frozenset({"gpt_oss", "llama4", "llama4_text", "qwen3_vl_moe", "qwen3_vl_moe_text"})
_EXPERTS = re.compile(r"experts?|(.*_)?moe")
# modules of a weight that are looked up, and not multiplied
_TABLES = re.compile(r"(.*_)?(embeddings?|embeds?|emb)|embed_(tokens|positions|in)|wte|wpe|shared|relative_attention_bias")
_WEIGHT = ".weight"


def module_of(name: str) -> str:
    """The module that a tensor belongs to.

    Examples
    --------
    >>> module_of("encoder.layer.0.output.dense.weight"), module_of("x")
    ('encoder.layer.0.output.dense', 'x')
    """
    return name.removesuffix(_WEIGHT)


def is_linear(name: str) -> bool:
    """Tell whether a matrix of that name is the weight of a linear layer, as models name them.

    Examples
    --------
    >>> [is_linear(name) for name in ("layers.0.mlp.up_proj.weight", "model.embed_tokens.weight", "embed_out.weight", "layers.0.A_log")]
    [True, False, True, False]
    """
    module = module_of(name)
    return name.endswith(_WEIGHT) and not _TABLES.fullmatch(module.rpartition(".")[2])


def holds_experts(name: str, shape: tuple[int, ...] | None) -> bool:
    """Tell whether a tensor of that name has the weights of several experts, one a matrix.

    Examples
    --------
    >>> holds_experts("layers.0.mlp.experts.gate_up_proj", (32, 64, 64)), holds_experts("encoder.conv1.weight", (384, 80, 3))
    (True, False)
    """
    return shape is not None and len(shape) == 3 and is_of_experts(name)


def is_of_experts(name: str) -> bool:
    """Tell whether a tensor of that name belongs to experts."""
    return any(_EXPERTS.fullmatch(part) for part in name.split("."))


def read_object(path: Path) -> dict[str, Any]:
    """Read an object of JSON.

    Raises
    ------
    OperandError
        If it is none, or cannot be read.
    """
    try:
        found = parsed(content(path, _LARGEST))
    except ValueError as error:
        raise OperandError(f"{path}: is no readable JSON: {error}") from None
    if not isinstance(found, dict):
        raise OperandError(f"{path}: is no object of JSON")
    return found


def model_types(folder: Path) -> list[str]:
    """Return what the config of a folder says that its model is, and its parts are; nothing where there is no config.

    Raises
    ------
    OperandError
        If it cannot be read.
    """
    path = folder / CONFIG
    if not os.path.isfile(path):
        return []
    config = read_object(path)
    found = (part.get("model_type") for part in (config, *config.values()) if isinstance(part, dict))
    return [each for each in found if isinstance(each, str)]


def is_stored_transposed(name: str, types: list[str]) -> bool:
    """Tell whether the weight of that name is (K, N) in models of those types.

    Examples
    --------
    >>> is_stored_transposed("h.0.attn.c_attn.weight", ["gpt2"]), is_stored_transposed("h.0.attn.c_attn.weight", ["gpt_bigcode"])
    (True, False)
    """
    return any(module_of(name).rpartition(".")[2] in STORED_TRANSPOSED.get(each, ()) for each in types)


def is_expert_transposed(types: list[str]) -> bool:
    """Tell whether the fused experts of models of those types are (K, N)."""
    return not EXPERTS_TRANSPOSED.isdisjoint(types)


def _index(path: Path) -> dict[str, list[str] | None]:
    """The tensors of each file that an index names."""
    found = read_object(path).get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise OperandError(f"{path}: has no weight_map of names of files")
    files: dict[str, list[str] | None] = {}
    for name, file in found.items():
        if Path(file).name != file or not file.endswith(SUFFIX):
            raise OperandError(f"{path}: {file!r:.100} is no {SUFFIX} file of its folder")
        tensors = files.setdefault(file, [])
        assert tensors is not None
        tensors.append(name)
    return files


def files_of(folder: Path) -> Iterator[tuple[Path, list[str] | None]]:
    """The files that hold the tensors of a model, and those tensors, or None for all of them.

    Raises
    ------
    OperandError
        If there are none, or the index is damaged.
    """
    try:
        names = sorted(each.name for each in folder.iterdir())
    except OSError as error:
        raise OperandError(f"{folder}: cannot be read: {error.strerror}") from None
    indices = [name for name in names if name.endswith(INDEX)]
    if len(indices) > 1:
        raise OperandError(f"{folder}: has several models, {', '.join(indices)}: name files as {folder}/NAME-*{SUFFIX}")
    found = _index(folder / indices[0]) if indices else {name: None for name in names if name.endswith(SUFFIX)}
    if not found:
        raise OperandError(f"{folder}: is a folder without {SUFFIX} files; name a file, or the folder of a model")
    return ((folder / file, tensors) for file, tensors in sorted(found.items()))
