"""The machine code that ptxas made of a kernel's PTX, as far as it says how many products it fused with sums."""

from __future__ import annotations

import re
import subprocess
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from triton import knobs

from fastmma.triton.machine.code import Step
from fastmma.triton.ptx import Instruction

Taken = list[tuple[Instruction, int | None]]  # sums, and which operand of each is a product that is fused
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


def confirm(taken: Taken, steps: dict[int, Step], cubin: bytes) -> Taken:
    """Compare the sums that ptxas would fuse with products with how many fused multiply-adds its machine code has.

    Where it has fewer, none of them is known to be fused; where it has those of the PTX alone, none of them is.
    """
    of_f32 = [one for one, index in taken if index is not None and one.opcode.endswith(".f32")]
    held = count_fused(cubin) if of_f32 and cubin else None
    written = sum(step.opcode.startswith("fma") and step.opcode.endswith(".f32") for step in steps.values())
    if held is None or held >= written + len(of_f32):
        return taken
    return [(one, index if one not in of_f32 else None) for one, index in taken if held > written or one not in of_f32]
