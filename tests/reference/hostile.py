"""Files that lie, from valid ones: cut, flipped, spliced, with other numbers and other types; and seeds for as long as one likes."""

from __future__ import annotations

import io
import json
import os
import random
import re
import time
import zipfile
from collections.abc import Iterator
from typing import Any

_ENDS = (b"\0", b"\xff", b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"\0\0\0\0\0\0\0\x80")
# what a JSON text may hold in the place of anything else
JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 31, 1 << 31, 1 << 62, 1 << 64, -(1 << 63), 10**40, 0.5, -0.0, 1e300),
    *("", "x", "\0", "a\nb", "\x1b[2J", "/dev/zero", "../x", "é" * 300, [], {}, [[]], {"": {}}, [0] * 100, ["tie", None], {"case": "x"}),
)
# texts that Python's own reader of JSON takes, or that it answers with another error than ValueError
TOKENS = (
    b"NaN",
    b"-Infinity",
    b"1e999",
    b'"\\ud800"',
    b"1" * 5000,
    b"[" * 3000,
    b'{"a":' * 3000,
    b'{"a": 1, "a": 2}',
    b"\xff",
    b"\xef\xbb\xbf",
)


def seeds(usual: int) -> Iterator[int]:
    """Seeds from 0: as many as usual, or for the minutes that FASTMMA_FUZZ_MINUTES names."""
    minutes = float(os.environ.get("FASTMMA_FUZZ_MINUTES", 0))
    end, seed = time.monotonic() + 60 * minutes, 0
    while seed < usual or time.monotonic() < end:
        yield seed
        seed += 1


def truncations(data: bytes, step: int = 1) -> Iterator[bytes]:
    """The file cut off after every byte, or every so many; and with bytes that do not belong to it."""
    yield from (data[:size] for size in range(0, len(data), step))
    yield from (data + b"\0", data + data, b"\0" + data, data + bytes(5000))


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A file with one to three changes of any kind."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        place = rng.randrange(len(changed) + 1)
        end = min(len(changed), place + rng.choice((1, 2, 4, 8, 64)))
        numbers = [found.span() for found in re.finditer(rb"\d+", changed)]
        change = rng.randrange(7)
        if change == 0 and place < len(changed):
            changed[place] ^= 1 << rng.randrange(8)
        elif change == 1:
            changed[place:end] = rng.choice(_ENDS)
        elif change == 2:
            del changed[place:end]
        elif change == 3:
            changed[place:place] = changed[place:end] * rng.choice((1, 2, 100))
        elif change == 4:
            changed[place:end] = rng.randbytes(end - place)
        elif change == 5 and numbers:
            first, last = rng.choice(numbers)
            changed[first:last] = rng.choice((b"0", b"-1", b"1e3", b"9" * 15, b"9" * 30, b"1" * 5000, b"4611686018427387904", b""))
        else:
            changed = changed[:place]
    return bytes(changed)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Everything in a JSON value, as what holds it and its name there."""
    names = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for name in names for place in ((value, name), *_places(value[name]))]


def retyped(text: bytes, rng: random.Random) -> bytes:
    """A JSON text with a part that is gone, renamed, of another type or of another place; or that is no JSON any more."""
    value = json.loads(text)
    for _ in range(rng.choice((1, 1, 2))):
        places = _places(value)
        if not places:
            break
        holder, name = rng.choice(places)
        other, where = rng.choice(places)
        change = rng.randrange(6)
        if change == 0:
            del holder[name]
        elif change == 1 and isinstance(holder, dict):
            holder[rng.choice(("", "ins", "labels", "count", "threads", "a", "selector", "stride", "\0"))] = holder.pop(name)
        elif change == 2:
            holder[name] = json.loads(json.dumps(other[where]))
        elif change == 3:
            mark = json.dumps("a mark that is replaced")
            holder[name] = json.loads(mark)
            return json.dumps(value).encode().replace(mark.encode(), rng.choice(TOKENS))
        else:
            holder[name] = rng.choice(JUNK)
    return json.dumps(value).encode()


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as found:
        for name, content in members.items():
            found.writestr(name, content)
    return file.getvalue()
