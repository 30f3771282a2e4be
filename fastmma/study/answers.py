"""The answer of a study in plain words: which formats lose least, what accumulators cost as K grows, and when promotion pays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastmma.host.calls import public_call
from fastmma.isa.formats import Format
from fastmma.study.conclusion import conclusion, join_words, percent
from fastmma.study.encoding import operand_format
from fastmma.study.grid import case_of
from fastmma.study.groups import deepest, grouped
from fastmma.study.layered import layered
from fastmma.study.products import IEEE
from fastmma.study.records import Record

_ALIKE = 1.25  # errors within that factor of each other are told together
_SMALL_SHARE = float.fromhex("0x1.999999999999ap-4")  # of the operands' rounding: sums that cost less do not matter
_MOST_GROUPS = 6  # that a sentence names
_MOST_NAMED = 3  # accumulators of a group


def compares_formats(records: Sequence[Record]) -> bool:
    """Tell whether a study has several formats, each with one accumulator."""
    pairs = {(record["format"], case_of(record).accumulator) for record in records}
    return len(pairs) == len({fmt for fmt, _ in pairs}) > 1


def promotions(records: Sequence[Record]) -> dict[tuple[str, str], dict[int, Record]]:
    """The records of each format and target by the interval of promotion, K where sums are never promoted; none of fewer than 3."""
    found: dict[tuple[str, str], dict[int, Record]] = {}
    for record in records:
        if record["split_k"] == 1 and not record["arithmetic"] and record["accumulation_error"] is not None:
            found.setdefault((record["format"], record["target"]), {})[record["promote_every"] or record["k"]] = record
    return {pair: every for pair, every in found.items() if len(every) > 2}


def _operands(records: Sequence[Record], source: str) -> str:
    """Return the operands and the K of some records, as a sentence begins."""
    return f"{source[0].upper()}{source[1:]}, K = {records[0]['k']}"


def _width(fmt: str) -> str:
    """The bits of the elements of A, and whether blocks have scales."""
    base = operand_format(fmt.partition(",")[0]).base
    return f"{base.bits} bits without scales" if isinstance(base, Format) else f"{base.element_format.bits} bits with scales"


def _formats(records: Sequence[Record]) -> list[str]:
    """Tell which format of each width loses least on each kind of operands."""
    if not compares_formats(records):
        return []
    best: dict[str, dict[str, list[str]]] = {}
    for source, found in grouped(records).items():
        rivals: dict[str, list[Record]] = {}
        for record in deepest(found):
            if record["relative_error"] is not None:
                rivals.setdefault(_width(record["format"]), []).append(record)
        for width, every in rivals.items():
            least = min(every, key=lambda each: float(each["relative_error"]))
            told = f"{source.removeprefix('operands drawn ').strip('()')} ({percent(least['relative_error'])})"
            best.setdefault(width, {}).setdefault(least["format"], []).append(told)
    sentences = [f"Relative errors of products with K = {deepest(records)[0]['k']}."]
    for width, winners in best.items():
        told = join_words([f"{name} on {join_words(sources)} data" for name, sources in winners.items()])
        sentences.append(f"Of formats of {width}, the best is {told}.")
    return sentences


def _alike(records: Iterable[Record]) -> list[list[Record]]:
    """Records in groups of like accumulation errors, the largest first."""
    groups: list[list[Record]] = []
    for record in sorted(records, key=lambda each: -float(each["accumulation_error"])):
        if groups and groups[-1][0]["accumulation_error"] <= _ALIKE * record["accumulation_error"]:
            groups[-1].append(record)
        else:
            groups.append([record])
    return groups


def _accumulators(records: Sequence[Record]) -> str:
    """The accumulators of some records: targets that share a plan together."""
    plans: dict[str, list[str]] = {}
    for record in records:
        plans.setdefault(case_of(record).accumulator.removeprefix(record["target"]), []).append(record["target"])
    told = [join_words(targets) + plan for plan, targets in plans.items()]
    return join_words(told if len(told) <= _MOST_NAMED else [*told[: _MOST_NAMED - 1], f"{len(told) - _MOST_NAMED + 1} others"])


def _growth(record: Record, every: Sequence[Record]) -> str:
    """Compare an error with that of the smallest K, in brackets; nothing where there is no other K."""
    configuration = ("format", "target", "promote_every", "split_k", "arithmetic")
    alike = [each for each in every if all(each[name] == record[name] for name in configuration)]
    least = min(alike, key=lambda each: int(each["k"]))
    if least["k"] == record["k"] or not least["accumulation_error"]:
        return ""
    factor = record["accumulation_error"] / least["accumulation_error"]
    return f" ({_times(factor)} that of K = {least['k']})" if factor > _ALIKE else f" (as at K = {least['k']})"


def _times(factor: float) -> str:
    return f"{factor:,.0f} times" if factor >= 10 else f"{factor:.2g} times"


def _largest(records: Sequence[Record]) -> list[Record]:
    """The record of each accumulator whose sums lose most, whatever the format."""
    found: dict[str, Record] = {}
    for record in sorted(records, key=lambda each: float(each["accumulation_error"])):
        found[case_of(record).accumulator] = record
    return list(found.values())


def _sums(records: Sequence[Record]) -> list[str]:
    """Tell what the sums of each accumulator lose at the largest K, and how much more than at the smallest."""
    if compares_formats(records):
        return []
    sentences = []
    for source, every in grouped(records).items():
        told_apart = {fmt for fmt, _ in promotions(deepest(every))}
        found = [each for each in deepest(every) if each["accumulation_error"] is not None and each["format"] not in told_apart]
        rivals = _largest(found)
        if len(rivals) < 2:
            continue
        groups = _alike(rivals)
        named = groups if len(groups) <= _MOST_GROUPS else [groups[0], groups[-1]]
        told = [f"{percent(group[0]['accumulation_error'])} on {_accumulators(group)}{_growth(group[0], every)}" for group in named]
        roundings = {each["format"]: percent(each["quantisation_error"]) for each in found}
        rounding = join_words([f"{value} ({fmt})" for fmt, value in roundings.items()])
        most = "up to " if len(roundings) > 1 else ""
        sentences.append(f"{_operands(found, source)}: rounding loses {rounding}; sums lose {most}{join_words(told)}.")
    return sentences


def _longest(every: dict[int, Record]) -> int | None:
    """The longest interval of promotion up to which sums cost a small share of what rounding costs; None where all cost more."""
    longest = None
    for interval in sorted(every):
        record = every[interval]
        if record["accumulation_error"] > _SMALL_SHARE * (record["quantisation_error"] or 0.0):
            break
        longest = interval
    return longest


def _promotion(records: Sequence[Record]) -> list[str]:
    """Tell how often sums have to be promoted to cost less than a tenth of what rounding the operands costs."""
    sentences = []
    for source, found in grouped(records).items():
        deep = deepest(found)
        answers: dict[tuple[str, int | None], list[dict[int, Record]]] = {}
        for (fmt, _), every in promotions(deep).items():
            answers.setdefault((fmt, _longest(every)), []).append(every)
        for (fmt, longest), targets in answers.items():
            named = join_words([next(iter(every.values()))["target"] for every in targets])
            worst = max(targets, key=lambda every: float(every[max(every)]["accumulation_error"]))
            told = [f"{percent(worst[interval]['accumulation_error'])} {_interval(worst[interval])}" for interval in _ends(worst)]
            rounding = percent(worst[max(worst)]["quantisation_error"])
            advice = f"However often they are promoted, that is more than a tenth of what rounding loses ({rounding})."
            if longest is not None:
                advice = f"{_interval(worst[longest]).capitalize()}, that is less than a tenth of what rounding loses ({rounding})."
            sentences.append(f"{_operands(deep, source)}: sums of {fmt} on {named} lose up to {join_words(told)}. {advice}")
    return sentences


def _ends(every: dict[int, Record]) -> list[int]:
    """The longest two intervals and the shortest."""
    *_, second, longest = sorted(every)
    return [longest, second, min(every)]


def _interval(record: Record) -> str:
    return f"promoted every {record['promote_every']}" if record["promote_every"] else "without promotion"


def _truncation(records: Sequence[Record]) -> list[str]:
    """Tell how many times the error of IEEE's float32 the sums of GPUs lose where they are not promoted."""
    factors = []
    for found in grouped(records).values():
        deep = [each for each in deepest(found) if each["accumulation_error"] is not None and not each["promote_every"]]
        for ieee in (each for each in deep if each["target"] == IEEE and each["accumulation_error"]):
            rivals = [each for each in deep if each["format"] == ieee["format"] and each is not ieee]
            factors += [each["accumulation_error"] / ieee["accumulation_error"] for each in rivals]
    if not factors:
        return []
    least, most = _times(min(factors)).removesuffix(" times"), _times(max(factors))
    return [f"Without promotion, sums on GPUs lose {least} to {most} what float32 with IEEE's rounding loses."]


@public_call
def answer(records: Sequence[Record]) -> list[str]:
    """Answer what a study asks, in sentences.

    Parameters
    ----------
    records : sequence of dict
        As `fastmma.study.run` returns them.

    Returns
    -------
    list of str
        Of formats, which of each width loses least; of accumulators, what sums lose at the largest K, how much more than at the smallest,
        and how often they have to be promoted; of a model's layers, which formats and layers lose most. Nothing where nothing is compared.

    Examples
    --------
    >>> from fastmma import study
    >>> grid = study.Grid(("e4m3",), ("H100",), ((64, 64, 4096),), promote_every=(None, 128))
    >>> study.answer(study.run(grid))[0].split("; ")[1]
    'sums lose 0.131 % on sm_90a and 0.0127 % on sm_90a, promoted every 128.'
    """
    tables = layered(records)
    if tables:
        return [sentence for table in tables for sentence in conclusion(table)]
    return [sentence for find in (_formats, _promotion, _sums, _truncation) for sentence in find(records)]
