"""Names of GPUs with tensor cores, and the targets that libraries compile for them."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache
from operator import index
from typing import Any

from fastmma.host.errors import TargetError
from fastmma.isa.targets import TARGETS

TargetName = str | tuple[int, int]

# https://developer.nvidia.com/cuda-gpus, by compute capability
_GPUS = {
    "sm_70": ("V100", "Titan V", "GV100", "Quadro GV100"),
    "sm_75": (*("T4", "Titan RTX", "RTX 2060", "RTX 2070", "RTX 2080"), *(f"Quadro RTX {number}" for number in (4000, 5000, 6000, 8000))),
    "sm_80": ("A100", "A800", "A30"),
    "sm_86": (
        *("A2", "A10", "A10G", "A16", "A40", "RTX 3050", "RTX 3060", "RTX 3070", "RTX 3080", "RTX 3090"),
        *("RTX A2000", "RTX A3000", "RTX A4000", "RTX A4500", "RTX A5000", "RTX A5500", "RTX A6000"),
    ),
    "sm_87": ("Orin", "Jetson Orin", "Jetson AGX Orin", "Jetson Orin NX", "Jetson Orin Nano"),
    "sm_89": (
        *("L4", "L20", "L40", "L40S", "RTX 4050", "RTX 4060", "RTX 4070", "RTX 4080", "RTX 4090"),
        *("RTX 2000 Ada", "RTX 4000 Ada", "RTX 4500 Ada", "RTX 5000 Ada", "RTX 5880 Ada", "RTX 6000 Ada"),
    ),
    "sm_90a": ("H100", "H200", "H800", "H20", "GH200"),
    "sm_100a": ("B100", "B200", "GB200"),
    "sm_103a": ("B300", "GB300"),
    "sm_110a": ("Thor", "Jetson Thor", "Jetson AGX Thor"),
    "sm_120a": (
        *("RTX 5050", "RTX 5060", "RTX 5070", "RTX 5080", "RTX 5090"),
        *(f"RTX PRO {number} Blackwell" for number in (2000, 4000, 4500, 5000, 6000)),
    ),
    "sm_121a": ("GB10", "DGX Spark"),
}
# what drivers write before and after a name, and what tells no architecture
_BRAND = re.compile(r"^(nvidia|geforce|tesla)$")
_REST = re.compile(r"^(pcie|sxm\d?|nvl\d*|hbm\d?e?|\d+gb|laptop|gpu|max|q|super|ti|d|generation|server|workstation|edition|developer|kit)$")


def _words(name: str) -> tuple[str, ...]:
    """Return what counts of a name."""
    return tuple(word for word in re.split(r"[ _-]", name.lower()) if not _BRAND.match(word))


_BY_WORDS = {_words(name): target for target, names in _GPUS.items() for name in names}


def target_named(name: TargetName) -> str:
    """The target that a name means.

    Parameters
    ----------
    name : str or tuple of int
        A target, also without its underscore (``"sm90a"``, ``"compute_90a"``); the name of a GPU, as people say it or as drivers write
        it (``"H100"``, ``"NVIDIA A100-SXM4-40GB"``); or a compute capability (``(9, 0)``, ``"9.0"``). A GPU or a capability means the
        target that libraries compile for it: with suffix a, where there is one.

    Raises
    ------
    TargetError
        If no target is meant.

    Examples
    --------
    >>> [target_named(name) for name in ("sm_90", "sm90", "H100", (9, 0), "NVIDIA GeForce RTX 4090")]
    ['sm_90', 'sm_90', 'sm_90a', 'sm_90a', 'sm_89']
    """
    if isinstance(name, str):
        if name in TARGETS:
            return name
        found = _meant(name)
    else:
        found = _capable(name)
    if found is None:
        raise TargetError(f"unknown target {name!r}; there are {', '.join(TARGETS)}{_suggestion(name)}")
    return found


def keyword_hint(value: Any) -> str:
    """Say that a target is given by keyword, if that is what a value in an operand's place means; else say nothing.

    Examples
    --------
    >>> keyword_hint("H100"), keyword_hint("a matrix")
    ("; target is a keyword: target='H100'", '')
    """
    if not isinstance(value, str | tuple):
        return ""
    try:
        if value != "native":
            target_named(value)
    except TargetError:
        return ""
    return f"; target is a keyword: target={value!r}"


@lru_cache(1024)
def _meant(name: str) -> str | None:
    spelled = re.fullmatch(r"(?:sm|compute)_?(\d{2,3}[af]?)", name, re.ASCII)
    if spelled:
        return _known(f"sm_{spelled[1]}")
    if re.fullmatch(r"\d{1,2}\.\d", name, re.ASCII):
        return _capable(tuple(map(int, name.split("."))))
    words = _words(name)
    for count in range(len(words), 0, -1):
        if all(map(_REST.match, words[count:])) and words[:count] in _BY_WORDS:
            return _BY_WORDS[words[:count]]
    return None


def _capable(capability: Any) -> str | None:
    """The target of a compute capability, with suffix a where there is one."""
    try:
        major, minor = map(index, capability)
    except (TypeError, ValueError):
        return None
    return _known(f"sm_{major}{minor}a") or _known(f"sm_{major}{minor}")


def _known(target: str) -> str | None:
    return target if target in TARGETS else None


def _suggestion(name: Any) -> str:
    """The GPU that might have been meant."""
    if not isinstance(name, str) or len(name) > 100:
        return ""
    names = {" ".join(_words(each)): each for each in (*TARGETS, *(gpu for gpus in _GPUS.values() for gpu in gpus))}
    close = get_close_matches(" ".join(_words(name)), names, 1)
    return f"; did you mean {names[close[0]]}?" if close else "; and GPUs by name, such as H100"
