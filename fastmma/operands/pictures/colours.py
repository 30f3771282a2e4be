"""A colour for each lane."""

from __future__ import annotations

import math
from functools import lru_cache


@lru_cache(1024)
def lane_colour(lane: int, faded: bool = False) -> str:
    """The colour of a lane: hue by groupID, tone by threadID_in_group, of even perceived lightness (OKLCH)."""
    group, thread = lane % 32 // 4, lane % 4
    lightness, chroma, hue = 0.94 - 0.055 * thread, 0.055 + 0.02 * thread, math.radians(45 * group + 22)
    if faded:
        lightness, chroma = 0.97, 0.008
    a, b = chroma * math.cos(hue), chroma * math.sin(hue)
    roots = (lightness + 0.3963377774 * a + 0.2158037573 * b, lightness - 0.1055613458 * a - 0.0638541728 * b)
    long, medium, short = (root**3 for root in (*roots, lightness - 0.0894841775 * a - 1.2914855480 * b))
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    channels = (1.055 * max(each, 0.0) ** (1 / 2.4) - 0.055 if each > 0.0031308 else 12.92 * max(each, 0.0) for each in linear)
    return "#" + "".join(f"{round(255 * min(each, 1.0)):02x}" for each in channels)
