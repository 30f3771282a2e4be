"""The table of programs in docs/jax.md, compared with what runs."""

from __future__ import annotations

from pathlib import Path

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("absl", reason="Pallas for Mosaic GPU needs absl-py")

from tests.reference.jax_programs import write_table  # noqa: E402

PAGE = (Path(__file__).parents[3] / "docs" / "jax.md").read_text()


@pytest.mark.skipif(f"JAX {jax.__version__}," not in PAGE, reason="the table is of another version of JAX")
def test_the_table_is_what_runs() -> None:
    lines = PAGE.splitlines()
    for row in write_table():
        assert row in lines
