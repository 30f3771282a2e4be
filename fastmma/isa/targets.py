"""Targets: those that ptxas knows, AMD's, and the sets of them that instructions need."""

from __future__ import annotations

from dataclasses import dataclass

from fastmma.host.errors import TargetError

WARP = 32  # lanes of a warp of NVIDIA's GPUs
NO_PTX = (0, 0)  # the PTX version of what is AMD's
_WAVE64 = 64


@dataclass(frozen=True)
class Architecture:
    """The silicon of some GPUs.

    Attributes
    ----------
    name : str
    capability : (int, int)
        Its compute capability; of AMD's the first two parts of its number, as HIP reports them.
    ptx : (int, int)
        The first PTX version that knows it; (0, 0) for AMD's.
    variants : str
        The suffixes of its other targets.
    gpus : tuple of str
        GPUs with tensor cores, as people call them; https://developer.nvidia.com/cuda-gpus has their compute capabilities.
    vendor : str
    lanes : int
        Threads that execute an instruction together.
    """

    name: str
    capability: tuple[int, int]
    ptx: tuple[int, int]
    variants: str = ""
    gpus: tuple[str, ...] = ()
    vendor: str = "NVIDIA"
    lanes: int = WARP

    @property
    def targets(self) -> tuple[str, ...]:
        """The plain target and its variants."""
        return (self.name, *(self.name + suffix for suffix in self.variants))

    @property
    def usual(self) -> str:
        """The target that libraries compile for: with suffix a, where there is one."""
        return self.name + "a" * ("a" in self.variants)


