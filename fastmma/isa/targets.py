"""Targets that ptxas knows, and the sets of them that instructions need."""

from __future__ import annotations

from dataclasses import dataclass

from fastmma.host.errors import TargetError


@dataclass(frozen=True)
class Architecture:
    """A base architecture: the first PTX version that knows it, and the suffixes of its other variants."""

    name: str
    ptx: tuple[int, int]
    variants: str = ""

    @property
    def targets(self) -> tuple[str, ...]:
        """The plain target and its variants."""
        return (self.name, *(self.name + suffix for suffix in self.variants))


# in ascending order; which rows of the numerics table are about one is told there
ARCHITECTURES = (
    Architecture("sm_70", (6, 0)),
    Architecture("sm_75", (6, 3)),
    Architecture("sm_80", (7, 0)),
    Architecture("sm_86", (7, 1)),
    Architecture("sm_87", (7, 4)),
    Architecture("sm_88", (9, 0)),
    Architecture("sm_89", (7, 8)),
    Architecture("sm_90", (7, 8), "a"),
    Architecture("sm_100", (8, 6), "af"),
    Architecture("sm_103", (8, 8), "af"),
    Architecture("sm_107", (9, 4), "af"),
    Architecture("sm_110", (9, 0), "af"),
    Architecture("sm_120", (8, 7), "af"),
    Architecture("sm_121", (8, 8), "af"),
)
# the first PTX version that knows each kind of variant
_VARIANT_PTX = {"a": (8, 0), "f": (8, 8)}

TARGETS: tuple[str, ...] = tuple(target for row in ARCHITECTURES for target in row.targets)
_PTX = {target: max(row.ptx, _VARIANT_PTX.get(target[-1], row.ptx)) for row in ARCHITECTURES for target in row.targets}


def from_base(first: str) -> tuple[str, ...]:
    """All targets from a base architecture up, with every variant."""
    return TARGETS[TARGETS.index(first) :]


def specific(*bases: str) -> tuple[str, ...]:
    """The architecture- and family-specific variants (suffix a or f) of some base architectures."""
    return tuple(target for target in TARGETS if target[-1] in "af" and target.rstrip("af") in bases)


BLACKWELL = specific("sm_100", "sm_103", "sm_107", "sm_110", "sm_120", "sm_121")
CONSUMER_BLACKWELL = specific("sm_120", "sm_121")


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


def target_ptx(target: str) -> tuple[int, int]:
    """The first PTX version that knows a target.

    Examples
    --------
    >>> target_ptx("sm_100f")
    (8, 8)
    """
    return _PTX[target]
