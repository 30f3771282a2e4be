"""ptxas as a referee: which statements a target accepts."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

_HEAD = """.version 9.0
.target {target}
.address_size 64
.visible .entry k()
{{
.reg .b32 %r<512>; .reg .f64 %d<512>; .reg .b64 %q<2>; .reg .pred %p<2>;
"""
_ERROR = re.compile(r"line (\d+); (?:error|fatal)")


def accepted(statements: Sequence[str], target: str, folder: Path) -> list[bool]:
    """Whether ptxas takes each statement (one line each); those that it refuses are taken out until it takes the rest."""
    head = _HEAD.format(target=target)
    first = head.count("\n") + 1
    alive = dict(enumerate(statements))
    source, binary = folder / f"{target}.ptx", folder / f"{target}.cubin"
    while alive:
        order = list(alive)
        source.write_text(head + "\n".join(alive.values()) + "\nret;\n}\n")
        command = ["ptxas", "-O0", f"-arch={target}", str(source), "-o", str(binary)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode == 0:
            break
        lines = {int(line) - first for line in _ERROR.findall(result.stderr)}
        refused = {order[line] for line in lines if 0 <= line < len(order)}
        if not refused:
            raise RuntimeError(result.stderr[:2000])
        for index in refused:
            del alive[index]
    return [index in alive for index in range(len(statements))]


def registers(prefix: str, first: int, count: int) -> str:
    """A vector expression of consecutive registers."""
    return "{" + ", ".join(f"%{prefix}{first + i}" for i in range(count)) + "}"
