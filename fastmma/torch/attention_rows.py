"""For which numbers of sequences a call of attention has the same bits, and whether a query alone has those that it has among others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastmma.agreement.invariance import ranges, spoken
from fastmma.functions.attention import cudnn, cudnn_adds_in_order, flash
from fastmma.functions.attention.blocks import count_parts, cut_keys
from fastmma.isa.gpus import TargetName
from fastmma.products.library_gpu import library_gpu
from fastmma.torch.arrays import to_numpy
from fastmma.torch.attention_choice import CUDNN, EFFICIENT, FLASH, Call, choose

_RECORDED = ("H100", "H200")
_LEAST_DRAWS = 4
_MOST_SCORES = 1 << 22  # that are computed in search of a difference


class AttentionCall(NamedTuple):
    """A call of ``scaled_dot_product_attention``: what its bits depend on beside the number of sequences.

    Attributes
    ----------
    kernel : str
        The one that PyTorch takes on a GPU of compute capability 9.0; empty where it finds none.
    heads, key_heads, queries, keys, dimension : int
        Of a sequence.
    dtype : str
    is_causal, is_plain : bool
        Whether queries see keys up to their own place; whether there is neither a mask nor dropout.
    """

    kernel: str
    heads: int
    key_heads: int
    queries: int
    keys: int
    dimension: int
    dtype: str
    is_causal: bool
    is_plain: bool

    @classmethod
    def of(
        cls,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> AttentionCall:
        """Describe a call by its arguments."""
        kernel = choose(Call(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)) or ""
        heads = [each.shape[-3] if each.dim() > len("ld") else 1 for each in (query, key)]
        return cls(
            kernel,
            heads[0],
            heads[1],
            query.shape[-2],
            key.shape[-2],
            query.shape[-1],
            str(query.dtype).removeprefix("torch."),
            is_causal,
            attn_mask is None and dropout_p == 0,
        )


class Sums(NamedTuple):
    """The choices that decide the bits of a query: the kernel, whether it is that of one query, and how the keys are divided."""

    kernel: str
    one: bool
    parts: int
    cut: tuple[int, ...]

    def __str__(self) -> str:
        of_one = "'s kernel of one query" if self.one else ""
        return f"{self.kernel}{of_one}" + (f", keys in {len(self.cut)} parts" if len(self.cut) > 1 else "")


def _sums(call: AttentionCall, sequences: int, ranks: int) -> Sums | None:
    """Return how the keys of a query are added; None where that is not known, or has no fixed order."""
    heads = sequences * call.heads // ranks
    if not call.is_plain:
        return None
    if call.kernel == FLASH:
        shared = call.queries == 1 and call.key_heads < call.heads
        tasks = (sequences * call.key_heads // ranks, call.heads // call.key_heads) if shared else (heads, call.queries)
        parts = count_parts(tasks[1], call.keys, call.dimension, tasks[0])
        return Sums(FLASH, False, parts, cut_keys(call.keys, call.dimension, parts))
    if call.kernel == CUDNN and cudnn_adds_in_order(heads, call.queries, call.keys):
        return Sums(CUDNN, call.queries == 1, 1, ())
    return Sums(EFFICIENT, False, 1, ()) if call.kernel == EFFICIENT else None


@dataclass(frozen=True)
class AttentionInvariance:
    """The numbers of sequences of a call of attention that share their bits.

    Attributes
    ----------
    call : AttentionCall
    gpu : str
    groups : tuple of tuple of range
        Numbers of sequences whose results have the same bits; the group of most first.
    unknown : tuple of range
        Numbers of sequences whose order of sums is not known, or not fixed.
    sums : tuple of Sums
        How the keys of each group are added.
    undecided : tuple of (int, int)
        Pairs of groups that were not seen to differ.
    decode : bool or None
        Whether the last query alone, with the same keys, has the bits that it has among all; None where that is not known, or there is
        one query.
    """

    call: AttentionCall
    gpu: str
    groups: tuple[tuple[range, ...], ...]
    unknown: tuple[range, ...]
    sums: tuple[Sums, ...]
    undecided: tuple[tuple[int, int], ...] = ()
    decode: bool | None = None

    @property
    def is_invariant(self) -> bool | None:
        """Tell whether all numbers of sequences have the same bits; None where some are not known."""
        if len(self.groups) - len({max(pair) for pair in self.undecided}) > 1:
            return False
        return None if self.unknown or self.undecided or not self.groups else True

    def same(self, first: int, second: int) -> bool | None:
        """Tell whether a query has the same bits among so many rows and among so many others; one row is the last query alone.

        None where that is not known, or a number of rows is none of whole sequences.
        """
        queries = self.call.queries
        alone = [rows == 1 < queries for rows in (first, second)]
        at = [self.group_of(1 if rows == 1 else rows // queries if rows % queries == 0 else 0) for rows in (first, second)]
        if at[0] is None or at[1] is None:
            return None
        if alone[0] != alone[1]:
            return self.decode if at[0] == at[1] else None
        pair = min(at), max(at)  # type: ignore[type-var]
        return True if pair[0] == pair[1] else None if pair in self.undecided else False

    def group_of(self, sequences: int) -> int | None:
        """Return the number of the group of so many sequences; None where they are not known."""
        return next((number for number, group in enumerate(self.groups) if any(sequences in each for each in group)), None)

    def __str__(self) -> str:
        call = self.call
        sizes = ((call.heads, "head", "heads"), (call.queries, "query", "queries"), (call.keys, "key", "keys"))
        shape = ", ".join(f"{size} {one if size == 1 else many}" for size, one, many in sizes)
        lines = [f"attention in {call.dtype} on {self.gpu}, {shape}: {call.kernel or 'no kernel'}"]
        lines += [f"  {_sequences(group)}: {text}" for group, text in zip(self.groups, self.sums, strict=True)]
        lines += [f"  {_sequences(self.unknown)}: not known"] if self.unknown else []
        if call.queries > 1:
            lines.append(f"  the last query alone: {_DECODED[self.decode]}")
        return "\n".join(lines)


_DECODED = {True: "the same bits", False: "other bits", None: "not known"}


def _sequences(group: tuple[range, ...]) -> str:
    return spoken(group).replace("row", "sequence", 1)


def attention_invariance(call: AttentionCall, target: TargetName, rows: Collection[int], ranks: int = 1) -> AttentionInvariance:
    """Tell for how many sequences a call has the same bits.

    Parameters
    ----------
    call : AttentionCall
    target : str
    rows : collection of int
        Numbers of rows; a sequence has as many as queries.
    ranks : int
        How many GPUs share the heads.
    """
    gpu = library_gpu(target)
    found: dict[Sums | None, list[int]] = {}
    for count in sorted({each // call.queries for each in rows if each % call.queries == 0}) or [1]:
        sums = _sums(call, count, ranks) if gpu in _RECORDED and call.key_heads % ranks == 0 else None
        found.setdefault(sums, []).append(count)
    unknown = tuple(ranges(found.pop(None, [])))
    groups = sorted(((sums, counts) for sums, counts in found.items() if sums is not None), key=lambda group: (-len(group[1]), group[1]))
    kinds = [sums for sums, _ in groups]
    undecided = [(p, q) for p, q in combinations(range(len(kinds)), 2) if not _differ(call, call.queries, kinds[p], call.queries, kinds[q])]
    members = tuple(tuple(ranges(counts)) for _, counts in groups)
    return AttentionInvariance(call, gpu, members, unknown, tuple(kinds), tuple(undecided), _decode(call, kinds, ranks))


def same_attention(first: AttentionInvariance, second: AttentionInvariance) -> bool | None:
    """Tell whether two GPUs, or numbers of ranks, have the same bits for all numbers of sequences that both were asked for."""
    asked = [{count for group in (*each.groups, each.unknown) for members in group for count in members} for each in (first, second)]
    verdicts = set[bool | None]()
    for count in asked[0] & asked[1]:
        at = first.group_of(count), second.group_of(count)
        one, other = (None if number is None else each.sums[number] for each, number in zip((first, second), at, strict=True))
        if one is None or other is None:
            verdicts.add(None)
        else:
            queries = first.call.queries
            verdicts.add(True if one == other else False if _differ(first.call, queries, one, queries, other) else None)
    return False if False in verdicts else None if None in verdicts or not verdicts else True


def _decode(call: AttentionCall, kinds: list[Sums], ranks: int) -> bool | None:
    """Compare the last query of one sequence with the same query alone."""
    alone = _sums(call._replace(queries=1), 1, ranks)
    among = _sums(call, 1, ranks)
    if call.queries == 1 or alone is None or among not in kinds or (call.is_causal and call.queries != call.keys):
        return None
    if alone == among:
        return True
    return False if _differ(call, call.queries, among, 1, alone) else None


def _differ(call: AttentionCall, queries: int, first: Sums, others: int, second: Sums) -> bool:
    """Compute the last query of one head both ways, on some draws; tell whether a result differs."""
    rng = np.random.default_rng(0)
    for _ in range(max(_MOST_SCORES // (queries * call.keys * call.dimension), _LEAST_DRAWS)):
        q, k, v = (_draw(rng, rows, call) for rows in (queries, call.keys, call.keys))
        one, other = (_computed(sums, q[:, :, -count:], k, v, call) for sums, count in ((first, queries), (second, others)))
        if one.tobytes() != other.tobytes():
            return True
    return False


def _draw(rng: np.random.Generator, rows: int, call: AttentionCall) -> NDArray[Any]:
    values = torch.from_numpy(rng.standard_normal((1, 1, rows, call.dimension)))
    return to_numpy(values.to(getattr(torch, call.dtype)))


def _computed(sums: Sums, q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], call: AttentionCall) -> NDArray[Any]:
    causal = call.is_causal and q.shape[2] > 1
    out, _ = flash(q, k, v, causal=causal, parts=sums.parts) if sums.kernel == FLASH else cudnn(q, k, v, causal=causal)
    return np.asarray(out[0, 0, -1])
