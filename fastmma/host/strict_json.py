"""JSON of users: as its standard has it, without what Python's reader lets pass."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{twice!r} stands twice in one object")
    return found


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _float(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{text[:40]} is beyond the numbers of 64 bits")
    return found


def parsed(content: bytes) -> Any:
    """The value that a text in UTF-8 stands for.

    Raises
    ------
    ValueError
        If it is no JSON, is nested too deep, has a name twice in one object, a number that is NaN or infinite, or half of a surrogate pair.

    Examples
    --------
    >>> parsed(b'{"shape": [2, 3]}')
    {'shape': [2, 3]}
    """
    text = content.decode()
    try:
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if _SURROGATE.search(text):
        json.dumps(found, ensure_ascii=False).encode()
    return found
