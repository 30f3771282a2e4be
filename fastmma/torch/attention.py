"""Fused attention, and all other operators that an emulation answers for: as a GPU computes them, taken apart, or passed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from fastmma.host.errors import NotEmulatedError
from fastmma.torch.attention_apart import APART
from fastmma.torch.emulation import Emulation
from fastmma.torch.fused_attention import COMPUTED
from fastmma.torch.operators import OPERATORS, UNKNOWN, Handler, called, passed
from fastmma.torch.plans import UnknownError
from fastmma.torch.report import ASSUMED, PASSED

FUSED = "a GPU's fused attention is not known"


def taken_apart(run: Emulation, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], plain: Handler | None = None) -> Any:
    """Fused attention, as the settings say: as a GPU computes it, where that is known.

    Raises
    ------
    NotEmulatedError
        If it is not to be computed.
    """
    wish = run.settings.attention
    if run.settings.computes_attention and func in COMPUTED:
        with suppress(UnknownError):
            return COMPUTED[func](run, *args, **kwargs)
    if func not in APART:
        return passed(run, func, args, kwargs, UNKNOWN[func], plain) if func in UNKNOWN else (plain or func)(*args, **kwargs)
    if wish == "error":
        raise NotEmulatedError(f"{func}: {FUSED}; attention='math' takes it apart")
    if wish == "pass":
        run.tell(str(func), PASSED, FUSED, args)
        return (plain or func)(*args, **kwargs)
    try:
        found = APART[func](run.guessing(FUSED), *args, **kwargs)
    except UnknownError as unknown:
        return passed(run, func, args, kwargs, str(unknown), plain)
    run.tell(str(func), ASSUMED, f"taken apart into products and a softmax: {FUSED}", args)
    return found


def answered(run: Emulation, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], plain: Handler | None = None) -> Any:
    """The result of any operator that concerns an emulation: a product, fused attention, or what nobody knows; see `called`.

    Raises
    ------
    NotEmulatedError
    """
    if func in OPERATORS:
        return called(run, func, args, kwargs, plain)
    if func in APART or func in COMPUTED:
        return taken_apart(run, func, args, kwargs, plain)
    return passed(run, func, args, kwargs, UNKNOWN.get(func, "it is not taken apart"), plain)
