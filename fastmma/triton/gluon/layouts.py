"""Layouts as index arrays: where each element of a tensor lies in memory, and which register, lane and warp hold it.

Triton's own linear layouts say so: each bit of a place in memory, or of the number of a register, is one of a coordinate.
"""

from __future__ import annotations

import math
import re
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from triton._C.libtriton import gluon_ir, ir
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.experimental.gluon.language import _layouts as gluon
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, TensorMemoryScalesLayout

from fastmma.host.errors import NotEmulatedError

LANES = 128  # of tensor memory
ROW = 512 * 4  # bytes of a lane


@cache
def _builder() -> tuple[Any, Any]:
    """Make a builder, and keep the context that it lives in."""
    context = ir.context()
    ir.load_dialects(context)
    CUDABackend(GPUTarget("cuda", 100, 32)).load_dialects(context)
    return gluon_ir.GluonOpBuilder(context), context


def _fields(text: str) -> dict[str, Any]:
    """Read what stands in a layout: numbers, truth values and lists of numbers, by name."""
    found: dict[str, Any] = {}
    for name, value in re.findall(r"(\w+) = (\[\[.*?\]\]|\[[^\]]*\]|true|false|\d+)", text):
        found[name] = {"true": True, "false": False}.get(value)
        if found[name] is None:
            found[name] = int(value) if value.isdigit() else _lists(value)
    return found


def _lists(text: str) -> list[Any]:
    if text.startswith("[["):
        return [[int(one) for one in part.split(",")] for part in re.findall(r"\[([\d, ]+)\]", text)]
    return [int(one) for one in text.strip("[]").split(",") if one.strip()]


@lru_cache(maxsize=1 << 10)
def parse_layout(text: str) -> Any:
    """Return the layout that the intermediate code names, as Gluon's own class.

    Raises
    ------
    NotEmulatedError
        If there is no such layout on an NVIDIA GPU.

    Examples
    --------
    >>> parse_layout("#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>").max_phase
    8
    """
    kind = re.match(r"#tt\w+\.(\w+)", text)
    name = kind[1] if kind else text
    inner = re.search(r"parent = (.*)\}>$", text)
    fields = _fields(text if inner is None else text[: inner.start()])
    cluster = fields.get("CGALayout", [])
    if name == "slice" and inner is not None:
        return gluon.SliceLayout(fields["dim"], parse_layout(inner[1]))
    if name == "dot_op" and inner is not None:
        width = re.search(r", kWidth = (\d+)$", inner[1])
        parent = inner[1][: width.start()] if width else inner[1]
        return gluon.DotOperandLayout(fields["opIdx"], parse_layout(parent), int(width[1]) if width else 0)
    if name == "blocked":
        return gluon.BlockedLayout(fields["sizePerThread"], fields["threadsPerWarp"], fields["warpsPerCTA"], fields["order"], cluster)
    if name == "linear":
        bases = [fields.get(one, []) for one in ("register", "lane", "warp", "block")]
        rank = next(len(basis[0]) for basis in bases if basis)
        shape = [max([1, *(2 * vector[index] for basis in bases for vector in basis)]) for index in range(rank)]
        return gluon.DistributedLinearLayout(*bases, shape)
    if name == "nvidia_mma":
        return gluon.NVMMADistributedLayout(
            [fields["versionMajor"], fields["versionMinor"]], fields["warpsPerCTA"], fields["instrShape"], cluster
        )
    if name == "nvmma_shared":
        rank = fields.get("rank", 2)
        return gluon.NVMMASharedLayout(
            fields["swizzlingByteWidth"], fields["elementBitWidth"], rank, fields["transposed"], fields.get("fp4Padded", False), cluster
        )
    if name == "swizzled_shared":
        return gluon.SwizzledSharedLayout(fields["vec"], fields["perPhase"], fields["maxPhase"], fields["order"], cluster)
    if name == "shared_linear":
        return gluon.SharedLinearLayout(fields["offset"], fields.get("block", []), fields.get("alignment", 16))
    if name == "padded_shared":
        pairs = [[int(interval), int(padding)] for interval, padding in re.findall(r"(\d+):\+(\d+)", text)]
        if "offset" in fields:
            bases, rank = fields["offset"], len(fields["offset"][0])
            shape = [max(2 * vector[index] for vector in bases) or 1 for index in range(rank)]
            return gluon.PaddedSharedLayout(pairs, bases, fields.get("block", []), shape)
        return gluon.PaddedSharedLayout.with_identity_for(pairs, fields["shape"], fields["order"])
    if name == "tensor_memory_encoding":
        return TensorMemoryLayout(
            (fields["blockM"], fields["blockN"]), fields["colStride"], cluster, fields.get("twoCTAs", False), fields.get("fp4Padded", False)
        )
    if name == "tensor_memory_scales_encoding":
        return TensorMemoryScalesLayout(cluster)
    raise NotEmulatedError(f"the layout {text}")


