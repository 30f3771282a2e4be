"""The GPU whose library a call asks for."""

from __future__ import annotations

import re

from fastmma.backends.gpu import device
from fastmma.isa.gpus import TargetName, target_named

_TARGET = re.compile(r"(sm|compute)?_?\d.*")  # a target or a capability, and no GPU
_USUAL = "H200"  # whose plans sm_90a stands for
# what drivers add to the names of the recorded parts, H100 80GB HBM3 and H200, both SXM with 132 multiprocessors
_SAME_PART = re.compile(r"NVIDIA|TESLA|SXM\d?|HBM\d?E?|80GB|141GB")


def library_gpu(where: TargetName) -> str:
    """Name the GPU whose library is asked for: one whose plans are recorded where it is that very part, else what the call says.

    How a library cuts k depends on the number of multiprocessors, so an H100 PCIe, an H100 NVL or a GH200 is no H100 SXM.

    Examples
    --------
    >>> [library_gpu(name) for name in ("sm_90a", "NVIDIA H100 80GB HBM3", "H100 SXM5", "H100 PCIe", "GH200")]
    ['H200', 'H100', 'H100', 'H100 PCIe', 'GH200']
    """
    said = device.name() if where == "native" else where
    if not isinstance(said, str) or _TARGET.fullmatch(said):
        return _USUAL if target_named(said) == "sm_90a" else str(said)
    words = [word for word in re.split(r"[ _-]", said.upper()) if not _SAME_PART.fullmatch(word)]
    return words[0] if len(words) == 1 else said
