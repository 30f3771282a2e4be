"""Constants of the compiler's intermediate code."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.triton.gluon.types import Type

_VALUE = re.compile(r"arith\.constant (?:\{.*?\} )?(?:dense<(.*?)>|(\S+))(?: :|$)", re.DOTALL)


def _parse_number(text: str, dtype: np.dtype[Any]) -> Any:
    if text in ("true", "false"):
        return np.bool_(text == "true")
    if text.startswith("0x"):
        code = np.array(int(text, 16), f"u{dtype.itemsize}")
        return code.view(dtype)[()]
    return dtype.type(float(text)) if dtype.kind not in "iu" else np.array(int(text)).astype(dtype)[()]


def parse_constant(text: str, kind: Type) -> NDArray[Any]:
    """Return the value of an `arith.constant`.

    Raises
    ------
    ValueError
        If it is written in a way that is not known.

    Examples
    --------
    >>> parse_constant("arith.constant dense<0xFF800000> : tensor<2xf32>", Type("tensor", "f32", (2,))).tolist()
    [-inf, -inf]
    """
    found = _VALUE.match(text)
    if found is None:
        raise ValueError(text)
    body = found[1] if found[1] is not None else found[2]
    dtype = kind.dtype
    if body.startswith("["):
        values = [_parse_number(one, dtype) for one in re.findall(r"[^\[\],\s]+", body)]
        return np.array(values, dtype).reshape(kind.shape)
    return np.full(kind.shape, _parse_number(body, dtype), dtype)
