"""NVIDIA's libdevice on a CPU: its float32 functions, with the bits that CUDA code has on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmma import kernels
from fastmma.host.errors import NotEmulatedError
from fastmma.host.float_mode import default_floats

# by the beginning of a file's SHA-256: its release, and functions that differ from those of CUDA 13.0. Others have the same instructions,
# or all their results are the same (tanhf's in the older release); fmodf is exact. coshf, sinhf and atanhf of the older release have other
# instructions, and were not compared whole
_OLDER = "acosf acoshf asinf asinhf atanf atanhf atan2f cbrtf coshf erff erfcinvf erfinvf j0f j1f normcdff normcdfinvf powf sinhf tgammaf"
RELEASES: dict[str, tuple[str, frozenset[str]]] = {
    "91334d6e12748f6c": ("CUDA 13.0", frozenset()),
    "5c2fae37c86e68c3": ("Triton 3.2 to 3.8", frozenset(_OLDER.split())),
    "9e84b504f25d26ec": ("Triton 3.9", frozenset({"asinhf", "acoshf", "atan2f", "cbrtf", "erfcinvf", "erfinvf", "normcdfinvf"})),
}
# by the beginning of a file's SHA-256: the release of Triton that links it, and functions that differ from those of Triton 3.6
TRITONS: dict[str, tuple[str, frozenset[str]]] = {
    "5c2fae37c86e68c3": ("Triton 3.6", frozenset()),
    "9e84b504f25d26ec": (
        "Triton 3.9",
        frozenset(f"__nv_{name}f" for name in ("acos", "asin", "atan", "cospi", "erf", "fdim", "pow", "sinpi", "tgamma", "fast_tanh")),
    ),
}
# of CUDA 13.0: those of which all results on an H200 are known to be these, 2^24 at a time by a checksum; powf and others by samples
_ALL_RESULTS = (
    "acosf acoshf asinf asinhf atanf atanhf cosf coshf erff erfcf erfinvf expf exp2f expm1f lgammaf logf log10f log1pf log2f rsqrtf "
    "sinf sinhf tanf tanhf"
)
CHECKED = frozenset(_ALL_RESULTS.split())


def release() -> tuple[str, frozenset[str]] | None:
    """Return the release of libdevice on this machine, and its functions that differ from CUDA 13.0's; None where it is not known."""
    return RELEASES.get(kernels.functions.bitcode.file_digest())


def required_release() -> tuple[str, frozenset[str]]:
    """Return what `release` does.

    Raises
    ------
    NotEmulatedError
        If there is no libdevice on this machine, or one of a release that is not known.
    """
    found = release()
    if found is None:
        place = kernels.functions.bitcode.find_bitcode()
        what = "it is not on this machine" if place is None else f"{place} is of a release that is not known"
        raise NotEmulatedError(f"a GPU's functions need NVIDIA's libdevice, and {what}: {kernels.functions.bitcode.INSTALL}")
    return found


def difference(formula: str, parameters: tuple[float, ...] = (), operands: int = 1) -> str:
    """Say which function that a formula calls is not that of CUDA 13.0 here, and what to install; empty where all are the same.

    Parameters
    ----------
    formula : str
        For example ``"gelu"``, or a function of libdevice.
    parameters : tuple of float, optional
        That the formula is made for.
    operands : int, optional
        How many there are.

    Examples
    --------
    >>> difference("expf")  # doctest: +SKIP
    ''
    """
    name, others = release() or ("", frozenset())
    differ = sorted(kernels.functions.apply.called(formula, parameters, operands) & others) if others else []
    return f"{differ[0]} of {name}'s libdevice is not that of CUDA 13.0: {kernels.functions.bitcode.INSTALL}" if differ else ""


def tritons_release() -> tuple[str, frozenset[str]] | None:
    """Return the release of Triton's libdevice, and its functions that differ from those that were recorded; None where it is not known."""
    place = kernels.functions.bitcode.find_tritons()
    return None if place is None else TRITONS.get(kernels.functions.bitcode.file_digest(place))


@default_floats
def call_tritons(symbol: str, *operands: ArrayLike, threads: int | None = None) -> NDArray[Any] | None:
    """Call a function of Triton's libdevice for each element, as Triton's compiler links it; None where it is not known.

    Parameters
    ----------
    symbol : str
        For example ``"__nv_expf"``.
    operands : array
        Of one shape.
    threads : int, optional

    Examples
    --------
    >>> call_tritons("__nv_erf", np.float64([0.5]))  # doctest: +SKIP
    array([0.52049988])
    """
    functions = kernels.functions.device_functions
    if not functions.is_known(symbol):
        return None
    found: NDArray[Any] = functions.call(symbol, *(np.asarray(operand) for operand in operands), threads=threads)
    return found


@default_floats
def call(function: str, *operands: ArrayLike, threads: int | None = None) -> NDArray[np.float32]:
    """Call a float32 function of libdevice for each element.

    Parameters
    ----------
    function : str
        Without ``__nv_``, for example ``"expf"``.
    operands : array
        Of float32; their shapes are broadcast.
    threads : int, optional

    Raises
    ------
    BackendError
        If libdevice is not on this machine.
    NotEmulatedError
        If the function of the libdevice that is here is not that of CUDA 13.0.
    OperandError, OperandTypeError

    Examples
    --------
    >>> call("expf", np.float32([0, 1]))  # doctest: +SKIP
    array([1.       , 2.7182817], dtype=float32)
    """
    if why := difference(function, (), len(operands)):
        raise NotEmulatedError(why)
    arrays: list[NDArray[Any]] = [np.asarray(operand, np.float32) for operand in operands]
    found: NDArray[np.float32] = kernels.functions.apply.apply(function, *arrays, threads=threads)
    return found
