"""Why an element has its bits: its derivation, which prints, and turns into Markdown, JSON and a picture."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fastmma.explanation import picture, text
from fastmma.explanation.derivation import Derivation
from fastmma.host.calls import public_call


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
        Another that stands beside this one, of the same element by another plan.
    """

    def __str__(self) -> str:
        return text.text(self)

    @public_call
    def markdown(self) -> str:
        """The explanation in Markdown: a table for each step with several terms."""
        return text.markdown(self)

    @public_call
    def json(self) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @public_call
    def picture(self, path: str | Path) -> None:
        """Draw the steps: terms as bars of bits over the window of the alignment, those that are dropped dimmed.

        Parameters
        ----------
        path : str or Path
            The file; its suffix, ``.svg``, ``.png`` or ``.pdf``, says what it becomes.

        Raises
        ------
        OperandError
            If the suffix is another.
        BackendError
            If it is not SVG and matplotlib is not installed.
        """
        picture.save(self, Path(path))
