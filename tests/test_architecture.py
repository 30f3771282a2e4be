"""The shape of the code: imports go down the layers, and importing the package costs little."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest
from reference.cases import cases

import fastmma

ROOT = Path(fastmma.__file__).parent
# from the bottom; a module imports from its own room and from the floors below, also inside functions
FLOORS = (
    ("host",),
    ("isa", "kernels"),
    ("numerics", "operands", "scaling", "shared"),
    ("backends",),
    ("products", "execution"),
    ("study", "verification", "explanation", "functions", "agreement"),
    ("",),  # the package itself: the public names
    ("cli", "__main__"),
    ("torch", "triton", "jax", "dask", "testing"),  # integrations with other libraries
)
INTEGRATIONS = {"torch": {"torch"}, "triton": {"triton", "torch"}, "jax": {"jax"}, "dask": {"dask"}, "testing": {"pytest"}}
OPTIONAL = set().union(
    *INTEGRATIONS.values(),
    {"cupy", "cupy_backends", "matplotlib", "torchao", "transformers", "distributed", "hypothesis", "mmasim", "mmaemu"},
)

WITH_TORCH = {"functions.autocast"}  # below the integrations, and imported by functions that have imported torch


ROOMS = 16  # and the integrations


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def floor(module: str) -> int:
    return next(index for index, rooms in enumerate(FLOORS) if module.partition(".")[0] in rooms)


class Contents(NamedTuple):
    """Of a file: the names that it imports when it is imported, those it imports later, and docstrings, by what they describe."""

    at_import: set[str]
    later: set[str]
    docstrings: list[tuple[str, str]]  # the module's first


@cache
def contents(path: Path) -> Contents:
    """Of a file, which is parsed once."""
    found = Contents(set(), set(), [])

    def visit(node: ast.AST, later: bool) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            found.docstrings.append((getattr(node, "name", ""), ast.get_docstring(node) or ""))
        later = later or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_for_types(node)
        names = found.later if later else found.at_import
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):  # which imports nothing
                visit(child, later)

    visit(ast.parse(path.read_text()), False)
    return found


def imported(path: Path, *, at_import: bool) -> set[str]:
    """The modules that a file imports, dotted; only those imported when it is, or all of them."""
    found = contents(path)
    return found.at_import if at_import else found.at_import | found.later


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def own(names: set[str]) -> set[str]:
    """The package's modules among imported names."""
    found = set()
    for name in names:
        if name == "fastmma" or not name.startswith("fastmma."):
            continue
        inner = name.removeprefix("fastmma.")
        found.add(inner if inner in MODULES else inner.rpartition(".")[0])
    return found


def graph(*, rooms: bool = False) -> dict[str, set[str]]:
    """What every module (or room) imports, inside functions too."""
    found: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        for other in own(imported(path, at_import=False)) - {module}:
            ends = (module.partition(".")[0], other.partition(".")[0]) if rooms else (module, other)
            if ends[0] != ends[1]:
                found.setdefault(ends[0], set()).add(ends[1])
    return found


@cases("module", MODULES)
def test_imports_go_down(module: str) -> None:
    for other in own(imported(MODULES[module], at_import=False)):
        assert floor(other) <= floor(module), f"{module} imports {other}, which is above it"


@pytest.mark.parametrize("rooms", [False, True])
def test_no_import_circles(rooms: bool) -> None:
    TopologicalSorter(graph(rooms=rooms)).prepare()


def test_integrations_stand_side_by_side() -> None:
    assert set(FLOORS[-1]) == set(INTEGRATIONS)
    for module, path in MODULES.items():
        rooms = {other.partition(".")[0] for other in own(imported(path, at_import=False))}
        assert not (rooms & set(INTEGRATIONS)) - {module.partition(".")[0]}, module


def test_the_house_has_these_rooms() -> None:
    rooms = {module.partition(".")[0] for module in MODULES} - {"", "__main__"}
    assert rooms == {room for rooms in FLOORS for room in rooms} - {"", "__main__"}
    assert len(rooms - set(INTEGRATIONS)) <= ROOMS


def test_rows_hold_no_code_of_the_kernels() -> None:
    for module, path in MODULES.items():
        if module.partition(".")[0] in ("host", "isa"):
            used = {name.partition(".")[0] for name in imported(path, at_import=False)}
            assert not used & {"numba", "llvmlite", "click", "fastmma.kernels"}, module


def test_numba_is_imported_by_kernels_only() -> None:
    for module, path in MODULES.items():
        if module.partition(".")[0] != "kernels":
            used = {name.partition(".")[0] for name in imported(path, at_import=True)}
            assert not used & {"numba", "llvmlite"}, module
            kernels = {name for name in own(imported(path, at_import=True)) if name.startswith("kernels.")}
            assert kernels <= {"kernels.params", "kernels.envelopes"}, module


def test_calls_import_kernels_apart() -> None:
    """By ``from package import module``, where the package imports modules on threads that no signal handler interrupts."""
    packages = {"fastmma.kernels", *(f"fastmma.{module}" for module, path in MODULES.items() if path.name == "__init__.py")}
    found = 0
    for module, path in MODULES.items():
        if module.partition(".")[0] == "kernels":
            assert path.name != "__init__.py" or "\n__getattr__ = submodule_getter(__name__)\n" in path.read_text(), module
            continue
        for function in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)):
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fastmma.kernels"):
                    found += 1
                    assert node.module in packages, f"{module}: {function.name} imports from the module {node.module}"
                assert not isinstance(node, ast.Import) or not any(each.name.startswith("fastmma.kernels") for each in node.names), module
    assert found > 30


def test_optional_packages_are_imported_where_they_are_used() -> None:
    for module, path in MODULES.items():
        used = {name.partition(".")[0] for name in imported(path, at_import=True)}
        known = {"torch"} if module in WITH_TORCH else INTEGRATIONS.get(module.partition(".")[0], set())
        assert not used & OPTIONAL - known, module
        assert module.startswith("torch") or not own(imported(path, at_import=True)) & WITH_TORCH, module


def test_import_is_light() -> None:
    script = "import json, sys; before = set(sys.modules); import fastmma; print(json.dumps(sorted(set(sys.modules) - before)))"
    command = [sys.executable, "-c", script]
    output = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT.parent).stdout
    packages = {name.partition(".")[0] for name in json.loads(output)}
    assert packages.isdisjoint({"numba", "llvmlite", "cupy", "matplotlib", "click", "torch", "scipy", "pandas"})


def test_public_names_exist() -> None:
    assert sorted(fastmma.__all__) == sorted(set(fastmma.__all__))
    for name in fastmma.__all__:
        assert getattr(fastmma, name).__doc__ or name.isupper()


def test_names_say_what_they_hold() -> None:
    banned = {"utils", "util", "common", "helpers", "helper", "core", "misc"}
    assert not banned & {part for module in MODULES for part in module.split(".")}


def test_modules_have_one_purpose_and_say_it() -> None:
    for module, path in MODULES.items():
        if path.stat().st_size:
            assert contents(path).docstrings[0][1], module


def test_docstrings_are_read_alone() -> None:
    """No docstring says that something is the same as something told elsewhere."""
    for module, path in MODULES.items():
        for name, docstring in contents(path).docstrings:
            assert docstring.lower().split()[:3] not in [["the", "same", link] for link in ("for", "with", "as")], f"{module}: {name}"
