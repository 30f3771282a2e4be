"""The machine code that ptxas made of a kernel's PTX, as far as it says how many products it fused with sums."""

from __future__ import annotations

import re
import subprocess
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from triton import knobs

_FUSED = re.compile(r"\bFFMA\b")


@lru_cache(maxsize=256)
def count_fused(cubin: bytes) -> int | None:
    """Count the fused multiply-adds of f32 in machine code; None where Triton has no disassembler.

    Parameters
    ----------
    cubin : bytes

    Examples
    --------
    >>> count_fused(b"nothing that has code") is None
    True
    """
    with TemporaryDirectory() as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(cubin)
        try:
            found = subprocess.run([knobs.nvidia.nvdisasm.path, str(file)], capture_output=True, text=True, check=True, timeout=60)
        except (OSError, RuntimeError, subprocess.SubprocessError):
            return None
    return len(_FUSED.findall(found.stdout))
