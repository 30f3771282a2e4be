"""Tables of docs/speed.md that come from the records of all CPUs: what bounds products on each, and which part of that they reach."""

from __future__ import annotations

from collections.abc import Sequence

from bench.cores import Bound, bound
from bench.instructions import CPUS, FMA, KERNELS, Kernel, Stored
from bench.loops import KINDS
from bench.records import Record
from bench.shapes import SPARSE

# products and their micro-kernels
_KERNEL_OF = {
    "f16, sm_90a": "f16, bf16 with f32 sums, sm_90",
    "f16, sm_80": "f16, bf16 with f32 sums, sm_80",
    "tf32, sm_90a": "tf32, sm_90",
    "e4m3, sm_90a (wgmma)": "e4m3, sm_90",
    "e4m3, sm_120a": "e4m3, sm_120",
    "MXFP8, sm_100a (tcgen05)": "e4m3, sm_120",
    "NVFP4, sm_120a": "NVFP4, exact",
    "f64, sm_90a": "f64",
    "s8, sm_90a": "s8, u8",
    "b1, sm_90a, K = 8192": "b1",
}
_ON_AMX = {"s8, sm_90a": 1, "NVFP4, sm_120a": 2}  # by how many times as many of its instructions as bytes need


def kernel_of(title: str) -> Kernel:
    """The micro-kernel of a product."""
    sparse = {f"{case.name}, sparse A": case for case in SPARSE}
    if title in sparse:
        case = sparse[title]
        return Stored(case.name, FMA, case.atype, "sm_90a", opcode=case.opcode)
    return next(kernel for kernel in KERNELS if kernel.name == _KERNEL_OF[title])


def least(record: Record, title: str) -> Bound | None:
    """The least cycles of 64 multiply-adds of a product on a record's CPU; None for a core without a row."""
    core = record.row
    if core is None:
        return None
    if title in _ON_AMX and record.amx:
        return Bound(64 / core.tiles * _ON_AMX[title], "AMX")
    return bound(kernel_of(title), core)


def heading(record: Record) -> str:
    """The core and the machine of a record."""
    return f"#### {record.title}\n\n{record.machine}:"


def bounds(record: Record) -> list[str]:
    """A Markdown table: the bound of each product on one thread in cycles, what was measured, and the part of the bound."""
    on = CPUS[record.registers]
    lines = [
        "| product, n = 1536, 1 thread | vector instructions | bound, cycles | taken by | measured | part of the bound | GMAC/s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for title, found in record.products.items():
        kernel, cycles, limit = kernel_of(title), found["cycles"] * 64 / found["macs"], least(record, title)
        count = f"{64 * kernel.loop(on).vectors / kernel.products(on):.3g}" if limit is None or limit.by != "AMX" else ""
        cells = ("", "", "") if limit is None else (f"{limit.cycles:.2f}", limit.by, f"{limit.cycles / cycles:.2f}")
        speed = found["macs"] / found["seconds"] / 1e9
        lines.append(f"| {title} | {count} | {cells[0]} | {cells[1]} | {cycles:.2f} | {cells[2]} | {speed:.1f} |")
    return lines


def kinds(record: Record) -> list[str]:
    """A Markdown table: cycles of instructions alone, each after the one before, and of one beside an fma and beside a sum of floats."""
    size, core = CPUS[record.registers].vector_bytes, record.row
    lines = [
        f"| cycles, {size} bytes | alone | latency | with an fma | with a sum of floats | pipes |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    known = {kind.name for kind in KINDS}
    for name, found in record.kinds.items():
        pipes = "" if core is None or name not in known else ", ".join(core.pipes.get(name, "")) or "none"
        cells = [f"{each:.2f}" for each in found] + [""] * (4 - len(found))
        lines.append(f"| {name} | {' | '.join(cells)} | {pipes} |")
    return lines


def threads(records: Sequence[Record]) -> list[str]:
    """A Markdown table: speed on all cores, the bound that all cores have together at their clock, and the part of it."""
    lines = [
        "| on all cores | product | n | bound, GMAC/s | measured | part of the bound | times one thread |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for record in records:
        for title, found in record.on_threads.items():
            count = max(record.clocks, key=int)
            limit, seconds, macs = least(record, title), found["seconds"], found["n"] ** 3 / 1e9
            if limit is not None:
                most = int(count) * record.clocks[count] * 64 / limit.cycles / 1e9
                cells = (
                    f"{most:.0f} | {macs / seconds[count]:.0f} | {macs / seconds[count] / most:.2f} | {seconds['1'] / seconds[count]:.1f}"
                )
                lines.append(f"| {record.core}, {count} | {title} | {found['n']} | {cells} |")
    return lines


def every_cpu(records: Sequence[Record]) -> str:
    """All tables, CPU by CPU."""
    sections = [[heading(record), "", *bounds(record), ""] for record in records]
    return "\n".join(line for section in [[""], *sections, threads(records), [""]] for line in section)
