"""The choice of an autotuner's configuration: nothing is measured here, so that the caller or the list's order decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch

from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.errors import OutOfResources

from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.triton.emulation import Emulation
from fastmma.triton.launches import fail
from fastmma.triton.twins import KINDS

RUN = Autotuner.run


def _choose(name: str, configs: list[Any], wanted: Any) -> Any:
    """Find the configuration that is asked for.

    Raises
    ------
    OperandError
        If there is none.
    """
    if isinstance(wanted, int):
        found = configs[wanted : wanted + 1] if wanted >= 0 else []
    else:
        values = wanted.all_kwargs() if isinstance(wanted, Config) else wanted
        found = [one for one in configs if all(one.all_kwargs().get(key) == value for key, value in values.items())]
    if not found:
        listed = "".join(f"\n  {index}: {one}" for index, one in enumerate(configs))
        raise OperandError(f"configs[{name!r}] is {wanted!s}, and {name} has no such configuration; it has{listed}")
    return found[0]


def _run_first(emulation: Emulation, tuner: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Run the first configuration that the GPU has shared memory for."""
    configs = list(tuner.configs)
    while True:
        with patch.object(tuner, "configs", configs):
            try:
                return RUN(tuner, *arguments, **options)
            except OutOfResources as error:
                left = [one for one in configs if one is not tuner.best_config]
                if not 0 < len(left) < len(configs):
                    raise
                emulation.report.notes[f"{tuner.base_fn.__name__} leaves out {tuner.best_config}: {error}"] += 1
                configs = left
                tuner.cache.clear()


def _find_kernel(function: Any) -> Any:
    """Return the kernel inside autotuners and heuristics."""
    while not isinstance(function, KINDS):
        function = function.fn
    return function


def make_run(current: Callable[[], Emulation]) -> Callable[..., Any]:
    """Make what runs in the place of an autotuner."""

    def run(tuner: Any, *arguments: Any, **options: Any) -> Any:
        emulation, name = current(), tuner.base_fn.__name__
        configs: Mapping[str, Any] = emulation.configs
        number = len(tuner.configs)
        twice = [one for one in options if any(one in config.all_kwargs() for config in tuner.configs)]
        if twice:
            raise fail(
                OperandTypeError,
                _find_kernel(tuner),
                f"the launch and the configurations name {', '.join(twice)}",
                "leave it out of one of them",
            )
        if name in configs:
            with patch.object(tuner, "configs", [_choose(name, tuner.configs, configs[name])]):
                result = RUN(tuner, *arguments, **options)
            how = "as asked"
        else:
            result = _run_first(emulation, tuner, arguments, options)
            how = f"the first that is left of {number}; configs={{{name!r}: ...}} names another"
        if number > 1:
            emulation.report.notes[f"{name} takes {tuner.best_config}, {how}"] += 1
        return result

    return run
