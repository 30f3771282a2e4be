"""A table of docs/speed.md: the same product on several GPUs."""

from __future__ import annotations

import json

from tools.pages import output

_RUNS = (
    "--type f16 --target sm_70",
    "--type f16 --target sm_80",
    "--type f16 --target sm_90a",
    "--type tf32 --target sm_90a",
    "--type e4m3 --target sm_89",
    "--type e4m3 --target sm_90a",
    "--type e4m3 --target sm_100a",
    "--type e4m3 --target sm_120a",
)


def table(size: str) -> list[str]:
    """Lines of Markdown: a command, its speed, and its error beside that of IEEE f32 accumulation."""
    lines = [
        f"| `fastmma gemm --random {size}` ... | GMAC/s | mean error | of IEEE f32 | results that differ from IEEE f32 |",
        "| --- | --- | --- | --- | --- |",
    ]
    for options in _RUNS:
        report = json.loads(output(f"gemm --random {size} {options} --json"))
        ieee = report["ieee_f32"]
        share = 100 * ieee["different"] / report["results"]
        errors = f"{report['error']['mean_relative']:.2g} | {ieee['mean_relative']:.2g}"
        lines.append(f"| `{options}` | {report['gmacs']:.1f} | {errors} | {share:.1f} % |")
    return lines