@dataclass(frozen=True)
class Target:
    """A target of compiled code: an architecture, and the suffix of one of its variants, or none."""

    architecture: Architecture
    variant: str = ""

    @property
    def name(self) -> str:
        """The name that users see and type."""
        return self.architecture.name + self.variant

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability."""
        return self.architecture.capability

    @property
    def vendor(self) -> str:
        """Who makes the GPU."""
        return self.architecture.vendor

    @property
    def lanes(self) -> int:
        """Threads that execute an instruction together."""
        return self.architecture.lanes

    @property
    def ptx(self) -> tuple[int, int]:
        """The first PTX version that knows the target."""
        return max(self.architecture.ptx, _VARIANT_PTX[self.variant])


# the first PTX version that knows each kind of variant
_VARIANT_PTX = {"": (0, 0), "a": (8, 0), "f": (8, 8)}
_AMPERE = ("A2", "A10", "A10G", "A16", "A40", "RTX 3050", "RTX 3060", "RTX 3070", "RTX 3080", "RTX 3090")
_AMPERE_PRO = tuple(f"RTX A{number}" for number in (2000, 3000, 4000, 4500, 5000, 5500, 6000))
_ADA = ("L4", "L20", "L40", "L40S", "RTX 4050", "RTX 4060", "RTX 4070", "RTX 4080", "RTX 4090")
_ADA_PRO = tuple(f"RTX {number} Ada" for number in (2000, 4000, 4500, 5000, 5880, 6000))
_TURING = ("T4", "Titan RTX", "RTX 2060", "RTX 2070", "RTX 2080", *(f"Quadro RTX {number}" for number in (4000, 5000, 6000, 8000)))
_BLACKWELL = ("RTX 5050", "RTX 5060", "RTX 5070", "RTX 5080", "RTX 5090")
_BLACKWELL_PRO = tuple(f"RTX PRO {number} Blackwell" for number in (2000, 4000, 4500, 5000, 6000))
_ORIN = ("Orin", "Jetson Orin", "Jetson AGX Orin", "Jetson Orin NX", "Jetson Orin Nano")

# in ascending order; which rows of the numerics table are about one is told there
NVIDIA = (
    Architecture("sm_70", (7, 0), (6, 0), gpus=("V100", "Titan V", "GV100", "Quadro GV100")),
    Architecture("sm_75", (7, 5), (6, 3), gpus=_TURING),
    Architecture("sm_80", (8, 0), (7, 0), gpus=("A100", "A800", "A30")),
    Architecture("sm_86", (8, 6), (7, 1), gpus=_AMPERE + _AMPERE_PRO),
    Architecture("sm_87", (8, 7), (7, 4), gpus=_ORIN),
    Architecture("sm_88", (8, 8), (9, 0)),
    Architecture("sm_89", (8, 9), (7, 8), gpus=_ADA + _ADA_PRO),
    Architecture("sm_90", (9, 0), (7, 8), "a", ("H100", "H200", "H800", "H20", "GH200")),
    Architecture("sm_100", (10, 0), (8, 6), "af", ("B100", "B200", "GB200")),
    Architecture("sm_103", (10, 3), (8, 8), "af", ("B300", "GB300")),
    Architecture("sm_107", (10, 7), (9, 4), "af"),
    Architecture("sm_110", (11, 0), (9, 0), "af", ("Thor", "Jetson Thor", "Jetson AGX Thor")),
    Architecture("sm_120", (12, 0), (8, 7), "af", _BLACKWELL + _BLACKWELL_PRO),
    Architecture("sm_121", (12, 1), (8, 8), "af", ("GB10", "DGX Spark")),
)


def _amd(name: str, capability: tuple[int, int], *gpus: str, lanes: int = WARP) -> Architecture:
    return Architecture(name, capability, NO_PTX, gpus=gpus, vendor="AMD", lanes=lanes)


AMD = (
    _amd("gfx908", (9, 0), "MI100", lanes=_WAVE64),
    _amd("gfx90a", (9, 0), "MI210", "MI250", "MI250X", lanes=_WAVE64),
    _amd("gfx942", (9, 4), "MI300X", "MI300A", "MI308X", "MI325X", lanes=_WAVE64),
    _amd("gfx950", (9, 5), "MI350X", "MI355X", lanes=_WAVE64),
    _amd("gfx1100", (11, 0), "RX 7900 XTX", "RX 7900 XT", "RX 7900 GRE", "PRO W7900", "PRO W7800"),
    _amd("gfx1101", (11, 0), "RX 7800 XT", "RX 7700 XT", "PRO W7700"),
    _amd("gfx1102", (11, 0), "RX 7600", "RX 7600 XT", "PRO W7600", "PRO W7500"),
    _amd("gfx1103", (11, 0), "780M", "760M", "740M"),
    _amd("gfx1150", (11, 5), "890M", "880M"),
    _amd("gfx1151", (11, 5), "8060S", "8050S"),
    _amd("gfx1152", (11, 5), "860M", "840M"),
    _amd("gfx1153", (11, 5)),
    _amd("gfx1200", (12, 0), "RX 9060 XT", "RX 9060"),
    _amd("gfx1201", (12, 0), "RX 9070 XT", "RX 9070", "RX 9070 GRE", "AI PRO R9700"),
)
ARCHITECTURES = (*NVIDIA, *AMD)
_TARGETS = {name: Target(row, name.removeprefix(row.name)) for row in ARCHITECTURES for name in row.targets}
TARGETS: tuple[str, ...] = tuple(_TARGETS)
PTX_TARGETS = tuple(name for row in NVIDIA for name in row.targets)


def target_of(name: str) -> Target:
    """The record of a target.

    Raises
    ------
    TargetError

    Examples
    --------
    >>> target_of("sm_90a").capability, target_of("sm_90a").lanes
    ((9, 0), 32)
    """
    if not isinstance(name, str) or name not in _TARGETS:
        raise TargetError(f"unknown target {name!r}; there are {', '.join(TARGETS)}")
    return _TARGETS[name]


def from_base(first: str) -> tuple[str, ...]:
    """All targets of PTX from a base architecture up, with every variant."""
    return PTX_TARGETS[PTX_TARGETS.index(first) :]


def specific(*bases: str) -> tuple[str, ...]:
    """The architecture- and family-specific variants (suffix a or f) of some base architectures."""
    return tuple(name for name, target in _TARGETS.items() if target.variant and target.architecture.name in bases)


BLACKWELL = specific("sm_100", "sm_103", "sm_107", "sm_110", "sm_120", "sm_121")
CONSUMER_BLACKWELL = specific("sm_120", "sm_121")


def architecture(target: str) -> str:
    """The base architecture of a target: the silicon, whatever the suffix.

    Raises
    ------
    TargetError

    Examples
    --------
    >>> architecture("sm_90a")
    'sm_90'
    """
    return target_of(target).architecture.name


def target_ptx(target: str) -> tuple[int, int]:
    """The first PTX version that knows a target.

    Examples
    --------
    >>> target_ptx("sm_100f")
    (8, 8)
    """
    return _TARGETS[target].ptx
