"""Digests of sources: of a module of the kernels, and of all of theirs that it imports, since kernels compile each other in."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

KERNELS = Path(__file__).parents[1]
PACKAGE = __name__.rpartition(".llvm")[0]
_COMPILER = f"{PACKAGE}.llvm.compilation"  # of all kernels
# an import of kernels, on one line or in parentheses; those in functions and of types alone count too
_MODULE = rf"({re.escape(PACKAGE)}[\w.]*)"
_IMPORT = re.compile(rf"^[ \t]*(?:from {_MODULE} import (\([^)]*\)|[^\n]*)|import {_MODULE})", re.MULTILINE)
_COMMENT = re.compile(r"#.*")
_NAME = re.compile(r"(\w+)(?: as \w+)?")


def _path(module: str) -> str:
    """Return where the source of a module of the kernels is; packages have no code."""
    return f"{KERNELS}{module.removeprefix(PACKAGE).replace('.', os.sep)}.py"


@lru_cache(64)
def _files(folder: str) -> frozenset[str]:
    """List a folder of sources; imports name hundreds of what may be modules."""
    return frozenset(os.listdir(folder) if os.path.isdir(folder) else ())


@lru_cache(4096)
def _is_source(path: str) -> bool:
    folder, _, file = path.rpartition(os.sep)
    return file in _files(folder)


@lru_cache(1024)
def _read(module: str) -> tuple[bytes, tuple[str, ...]]:
    """Read a module: its source, and the modules of the kernels that it imports."""
    if not _is_source(_path(module)):
        raise FileNotFoundError(f"no source of {module} is in {KERNELS}")
    with open(_path(module), encoding="utf-8") as file:
        text = file.read()
    named = [each for found in _IMPORT.findall(text) for each in _list_named(*found)]
    return text.encode(), tuple(each for each in dict.fromkeys(named) if _is_source(_path(each)))


def _list_named(origin: str, names: str, whole: str) -> list[str]:
    """List what an import may name: a module, or those of a package."""
    return [whole] if whole else [origin, *(f"{origin}.{name}" for name in _NAME.findall(_COMMENT.sub("", names)))]


def list_imported(module: str) -> list[str]:
    """List a module of the kernels and all of theirs that it imports, those imported by others too.

    Raises
    ------
    FileNotFoundError
        If a source is not there.
    """
    found = [module]
    for each in found:  # which grows
        found += [other for other in _read(each)[1] if other not in found]
    return sorted(found)


@lru_cache(1024)
def _digest(modules: frozenset[str]) -> str:
    digest = hashlib.sha256()
    for module in sorted({each for start in modules for each in list_imported(start)}):
        digest.update(module.encode() + b"\0" + _read(module)[0] + b"\0")
    return digest.hexdigest()[:16]


def digest_of(modules: Iterable[str]) -> str:
    """Return a digest of all sources that code of these modules is made of; those of other rooms than the kernels give only values."""
    return _digest(frozenset(each for each in (*modules, _COMPILER) if each.startswith(f"{PACKAGE}.")))


def list_digests() -> set[str]:
    """Return the digests that kernels of the present sources may have: those of each module alone."""
    paths = (path.relative_to(KERNELS).with_suffix("") for path in KERNELS.rglob("*.py") if path.stem != "__init__")
    return {digest_of([".".join((PACKAGE, *path.parts))]) for path in paths}
