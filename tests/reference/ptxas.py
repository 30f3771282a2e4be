"""ptxas as a referee: which statements a target accepts."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from fastmma.isa.targets import PTX_TARGETS, target_ptx

_HEAD = """.version {version}
.target {target}
.address_size 64
"""
_ENTRY = ".visible .entry k{number}() {{ .reg .b32 %r<512>; .reg .f64 %d<512>; .reg .b64 %q<2>; .reg .pred %p<2>;\n"
_END = " ret; }\n"
_TOGETHER = 16  # statements of an entry: it takes ptxas longer to make one long one
_LINES = 2 * _TOGETHER + 2  # of an entry
# an illegal statement may spoil the next mma for ptxas as well: let that be one that does not matter
_BETWEEN = " mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r510, %r511}, {%r510, %r511}, {%r510}, {%r510, %r511};\n"
_ERROR = re.compile(r"statements\.ptx, line (\d+); (?:error|fatal)")


def _found() -> str:
    """The ptxas of the package nvidia-cuda-nvcc, else that on the PATH; empty where there is neither."""
    package = find_spec("nvidia")
    for folder in package.submodule_search_locations or () if package else ():
        for path in sorted(Path(folder).glob("cu1*/bin/ptxas")):
            return str(path)
    return shutil.which("ptxas") or ""


PTXAS = _found()
needs_ptxas = pytest.mark.skipif(not PTXAS, reason="nvidia-cuda-nvcc is not installed, and ptxas is not on the PATH")


@cache
def version() -> tuple[int, int]:
    """The PTX version of ptxas: that of CUDA 13.n is 9.n."""
    if not PTXAS:
        return 9, 0
    told = subprocess.run([PTXAS, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release (\d+)\.(\d+)", told)
    assert found is not None, told
    return int(found[1]) - 4, int(found[2])


def known_targets() -> tuple[str, ...]:
    """The targets that this ptxas knows; 13 has dropped sm_70."""
    return tuple(target for target in PTX_TARGETS if target != "sm_70" and target_ptx(target) <= version())


def _entry(first: int, statements: Sequence[str]) -> str:
    lines = "".join(f"{statement}\n{_BETWEEN}" for statement in statements[first : first + _TOGETHER])
    return _ENTRY.format(number=first) + lines + _END


def _refused(statements: Sequence[str], target: str, architecture: str, folder: Path) -> set[int] | None:
    """Which statements ptxas complains about; None if it says that some are illegal but not which."""
    head = _HEAD.format(target=target, version="{}.{}".format(*version()))
    source = folder / "statements.ptx"
    source.write_text(head + "".join(_entry(number, statements) for number in range(0, len(statements), _TOGETHER)))
    command = [PTXAS, "-O0", f"-arch={architecture}", str(source), "-o", str(folder / "statements.cubin")]
    said = folder / "statements.txt"  # ptxas writes line by line, into a file faster than into a pipe
    with said.open("w") as file:
        if subprocess.run(command, stdout=file, stderr=file, check=False).returncode == 0:
            return set()
    refused: set[int] = set()
    for number in _ERROR.findall(said.read_text()):
        # an entry's first line, then two for a statement, then its last line
        entry, line = divmod(int(number) - 1 - head.count("\n"), _LINES)
        place = entry * _TOGETHER + (line - 1) // 2
        if line % 2 == 1 and line < _LINES - 1 and place < len(statements):
            refused.add(place)
    return refused or None


def _taken(statements: Mapping[int, str], target: str, architecture: str, folder: Path) -> dict[int, str]:
    """The statements that ptxas takes: those that it refuses are taken out until it takes the rest.

    An error may end its work, with others still to be found. Where it only parses, the entries before the first error are right.
    """
    taken: list[int] = []
    groups = [list(statements)]
    while groups:
        alive = groups.pop()
        refused = _refused([statements[number] for number in alive], target, architecture, folder)
        if refused is None:
            middle = len(alive) // 2
            groups += [alive[:middle], alive[middle:]] if middle else []
        elif not refused:
            taken += alive
        else:
            right = min(refused) // _TOGETHER * _TOGETHER if architecture != target else 0
            taken += alive[:right]
            groups.append([number for place, number in enumerate(alive) if place >= right and place not in refused])
    return {number: statements[number] for number in taken}


def accepted(statements: Sequence[str], target: str, folder: Path) -> list[bool]:
    """Whether ptxas takes each statement (one line each): it parses all, and makes code for those that pass."""
    taken = _taken(dict(enumerate(statements)), target, target.replace("sm", "compute"), folder)
    taken = _taken(taken, target, target, folder)
    return [number in taken for number in range(len(statements))]


def complaints(kernels: Iterable[str], target: str, folder: Path) -> str:
    """What ptxas says of kernels, each a text with the entry `fastmma`: nothing if it assembles them; else they are named by number."""
    paths = []
    for number, text in enumerate(kernels):
        before, after = text.split(".entry fastmma(")
        paths.append(folder / f"{number}.ptx")
        paths[-1].write_text(f"{before}.entry fastmma_{number}({after}")
    binary = folder / "kernels.cubin"
    command = [PTXAS, "-O0", f"-arch={target}", *map(str, paths), "-o", str(binary)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode == 0) == binary.exists()
    return "" if result.returncode == 0 else result.stderr or f"status {result.returncode}"


def registers(prefix: str, first: int, count: int) -> str:
    """A vector expression of consecutive registers."""
    return "{" + ", ".join(f"%{prefix}{first + i}" for i in range(count)) + "}"