@lru_cache(maxsize=1 << 10)
def find_bases(text: str, shape: tuple[int, ...]) -> Any:
    """Return the linear layout of a layout for a shape, as Triton has it."""
    builder, _ = _builder()
    return builder.to_linear_layout(parse_layout(text)._to_ir(builder), list(shape))


def _combine(bases: list[list[int]], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the flat number of the element at each place, whose bits are vectors of coordinates that are added without carry."""
    places = np.arange(1 << len(bases))
    coordinates = np.zeros((len(shape), len(places)), np.int64)
    for bit, vector in enumerate(bases):
        chosen = (places >> bit & 1).astype(bool)
        for dimension, value in enumerate(vector):
            coordinates[dimension] ^= np.where(chosen, value, 0)
    return np.asarray(np.ravel_multi_index(tuple(coordinates), shape))


def _invert(elements: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the first place of each element."""
    found = np.full(size, -1, np.int64)
    found[elements[::-1]] = np.arange(len(elements))[::-1]
    return found


def find_share(text: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the part of a tensor that each CTA of a cluster has.

    Examples
    --------
    >>> find_share("#ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0], CGALayout = [[1], [0]]}>", (1024,))
    (512,)
    """
    layout = parse_layout(text)
    vectors = layout.block_bases if hasattr(layout, "block_bases") else layout.cga_layout
    rank = len(vectors[0]) if vectors else 0
    splits = [sum(1 for vector in vectors if vector[index]) for index in range(rank)]
    lead = len(shape) - rank
    return (*shape[:lead], *(size >> split for size, split in zip(shape[lead:], splits, strict=True)))


def find_holders(text: str) -> tuple[int, ...]:
    """Return, for each CTA of a cluster, the first one whose part of a tensor is the same.

    Examples
    --------
    >>> find_holders("#ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0], CGALayout = [[1], [0]]}>")
    (0, 1, 0, 1)
    """
    layout = parse_layout(text)
    vectors = layout.block_bases if hasattr(layout, "block_bases") else layout.cga_layout
    split = sum(1 << bit for bit, vector in enumerate(vectors) if any(vector))
    return tuple(cta & split for cta in range(1 << len(vectors)))


def find_blocks(text: str, shape: tuple[int, ...]) -> list[list[int]]:
    """Return the vector of coordinates for each bit of the number of a CTA of a cluster, lowest first; zeros where CTAs hold the same."""
    layout = parse_layout(text)
    if hasattr(layout, "block_bases"):
        return [list(vector) for vector in layout.block_bases]
    share = find_share(text, shape)
    return [[value * size for value, size in zip(vector, share, strict=True)] for vector in layout.cga_layout]


@lru_cache(maxsize=256)
def find_places(text: str, shape: tuple[int, ...], width: int, span: int = 0) -> tuple[NDArray[np.int64], int]:
    """Return the byte of shared memory at which each element of a tile begins, and how many bytes a CTA has of it.

    Parameters
    ----------
    text : str
        The layout.
    shape : tuple of int
        The tile; dimensions before those of the layout count tiles, one behind the other.
    width : int
        Bytes of an element.
    span : int
        How many bytes lie between those of one CTA of a cluster and those of the next; 0 for no more than it takes.

    Examples
    --------
    >>> places, size = find_places("#ttg.padded_shared<[4:+2] {order = [1, 0], shape = [2, 4]}>", (2, 4), 2)
    >>> places.tolist(), size
    ([[0, 2, 4, 6], [12, 14, 16, 18]], 20)
    """
    layout = parse_layout(text)
    padded = isinstance(layout, gluon.PaddedSharedLayout)
    rank = len(layout.shape) if padded else _rank(layout)
    lead, tile = shape[: len(shape) - rank], shape[len(shape) - rank :]
    if math.prod(find_share(text, tile)) == 1:  # an mbarrier, of which Triton has no bits
        bases: list[Any] = []
    else:
        bases = layout.offset_bases if padded else find_bases(text, tile).offset_bases
    elements = _combine([*bases, *find_blocks(text, tile)], tile)
    blocks, offsets = np.divmod(_invert(elements, int(np.prod(tile))).reshape(tile), 1 << len(bases))
    if padded:
        offsets = offsets + sum((offsets // interval) * padding for interval, padding in layout.interval_padding_pairs)
    size = (int(offsets.max()) + 1) * width
    stride = -(-size // 16) * 16 if padded else max(size, (1 << len(bases)) * width)
    count = int(np.prod(lead, dtype=int))
    taken = stride * (count - 1) + size
    places = (np.arange(count) * stride).reshape(*lead, *(1,) * rank) + offsets * width
    return places + blocks * (span or taken), taken


def _rank(layout: Any) -> int:
    if isinstance(layout, gluon.NVMMASharedLayout):
        return int(layout.rank)
    return len(layout.order) if isinstance(layout, gluon.SwizzledSharedLayout) else len(layout.shape)


@lru_cache(maxsize=256)
def find_cells(text: str, shape: tuple[int, ...], width: int) -> tuple[NDArray[np.int64], int]:
    """Return the byte of tensor memory at which each element begins, counted by CTA and by lane, and how many columns it all takes.

    Elements narrower than a column are packed, or lie at the column's lower end, as the layout has it.
    """
    layout = parse_layout(text)
    lead, tile = shape[:-2], shape[-2:]
    linear = find_bases(text, tile)
    stride = layout.col_stride if isinstance(layout, TensorMemoryLayout) else 1
    rows, columns = linear.rows, linear.cols
    elements = _combine([*columns, *rows, *find_blocks(text, tile)], tile)
    numbers = _invert(elements, int(np.prod(tile))).reshape(tile)
    lanes, places = np.divmod(numbers, 1 << len(columns))
    blocks, lanes = np.divmod(lanes, 1 << len(rows))
    taken = -(-(1 << len(columns)) * width * stride // 4)
    count = int(np.prod(lead, dtype=int))
    starts = (np.arange(count) * taken * 4).reshape(*lead, 1, 1)
    return starts + blocks * LANES * ROW + lanes * ROW + places * width * stride, taken * count


def find_ctas(text: str, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], int]:
    """Return the first CTA of a cluster that has each element of a tensor in registers, and the bits of the numbers of those that share it.

    Examples
    --------
    >>> layout = "#ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [1], order = [0], CGALayout = [[1], [0]]}>"
    >>> ctas, shared = find_ctas(layout, (64,))
    >>> ctas[30:34].tolist(), shared
    ([0, 0, 1, 1], 2)
    """
    ctas, shared = np.zeros(shape, np.int64), 0
    for bit, vector in enumerate(find_owners(text, shape)["block"]):
        axis = next((index for index, value in enumerate(vector) if value), -1)
        if axis < 0:
            shared |= 1 << bit
        else:
            places = np.arange(shape[axis]).reshape([-1 if index == axis else 1 for index in range(len(shape))])
            ctas += np.where(places & vector[axis], 1 << bit, 0)
    return ctas, shared


def find_owners(text: str, shape: tuple[int, ...]) -> dict[str, list[tuple[int, ...]]]:
    """Return the vector of coordinates for each bit of the number of a register, a lane, a warp and a CTA, lowest first."""
    linear = find_bases(text, shape)
    names = {"register": "reg_bases", "lane": "lane_bases", "warp": "warp_bases", "block": "block_bases"}
    return {name: [tuple(vector) for vector in getattr(linear, attribute)] for name, attribute in names.items()}
