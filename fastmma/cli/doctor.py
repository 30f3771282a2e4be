"""``fastmma doctor``: what this machine has, for reports of faults."""

from __future__ import annotations

from typing import Any

import click

from fastmma import __version__
from fastmma.cli import parameters
from fastmma.cli.table import print_json, print_table
from fastmma.host.memory import amount


def _problem(found: Any) -> str | None:
    return found.get("problem") if isinstance(found, dict) else None


def _cache_lines(folders: list[dict[str, Any]]) -> list[tuple[str, str]]:
    lines = []
    for place, folder in enumerate(folders):
        kept = f"{folder['files']} kernels, {amount(folder['bytes'])}"
        others = folder["all_bytes"] - folder["bytes"]
        older = f", and {amount(others)} of other versions" if others else ""
        how = f"; not used: {folder['refusal']}" if folder["refusal"] else "" if folder["writable"] else "; cannot be written to"
        lines.append(("" if place else "cache", f"{folder['path']}: {kept}{older}{how}"))
    return lines


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is printed, as pairs of what and which."""
    python, system, kernels, gpu, check = (found[name] for name in ("python", "system", "kernels", "gpu", "check"))
    lines = [
        ("fastmma", f"{found['fastmma']['version']} in {found['fastmma']['folder']}"),
        ("python", f"{python['implementation']} {python['version']}{'' if python['gil'] else ', without GIL'} ({python['executable']})"),
        ("system", system["platform"]),
        ("cpu", f"{system['cpu']}, {system['cores']} cores, {amount(system['memory_bytes'])}"),
        ("threads", _problem(system["threads"]) or str(system["threads"])),
    ]
    lines.append(("kernels", _problem(kernels) or f"{kernels['vectors']} ({kernels['llvm_cpu']}, {kernels['triple']})"))
    if not kernels.get("default_float_mode", True):
        lines.append(("", "this thread's floating-point mode is not the default one"))
    cache = found["cache"]
    lines += [("cache", str(_problem(cache)))] if _problem(cache) else _cache_lines(cache)
    lines.append(("gpu", _problem(gpu) or f"{gpu['name']}, {gpu['target']}"))
    for use, versions in found["libraries"].items():
        lines.append((f"for {use}", ", ".join(f"{name} {version or '-'}" for name, version in versions.items())))
    lines += [("environment", f"{name}={value}") for name, value in found["environment"].items()]
    right = "right" if check.get("right") else "WRONG"
    lines.append(("check", _problem(check) or f"{check['product']} in {check['seconds']:.3f} s: {right}"))
    return lines


def doctor(
    route: str | None,
    types: str | None,
    instruction: str | None,
    target: str | None,
    kernels: bool,
    markdown: bool,
    as_json: bool,
) -> None:
    """Print what this machine has: CPU path, cache, GPU, libraries, variables; and try one product. Attach the output to a bug report."""
    # what prints kernels and what describes the machine need little of each other: only one of them is imported
    if kernels:
        from fastmma.cli.route import print_kernels

        print_kernels(markdown, as_json)
        return
    if route is not None:
        from fastmma.cli.route import print_route

        print_route(route, types, instruction, target or parameters.TARGET, as_json)
        return
    from fastmma.verification.machine import describe

    found = describe(__version__)
    if as_json:
        print_json(found)
    else:
        print_table(("what", "here"), _lines(found))
    if not found["check"].get("right"):
        raise click.exceptions.Exit(1)
