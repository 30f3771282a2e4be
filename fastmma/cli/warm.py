"""``fastmma warm``: kernels compiled ahead of the calls that need them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context

import click

from fastmma.cli import parameters
from fastmma.cli.progress import bar
from fastmma.cli.table import print_json, print_text
from fastmma.host.memory import amount
from fastmma.isa.gpus import target_named
from fastmma.verification import warm as ahead


def _begin() -> None:
    """Prepare a process: Ctrl-C is for the one that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _make(calls: list[ahead.Call], jobs: int) -> None:
    with bar("compiling") as show:
        for done, call in enumerate(_made(calls, jobs), 1):
            show(done, len(calls), f"{call.target} {call.name}, {call.kind}")


def _made(calls: list[ahead.Call], jobs: int) -> Iterator[ahead.Call]:
    """Make the calls, and tell of each."""
    if jobs == 1:
        for call in calls:
            ahead.run(call)
            yield call
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin) as processes:
        pending = {processes.submit(ahead.run, call): call for call in calls}
        try:
            for each in as_completed(pending):
                each.result()
                yield pending[each]
        except BaseException:
            for process in active_children():  # what they compile can be given up at any point
                process.terminate()
            raise


def warm(
    target: tuple[str, ...],
    format_: tuple[str, ...],
    jobs: int | None,
    as_json: bool,
) -> None:
    """Compile the kernels for products, single tiles and block-scaled arrays, and keep them for later processes."""
    from fastmma.kernels.llvm import disk_cache

    calls = ahead.calls([target_named(each) for each in dict.fromkeys(target or [parameters.TARGET])])
    names = dict.fromkeys(call.name for call in calls)
    unknown = [name for name in format_ if name not in names]
    if unknown:
        raise click.BadParameter(f"the targets have no products of {unknown[0]}; they have {', '.join(names)}", param_hint="--format")
    calls = [call for call in calls if not format_ or call.name in format_]
    began = time.perf_counter()
    _make(calls, min(jobs or os.cpu_count() or 1, len(calls)))
    place = next((folder for folder in disk_cache.kernel_folders() if folder.files and not folder.refusal), None)
    if place is None:
        print("fastmma: no kernel could be kept; fastmma doctor tells where they would be", file=sys.stderr)
        raise click.exceptions.Exit(1)
    seconds = time.perf_counter() - began
    if as_json:
        print_json({"kernels": place.files, "bytes": place.bytes, "folder": str(place.path), "seconds": seconds})
        return
    print_text(f"{place.files} kernels, {amount(place.bytes)}, are in {place.path} ({seconds:.0f} s)")
