"""The files in examples run and print what they are about."""

from __future__ import annotations

import re
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
# what each prints
EXPECTED = {
    "find_the_plan.py": r"100% of .* on sm_80\n.* 2 parts.* differ from an H100's.* the sums part at k = \d+\n",
    "gemm_on_five_gpus.py": r"V100 .*A100 .*H100 +(.*)\nB200 +\1\nRTX 5090 +\1\n",
    "tiled_kernel.py": r"on sm_80: the bits of gemm\non sm_90a: the bits of gemm\n.*8-way.*\nswizzle 128: no bank conflicts",
    "train_with_gpu_bits.py": r"after step  1: .* 0.00% .*after step 20: .* [1-9]\d*\.\d+% of the weights differ\n",
    "which_format.py": r"bf16 .*\n(mxfp[68]_\w+ .*\n){2}nvfp4 .*\nmxfp4 .*\n",
}


@pytest.mark.filterwarnings("ignore")  # of torch, about itself
@pytest.mark.parametrize("name", EXPECTED)
def test_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if "import torch" in (FOLDER / name).read_text() and not find_spec("torch"):
        pytest.skip("torch is not installed")
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    assert re.search(EXPECTED[name], capsys.readouterr().out, re.DOTALL if name != "which_format.py" else re.NOFLAG)


def test_each_example_is_tested() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.py")) == sorted(EXPECTED)
