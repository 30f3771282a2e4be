"""The notebooks run, and show what they hold."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tools.notebooks import FOLDER, executed, texts

nbformat = pytest.importorskip("nbformat", reason="the extra 'docs' is not installed")
if not all(map(find_spec, ("nbclient", "torch", "triton", "transformers"))):
    pytest.skip("notebooks need the extras 'docs' and 'integrations'", allow_module_level=True)

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_three() -> None:
    assert [notebook.stem for notebook in NOTEBOOKS] == ["model", "nvfp4", "triton_in_ci"]


@pytest.mark.filterwarnings("ignore")  # of the kernel's sockets
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[notebook.stem for notebook in NOTEBOOKS])
def test_outputs_are_what_it_prints(notebook: Path, tmp_path: Path) -> None:
    shown = texts(nbformat.read(notebook, as_version=4))
    assert any(shown)
    assert texts(executed(notebook, tmp_path)) == shown, "'python -m tools.notebooks' executes all of them anew"
