"""The findings of a study of layers in plain words: which format loses least, and which layers lose most under each."""

from __future__ import annotations

from collections.abc import Sequence

from fastmma.study.layered import Layered
from fastmma.study.records import Record

_ALIKE = 1.1  # layers whose errors are within that factor of the median lose about the same
_SHARE = 0.1  # of the error: less of it is not worth a word


def percent(value: float | None) -> str:
    """A relative error for people.

    Examples
    --------
    >>> percent(0.0374), percent(0.16), percent(4e-8), percent(0.0), percent(None)
    ('3.74 %', '16.0 %', '4e-08', '0', '-')
    """
    if value is None:
        return "-"
    if not value:
        return "0"
    return f"{f'{100 * value:#.3g}'.removesuffix('.')} %" if value >= 1e-5 else f"{value:.2g}"


def join_words(texts: Sequence[str]) -> str:
    """Join texts with commas, and the last with "and".

    Examples
    --------
    >>> join_words(["a", "b", "c"])
    'a, b and c'
    """
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _ranking(table: Layered) -> str:
    ranked = [name for name in table.ranked() if table.middle(name) is not None]
    if not ranked:
        return "Nothing could be compared."
    errors = {name: percent(table.middle(name)) for name in ranked}
    over = f"median over {len(table.layers)} layers"
    if len(ranked) == 1:
        return f"{ranked[0]} has a relative error of {errors[ranked[0]]} ({over})."
    first, *between, last = ranked
    text = f"{first} loses least: a relative error of {errors[first]} ({over})"
    if between:
        text += f", then {join_words([f'{name} ({errors[name]})' for name in between])}"
    return f"{text}; {last} loses most ({errors[last]})."


def _layers(table: Layered, series: str) -> str:
    """Return which layers lose most and least under a format."""
    errors = {layer: record["relative_error"] for layer, record in table.of_series(series) if record["relative_error"] is not None}
    middle = table.middle(series)
    if middle is None or len(errors) < 2:
        return ""
    ordered = sorted(errors, key=lambda layer: -errors[layer])
    most, least = errors[ordered[0]], errors[ordered[-1]]
    if most <= middle * _ALIKE:
        return f"Under {series}, all layers lose about the same, {percent(least)} to {percent(most)}."
    worst = [layer for layer in ordered[:2] if errors[layer] > middle * _ALIKE]
    lose = "lose" if len(worst) > 1 else "loses"
    named = join_words([f"{layer} ({percent(errors[layer])})" for layer in worst])
    return f"Under {series}, {named} {lose} most, {ordered[-1]} least ({percent(least)})."


def _sums(table: Layered) -> str:
    """Return how much of the error is that of the accumulation."""

    def share(record: Record) -> float:
        return float(record["accumulation_error"] / record["relative_error"]) if record["relative_error"] else 0.0

    found = [name for name in table.series if any(share(record) > _SHARE for _, record in table.of_series(name))]
    if not found:
        return f"The sums on the tensor core are below {100 * _SHARE:g} % of the error everywhere: the rest is rounding of the operands."
    worst = {name: max(table.of_series(name), key=lambda each: share(each[1])) for name in found}
    shares = [f"{name} (up to {percent(share(record))} of the error, in {layer})" for name, (layer, record) in worst.items()]
    return f"The sums on the tensor core count under {join_words(shares)}."


def _caution(table: Layered) -> str:
    """Return what the numbers are not."""
    if any(not record["activations"] for record in table.cells.values()):
        return "Activations are drawn, and not the model's own, which may have outliers."
    return ""


def conclusion(table: Layered) -> list[str]:
    """Sentences: the formats in order, their best and worst layers, the share of the accumulation, and what to be careful with."""
    on = f" ({table.common})" if table.common else ""
    sentences = [f"{table.title}{on}.", _ranking(table), *(_layers(table, name) for name in table.ranked()), _sums(table), _caution(table)]
    left_out = [layer for (layer, _), record in table.cells.items() if record["left_out"]]
    if left_out:
        some = join_words(list(dict.fromkeys(left_out))[:3])
        sentences.append(f"Some results are infinite or NaN, and left out, in {some}.")
    return [each for each in sentences if each]
