"""What must hold before a change is accepted: ``nox`` runs it all, ``nox -s lint`` a part; ``.ci/run`` runs the same sessions."""

from __future__ import annotations

import os
from glob import glob
from pathlib import Path
from shutil import rmtree

import nox
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests", "lowest", "integrations", "docs"]
nox.options.reuse_existing_virtualenvs = True

TORCH = "torch==2.13.0"
INTEGRATIONS = (
    "tests/integrations",
    "tests/functions",
    "tests/testing",
    "tests/scaling/test_torch_scaling.py",
    "tests/study/test_bench_command.py",
    "tests/explanation/test_explorer.py",
    "tests/explanation/test_sum_page.py",
    "tests/test_docs.py",
    "tests/test_site.py",
    "tests/test_readme.py",
    "tests/test_notebooks.py",
    "tests/test_examples.py",
)
# what says most about a system and a Python in little time
BASICS = (
    "tests/host",
    "tests/shared",
    "tests/isa/test_formats.py",
    "tests/execution/test_matrix_moves.py",
    "tests/products/test_gemm.py",
    "tests/cli/test_doctor.py",
    "tests/test_public_names.py",
)
# what tries the lowest versions that pyproject.toml allows: all commands, and products by each library that has some
LOWEST = (
    "tests/cli/test_help.py",
    "tests/cli/test_cli.py::test_gemm_report_for_people",
    "tests/cli/test_doctor.py",
    "tests/isa/test_formats.py",
    "tests/operands/test_figures.py",
    "tests/products/test_matmul.py",
    "tests/test_public_names.py",
    "tests/integrations/dask/test_dask_products.py::test_tasks_of_parts",
    "tests/integrations/jax/test_jax_products.py::test_vmap_of_a_gradient_with_batches",
)
PROJECT = nox.project.load_toml("pyproject.toml")["project"]
LOWEST_PYTHON = PROJECT["requires-python"].removeprefix(">=")
PYTHONS = [each for each in nox.project.python_versions({"project": PROJECT}) if each]
DISTRIBUTIONS = "dist"
LOWEST_EXTRAS = ("plots", "dask", "jax", "test")
READERS_OF_SOURCES = ("ruff", "mypy", "codespell")  # whose every version finds something else


def lowest_versions() -> list[str]:
    """The dependencies, and those of some extras, each at the lowest version that pyproject.toml allows."""
    listed = [*PROJECT["dependencies"], *(each for extra in LOWEST_EXTRAS for each in PROJECT["optional-dependencies"][extra])]
    found = []
    for each in map(Requirement, dict.fromkeys(listed)):
        lowest = [f"=={bound.version}" for bound in each.specifier if bound.operator == ">="]
        if each.name not in READERS_OF_SOURCES:
            each.specifier = SpecifierSet(*lowest)
            found.append(str(each))
    return found


def install(session: nox.Session, *what: str) -> None:
    """Install into the session's environment; without one (``--no-venv``) everything is there already."""
    if session.virtualenv.venv_backend != "none":
        session.install(*what)


@nox.session
def lint(session: nox.Session) -> None:
    """Rules, layout and spelling of the sources."""
    install(session, "ruff>=0.9", "codespell>=2.4")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("codespell")


@nox.session
def types(session: nox.Session) -> None:
    """Types of the package."""
    install(session, ".[test]")
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """All tests but those of the integrations; arguments after ``--`` go to pytest in place of that."""
    install(session, ".[test]")
    chosen = session.posargs or [f"--ignore={each}" for each in INTEGRATIONS]
    # which keeps a worker in its rooms, so that two seldom compile the same kernel
    session.run("python", "-m", "pytest", "-n", "auto", "--dist", "worksteal", *chosen)


@nox.session
def basics(session: nox.Session) -> None:
    """The tests that say most about a system and a Python."""
    install(session, ".[test]")
    session.run("fastmma", "doctor")
    session.run("python", "-m", "pytest", *(session.posargs or BASICS))


@nox.session(python=LOWEST_PYTHON)
def lowest(session: nox.Session) -> None:
    """A few tests with the lowest Python and the lowest versions of what is needed."""
    install(session, ".", *lowest_versions())
    session.run("fastmma", "--help", silent=True)
    # of what a library at its lowest calls in newer ones, some is deprecated
    session.run("python", "-m", "pytest", "-W", "ignore::DeprecationWarning", *(session.posargs or LOWEST))


@nox.session
def integrations(session: nox.Session) -> None:
    """Tests with the libraries that are integrated: torch for a CPU comes first, so that nothing brings CUDA along."""
    install(session, TORCH)
    install(session, ".[test,integrations,docs]")
    session.run("python", "-m", "pytest", "-n", "auto", "--dist", "worksteal", *(session.posargs or INTEGRATIONS))


@nox.session
def docs(session: nox.Session) -> None:
    """The site, warnings being errors."""
    install(session, ".[docs]")
    session.run("mkdocs", "build", "--strict", "--quiet", "--site-dir", f"{session.create_tmp()}/site")


@nox.session
def package(session: nox.Session) -> None:
    """The distributions: they have each file that they should and no other, and their description can be shown."""
    install(session, "build", "twine>=6.1", "check-manifest>=0.50", "check-wheel-contents>=0.6.1")
    rmtree(DISTRIBUTIONS, ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", DISTRIBUTIONS)
    session.run("twine", "check", "--strict", *glob(f"{DISTRIBUTIONS}/*"))
    session.run("check-wheel-contents", "--package", "fastmma", *glob(f"{DISTRIBUTIONS}/*.whl"))
    session.run("check-manifest")


@nox.session(python=PYTHONS, requires=["package"], venv_backend="uv")
@nox.parametrize("versions", ["lowest", "highest"])
def release(session: nox.Session, versions: str) -> None:
    """The wheel in an empty environment, by each Python, with the lowest and the highest versions of all that it needs."""
    # what has no wheel for this Python is too low for it
    session.install("--resolution", versions, "--only-binary", ":all:", *glob(f"{DISTRIBUTIONS}/*.whl"), "pytest>=8.2")
    readme = Path("tests/test_readme.py").resolve()
    session.chdir(session.create_tmp())  # where no fastmma lies but the one installed
    session.run("uv", "pip", "list", external=True)
    session.run("fastmma", "doctor")
    session.run("fastmma", "verify")
    session.run("fastmma", "gemm", "--random", "256x256x256", "--type", "e4m3", "--target", "H100")
    session.run("python", "-m", "pytest", "--noconftest", "--import-mode=importlib", "-c", os.devnull, "--rootdir", ".", str(readme))
