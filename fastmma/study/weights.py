"""The layers that a study is about: files and tensors by their names, by patterns, or the linear layers of a model's folder."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import glob, has_magic
from pathlib import Path
from typing import NamedTuple

from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.files import named, opened
from fastmma.host.npy import arrays_in
from fastmma.study import safetensors
from fastmma.study.checkpoints import files_of, holds_experts, is_expert_transposed, is_linear, is_stored_transposed, model_types, module_of
from fastmma.study.tensors import SEPARATOR, TRANSPOSED, Tensor, check_suffix, is_float, listed, meant, read

_SHOWN = 3  # tensors that a message shows with their shapes


class Found(NamedTuple):
    """A tensor in a file, and its shape if it is of floats that can be read; or one of the experts that it has, and then its whole name."""

    path: Path
    name: str
    shape: tuple[int, ...] | None
    experts: str = ""

    @property
    def source(self) -> str:
        return f"{self.path}{SEPARATOR}{self.name}" if self.name else str(self.path)

    @property
    def is_matrix(self) -> bool:
        return self.shape is not None and len(self.shape) == 2 and 0 not in self.shape and not self.name.endswith("bias")

    def parts(self) -> list[Found]:
        """The experts that it has, or itself."""
        if self.shape is None or not holds_experts(self.name, self.shape):
            return [self]
        return [Found(self.path, f"{self.name}.{expert}", self.shape[1:], self.name) for expert in range(self.shape[0])]


@dataclass(frozen=True)
class Layer:
    """A matrix in a file, which is read when it is needed.

    Attributes
    ----------
    name : str
        Of the module that it belongs to, such as ``"encoder.layer.0.output.dense"``.
    source : str
        ``"file::name"``.
    shape : (int, int)
        Rows and K.
    transposed : bool
        Whether the file has it as (K, rows).
    """

    name: str
    source: str
    shape: tuple[int, int]
    transposed: bool = False

    @property
    def label(self) -> str:
        """Where it is from; what it holds is known when it is read."""
        return f"{self.source}{TRANSPOSED if self.transposed else ''} -"

    def read(self) -> Tensor:
        """The matrix.

        Raises
        ------
        OperandError, OperandTypeError
            If it cannot be read, or the file has changed.
        """
        tensor = read(self.source, transposed=self.transposed)
        if tensor.shape != self.shape:
            raise OperandError(f"{self.source}: was changed while the study ran: its shape was {self.shape}, and is {tensor.shape}")
        return tensor


def contents(path: Path) -> list[Found]:
    """The tensors of a file."""
    check_suffix(path)
    with opened(path) as file:
        if path.suffix == safetensors.SUFFIX:
            return [Found(path, name, each.shape if each.readable else None) for name, each in safetensors.tensors_in(file, path).items()]
        heads = ((name, array.head()) for name, array in arrays_in(file, str(path)).items())
        return [Found(path, name, head.shape if is_float(head.dtype) else None) for name, head in heads]


def is_there(file: str) -> bool:
    """Tell whether a file or a folder has that name, and not those that match it as a pattern.

    Raises
    ------
    OperandError
        If no file can have it.
    """
    try:
        return named(Path(file)).exists()
    except OSError:  # such as a name that is too long, which to open it says
        return True


def is_folder(file: str) -> bool:
    """Tell whether a name is that of a folder."""
    return os.path.isdir(named(Path(file)))


def is_pattern(file: str) -> bool:
    """Tell whether a name stands for the files that match it."""
    return has_magic(file) and not is_there(file)


def _files(file: str) -> Iterator[tuple[Path, list[str] | None]]:
    """The files that a name, a folder or a pattern stands for, and which of their tensors, or None for all of them."""
    if is_pattern(file):
        found = sorted(glob(file))
        if not found:
            raise OperandError(f"{file}: no file has a name like that")
        yield from ((Path(each), None) for each in found)
    elif is_folder(file):
        yield from files_of(Path(file))
    else:
        yield Path(file), None


def _tensors(file: str) -> list[Found]:
    """All tensors of all files."""
    found: list[Found] = []
    for path, names in _files(file):
        there = {each.name: each for each in contents(path)}
        missing = [name for name in names or () if name not in there]
        if missing:
            raise OperandError(f"{path}: has no tensor {missing[0]!r}, which the index says that it has")
        found += there.values() if names is None else (there[name] for name in names)
    return found


def _parts(pattern: str) -> list[str]:
    return [part for part in pattern.split(",") if part]


def _matching(file: str, pattern: str, found: list[Found]) -> list[Found]:
    """The tensors that the names or patterns mean, commas between them."""
    chosen: dict[Found, None] = {}
    names = [each.name for each in found]
    for part in [pattern] if pattern in names else _parts(pattern):
        matched = [each for each in found if part in (each.name, each.experts)] or [each for each in found if fnmatchcase(each.name, part)]
        if not matched and not has_magic(part):
            raise OperandError(f"{file}: has no tensor {part!r}; {meant(part, names)}")
        if not matched:
            raise OperandError(f"{file}: none of its {len(names)} tensors has a name like {part!r}{_like(part, names)}")
        chosen |= dict.fromkeys(matched)
    return list(chosen)


def _like(pattern: str, names: list[str]) -> str:
    """The words of names that come close to those of a pattern, or names that there are."""
    words = sorted({word for name in names for word in name.split(".")})
    wanted = [word for word in re.split(r"[*?.\[\]]+", pattern) if word and word not in words]
    close = [meant(word, words) for word in wanted]
    close = [each for each in close if each.startswith("did")]
    return f"; {close[0]}" if close else f"; it has {listed(names)}"


def _natural(text: str) -> list[tuple[int, str]]:
    """For sorting names: layer 2 comes before layer 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", text)]


