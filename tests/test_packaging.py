"""What the package says of itself is said once, or alike."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from runpy import run_path

import fastmma
from fastmma.verification.machine import LIBRARIES

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def test_the_version_is_the_newest_of_the_changes() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "version" in PROJECT["dynamic"]
    assert re.findall(r"^## (\S+)", changes, re.MULTILINE)[0] == fastmma.__version__
    assert f"\nversion: {fastmma.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_description_of_an_index_links_to_no_file() -> None:
    """Of the readme it has everything but the picture; pages are named."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    text = run_path(str(ROOT / "setup.py"))["described"](readme)
    assert "readme" in PROJECT["dynamic"]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert not [link for link in re.findall(r"\]\(([^)]*)\)", prose) if not link.startswith("https://")]
    assert "Which bits (`docs/which_bits.md`)" in text
    assert re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL) == re.findall(r"^```.*?^```", readme, re.MULTILINE | re.DOTALL)


def test_extras_that_are_named_exist() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "fastmma").rglob("*.py")):
        for named in re.findall(r"(?:fastmma|pip install ['\"]?\.)\[([\w,]+)\]", page.read_text(encoding="utf-8")):
            assert set(named.split(",")) <= set(EXTRAS), page


def test_no_extra_of_users_brings_cuda_along_with_torch() -> None:
    for extra in set(EXTRAS) - {"integrations", "referees"}:  # these are for tests
        assert not [each for each in EXTRAS[extra] if re.match(r"torch\b", each)], extra


def test_doctor_knows_the_extras() -> None:
    named = {re.split(r"[\[<>=]", each)[0] for extra in ("plots", "cuda12", "cuda13", "triton", "jax", "dask") for each in EXTRAS[extra]}
    assert named <= {name for names in LIBRARIES.values() for name in names}
    assert {re.split(r"[<>=]", each)[0] for each in PROJECT["dependencies"]} == set(LIBRARIES["fastmma"]) - {"llvmlite"}


def test_sessions_are_the_same_everywhere() -> None:
    """`.ci/run` runs the sessions that nox runs by default, and the workflow all but those before a release."""
    text = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    sessions = re.findall(r"^@nox\.session(?:\(.*\))?\n(?:@nox\.parametrize\(.*\)\n)?def (\w+)", text, re.MULTILINE)
    (default,) = re.findall(r"^nox\.options\.sessions = (\[.*\])", text, re.MULTILINE)
    run = re.findall(r"^step nox .*--sessions (.*)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    assert " ".join(run).split() == ast.literal_eval(default)
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    (matrix,) = re.findall(r"^ +session: \[(.*)\]", workflow, re.MULTILINE)
    assert set(matrix.split(", ")) | {"basics", "lowest", "release"} == set(sessions)
    assert set(re.findall(r"nox -s (\w+)", workflow)) == {"basics", "lowest"}
    for python in re.findall(r"3\.\d+", next(line for line in workflow.splitlines() if line.strip().startswith("python: ["))):
        assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]


def test_hooks_and_sessions_take_the_tools_that_the_extras_name() -> None:
    """pre-commit and nox install tools by themselves: of the versions that the project names."""
    named = {*PROJECT["dependencies"], *EXTRAS["test"], *EXTRAS["integrations"]}
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    (torch,) = re.findall(r'^TORCH = "(.*)"', (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE)
    (linters,) = re.findall(r'install\(session, ("ruff.*)\)', (ROOT / "noxfile.py").read_text(encoding="utf-8"))
    listed = re.findall(r"additional_dependencies: \[(.*)\]", hooks)
    assert len(listed) == hooks.count("- id:")
    for asked in (*listed, linters, f'"{torch}"'):
        assert set(re.findall(r'"([^"]+)"', asked)) <= named
