"""Cores of CPUs as a table: what their vector pipes execute, and what that allows the innermost loops of the micro-kernels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from bench.instructions import CPUS, KERNELS, Counted, Cpu
from bench.lanes import LANES

_NARROW = re.compile(r"broadcast|\{1to|pmov[sz]x|\bld1r\b|\bldr\s+[bhsd]\d")  # loads of fewer bytes than a vector
_PAIR = re.compile(r"\bld[n]?p\b")  # two loads in one instruction of AArch64

# kinds of instructions, each by a regular expression of how they begin: the first that fits
_X86 = {
    "fma": r"vf[n]?m(add|sub)|vmul",
    "dot product of bytes": r"vpdp",
    "sum of products of bytes or words": r"vpmadd|vpmull",
    "population count": r"vpopcnt",
    "saturating sum or difference": r"vp(add|sub)us",
    "quotient or root": r"vdiv|vsqrt",
    "signs as a mask": r"vpmov[bwdq]2m",
    "narrowing": r"vpmovu?s?(wb|db|dw|qb|qw|qd)",
    "mask": r"vcmp|vpcmp|vptest|vpshufbitqmb",
    "affine map of bits": r"vgf2p8affine",
    "sum of floats": r"v(add|sub|max|min|range|fixupimm)[ps][sd]",
    "shift": r"vps[lr][la]|vpror|vprol",
    "unpack": r"vpunpck|vunpck|vshuf|vpshufd",
    "shuffle of bytes": r"vpshufb|vpalignr|valign",
    "shuffle across the register": r"vperm|vextract|vinsert|vpmultishift",
    "broadcast from memory": r"vp?broadcast",
    "load of bytes as words": r"vpmov[sz]x",
    "halves in memory": r"vcvtph2ps [^%]*\(.*%ymm",
    "conversion of equal lanes": r"vcvtt?(u?dq2ps|ps2u?dq|u?qq2pd|pd2u?qq)",
    "conversion": r"vcvt",
    "ternary logic": r"vptern",
    "maximum of integers": r"vp(max|min)",
    "logic or sum of integers": r"vp|v(and|or|xor)|vblend",
    "load": r"vmov",
}
_ARM = {
    "fma": r"fml|fmul|fnmul",
    "dot product of bytes": r"[su]dot",
    "sum of products of bytes or words": r"[su]m(ull|lal)|[su]adalp|mla|mul",
    "population count": r"cnt|[su]addlp|addv",
    "saturating sum or difference": r"uq(add|sub)",
    "sum of floats": r"f(add|sub|max|min|abs|neg|cm)",
    "shift": r"[su]?sh|sli|sri|[su]shll|xtn|shrn|[us]xtl",
    "shuffle across the register": r"zip|uzp|trn|ext|tbl|dup|ins|rev|mov",
    "conversion": r"[su]cvt|fcvt|frint",
    "load": r"ld|st",
    "logic or sum of integers": r".",
}


class Core(NamedTuple):
    """A core.

    Attributes
    ----------
    name : str
    cpu : str
        One of `bench.instructions.CPUS`, whose registers are those of the loops.
    pipes : dict
        The pipes that execute each kind, all of them alike.
    cycles : float
        How long a whole register keeps a pipe busy.
    by_half : bool
        Whether half a register does for half as long.
    loads, narrow : float
        Whole registers, and smaller pieces, that are loaded in a cycle.
    issued : int
        Instructions on vectors in a cycle, at most.
    latency : int
        Cycles from an fma to the next one of its sum.
    weights : dict
        Of kinds that keep a pipe longer than others.
    known : str
    models : tuple of (str, int, range)
        Vendor, family and models, as Linux tells them.
    tiles : int
        Multiply-adds of bytes that AMX does in a cycle.
    """

    name: str
    cpu: str
    pipes: Mapping[str, str]
    cycles: float
    by_half: bool
    loads: float
    narrow: float
    issued: int
    latency: int
    known: str
    models: tuple[tuple[str, int, range], ...] = ()
    weights: Mapping[str, float] = {}
    tiles: int = 0

    @property
    def title(self) -> str:
        """Its name, with that of registers which are not the widest."""
        return f"{self.name}, AVX2" if self.cpu == "AVX2" else self.name


_AMD = {
    "fma": "01",
    "dot product of bytes": "01",
    "sum of products of bytes or words": "01",
    "population count": "01",
    "saturating sum or difference": "01",
    "sum of floats": "23",
    "shift": "23",
    "quotient or root": "1",
    "mask": "01",
    "signs as a mask": "01",
    "narrowing": "12",
    "affine map of bits": "01",
    "unpack": "123",
    "shuffle of bytes": "12",
    "shuffle across the register": "12",
    "broadcast from memory": "12",
    "load of bytes as words": "12",
    "conversion": "12",
    "halves in memory": "12",
    "conversion of equal lanes": "12",
    "ternary logic": "0123",
    "maximum of integers": "0123",
    "logic or sum of integers": "0123",
    "load": "",
}
# 64 bytes take ports 0 and 1 together, or 5
_INTEL = {
    "fma": "05",
    "dot product of bytes": "05",
    "sum of products of bytes or words": "05",
    "population count": "5",
    "saturating sum or difference": "0",
    "sum of floats": "05",
    "shift": "0",
    "quotient or root": "0",
    "mask": "5",
    "signs as a mask": "0",
    "narrowing": "5",
    "affine map of bits": "0",
    "unpack": "5",
    "shuffle of bytes": "5",
    "shuffle across the register": "5",
    "broadcast from memory": "",
    "load of bytes as words": "5",
    "conversion": "05",
    "halves in memory": "05",
    "conversion of equal lanes": "05",
    "ternary logic": "05",
    "maximum of integers": "0",
    "logic or sum of integers": "05",
    "load": "",
}
# 32 bytes take any of three ports
_INTEL_32 = {
    "fma": "01",
    "dot product of bytes": "01",
    "sum of products of bytes or words": "01",
    "saturating sum or difference": "01",
    "sum of floats": "15",
    "shift": "01",
    "quotient or root": "0",
    "mask": "01",
    "affine map of bits": "01",
    "unpack": "15",
    "shuffle of bytes": "15",
    "shuffle across the register": "5",
    "broadcast from memory": "",
    "load of bytes as words": "5",
    "conversion": "5",
    "halves in memory": "01",
    "conversion of equal lanes": "01",
    "maximum of integers": "01",
    "logic or sum of integers": "015",
    "load": "",
}
_NEOVERSE_V1 = {
    "fma": "0123",
    "dot product of bytes": "0123",
    "sum of products of bytes or words": "02",
    "population count": "0123",
    "saturating sum or difference": "0123",
    "sum of floats": "0123",
    "shift": "13",
    "shuffle across the register": "0123",
    "conversion": "02",
    "load": "",
    "logic or sum of integers": "0123",
}
_LONGER = {
    **dict.fromkeys(("conversion", "halves in memory", "conversion of equal lanes"), 4 / 3),
    "ternary logic": 5 / 4,
    "quotient or root": 5.0,
}
_TWO_STEPS = {"conversion": 2.0, "narrowing": 2.0, "quotient or root": 10.0}

_ICE_LAKE = (("GenuineIntel", 6, range(0x6A, 0x6D)),)
_AMD_MODELS = (("AuthenticAMD", 25, range(0x10, 0xB0)),)
_RAPIDS = (("GenuineIntel", 6, range(0x8F, 0xD0)),)
_ZEN_5 = "assumed: those of Zen 4, as wide as registers"
CORES = (
    Core("Zen 4", "AVX-512", _AMD, 2.0, True, 1.0, 2.0, 4, 4, "measured", _AMD_MODELS, _LONGER),
    Core("Zen 5", "AVX-512", _AMD, 1.0, False, 2.0, 2.0, 6, 4, _ZEN_5, (("AuthenticAMD", 26, range(256)),)),
    Core("Ice Lake", "AVX-512", _INTEL, 1.0, False, 2.0, 2.0, 5, 4, "those of Sapphire Rapids", _ICE_LAKE, _TWO_STEPS),
    Core("Sapphire Rapids", "AVX-512", _INTEL, 1.0, False, 2.0, 2.0, 6, 4, "measured", _RAPIDS, _TWO_STEPS, 1024),
    Core("Neoverse V1", "NEON", _NEOVERSE_V1, 1.0, False, 3.0, 3.0, 8, 4, "published"),
    Core("Zen 4", "AVX2", _AMD, 2.0, True, 1.0, 2.0, 4, 4, "measured", _AMD_MODELS, _LONGER),
    Core("Sapphire Rapids", "AVX2", _INTEL_32, 1.0, False, 1.5, 3.0, 6, 4, "measured", _RAPIDS),
)


class Bound(NamedTuple):
    """The least cycles of 64 multiply-adds, and what takes them."""

    cycles: float
    by: str


def bound(kernel: Counted, core: Core) -> Bound:
    """What the instructions of a kernel's innermost loop allow, if they never wait for each other or for memory.

    Raises
    ------
    ValueError
        If an instruction on vectors has no kind.
    """
    on = CPUS[core.cpu]
    return bound_of(kernel.loop(on).instructions, 64 / kernel.products(on), core)


def bound_of(instructions: Iterable[str], share: float, core: Core) -> Bound:
    """The least cycles of a share of a loop's pass."""
    on = CPUS[core.cpu]
    busy: dict[str, float] = {}
    loads, count = 0.0, 0
    for line in instructions:
        line = line.replace("\t", " ")
        mnemonic, _, operands = line.partition(" ")
        if on.vector.search(operands) is None:
            continue
        kind, memory = _kind(line, on), mnemonic.startswith(("ld", "st")) if _is_arm(on) else "(" in operands
        length = 0.5 if "AVX" in core.cpu and "%zmm" not in operands else 1.0
        if core.pipes[kind] and (memory or kind not in _LOADS):
            of_pipe = length if core.by_half else 1.0
            busy[core.pipes[kind]] = busy.get(core.pipes[kind], 0.0) + core.weights.get(kind, 1.0) * of_pipe * share
        if memory:
            loads += (1 / core.narrow if _NARROW.search(line) else length / core.loads) * share * (2 if _PAIR.search(line) else 1)
        count += 1
    bounds = [Bound(loads, "loads"), Bound(count * share / core.issued, "issue")]
    for size in range(1, 5):
        for chosen in combinations(sorted(set("".join(core.pipes.values()))), size):
            within = sum(cycles for pipes, cycles in busy.items() if set(pipes) <= set(chosen))
            bounds.append(Bound(core.cycles * within / size, f"pipes {', '.join(chosen)}" if size > 1 else f"pipe {chosen[0]}"))
    return max(bounds)


