"""Many small cases in one test: a failure names its case."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any


def cases(names: str | Sequence[str], values: Sequence[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for each value of its parameters, as `pytest.mark.parametrize` does, but in one test.

    The names are separated by commas, or a sequence: then each value is a sequence as well.
    """
    listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @wraps(test)
        def run(*fixtures: Any, **named: Any) -> None:
            for value in values:
                given = dict(zip(listed, [value] if len(listed) == 1 else value, strict=True))
                try:
                    test(*fixtures, **named, **given)
                except BaseException as error:
                    error.add_note(f"the case: {', '.join(f'{name} = {each}' for name, each in given.items())}")
                    raise
            assert len(values), "there are no cases"

        rest = [each for name, each in signature.parameters.items() if name not in listed]
        assert len(rest) == len(signature.parameters) - len(listed), f"{test.__name__} does not take {listed}"
        run.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return run

    return decorated
