"""Studies that answer common questions, by name."""

from __future__ import annotations

from dataclasses import dataclass

from fastmma.host.errors import OperandError
from fastmma.study.grid import Grid
from fastmma.study.products import IEEE


@dataclass(frozen=True)
class Preset:
    """A study with a name.

    Attributes
    ----------
    name, question : str
    grids : tuple of Grid
    """

    name: str
    question: str
    grids: tuple[Grid, ...]


def _depths(*depths: int) -> tuple[tuple[int, int, int], ...]:
    return tuple((256, 256, depth) for depth in depths)


LAYERS = "layers"
_GROWING = _depths(128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_SIGNED_AND_NOT = ("normal", "positive")
_LAWS = ("normal", "uniform", "lognormal", "outliers")

PRESETS: dict[str, Preset] = {
    row.name: row
    for row in (
        Preset(
            "fp8-accumulators",
            "What do the accumulators of different GPUs cost an fp8 product, as K grows?",
            (
                Grid(("e4m3", "e5m2"), ("sm_89", "sm_90a"), _GROWING, _SIGNED_AND_NOT, promote_every=(None, 128)),
                Grid(("e4m3", "e5m2"), ("sm_100a", "sm_120a", IEEE), _GROWING, _SIGNED_AND_NOT),
            ),
        ),
        Preset(
            LAYERS,
            "What do five formats cost the layers of a model?",
            (Grid(("bf16", "fp8_1x128,fp8_128x128", "mxfp8", "nvfp4", "mxfp4"), ("sm_100a",), _depths(384, 1536, 4096)),),
        ),
        Preset(
            "block-formats",
            "What do narrow formats with and without scales cost, on data with and without outliers?",
            (
                Grid(
                    ("bf16", "e4m3", "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4", "mxfp4:rceil", "mxfp4:even"),
                    ("sm_120a",),
                    _depths(1024, 4096),
                    _LAWS,
                ),
                Grid(("nvfp4", "nvfp4,nvfp4_16x16", "nvfp4:stochastic", "int8_row"), ("sm_120a",), _depths(1024, 4096), _LAWS),
                Grid(("fp8_tensor", "fp8_row", "fp8_1x128,fp8_128x128"), ("sm_90a",), _depths(1024, 4096), _LAWS),
            ),
        ),
        Preset(
            "promotion",
            "How often must partial sums leave the tensor core, and what does truncation to f32 cost against IEEE?",
            (
                Grid(
                    ("e4m3",),
                    ("sm_89", "sm_90a"),
                    _depths(4096, 16384),
                    _SIGNED_AND_NOT,
                    promote_every=(None, 32, 64, 128, 256, 512, 1024, 2048),
                ),
                Grid(("e4m3",), ("sm_89", "sm_90a"), _depths(4096, 16384), _SIGNED_AND_NOT, split_k=(2, 8, 32)),
                Grid(("f16", "bf16"), ("sm_80", "sm_90a"), _depths(1024, 4096, 16384), _SIGNED_AND_NOT, promote_every=(None, 128)),
                Grid(("f16", "bf16"), ("sm_120a", IEEE), _depths(1024, 4096, 16384), _SIGNED_AND_NOT),
            ),
        ),
    )
}


def preset_of(name: str) -> Preset:
    """The preset of that name.

    Raises
    ------
    OperandError
        If there is none.

    Examples
    --------
    >>> len(preset_of("promotion").grids) > 1
    True
    """
    if name not in PRESETS:
        raise OperandError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]
