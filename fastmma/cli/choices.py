"""Choices of a product's plan, as ``NAME=VALUE`` on a command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from fastmma.cli.operands import choose_instruction
from fastmma.host.errors import OperandError
from fastmma.isa.gpus import target_named

# the options of `fastmma.gemm` that can be written so, and how their values are read
CHOICES: dict[str, Callable[[str], Any]] = {
    "target": target_named,
    "instruction": str,
    "promote_every": int,
    "split_k": int,
    "join": str,
    "join_dtype": str,
    "preset": str,
    "alpha": float,
    "beta": float,
    "activation": str,
    "out_dtype": str,
}


def choices_of(text: str) -> dict[str, Any]:
    """``"split_k=2,out_dtype=bf16"`` as options of `fastmma.gemm`.

    Raises
    ------
    OperandError
        If there is no such option, or its value cannot be read.

    Examples
    --------
    >>> choices_of("split_k=2,out_dtype=bf16")
    {'split_k': 2, 'out_dtype': 'bf16'}
    """
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or name not in CHOICES:
            raise OperandError(f"choices of a plan are NAME=VALUE with commas between them, of {', '.join(CHOICES)}, not {part[:80]!r}")
        try:
            found[name] = CHOICES[name](value)
        except ValueError:
            raise OperandError(f"{name} takes a number, not {value[:80]!r}") from None
    return found


def changed(
    text: str, options: Mapping[str, Any], choice: tuple[str | None, str | None, str | None], arrays: dict[str, NDArray[Any]]
) -> dict[str, Any]:
    """Options with what a target, or choices, put in their place: on another target its own instruction.

    Raises
    ------
    OperandError, InstructionError, TargetError
    """
    changes: dict[str, Any] = choices_of(text) if "=" in text else {"target": target_named(text)}
    if "target" in changes and "instruction" not in changes:
        changes["instruction"] = choose_instruction(*choice, changes["target"], arrays)
    return {**options, **changes}
