"""Block-scaled formats, one row each: what an element is, what a scale is, and which elements share one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fastmma.host.errors import OperandError
from fastmma.isa.formats import FORMATS, Format
from fastmma.scaling.names import lookup

_MX = ("floor", "ceil", "rceil", "even")
_FLOAT = ("amax", "deepgemm", "te")
_NVFP4 = ("amax", "torchao", "te")
_POWERS = ("rceil", "floor", "ceil", "even")
_TENSOR, _ROW = (None, None, None), (None, 1, 1)


@dataclass(frozen=True)
class Scheme:
    """One block-scaled format.

    Attributes
    ----------
    name : str
        For example ``"mxfp8_e4m3"``.
    element, scale : str
        Formats (`fastmma.FORMATS`) of elements and of scales.
    extents : (int or None, int or None, int or None)
        Block extents: along the axis that is contracted, across it (in the last of the other dimensions), and in every further dimension;
        None is the whole extent.
    rules : tuple of str
        Rules that a scale may follow (`fastmma.scaling.RULES`), the default first.
    two_level : bool
        Whether a float32 scale of the whole tensor multiplies the blocks' scales.
    source : str
        Where the format is defined.
    aliases : tuple of str
        Names that it has elsewhere.
    """

    name: str
    element: str
    scale: str
    extents: tuple[int | None, int | None, int | None]
    rules: tuple[str, ...]
    two_level: bool = False
    source: str = ""
    aliases: tuple[str, ...] = ()

    @cached_property
    def element_format(self) -> Format:
        """The row of the elements' format."""
        return FORMATS[self.element]

    @cached_property
    def scale_format(self) -> Format:
        """The row of the scales' format."""
        return FORMATS[self.scale]

    @property
    def rule(self) -> str:
        """The default rule."""
        return self.rules[0]

    @property
    def dimensions(self) -> int:
        """How many dimensions an array must have: 2 for blocks that have extents in two dimensions."""
        return 2 if self.extents[1] not in (1, None) else 1

    def block(self, shape: tuple[int, ...], axis: int, other: int | None = None) -> tuple[int, ...]:
        """The extents of a block in each dimension of an array; `other` is the dimension across, the last other one by default.

        Examples
        --------
        >>> SCHEMES["nvfp4"].block((8, 64), axis=1), SCHEMES["fp8_row"].block((8, 64), axis=1)
        ((1, 16), (1, 64))
        """
        along, across, rest = self.extents
        other = last_other(len(shape), axis) if other is None else other
        chosen = (along if d == axis else across if d == other else rest for d in range(len(shape)))
        return tuple(max(1, extent) if size is None else size for size, extent in zip(chosen, shape, strict=True))

    def blocks(self, shape: tuple[int, ...], axis: int) -> list[tuple[int, ...]]:
        """Every form that a block may have: transposing an array of three dimensions moves the dimension across."""
        others = [d for d in range(len(shape)) if d != axis] or [-1]
        return [self.block(shape, axis, other) for other in others]

    def spans(self, dimension: int, axis: int) -> bool:
        """Tell whether one block spans a dimension, whatever its extent."""
        return (self.extents[0] if dimension == axis else self.extents[2]) is None


def last_other(ndim: int, axis: int) -> int:
    """The last dimension that is not `axis`; -1 if there is none."""
    return ndim - 2 if axis == ndim - 1 else ndim - 1


