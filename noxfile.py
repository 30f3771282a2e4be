"""What must hold before a change is accepted: ``nox`` runs it all, ``nox -s lint`` a part; ``.ci/run`` runs the same sessions."""

from __future__ import annotations

from glob import glob
from shutil import rmtree

import nox

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["lint", "types", "tests", "doors", "docs"]
nox.options.reuse_existing_virtualenvs = True

TORCH = "torch==2.13.0"
DOORS = (
    *sorted(glob("tests/*_door")),
    "tests/testing",
    "tests/scaling/test_torch_scaling.py",
    "tests/study/test_bench_command.py",
    "tests/explanation/test_explorer.py",
    "tests/test_docs.py",
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
    """All tests but those of the doors; arguments after ``--`` go to pytest."""
    install(session, ".[test]")
    # which keeps a worker in its rooms, so that two seldom compile the same kernel
    session.run("python", "-m", "pytest", "-n", "auto", "--dist", "worksteal", *session.posargs)


@nox.session
def basics(session: nox.Session) -> None:
    """The tests that say most about a system and a Python."""
    install(session, ".[test]")
    session.run("fastmma", "doctor")
    session.run("python", "-m", "pytest", *(session.posargs or BASICS))


@nox.session
def doors(session: nox.Session) -> None:
    """Tests with the libraries that the doors open to: torch for a CPU comes first, so that nothing brings CUDA along."""
    install(session, TORCH)
    install(session, ".[test,doors,docs]")
    session.run("python", "-m", "pytest", "-n", "auto", "--dist", "worksteal", *(session.posargs or DOORS))


@nox.session
def docs(session: nox.Session) -> None:
    """The site, warnings being errors."""
    install(session, ".[docs]")
    session.run("mkdocs", "build", "--strict", "--quiet", "--site-dir", f"{session.create_tmp()}/site")


@nox.session
def package(session: nox.Session) -> None:
    """The distributions, of which the wheel is installed and tried."""
    install(session, "build")
    folder = f"{session.create_tmp()}/dist"
    rmtree(folder, ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", folder)
    (wheel,) = glob(f"{folder}/fastmma-*.whl")
    session.install("--force-reinstall", wheel)
    session.chdir(session.create_tmp())
    session.run("fastmma", "doctor")
    session.run("fastmma", "verify")
