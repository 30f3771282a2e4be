"""Names of targets: GPUs, compute capabilities and other spellings."""

from __future__ import annotations

import re
from functools import lru_cache
from operator import index
from typing import Any

from fastmma.host.errors import TargetError
from fastmma.isa.targets import ARCHITECTURES, NVIDIA, TARGETS

TargetName = str | tuple[int, int]

# what drivers write before and after a name, and what tells no architecture
_BRAND = re.compile(r"^(nvidia|geforce|tesla|amd|instinct|radeon)$")
_REST = re.compile(
    r"^(pcie|sxm\d?|nvl\d*|hbm\d?e?|\d+gb|laptop|gpu|max|q|super|ti|d|generation|server|workstation|edition|developer|kit|oam|graphics)$"
)


def _words(name: str) -> tuple[str, ...]:
    """Return what counts of a name."""
    return tuple(word for word in re.split(r"[ _-]", name.lower()) if not _BRAND.match(word))


_BY_WORDS = {_words(name): row.usual for row in ARCHITECTURES for name in row.gpus}
_BY_CAPABILITY = {row.capability: row.usual for row in NVIDIA}
_CAPABILITY = r"\d{1,2}\.\d"


def target_named(name: TargetName) -> str:
    """The target that a name means.

    Parameters
    ----------
    name : str or tuple of int
        A target, also without its underscore (``"sm90a"``, ``"compute_90a"``); the name of a GPU, as people say it or as drivers write
        it (``"H100"``, ``"NVIDIA A100-SXM4-40GB"``, ``"MI300X"``); or NVIDIA's compute capability (``(9, 0)``, ``"9.0"``). A GPU or a
        capability means the target that libraries compile for it: with suffix a, where there is one.

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
        raise TargetError(f"unknown target {name!r}; {_suggestion(name)}'fastmma gpus' and the page GPUs list all names")
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
        found = f"sm_{spelled[1]}"
        return found if found in TARGETS else None
    if re.fullmatch(_CAPABILITY, name, re.ASCII):
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
    return _BY_CAPABILITY.get((major, minor))


def _suggestion(name: Any) -> str:
    """Name the three that are most like it."""
    if not isinstance(name, str):
        return "a target is a name, such as 'H100' or 'sm_90a', or a compute capability, such as (9, 0); "
    if len(name) > 100:
        return ""
    if re.fullmatch(_CAPABILITY, name, re.ASCII):
        nearest = sorted(_BY_CAPABILITY, key=lambda each: abs(each[0] + each[1] / 10 - float(name)))[:3]
        return f"the nearest are {', '.join(f'{major}.{minor}' for major, minor in nearest)}; "
    from difflib import get_close_matches

    names = {" ".join(_words(each)): each for each in (*(gpu for row in ARCHITECTURES for gpu in row.gpus), *TARGETS)}
    close = get_close_matches(" ".join(_words(name)), names, 3, cutoff=0.5)
    return f"the nearest {'is' if len(close) == 1 else 'are'} {', '.join(names[each] for each in close)}; " if close else ""
