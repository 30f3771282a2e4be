"""Operations that only some GPUs have, which the compiler lowers all the same: LLVM then ends the process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from triton import knobs

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.emulation import Emulation
from fastmma.triton.gluon.kernel import Kernel
from fastmma.triton.gluon.mlir import Operation, Region, parse_module


class Need(NamedTuple):
    """Operations whose names begin so, and the compute capabilities that have them: from the first to before the last."""

    name: str
    first: int
    last: int
    advice: str


_NEEDS = (
    Need("ttng.warp_group_dot", 90, 100, "Blackwell's datacenter GPUs have tcgen05_mma, and all others mma_v2"),
    Need("ttng.async_tma", 90, 1000, "GPUs before Hopper have async_copy"),
    Need("ttng.fence_async_shared", 90, 1000, "GPUs before Hopper need no such fence"),
)


def _list_operations(region: Region) -> Iterator[Operation]:
    for one in region.operations:
        yield one
        for inner in one.regions:
            yield from _list_operations(inner)


def check(run: Emulation, text: str) -> None:
    """Raise if a kernel, in the compiler's intermediate code, has an operation that the GPU has not.

    Raises
    ------
    NotEmulatedError
    """
    missing = [need for need in _NEEDS if need.name in text and not need.first <= run.capability < need.last]
    if not missing:
        return
    kernel = Kernel(parse_module(text), run, 0, str, {})
    for function in kernel.module.functions.values():
        for one in _list_operations(function.body):
            advice = next((need.advice for need in missing if one.name.startswith(need.name)), "")
            if advice:
                raise NotEmulatedError(f"{kernel.describe(one)}: {run.target} has no such instruction; {advice}")


@contextmanager
def checking(run: Emulation) -> Iterator[None]:
    """Have the compiler check what a kernel needs before it makes machine code."""
    others = knobs.runtime.add_stages_inspection_hook

    def inspect(*given: Any) -> Any:
        found = others(*given) if others is not None else ("", "")
        if given:
            stages: Mapping[str, Any] = given[1]
            lower = stages["llir"]

            def checked(module: Any, metadata: Any) -> Any:
                check(run, str(module))
                return lower(module, metadata)

            given[1]["llir"] = checked
        return found

    with knobs.runtime.scope():
        knobs.runtime.add_stages_inspection_hook = inspect
        yield
