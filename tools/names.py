"""The index of the API: every public name of every public module, with a link to its place and the first sentence on it."""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from types import ModuleType

import fastmma

ROOT = "fastmma"
# in the order of the index, with the library that a module needs beside fastmma
MODULES = {ROOT: "numpy", **dict.fromkeys(fastmma._MODULES, "numpy"), **fastmma._ROOMS}

# values, which have no docstring
CONSTANTS = {
    "DISTRIBUTIONS": "The distributions from which a study draws operands, by name.",
    "FORMATS": 'The element formats, by name: `FORMATS["e4m3"]`.',
    "IEEE": 'The target of a study whose f32 sums are rounded to nearest: `"ieee-f32"`.',
    "PRESETS": "The studies that have a name.",
    "RULES": "The rules for scales, by the scale's format and the rule's name.",
    "SCHEMES": 'The block-scaled formats, by name: `SCHEMES["nvfp4"]`.',
    "TARGETS": 'The names of all targets: `"sm_90a"`, `"gfx942"` and others.',
}


def public_module(name: str) -> ModuleType:
    """The module of a name of `MODULES`."""
    module: ModuleType = fastmma if name == ROOT else getattr(fastmma, name)
    return module


def anchor(name: str, module: ModuleType, member: str) -> str:
    """The place of a member in the reference: where it is defined, if a submodule of its name hides it from those who read the sources."""
    public = f"{ROOT}.{member}" if name == ROOT else f"{ROOT}.{name}.{member}"
    value = getattr(module, member)
    is_package = name != ROOT and hasattr(module, "__path__")
    hidden = is_package and not isinstance(value, ModuleType) and find_spec(f"{module.__name__}.{member}") is not None
    return f"{value.__module__}.{member}" if hidden else public


def sentence(module: ModuleType, member: str) -> str:
    """The first line of the docstring of a function, a class or a module; of a constant, its row of `CONSTANTS`."""
    value = getattr(module, member)
    if inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value):
        return (inspect.getdoc(value) or "").partition("\n")[0].replace("|", "\\|")
    return CONSTANTS[member]


def section(name: str) -> str:
    """Print the names of one module as a table."""
    module = public_module(name)
    members = [each for each in module.__all__ if not inspect.ismodule(getattr(module, each))]
    rows = [f"| [`{each}`][{anchor(name, module, each)}] | {sentence(module, each)} |" for each in sorted(members)]
    title = ROOT if name == ROOT else f"{ROOT}.{name}"
    return "\n".join([f"## {title}", "", "| name | what it is |", "| --- | --- |", *rows, "", ""])


def index() -> str:
    """Print all modules."""
    return "".join(map(section, MODULES))