def _shown(found: Found) -> str:
    return f"{found.name or found.path.name} {found.shape if found.shape is not None else '(no floats)'}"


def _wanted(source: str | Path, experts: bool = False) -> tuple[str, str, list[Found]]:
    """Place and names of a source, and the tensors that it means, all of them where it has no names; experts one by one."""
    if not isinstance(source, str | Path):
        raise OperandTypeError(f"layers are named as FILE or FILE{SEPARATOR}NAMES, not by {type(source).__name__}; arrays make a Tensor")
    place, _, pattern = str(source).partition(SEPARATOR)
    found = [part for each in _tensors(place) for part in (each.parts() if experts else [each])]
    return place, pattern, _matching(place, pattern, found) if pattern else found


def _no_matrices(source: str | Path, found: list[Found]) -> OperandError:
    return OperandError(f"{source}: studies take matrices of floats, and there are {', '.join(map(_shown, found[:_SHOWN])) or 'none'}")


@public_call
def layers(source: str | Path, *, transposed: bool | None = None) -> list[Layer]:
    """Return the weights that a source names, in the order of their names, without reading them.

    Parameters
    ----------
    source : str or Path
        ``"PLACE::NAMES"``. The place is a file, a pattern of files such as ``"model-*.safetensors"``, or the folder of a model: its
        ``.safetensors`` files, or those that its index names. NAMES are patterns of tensors such as ``"*dense*"``, with commas between
        them, where ``*`` is any text and ``?`` any character; of what matches, the matrices of floats are taken that are no biases. Without
        names, they are the weights of the linear layers: matrices named ``*.weight`` that are no embedding tables; or the one tensor
        that there is. Of a tensor with the weights of several experts, each is a layer: ``layers.0.mlp.experts.down_proj.3``.
    transposed : bool, optional
        Whether the file has them as (K, rows). By default the ``config.json`` beside the file decides: those of GPT-2's Conv1D are, and
        the fused experts of gpt-oss and Llama 4.

    Raises
    ------
    OperandError, OperandTypeError
        If a file is missing or damaged, or no tensor matches; the message names the closest matches.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     weights = {f"layer.{i}.dense.weight": np.ones((4, 32), np.float16) for i in (0, 1, 10, 2)}
    ...     np.savez(f"{folder}/model.npz", **weights, bias=np.ones(4))
    ...     [layer.name for layer in layers(f"{folder}/model.npz::*")]
    ['layer.0.dense', 'layer.1.dense', 'layer.2.dense', 'layer.10.dense']
    """
    place, pattern, found = _wanted(source, experts=True)
    matrices = [each for each in found if each.is_matrix and (pattern or len(found) == 1 or each.experts or is_linear(each.name))]
    if not matrices and not pattern and len(found) > 1:
        raise OperandError(
            f"{source}: has no matrices named *.weight; name some of its tensors as {Path(place).name}{SEPARATOR}NAMES; "
            f"it has {listed([each.name for each in found])}"
        )
    if not matrices:
        raise _no_matrices(source, found)
    types: dict[Path, list[str]] = {folder: model_types(folder) for folder in dict.fromkeys(each.path.parent for each in matrices)}
    made = [_layer(each, types[each.path.parent], transposed) for each in matrices]
    return sorted(made, key=lambda layer: (_natural(layer.name), layer.source))


def activations(source: str | Path) -> list[Layer]:
    """The operands (..., K) of layers that a source means, of two dimensions or more: those that match, or all of them.

    Raises
    ------
    OperandError, OperandTypeError
    """
    *_, found = _wanted(source)
    matrices = [each for each in found if each.shape is not None and len(each.shape) > 1 and 0 not in each.shape]
    if not matrices:
        raise _no_matrices(source, found)
    return [_layer(each, [], False) for each in matrices]


def transposed_there(source: str | Path) -> bool:
    """Tell whether the config beside a file says that its tensor of that name is (K, rows).

    Raises
    ------
    OperandError
        If the config cannot be read.
    """
    place, _, name = str(source).partition(SEPARATOR)
    return is_stored_transposed(name, model_types(Path(place).parent))


def _layer(found: Found, types: list[str], transposed: bool | None) -> Layer:
    stored = is_expert_transposed(types) if found.experts else is_stored_transposed(found.name, types)
    turned = stored if transposed is None else bool(transposed)
    assert found.shape is not None
    shape = math.prod(found.shape[:-1]), found.shape[-1]
    return Layer(module_of(found.name) or found.path.stem, found.source, shape[::-1] if turned else shape, turned)