_LOADS = ("broadcast from memory", "load of bytes as words")


def _is_arm(on: Cpu) -> bool:
    return on.triple.startswith("aarch64")


def _kind(line: str, on: Cpu) -> str:
    kinds = _ARM if _is_arm(on) else _X86
    found = next((name for name, beginning in kinds.items() if re.match(beginning, line)), None)
    if found is None:
        raise ValueError(f"{line} has no row")
    return found


def this_core(registers: str) -> Core | None:
    """Find the core of this machine by its registers; None where it is not in the table, or the system does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return None
    found = {name: re.search(rf"^{name}\s*: (\S+)$", text, re.MULTILINE) for name in ("vendor_id", "cpu family", "model")}
    if not all(found.values()):
        return None
    vendor, family, model = (each[1] for each in found.values() if each is not None)
    return next(
        (
            core
            for core in CORES
            for maker, line, models in core.models
            if core.cpu == registers and (maker, line) == (vendor, int(family)) and int(model) in models
        ),
        None,
    )


def tables() -> list[str]:
    """Two Markdown tables: the cores, and the least cycles of 64 multiply-adds of each micro-kernel in their widest registers."""
    lines = ["| core | bytes of a register | fma in a cycle | loads | instructions on vectors | latency of an fma | pipes are |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    for core in CORES:
        size = CPUS[core.cpu].vector_bytes
        a_cycle = (64 / size if "AVX" in core.cpu else 1.0) * core.loads
        fma = len(core.pipes["fma"]) / core.cycles * (64 / size if core.by_half else 1.0)
        numbers = size, fma, a_cycle, core.issued, core.latency
        lines.append(f"| {core.title} | {' | '.join(f'{each:.2g}' for each in numbers)} | {core.known} |")
    widest = [core for core in CORES if core.cpu != "AVX2"]
    lines += [
        "",
        f"| cycles of 64 multiply-adds, at least | {' | '.join(core.name for core in widest)} |",
        f"| --- |{' --- |' * len(widest)}",
    ]
    for kernel in KERNELS:
        found = [bound(kernel, core) for core in widest]
        lines.append(f"| {kernel.name} | {' | '.join(f'{each.cycles:.2f} ({each.by})' for each in found)} |")
    for lanes in LANES:  # which need AVX-512
        cells = (bound(lanes, core) if core.cpu == "AVX-512" else None for core in widest)
        lines.append(f"| {lanes.name} | {' | '.join('' if each is None else f'{each.cycles:.2f} ({each.by})' for each in cells)} |")
    return lines
