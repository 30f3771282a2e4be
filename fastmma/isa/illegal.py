"""Errors of opcodes that the table does not have: the reason, and the nearest legal ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

from fastmma.isa.rows.family import is_shape
from fastmma.isa.spelling import Spelling, spelling_of

_LONGEST = 300  # characters of a text that are shown and compared


def explain(text: str, legal: Collection[Spelling], opcodes: tuple[str, ...]) -> str:
    """The message for a text that is no opcode; `legal` are all spellings, `opcodes` all canonical texts."""
    return refusal(text, _reason(spelling_of(text), legal), opcodes)


def refusal(text: str, reason: str, opcodes: tuple[str, ...]) -> str:
    """The message for a text that is no opcode for a reason, with the nearest of those that are."""
    nearest = " and ".join(_nearest(text, opcodes))
    return f"{_shorten(text)!r} is no legal opcode: {_shorten(reason)}. The nearest are {nearest}"


def _nearest(text: str, opcodes: tuple[str, ...], count: int = 2) -> list[str]:
    """The opcodes whose tokens match best; ties go to the closest text."""
    places, sets = _token_sets(opcodes)
    from difflib import SequenceMatcher

    first, *rest = text.split(".")
    tokens = sum(places.get(token, 0) for token in {first, *rest})  # others are missing in every opcode
    alike = sets.get(first) or [each for group in sets.values() for each in group]
    different = {opcode: (tokens ^ held).bit_count() for opcode, held in alike}
    most = sorted(different.values())[:count][-1]
    close = [opcode for opcode, difference in different.items() if difference <= most]  # comparing texts is slow
    return sorted(close, key=lambda opcode: (different[opcode], -SequenceMatcher(None, text[:_LONGEST], opcode).ratio()))[:count]


@lru_cache(4)  # all opcodes, and all of a kind
def _token_sets(opcodes: tuple[str, ...]) -> tuple[dict[str, int], dict[str, list[tuple[str, int]]]]:
    """The bit of each token, and by the first token opcodes with the bits of all of theirs: sets that are compared fast."""
    places: dict[str, int] = {}
    found: dict[str, list[tuple[str, int]]] = {}
    for opcode in opcodes:
        tokens = opcode.split(".")
        held = sum(places.setdefault(token, 1 << len(places)) for token in set(tokens))
        found.setdefault(tokens[0], []).append((opcode, held))
    return places, found


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _written(tokens: Sequence[str], nothing: str) -> str:
    return "." + ".".join(tokens) if tokens else nothing


def _reason(wanted: Spelling, legal: Collection[Spelling]) -> str:
    """The first thing that no legal spelling has: instruction, modifiers, shape, types, layouts, operations."""
    same_op = [each for each in legal if each.op == wanted.op]
    if not same_op:
        return f"there is no instruction {wanted.op or '(empty)'!r}; there are {', '.join(sorted({each.op for each in legal}))}"
    known = frozenset[str]().union(*(each.modifiers for each in same_op))
    unknown = [f"there is no .{token}" for token in sorted(wanted.modifiers - known)]
    if unknown:
        return ", ".join(unknown)
    if wanted.repeated:
        return f".{wanted.repeated[0]} is written twice"
    shape = next((token for token in sorted(wanted.modifiers) if is_shape(token)), None)
    if shape is None:
        return "the shape is missing"
    if all(each.types != wanted.types for each in same_op):
        return f"the types .{'.'.join(wanted.types)} do not go together" if wanted.types else "the types are missing"
    fitting = [each for each in same_op if shape in each.modifiers and each.types == wanted.types]
    if not fitting:
        return f"{shape} does not take the types .{'.'.join(wanted.types)}"
    return _reason_with_types(f"{shape} with these types", wanted, fitting)


def _reason_with_types(subject: str, wanted: Spelling, fitting: Sequence[Spelling]) -> str:
    """Return what is wrong where shape and types are right."""
    if all(each.layouts != wanted.layouts for each in fitting):
        return f"{subject} needs the layouts " + " or ".join(sorted({_written(each.layouts, "(none)") for each in fitting}))
    if all(each.operations != wanted.operations for each in fitting):
        allowed = sorted({_written(each.operations, "no operation") for each in fitting})
        return f"{subject} needs {' or '.join(allowed)}" + (f", not .{'.'.join(wanted.operations)}" if wanted.operations else "")
    closest = min(fitting, key=lambda each: len(each.modifiers ^ wanted.modifiers))
    extra = sorted("." + token for token in wanted.modifiers - closest.modifiers)
    missing = sorted("." + token for token in closest.modifiers - wanted.modifiers)
    parts = (f"{', '.join(extra)} is not allowed here" * bool(extra), f"{', '.join(missing)} is missing" * bool(missing))
    return "; ".join(filter(None, parts))
