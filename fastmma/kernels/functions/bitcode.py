"""NVIDIA's libdevice, LLVM bitcode that comes with Triton and CUDA: where it is on this machine, and the functions in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from fastmma.host.errors import BackendError

FILE = "libdevice.10.bc"
INSTALL = "pip install nvidia-nvvm==13.0.*"
_TRITONS = "backends/nvidia/lib"
# folders in packages that pip installs, and below a CUDA toolkit
_PACKAGES = (("nvidia", "cu13/nvvm/libdevice"), ("nvidia", "cuda_nvcc/nvvm/libdevice"), ("triton", _TRITONS))
_TOOLKITS = ("CUDA_HOME", "CUDA_PATH")
_DEFAULT_TOOLKIT = "/usr/local/cuda"
_DEFINITION = re.compile(r"^define[^\n]*@([\w.]+)\([^\n]*\{\n.*?^\}\n", re.S | re.M)
_GLOBAL = re.compile(r"^@([\w.]+) = [^\n]*\n", re.M)
_DECLARATION = re.compile(r"^declare[^\n]*@([\w.]+)\([^\n]*\n", re.M)
_ATTRIBUTES = re.compile(r" #\d+")
_TYPE = re.compile(r'^%[\w."]+ = type [^\n]*\n', re.M)


class Bitcode(NamedTuple):
    """libdevice as text.

    Attributes
    ----------
    path : Path
    functions, constants : dict of str
        Definitions by name.
    types : str
    declarations : dict of str
        Of intrinsics, by name.
    """

    path: Path
    functions: dict[str, str]
    constants: dict[str, str]
    types: str
    declarations: dict[str, str]

    def needed(self, name: str) -> list[str]:
        """Name a function and all in libdevice that it calls."""
        found: list[str] = []
        waiting = [name]
        while waiting:
            each = waiting.pop()
            if each in self.functions and each not in found:
                found.append(each)
                waiting += re.findall(r"@([\w.]+)\(", self.functions[each])
        return found


def _places() -> Iterator[Path]:
    for package, folder in _PACKAGES:
        spec = find_spec(package)
        for root in (spec.submodule_search_locations or ()) if spec is not None else ():
            yield Path(root) / folder / FILE
    for toolkit in (*(os.environ.get(name) for name in _TOOLKITS), _DEFAULT_TOOLKIT):
        if toolkit:
            yield Path(toolkit) / "nvvm" / "libdevice" / FILE


def find_bitcode() -> Path | None:
    """Find libdevice in installed packages and CUDA toolkits; None where there is none."""
    return next((place for place in _places() if place.is_file()), None)


@lru_cache(8)
def file_digest(given: Path | None = None) -> str:
    """Return the beginning of the SHA-256 of libdevice's file; empty where there is none."""
    path = find_bitcode() if given is None else given
    return "" if path is None else sha256(path.read_bytes()).hexdigest()[:16]


def find_tritons() -> Path | None:
    """Find the libdevice that Triton links; None without Triton."""
    spec = find_spec("triton")
    places = [Path(root) / _TRITONS / FILE for root in (spec.submodule_search_locations or ())] if spec is not None else []
    return next((place for place in places if place.is_file()), None)


@lru_cache(8)
def bitcode(given: Path | None = None) -> Bitcode:
    """Read libdevice, by default that of CUDA's release where it is installed.

    Raises
    ------
    BackendError
        If it is not on this machine.

    Examples
    --------
    >>> bitcode().needed("__nv_expf")  # doctest: +SKIP
    ['__nv_expf']
    """
    path = find_bitcode() if given is None else given
    if path is None:
        raise BackendError(f"NVIDIA's libdevice is not on this machine: {INSTALL}")
    from llvmlite import binding

    text = str(binding.parse_bitcode(path.read_bytes()))
    functions = {match[1]: match[0] for match in _DEFINITION.finditer(text)}
    constants = {match[1]: match[0] for match in _GLOBAL.finditer(text)}
    declarations = {match[1]: _ATTRIBUTES.sub("", match[0]) for match in _DECLARATION.finditer(text)}
    return Bitcode(path, functions, constants, "".join(_TYPE.findall(text)), declarations)
