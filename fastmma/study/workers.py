"""Cases of a study on the workers of an executor: threads, processes, or other machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import islice
from typing import Any, Protocol

from fastmma.host.errors import BackendError, FastmmaError, OperandTypeError
from fastmma.study.grid import Case
from fastmma.study.records import Record

_UNDER_WAY = 256  # calls


class Executor(Protocol):
    """An executor that runs calls elsewhere: `concurrent.futures.Executor`, or what looks like one."""

    def submit(self, function: Any, /, *args: Any) -> Future[Any]:
        """Begin a call."""


def check_executor(value: Any) -> None:
    """Raise OperandTypeError unless a value takes calls."""
    if not callable(getattr(value, "submit", None)):
        raise OperandTypeError(f"executor must have a method submit, as those of concurrent.futures do, not be a {type(value).__name__}")


def spread(
    executor: Executor,
    measure: Callable[..., Record],
    calls: Iterable[tuple[Case, tuple[Any, ...]]],
    finished: Callable[[Case, Record], None],
) -> None:
    """Measure cases on the workers, each with its further arguments, and hand over each record as soon as it is there.

    So many calls are on their way at a time that workers have work, and that memory need not hold the operands of all layers. Where a case
    fails, those that have not begun are left, and those that have are waited for.

    Raises
    ------
    FastmmaError
        What the first case that failed raised, with the case's name; BackendError where a worker was lost, or raised anything else.
    """
    futures: dict[Future[Any], Case] = {}
    failure: tuple[Case, BaseException] | None = None
    waiting = iter(calls)
    try:
        while True:
            for case, arguments in islice(waiting if failure is None else (), _UNDER_WAY - len(futures)):
                try:
                    futures[executor.submit(measure, case, *arguments)] = case
                except RuntimeError as error:  # the executor is shut down or broken
                    failure = case, error
                    break
            if not futures:
                break
            for future in wait(futures, return_when=FIRST_COMPLETED).done:
                case = futures.pop(future)
                if future.cancelled():
                    continue
                raised = future.exception()
                if raised is None:
                    finished(case, future.result())
                elif failure is None:
                    failure = case, raised
            if failure is not None:
                _cancel(futures)
    finally:
        _cancel(futures)
    if failure is not None:
        raise _name(*failure) from failure[1]


def _cancel(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.cancel()


def _name(case: Case, error: BaseException) -> FastmmaError:
    """An error that names its case."""
    name = f"study: {case.format} on {case.accumulator}, {case.m} x {case.n} x {case.k}, {case.source}, seed {case.seed}"
    if isinstance(error, FastmmaError):
        return type(error)(f"{name}: {error}")
    return BackendError(f"{name}: the worker failed: {type(error).__name__}: {error}")
