"""Targets that ptxas knows, and the sets of them that instructions need."""

from __future__ import annotations

from fastmma.host.errors import TargetError

# base architectures in ascending order, each with the suffixes of its variants
_VARIANTS = {
    "sm_70": ("",),
    "sm_75": ("",),
    "sm_80": ("",),
    "sm_86": ("",),
    "sm_87": ("",),
    "sm_88": ("",),
    "sm_89": ("",),
    "sm_90": ("", "a"),
    "sm_100": ("", "a", "f"),
    "sm_103": ("", "a", "f"),
    "sm_110": ("", "a", "f"),
    "sm_120": ("", "a", "f"),
    "sm_121": ("", "a", "f"),
}

TARGETS: tuple[str, ...] = tuple(base + suffix for base, suffixes in _VARIANTS.items() for suffix in suffixes)


def from_base(first: str) -> tuple[str, ...]:
    """All targets from a base architecture up, with every variant."""
    return TARGETS[TARGETS.index(first) :]


def specific(*bases: str) -> tuple[str, ...]:
    """The architecture- and family-specific variants (suffix a or f) of some base architectures."""
    return tuple(target for target in TARGETS if target[-1] in "af" and target.rstrip("af") in bases)


def architecture(target: str) -> str:
    """The base architecture of a target: the silicon, whatever the suffix.

    Raises
    ------
    TargetError
        If ptxas knows no such target.

    Examples
    --------
    >>> architecture("sm_90a")
    'sm_90'
    """
    if not isinstance(target, str) or target not in TARGETS:
        raise TargetError(f"unknown target {target!r}; there are {', '.join(TARGETS)}")
    return target.rstrip("af")
