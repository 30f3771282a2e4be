"""The options that several commands take, each written once, with the defaults of all of them."""

from __future__ import annotations

from glob import has_magic
from os import fsdecode
from pathlib import Path
from typing import Any, Final

import click

from fastmma.host.errors import OperandError

TARGET: Final = "H200"
TYPE: Final = "bf16"
STUDY_SIZE: Final = "256x256x4096"
STUDY_SAMPLE: Final = 512
BENCH_SIZE: Final = "1024x1024x1024"
PATH: Final = click.Path(path_type=Path)


def _look_for(path: Path, kind: str) -> None:
    """Raise OperandError if nothing has that name; whatever else is wrong with it, what reads it says."""
    try:
        path.stat()
    except FileNotFoundError:
        raise OperandError(f"{path}: there is no such {kind}") from None
    except (OSError, ValueError):
        pass


class Present(click.Path):
    """The path of what a command reads. If it is not there, the command ends before it imports what would read it.

    Parameters
    ----------
    kind : str
        What it must be, for the message.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(path_type=Path)
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path.

        Raises
        ------
        OperandError
            If nothing has that name.
        """
        path = Path(fsdecode(super().convert(value, param, ctx)))
        _look_for(path, self.kind)
        return path


class Place(click.types.StringParamType):
    """The name of tensors, ``PLACE[::NAMES]``. A place that is no pattern is looked for before the command imports what reads it."""

    def convert(self, value: Any, *_: object) -> str:
        """Return the name as it was given.

        Raises
        ------
        OperandError
            If there is no such place.
        """
        path = str(value).partition("::")[0]
        if not has_magic(path):
            _look_for(Path(path), "file or folder; files of tensors end in .npy, .npz, .safetensors")
        return str(value)


class Name(click.types.StringParamType):
    """One of a few names.

    Parameters
    ----------
    kind : str
        The word for what has a name, for the message.
    names : tuple of str
    """

    def __init__(self, kind: str, names: tuple[str, ...]) -> None:
        self.kind, self.names = kind, names

    def convert(self, value: Any, *_: object) -> str:
        """Return the name.

        Raises
        ------
        OperandError
            If there is no such name.
        """
        if value not in self.names:
            raise OperandError(f"there is no {self.kind} {value!r}; there are {', '.join(self.names)}")
        return str(value)


class Gpu(click.types.StringParamType):
    """The name of a GPU or of a target, which is checked before the command imports what multiplies."""

    def convert(self, value: Any, *_: object) -> str:
        """Return the name as it was given.

        Raises
        ------
        TargetError
            If there is no such target.
        """
        from fastmma.isa.gpus import target_named

        target_named(value)
        return str(value)


FILE: Final = Present("file")
FOLDER: Final = Present("folder")
GPU: Final = Gpu()
PLACE: Final = Place()
PRESET: Final = Name("preset", ("fp8-accumulators", "layers", "block-formats", "promotion"))

target = click.option("--target", type=GPU, default=TARGET, help="The GPU or target, such as H100 or sm_90a.")
threads = click.option("--threads", type=int, help="Threads; all cores by default.")
types = click.option("--type", "types", help="Format of A and B, such as f16, or of each, such as e4m3,e5m2.")
accumulate = click.option("--accumulate", "dtype", help="Format of C and D, such as f16; the widest by default.")
instruction = click.option("--instruction", help="The opcode, instead of the target's usual one.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
markdown = click.option("--markdown", is_flag=True, help="Print a Markdown table.")
form = click.option("--format", "fmt", help="text, csv, markdown, asciidoc, json, svg, png, pdf or tikz.")
output = click.option("--output", type=PATH, help="Write to this file; its suffix tells the format if --format does not.")
plan = click.option("--plan", metavar="NAME=VALUE,...", help="Choices of the plan, such as split_k=4,out_dtype=bf16.")
