"""The pages in docs: their examples run, their commands exist, their pictures are those that fastmma draws."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

import fastmma
from fastmma.cli import main

DOCS = Path(__file__).parents[1] / "docs"
BLOCKS = {
    page.name: re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for page in sorted(DOCS.glob("*.md"))
}
# what the examples of a page need beside fastmma
LIBRARIES = {"torch.md": "torch", "triton.md": "triton", "jax.md": "jax", "dask.md": "distributed"}
WITH_EXAMPLES = [name for name, blocks in BLOCKS.items() if any(language == "pycon" for language, _ in blocks)]
COMMANDS = sorted(
    {command for blocks in BLOCKS.values() for _, code in blocks for command in re.findall(r"^fastmma (\w+)", code, re.MULTILINE)}
)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(name: str) -> None:
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name], reason=f"the extra {name.removesuffix('.md')!r} is not installed")
    examples = "\n".join(code for language, code in BLOCKS[name] if language == "pycon")
    test = doctest.DocTestParser().get_doctest(examples, {}, name, str(DOCS / name), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.REPORT_NDIFF)
    runner.run(test)
    assert runner.failures == 0


def test_pages_with_examples_are_found() -> None:
    assert "explain.md" in WITH_EXAMPLES


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert command in capsys.readouterr().out


def explained() -> fastmma.Explanation:
    """The element whose picture docs/explain.md shows."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape) * np.exp2(rng.integers(-5, 3, shape)) for shape in ((1, 32), (32, 1)))
    return fastmma.explain(a.astype(np.float16), b.astype(np.float16), 0, 0, target="sm_90a")


def test_pictures_are_up_to_date(tmp_path: Path) -> None:
    explained().picture(tmp_path / "explain.svg", k=(16, 32))
    assert (DOCS / "explain.svg").read_text() == (tmp_path / "explain.svg").read_text()
