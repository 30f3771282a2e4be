"""What cuBLASLt says that it would run: the configuration of an algorithm."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fastmma.host.calls import named_fields
from fastmma.host.integers import integer

_UNSAID = 0xFFFFFFFF  # cuBLASLt's value of an attribute that an algorithm does not have


@named_fields
@dataclass(frozen=True)
class Choice:
    """The configuration that cuBLASLt chooses for a product.

    ``cublasLtMatmulAlgoGetHeuristic`` returns it, and ``cublasLtMatmulAlgoConfigGetAttribute`` reads its fields.

    Attributes
    ----------
    algo : int
        ``CUBLASLT_ALGO_CONFIG_ID``: the family of kernels.
    tile, stages : int
        ``TILE_ID`` and ``STAGES_ID``: numbers of cuBLASLt's enumerations; the stages say how many k a kernel's tile has.
    split_k : int
        ``SPLITK_NUM``: the number of parts of k. 0 and -1, which some families have, do not tell the number.
    reduction : int
        ``REDUCTION_SCHEME``: how the parts are joined.
    swizzle, custom, inner, cluster : int
        ``CTA_SWIZZLING``, ``CUSTOM_OPTION``, ``INNER_SHAPE_ID`` and ``CLUSTER_SHAPE_ID``.
    workspace : int, optional
        ``workspaceSize`` of the answer: how many bytes it needs. It tells one part of k from several if `split_k` does not.

    Raises
    ------
    OperandError

    Examples
    --------
    >>> print(Choice(algo=66, tile=10, split_k=3, reduction=2, custom=1, stages=35, cluster=4))
    algo 66, tile 10, split_k 3, reduction 2, custom 1, stages 35, cluster 4
    >>> Choice.of_row((66, 10, 3, 2, 0, 1, 35, 0, 4)).split_k
    3
    """

    algo: int
    tile: int = 0
    split_k: int = 1
    reduction: int = 0
    swizzle: int = 0
    custom: int = 0
    stages: int = 0
    inner: int = 0
    cluster: int = 0
    workspace: int | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "workspace" and value is None:
                continue
            found = value if each.name == "split_k" and value == -1 else integer(value, f"Choice: {each.name}", 0)
            object.__setattr__(self, each.name, -1 if each.name == "split_k" and found == _UNSAID else found)

    @classmethod
    def of_row(cls, row: tuple[int, ...]) -> Choice:
        """Make a choice of the nine attributes in the order of their numbers in cuBLASLt."""
        return cls(*(int(value) for value in row))

    @property
    def parts(self) -> int:
        """Return the number of parts of k, if the choice tells it."""
        return max(self.split_k, 1)

    def parts_unsaid_are_one(self, most: int) -> bool:
        """Tell whether a choice that does not tell its number of parts has one part: its workspace has at most `most` bytes."""
        return self.workspace is not None and self.workspace <= most

    def __str__(self) -> str:
        said = ((each.name, getattr(self, each.name), each.default) for each in fields(self))
        return ", ".join(f"{name} {value}" for name, value, default in said if value != default)
