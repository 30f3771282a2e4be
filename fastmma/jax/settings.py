"""The choices of a caller: the GPU, and what becomes of products that it is not known to compute."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastmma.host.errors import NotEmulatedError, OperandError
from fastmma.isa.gpus import TargetName, target_named
from fastmma.jax.compiled_products import CompiledProduct
from fastmma.jax.compiled_programs import is_text, read_programs
from fastmma.products.cublas.book import check_book

Plans = Mapping[tuple[int, int, int], Any] | str | Path
_OTHER = ("pass", "warn", "error")


@dataclass(frozen=True)
class Settings:
    """Everything that decides how a product is computed, besides its operands; hashable, as parameters of JAX's primitives are.

    Attributes
    ----------
    target : str
    f32 : {"tf32", None}
        What multiplies float32 where no algorithm is named.
    plans : tuple of ((M, N, K), parts of k or GemmPlan)
    book : str
        A file of plans, or empty.
    compiled : tuple of CompiledProduct
        The products of programs that XLA compiled for a GPU.
    other : {"pass", "warn", "error"}
    """

    target: str
    f32: str | None = None
    plans: tuple[tuple[tuple[int, int, int], Any], ...] = ()
    book: str = ""
    compiled: tuple[CompiledProduct, ...] = ()
    other: str = "pass"

    def refuse(self, why: str, place: tuple[str, int] | None = None) -> None:
        """Raise or warn, if that is what is to become of a product that is not emulated.

        Parameters
        ----------
        why : str
        place : (str, int), optional
            The caller's file and line, to which a warning points.

        Raises
        ------
        NotEmulatedError
        """
        if self.other == "error":
            raise NotEmulatedError(why)
        if self.other == "warn":
            file, line = place or ("<unknown>", 0)
            warnings.warn_explicit(f"XLA computes, not an emulated GPU: {why}", UserWarning, file, line)


def kernel_settings(settings: Settings) -> Settings:
    """Return the settings of products in Pallas kernels, whose default precision of float32 is tf32."""
    return replace(settings, f32="tf32")


def settings_of(target: TargetName, f32: str | None, plans: Plans | None, other: str) -> Settings:
    """Settings from what a caller passes.

    Raises
    ------
    TargetError, OperandError
    """
    if f32 not in (None, "tf32"):
        raise OperandError(f"f32 must be 'tf32' or None, not {f32!r}")
    if other not in _OTHER:
        raise OperandError(f"other must be one of {', '.join(_OTHER)}, not {other!r}")
    if isinstance(plans, str | Path):
        if is_text(plans):
            return Settings(target_named(target), f32, compiled=read_programs(plans), other=other)
        check_book(plans, target)
        return Settings(target_named(target), f32, book=str(plans), other=other)
    if plans is not None and not (isinstance(plans, Mapping) and all(isinstance(key, tuple) and len(key) == 3 for key in plans)):
        raise OperandError(f"plans must map (M, N, K) to parts of k or plans, or name a file, not {plans!r}")
    return Settings(target_named(target), f32, tuple((plans or {}).items()), other=other)
