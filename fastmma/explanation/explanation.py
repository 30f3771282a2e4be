"""The explanation of an element: its derivation, which prints, and turns into Markdown, JSON and a picture."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastmma.explanation import picture, text
from fastmma.explanation.derivation import Derivation
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError
from fastmma.host.float_mode import default_floats
from fastmma.host.integers import integer

_SHOWN = 16  # steps that are shown in full


@dataclass(frozen=True)
class Explanation(Derivation):
    """One element of a product, step by step: what `fastmma.explain` returns.

    Attributes
    ----------
    plan : Plan
        What decided the bits: a `GemmPlan`, an `AccumulationPlan` or an `MmaPlan`.
    operation : Operation
        The instruction, the target and the arithmetic.
    row, col : int
        The element.
    steps : tuple of Step
        In the order in which they happen.
    code : int
    format : str
        The result: its bits, and how they are read.
    against : Explanation or None
        The explanation that this one is compared with, of the same element by another plan.

    Examples
    --------
    >>> import fastmma
    >>> import numpy as np
    >>> a = np.full((2, 32), 0.1, np.float16)
    >>> found = fastmma.explain(a, a.T, 0, 1, target="sm_80")
    >>> [(step.k, step.emax, step.unit, str(step.dropped)) for step in found.steps][-1]
    ((24, 32), -3, -27, '0')
    """

    @default_floats
    def __str__(self) -> str:
        return self.text() if len(self.steps) <= _SHOWN or self.against is not None else text.short_text(self)

    @public_call
    def text(self, k: tuple[int, int] | None = None) -> str:
        """The explanation as text, terms and all; `str` has a line for each step where they are more than 16.

        Parameters
        ----------
        k : (int, int), optional
            Only the steps of these k, from the first to one past the last.
        """
        return text.text(self, _range(k))

    @public_call
    def markdown(self, k: tuple[int, int] | None = None) -> str:
        """The explanation in Markdown: a table for each step with several terms.

        Parameters
        ----------
        k : (int, int), optional
            Only the steps of these k, from the first to one past the last.
        """
        return text.markdown(self, _range(k))

    @public_call
    def json(self) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @public_call
    def picture(self, path: str | Path, k: tuple[int, int] | None = None) -> None:
        """Draw the steps: terms as bars of bits over the window of the alignment, those that are dropped dimmed.

        Parameters
        ----------
        path : str or Path
            The file; its suffix, ``.svg``, ``.png``, ``.pdf`` or ``.tex`` (TikZ), says what it becomes.
        k : (int, int), optional
            Only the steps of these k, from the first to one past the last.

        Raises
        ------
        OperandError
            If the suffix is another, or the steps are too many for one picture.
        BackendError
            If it is PNG or PDF, and matplotlib is not installed.
        """
        picture.save(self, Path(path), _range(k))


def _range(k: Any) -> tuple[int, int] | None:
    """A range of k."""
    if k is None:
        return None
    if not isinstance(k, tuple | list) or len(k) != 2:
        raise OperandError(f"k must be a tuple (first, one past the last), not {k!r:.200}")
    return integer(k[0], "k", 0), integer(k[1], "k", 0)
