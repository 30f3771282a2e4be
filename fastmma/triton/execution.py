"""Who runs a launch: Triton's interpreter, with fastmma's operations, or the PTX of the compiled kernel, executed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from triton.runtime.errors import OutOfResources

from fastmma.functions.pretended import describe
from fastmma.triton.addresses import Memory, of_launch
from fastmma.triton.emulation import Emulation
from fastmma.triton.reasons import explain, find_our_error


def _storages(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the memory of tensors among arguments."""
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _storages(value)
            continue
        tensor: Any = value if hasattr(value, "untyped_storage") else getattr(value, "base", None)
        if hasattr(tensor, "untyped_storage"):
            yield tensor.untyped_storage()


class Kept:
    """The memory of a launch's tensors as it was before."""

    def __init__(self, values: Iterable[Any]) -> None:
        storages = {storage.data_ptr(): storage for storage in _storages(values)}
        self._kept = [(storage, storage.clone()) for storage in storages.values()]

    def restore(self) -> None:
        """Write it back."""
        for storage, before in self._kept:
            storage.copy_(before)


def describe_memory(run: Emulation, given: dict[str, Any], *, makes_pointers: bool) -> Memory:
    """Describe the memory of a launch's arguments."""
    arguments = {name: list(_storages([value])) for name, value in given.items()}
    return Memory.of(arguments, run.report, makes_pointers=makes_pointers)


def run_launch(run: Emulation, grid: Any, given: dict[str, Any], interpret: Callable[[], Any]) -> Any:
    """Run a launch; the first of a compiled kernel finds out who runs it.

    The interpreter does, unless it meets an operation whose bits it does not know, and the PTX has none that nothing here executes.

    Parameters
    ----------
    run : Emulation
    grid : tuple of int
    given : dict
        The arguments by name, as they were given.
    interpret : callable
        Runs the launch in the interpreter.

    Raises
    ------
    triton.runtime.errors.OutOfResources
        If a block takes more shared memory than the GPU has, as on the GPU.
    """
    with of_launch(describe_memory(run, given, makes_pointers=run.launch.makes_pointers)):
        return _run(run, grid, given, interpret)


def _run(run: Emulation, grid: Any, given: dict[str, Any], interpret: Callable[[], Any]) -> Any:
    found = run.launch.executable
    if found is None:
        return interpret()
    limit = describe(run.target).shared_memory_per_block_optin
    if found.shared > limit:
        raise OutOfResources(found.shared, limit, "shared memory")
    if run.lowering == "ptx" or found.is_taken:
        return found.run(run.report, grid, given)
    if found.is_taken is False:
        return interpret()
    kept = Kept(given.values())
    try:
        with run.report.on_trial():
            result = interpret()
    except Exception as error:
        kept.restore()
        machine = found.machine(run.report.target)
        if isinstance(machine, str):
            found.is_taken = False
            run.report.notes[f"{found.name}: its PTX is not executed, because fastmma does not model {machine}"] += 1
            return interpret()
        found.is_taken = True
        ours = find_our_error(error)
        run.report.notes[f"{found.name}: its PTX is executed, since the interpreter does not know {ours or explain(error)}"] += 1
        return found.run(run.report, grid, given)
    found.is_taken = False
    return result