_OCP = "OCP Microscaling Formats (MX) 1.0"
_NVIDIA = "NVIDIA, Pretraining LLMs with NVFP4"
_DEEPSEEK = "DeepSeek-V3 Technical Report, 3.3.2"
_UE8M0 = "DeepGEMM for sm_100; the scale format ue8m0 of DeepSeek-V3.1"
_HIP = "hipBLASLt, A and B scale pointers in f32"
_ROWS = (
    Scheme("mxfp8_e4m3", "e4m3", "ue8m0", (32, 1, 1), _MX, source=_OCP, aliases=("mxfp8",)),
    Scheme("mxfp8_e5m2", "e5m2", "ue8m0", (32, 1, 1), _MX, source=_OCP),
    Scheme("mxfp6_e3m2", "e3m2", "ue8m0", (32, 1, 1), _MX, source=_OCP, aliases=("mxfp6",)),
    Scheme("mxfp6_e2m3", "e2m3", "ue8m0", (32, 1, 1), _MX, source=_OCP),
    Scheme("mxfp4", "e2m1", "ue8m0", (32, 1, 1), _MX, source=_OCP, aliases=("mxfp4_e2m1",)),
    Scheme("nvfp4", "e2m1", "ue4m3", (16, 1, 1), _NVFP4, two_level=True, source=f"{_NVIDIA}, appendix C", aliases=("nvfp4_1x16",)),
    Scheme("nvfp4_16x16", "e2m1", "ue4m3", (16, 16, 1), _NVFP4, two_level=True, source=f"{_NVIDIA}, 4.3", aliases=("nvfp4_2d",)),
    Scheme(
        "fp8_tensor",
        "e4m3",
        "f32",
        _TENSOR,
        _FLOAT,
        source="cuBLASLt SCALAR_32F",
        aliases=("fp8_per_tensor", "fp8_tensorwise", "fp8_tensor_e4m3"),
    ),
    Scheme("fp8_tensor_e5m2", "e5m2", "f32", _TENSOR, _FLOAT, source="cuBLASLt SCALAR_32F", aliases=("fp8_per_tensor_e5m2",)),
    Scheme("fp8_row", "e4m3", "f32", _ROW, _FLOAT, source="cuBLASLt OUTER_VEC_32F", aliases=("fp8_per_row", "fp8_rowwise", "fp8_row_e4m3")),
    Scheme("fp8_row_e5m2", "e5m2", "f32", _ROW, _FLOAT, source="cuBLASLt OUTER_VEC_32F", aliases=("fp8_per_row_e5m2",)),
    Scheme("fp8_tensor_e4m3fnuz", "e4m3fnuz", "f32", _TENSOR, _FLOAT, source=_HIP),
    Scheme("fp8_tensor_e5m2fnuz", "e5m2fnuz", "f32", _TENSOR, _FLOAT, source=_HIP),
    Scheme("fp8_row_e4m3fnuz", "e4m3fnuz", "f32", _ROW, _FLOAT, source=_HIP),
    Scheme("fp8_row_e5m2fnuz", "e5m2fnuz", "f32", _ROW, _FLOAT, source=_HIP),
    Scheme("fp8_1x128", "e4m3", "f32", (128, 1, 1), _FLOAT, source=_DEEPSEEK, aliases=("fp8_1x128_e4m3", "fp8_blockwise_1x128")),
    Scheme("fp8_1x128_e5m2", "e5m2", "f32", (128, 1, 1), _FLOAT, source=_DEEPSEEK),
    Scheme("fp8_128x128", "e4m3", "f32", (128, 128, 1), _FLOAT, source=_DEEPSEEK, aliases=("fp8_128x128_e4m3", "fp8_blockwise_128x128")),
    Scheme("fp8_128x128_e5m2", "e5m2", "f32", (128, 128, 1), _FLOAT, source=_DEEPSEEK),
    Scheme("fp8_1x128_ue8m0", "e4m3", "ue8m0", (128, 1, 1), _POWERS, source=_UE8M0),
    Scheme("fp8_128x128_ue8m0", "e4m3", "ue8m0", (128, 128, 1), _POWERS, source=_UE8M0),
    Scheme("int8_row", "s8", "f32", _ROW, ("amax",), source="symmetric, [-127, 127]", aliases=("int8", "int8_per_row", "int8_rowwise")),
)

SCHEMES: dict[str, Scheme] = {row.name: row for row in _ROWS}


def scheme_of(name: object) -> Scheme:
    """The row of a name or an alias, or the row itself.

    Raises
    ------
    OperandError
        If there is no such scheme.

    Examples
    --------
    >>> scheme_of("mxfp8").name, scheme_of("INT8").name
    ('mxfp8_e4m3', 'int8_row')
    """
    row = lookup(name.name if isinstance(name, Scheme) else name, _ROWS)
    if row is None or (isinstance(name, Scheme) and name != row):
        raise OperandError(f"scheme must be one of {', '.join(SCHEMES)}, not {name!r}")
    return row
