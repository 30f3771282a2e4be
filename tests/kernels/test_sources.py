"""What a kernel's digest covers: the sources that its module imports, and no other."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import fastmma
from fastmma.kernels.llvm import sources

KERNELS = Path(fastmma.__file__).parent / "kernels"
MODULES = [
    ".".join((sources.PACKAGE, *path.relative_to(KERNELS).with_suffix("").parts))
    for path in sorted(KERNELS.rglob("*.py"))
    if path.stem != "__init__"
]


@cache
def imports_of(module: str) -> tuple[str, ...]:
    """The modules of the kernels that another one imports, by Python's own parser."""
    found: list[str] = []
    for node in ast.walk(ast.parse(Path(str(importlib.import_module(module).__file__)).read_text())):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names]
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found += [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
    return tuple(found)


@cache
def closure_of(module: str) -> set[str]:
    """A module and all that it imports."""
    found = {module}
    waiting = [module]
    while waiting:
        new = {each for each in imports_of(waiting.pop()) if each in MODULES} - found
        found |= new
        waiting += new
    return found


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the kernels' sources, of which digests are made."""
    shutil.copytree(KERNELS, tmp_path / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sources, "KERNELS", tmp_path / "kernels")
    forget()
    yield tmp_path / "kernels"
    forget()


def forget() -> None:
    for cached in (sources._read, sources._digest, sources._files, sources._is_source):
        cached.cache_clear()


def test_the_modules_are_those_that_python_finds() -> None:
    found = pkgutil.walk_packages([str(KERNELS)], f"{sources.PACKAGE}.")
    assert sorted(each.name for each in found if not each.ispkg) == sorted(MODULES)
    assert len(MODULES) > 70


@pytest.mark.parametrize("module", MODULES)
def test_the_imports_of_a_module(module: str) -> None:
    assert set(sources.list_imported(module)) == closure_of(module)


def test_packages_have_no_code_of_kernels() -> None:
    for path in KERNELS.rglob("__init__.py"):
        assert all(isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.Expr) for node in ast.parse(path.read_text()).body), path


@pytest.mark.parametrize("changed", ["params", "llvm.emit", "integer.panels", "scaled.groups", "fma.chain_kernel"])
def test_a_change_of_a_source_concerns_what_imports_it(changed: str, copied: Path) -> None:
    before = {module: sources.digest_of([module]) for module in MODULES}
    path = copied.joinpath(*changed.split(".")).with_suffix(".py")
    path.write_text(path.read_text() + "\n")
    forget()
    concerned = {module for module in MODULES if sources.digest_of([module]) != before[module]}
    compiler = closure_of(f"{sources.PACKAGE}.llvm.compilation")
    everything = f"{sources.PACKAGE}.{changed}" in compiler
    assert concerned == {module for module in MODULES if everything or f"{sources.PACKAGE}.{changed}" in closure_of(module)}
    assert concerned
    assert everything or len(concerned) < len(MODULES)


def test_a_record_of_another_module_counts(copied: Path) -> None:
    module = f"{sources.PACKAGE}.general.lines"
    other = f"{sources.PACKAGE}.integer.panels"
    assert sources.digest_of([module, other]) not in (sources.digest_of([module]), sources.digest_of([other]))
    assert sources.digest_of([module, "builtins", "tests.kernels"]) == sources.digest_of([module])
    (copied / "integer" / "panels.py").unlink()
    forget()
    assert sources.digest_of([module])
    with pytest.raises(FileNotFoundError, match=r"no source of fastmma\.kernels\.integer\.panels is in"):
        sources.digest_of([other])


def test_the_digests_of_the_present_sources() -> None:
    assert sources.list_digests() == {sources.digest_of([module]) for module in MODULES}
