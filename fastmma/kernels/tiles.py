"""The register tiles of all micro-kernels; each takes the first row of its table whose features the CPU has."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol, TypeVar

from fastmma.kernels.llvm import cpu


class FusedTile(NamedTuple):
    """A tile of sums in float64 or float32 lanes."""

    features: frozenset[str]
    vector_bytes: int
    double: tuple[int, int]  # rows, and groups of columns, of two vectors of float64 or one of float32
    single: tuple[int, int]
    depth: int  # of k in a slab
    sparse: bool = False  # whether a row of a whole panel, whose A is sparse, has registers enough


class ThinTile(NamedTuple):
    """A tile of sums of few rows: at most so many rows, and pairs of vectors."""

    features: frozenset[str]
    vector_bytes: int
    rows: int
    sums: int


class GroupsTile(NamedTuple):
    """Tiles (rows, vectors) of exact sums of groups.

    Both have the same vectors, and the rows of an exact one are a multiple of those of an aligned one.
    """

    features: frozenset[str]
    dot: str  # the instruction that multiplies bytes: "vpdpbusd", "sdot", or "pmaddubsw" and "smull", which do a part of it
    lanes: int
    exact: tuple[int, int]
    aligned: tuple[int, int]
    narrow: int  # rows of an aligned one of 8 columns, for single instructions


class ChainTile(NamedTuple):
    """Tiles (rows, vectors) of sums in float64 or float32 lanes."""

    features: frozenset[str]
    vector_bytes: int
    plain: tuple[int, int]
    joined: tuple[int, int]  # where chains of their own join the sums


class WindowsTile(NamedTuple):
    """Sums of 32 columns in float64 lanes, by instructions that name their rounding."""

    features: frozenset[str]


class WordsTile(NamedTuple):
    """Tiles (lanes, rows, vectors) of dot products of words."""

    features: frozenset[str]
    words: str  # one of the kinds of `fastmma.kernels.integer.config.WordsConfig`
    wide: tuple[int, int, int]  # for large matrices
    narrow: tuple[int, int, int]  # for single instructions


class AmxTile(NamedTuple):
    """Blocks of two by two of the CPU's own tiles."""

    features: frozenset[str]


_ANY = frozenset[str]()
_AVX512 = frozenset({"avx512bw", "avx512dq", "avx512vl"})
_NEON = frozenset({"neon"})  # 32 registers of 16 bytes: a vector of 32 bytes is two of them
_DOTPROD = _NEON | {"dotprod"}

FUSED = (
    FusedTile(_AVX512 | {"avx512f", "f16c"}, 64, (4, 2), (4, 4), 512, sparse=True),
    FusedTile(frozenset({"avx2", "fma", "f16c"}), 32, (4, 1), (4, 2), 512),
    FusedTile(_NEON, 32, (3, 2), (4, 2), 256),
)
THIN = (
    ThinTile(_AVX512 | {"avx512f", "f16c"}, 64, 8, 8),
    ThinTile(frozenset({"avx2", "fma", "f16c"}), 32, 2, 4),
    ThinTile(_NEON, 32, 2, 4),
)
WINDOWS: tuple[WindowsTile, ...] = (WindowsTile(frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})),)
CHAINS = (
    ChainTile(_AVX512 | {"avx512f", "f16c"}, 64, (8, 3), (8, 2)),
    ChainTile(frozenset({"avx2", "fma", "f16c"}), 32, (4, 3), (4, 2)),
    ChainTile(_NEON, 16, (8, 3), (8, 2)),
)
GROUPS = (
    GroupsTile(_AVX512 | {"avx512vnni"}, "vpdpbusd", 16, (4, 2), (2, 2), 4),
    GroupsTile(_AVX512, "pmaddubsw", 16, (4, 2), (2, 2), 4),
    GroupsTile(frozenset({"avxvnni", "avx2", "fma"}), "vpdpbusd", 8, (1, 4), (1, 4), 2),
    GroupsTile(frozenset({"avx2", "fma"}), "pmaddubsw", 8, (1, 4), (1, 4), 2),
    GroupsTile(_DOTPROD, "sdot", 8, (2, 2), (1, 2), 2),
    GroupsTile(_NEON, "smull", 8, (2, 2), (1, 2), 2),
)
BYTES = (
    WordsTile(frozenset({"avx512vnni", "avx512vl"}), "bytes", (16, 6, 4), (8, 8, 1)),
    WordsTile(frozenset({"avx512bw"}), "pairs", (16, 6, 4), (8, 8, 1)),
    WordsTile(frozenset({"avxvnni"}), "bytes", (8, 6, 2), (8, 8, 1)),
    WordsTile(frozenset({"avx2"}), "pairs", (8, 2, 6), (8, 8, 1)),
    WordsTile(_DOTPROD, "bytes_alike", (8, 6, 2), (8, 8, 1)),
    WordsTile(_ANY, "pairs", (4, 4, 2), (4, 4, 2)),
)
BITS = (
    WordsTile(frozenset({"avx512vpopcntdq"}), "bits", (16, 2, 8), (8, 8, 1)),
    WordsTile(frozenset({"avx512bw"}), "bits_by_bytes", (16, 2, 4), (8, 8, 1)),
    WordsTile(frozenset({"avx2"}), "bits_by_bytes", (8, 2, 4), (8, 8, 1)),
    WordsTile(_NEON, "bits_by_bytes", (8, 2, 4), (8, 8, 1)),
    WordsTile(_ANY, "bits_by_bytes", (4, 2, 4), (4, 4, 2)),
)
AMX: tuple[AmxTile, ...] = (AmxTile(_AVX512 | {"amx-tile", "amx-int8"}),)
AMX_BF16: tuple[AmxTile, ...] = (AmxTile(_AVX512 | {"amx-tile", "amx-bf16"}),)


class _Row(Protocol):
    @property
    def features(self) -> frozenset[str]: ...


T = TypeVar("T", bound=_Row)


@lru_cache(64)
def fit(table: tuple[T, ...], features: frozenset[str]) -> T | None:
    """The first row that a CPU of these features can run, if there is one."""
    return next((row for row in table if row.features <= features), None)


def first_fit(table: tuple[T, ...]) -> T | None:
    """The first row that this CPU can run and may use, if there is one."""
    return fit(table, cpu.usable())


def tile_of_cpu(table: tuple[T, ...]) -> T:
    """Find the first row that this CPU can run and may use, of a table that has one."""
    found = first_fit(table)
    assert found is not None
    return found
