"""The keywords that choose a plan: one list of them, which every function takes and shows."""

from __future__ import annotations

import inspect
import pydoc
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fastmma
from fastmma.products.keywords import UNSET, Choices, GemmChoices, read_choices
from fastmma.scaling import quantize

FUNCTIONS = ("gemm", "gemm_plan", "matmul", "prepare")
A = np.ones((16, 16), np.float16)


def test_types_and_defaults_are_of_the_same_keywords() -> None:
    assert GemmChoices.__annotations__.keys() == set(Choices._fields)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures_spell_the_keywords(name: str) -> None:
    function = getattr(fastmma, name)
    parameters = inspect.signature(function).parameters
    assert {each: parameters[each].default for each in Choices._fields} == UNSET._asdict()
    assert {parameters[each].kind for each in Choices._fields} == {inspect.Parameter.KEYWORD_ONLY}
    assert inspect.Parameter.VAR_KEYWORD not in {each.kind for each in parameters.values()}
    shown = pydoc.render_doc(function, renderer=pydoc.plaintext)
    assert "preset: 'str | None' = None, " in shown
    described = inspect.getdoc(function) or ""
    assert not [each for each in parameters if not re.search(rf"^(.*, )?{each}(, .*)?( : .*)?$", described, re.M)]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("wrong", "nearest"), [("targets", "target"), ("instructions", "instruction"), ("outdtype", "out_dtype")])
def test_an_unknown_keyword_is_told_with_the_nearest(name: str, wrong: str, nearest: str) -> None:
    with pytest.raises(fastmma.OperandTypeError, match=f"^{name} takes no keyword '{wrong}'; the nearest is '{nearest}'$"):
        getattr(fastmma, name)(A, A, **{wrong: None})


@pytest.mark.parametrize(("wrong", "nearest"), [("targets", "target"), ("againsts", "against")])
@pytest.mark.parametrize("scaled", [False, True])
def test_explain_names_itself(wrong: str, nearest: str, scaled: bool) -> None:
    a = quantize(np.ones((16, 32), np.float32), "mxfp8") if scaled else A
    with pytest.raises(fastmma.OperandTypeError, match=f"^explain takes no keyword '{wrong}'; the nearest is '{nearest}'$"):
        fastmma.explain(a, a.T, 0, 0, **{wrong: "H100"})


def test_a_keyword_like_no_other_is_told_alone() -> None:
    with pytest.raises(fastmma.OperandTypeError, match=r"^mma takes no keyword 'zzzz'$"):
        fastmma.mma("mma.m16n8k16.f32.f16", A, A, zzzz=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("record", "wrong", "nearest"),
    [
        (fastmma.GemmPlan, "splitk", "split_k"),
        (fastmma.AccumulationPlan, "promoteevery", "promote_every"),
        (fastmma.StreamK, "cta", "ctas"),
        (fastmma.Arithmetic, "align_bit", "align_bits"),
        (fastmma.cublas.Choice, "tiles", "tile"),
        (fastmma.study.Grid, "format", "formats"),
        (fastmma.shared.Tile, "swizle", "swizzle"),
    ],
)
def test_a_misspelt_field_is_told_with_the_nearest(record: Any, wrong: str, nearest: str) -> None:
    with pytest.raises(fastmma.OperandTypeError, match=f"^{record.__name__} takes no keyword '{wrong}'; the nearest is '{nearest}'$"):
        record(**{wrong: 1})


def test_a_misspelt_change_of_a_plan_is_told_with_the_nearest() -> None:
    with pytest.raises(fastmma.OperandTypeError, match=r"^GemmPlan takes no keyword 'splitk'; the nearest is 'split_k'$"):
        replace(fastmma.gemm_plan(A, A.T, target="H100"), splitk=2)  # type: ignore[call-arg]


@pytest.mark.parametrize("given", ["f16", "float16", np.float16, np.dtype(np.float16), fastmma.FORMATS["f16"]])
def test_formats_are_read_by_name(given: Any) -> None:
    choices: GemmChoices = {"accumulator": given, "out_dtype": given, "join_dtype": given, "cast": True}
    name = given if isinstance(given, str) else "f16"
    assert read_choices(choices) == UNSET._replace(accumulator=name, out_dtype=name, join_dtype=name, cast=True)


def test_no_format_to_join_in_is_none() -> None:
    assert read_choices({"join_dtype": None}) == read_choices({}) == UNSET
