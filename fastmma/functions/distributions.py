"""Random numbers as torch's CUDA kernels draw them (``DistributionTemplates.h``, ``Dropout.cu``, ``Randperm.cu``; PyTorch 2.11)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastmma import kernels
from fastmma.functions import libdevice
from fastmma.functions.arithmetic import round_to
from fastmma.functions.philox import WORDS, Generator, Launch, draw_words, launch_of, take_words
from fastmma.host.errors import NotEmulatedError

_F64 = np.dtype(np.float64)
_DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}  # of significands
_WIDE = 1 << 28  # from which ranges on integers are made of two words
_UNIT, _FINE = float.fromhex("0x1p-32"), float.fromhex("0x1p-53")
_APPLIED = 512  # threads of a block that takes 4 elements a thread

Array = NDArray[Any]


def _floats(words: NDArray[np.uint32], count: int) -> Array:
    """Return the first words in the order of elements, as float32."""
    return words.reshape(-1)[:count].astype(np.float32)


def _doubles(generator: Generator, count: int) -> NDArray[np.float64]:
    """Draw numbers of 53 bits from 2^-54 to 1."""
    words = take_words(generator, count, 2).astype(np.uint64)
    bits = words[:, 0::2] ^ (words[:, 1::2] << np.uint64(21))
    return bits.reshape(-1)[:count] * _FINE + _FINE / 2


def draw_wide(generator: Generator, count: int) -> NDArray[np.uint64]:
    """Draw words of 64 bits."""
    words = take_words(generator, count, 2).astype(np.uint64)
    return ((words[:, 0::2] << np.uint64(32)) | words[:, 1::2]).reshape(-1)[:count]


def _refuse(generator: Generator, count: int, name: str) -> None:
    """Move the generator on as a kernel for float64 does, whose numbers are not known."""
    generator.take(launch_of(count, 2).calls * WORDS)
    raise NotEmulatedError(f"{name} numbers of float64 are not known")


def _apply(name: str, arrays: list[Array], numbers: list[float], dtype: DTypeLike, parameters: tuple[float, ...] = ()) -> Array:
    operands = [*arrays, *(np.full(1, number, np.float32) for number in numbers)]
    found: Array = kernels.functions.apply.apply(name, *operands, parameters=parameters, out_dtype=dtype)
    return found


def draw_uniform(generator: Generator, count: int, low: float, high: float, dtype: DTypeLike) -> Array:
    """Draw numbers from `low` to `high` as ``Tensor.uniform_`` does.

    Parameters
    ----------
    generator : Generator
    count : int
    low, high : float
    dtype : dtype
        float32, float16, bfloat16 or float64.

    Returns
    -------
    array (count,)

    Examples
    --------
    >>> draw_uniform(Generator(0), 2, 0, 1, np.float32).tolist()
    [0.39904648065567017, 0.5166791677474976]
    """
    wanted = np.dtype(dtype)
    if wanted == _F64:
        found = _doubles(generator, count)
        kernels.functions.philox.spread(found, float(high - low), float(low))
        return np.where(found == high, low, found)
    ends = [float(round_to(end, wanted)) for end in (low, high)]
    span = float(round_to(np.float32(ends[1]) - np.float32(ends[0]), wanted))
    bits = float(_DIGITS[wanted.name])
    return _apply("drawn_uniform", [_floats(take_words(generator, count), count)], [ends[0], span, ends[1]], wanted, (bits,))


def _draw_normal(names: tuple[str, str], generator: Generator, count: int, mean: float, deviation: float, dtype: DTypeLike) -> Array:
    if np.dtype(dtype) == _F64:
        _refuse(generator, count, "normal")
    words = take_words(generator, count).astype(np.float32)
    pairs = [np.ascontiguousarray(words[:, index::2]) for index in (0, 1)]
    found = np.empty((len(words), 2, 2, words.shape[2]), dtype)
    for index, name in enumerate(names):
        found[:, :, index] = _apply(name, pairs, [mean, deviation], dtype)
    return found.reshape(-1)[:count]


def draw_normal(generator: Generator, count: int, mean: float, deviation: float, dtype: DTypeLike) -> Array:
    """Draw numbers as ``Tensor.normal_`` does.

    Parameters
    ----------
    generator : Generator
    count : int
    mean, deviation : float
    dtype : dtype
        float32, float16 or bfloat16.

    Returns
    -------
    array (count,)

    Raises
    ------
    NotEmulatedError
        Of float64.
    """
    return _draw_normal(("drawn_sine", "drawn_cosine"), generator, count, mean, deviation, dtype)


def draw_log_normal(generator: Generator, count: int, mean: float, deviation: float, dtype: DTypeLike) -> Array:
    """Draw numbers as ``Tensor.log_normal_`` does; parameters and errors are those of `draw_normal`."""
    return _draw_normal(("drawn_log_sine", "drawn_log_cosine"), generator, count, mean, deviation, dtype)


def _draw_by(name: str, generator: Generator, count: int, numbers: list[float], dtype: DTypeLike) -> Array:
    if np.dtype(dtype) == _F64:
        _refuse(generator, count, name.removeprefix("drawn_"))
    return _apply(name, [_floats(take_words(generator, count), count)], numbers, dtype)


def draw_exponential(generator: Generator, count: int, rate: float, dtype: DTypeLike) -> Array:
    """Draw numbers as ``Tensor.exponential_`` does; float64 is not known (NotEmulatedError)."""
    return _draw_by("drawn_exponential", generator, count, [float(np.float32(-1) / np.float32(rate))], dtype)


def draw_cauchy(generator: Generator, count: int, median: float, scale: float, dtype: DTypeLike) -> Array:
    """Draw numbers as ``Tensor.cauchy_`` does; float64 is not known (NotEmulatedError)."""
    return _draw_by("drawn_cauchy", generator, count, [median, scale], dtype)


def draw_geometric(generator: Generator, count: int, probability: float, dtype: DTypeLike) -> Array:
    """Draw numbers as ``Tensor.geometric_`` does; float64 is not known (NotEmulatedError)."""
    divisor = libdevice.call("fast_logf", np.full(1, 1 - np.float32(probability)))
    return _draw_by("drawn_geometric", generator, count, [float(divisor[0])], dtype)


def draw_bernoulli(generator: Generator, count: int, probability: float, *, double: bool = False) -> NDArray[np.bool_]:
    """Draw truth values as ``Tensor.bernoulli_`` does with a number; `double` if they become float64.

    Examples
    --------
    >>> draw_bernoulli(Generator(0), 4, 0.5).tolist()
    [True, False, True, False]
    """
    if double:
        return _doubles(generator, count) < probability
    return _floats(take_words(generator, count), count) * np.float32(_UNIT) + np.float32(_UNIT / 2) < np.float32(probability)


def draw_bernoulli_each(generator: Generator, probabilities: Array) -> NDArray[np.bool_]:
    """Draw truth values as ``Tensor.bernoulli_`` does with a tensor, float32 or float64: a thread draws once, for 4 neighbours."""
    count = probabilities.size
    seed, offset = generator.take(10)
    launch = Launch(-(-count // (_APPLIED * 4)) * _APPLIED, 1)
    words = draw_words(seed, offset, launch)[0].T.reshape(-1)[:count]
    found: NDArray[np.bool_] = words.astype(np.float32) * np.float32(_UNIT) + np.float32(_UNIT / 2) <= probabilities.reshape(-1)
    return found.reshape(probabilities.shape)


def _nearest(number: int, digits: int) -> int:
    """Round an integer to the nearest that so many bits hold."""
    step = 1 << max(abs(number).bit_length() - digits, 0)
    low = number // step * step
    above = number - low
    return low + (step if 2 * above > step or (2 * above == step and low // step % 2) else 0)


def _fitted(low: int, high: int, digits: int) -> tuple[int, int]:
    """Move the ends of a range of integers to numbers of a format, inward."""
    after, before = _nearest(low + 1, digits), _nearest(high - 1, digits)
    if after < low:
        low = after + (1 << (abs(low + 1).bit_length() - digits))
    if before >= high:
        high = before - (1 << (abs(high - 1).bit_length() - digits))
    return low, high


def draw_integers(generator: Generator, count: int, low: int, high: int | None, dtype: DTypeLike) -> Array:
    """Draw integers as ``torch.randint`` and ``Tensor.random_`` do.

    Parameters
    ----------
    generator : Generator
    count : int
    low : int
    high : int or None
        The upper limit, which is not drawn. None for all integers that the dtype holds, for floats those without gaps.
    dtype : dtype
        Of integers, truth values or floats.

    Returns
    -------
    array (count,)

    Examples
    --------
    >>> draw_integers(Generator(0), 4, 0, 10, np.int64).tolist()
    [1, 7, 1, 2]
    """
    wanted = np.dtype(dtype)
    digits = _DIGITS.get(wanted.name)
    if high is None:
        top = (1 << digits) + 1 if digits else 2 if wanted == np.bool_ else int(np.iinfo(wanted).max) + 1
        span = top - low
    else:
        low, high = _fitted(low, high, digits) if digits else (low, high)
        span = high - low
    if span >= _WIDE:
        values = draw_wide(generator, count)
        values = values % np.uint64(span) if span < 1 << 64 else values
    else:
        values = (take_words(generator, count).reshape(-1)[:count] % np.uint32(span)).astype(np.uint64)
    whole = (values + np.uint64(low % (1 << 64))).view(np.int64)
    return _to_float(whole, wanted) if digits else whole.astype(wanted)


def draw_all(generator: Generator, count: int, dtype: DTypeLike) -> Array:
    """Draw integers as ``Tensor.random_`` does without limits: from 0 to the largest, in words of 64 bits for int64 and float64.

    Examples
    --------
    >>> draw_all(Generator(0), 2, np.uint8).tolist()
    [213, 225]
    """
    wanted = np.dtype(dtype)
    digits = _DIGITS.get(wanted.name)
    span = (1 << digits) + 1 if digits else 2 if wanted == np.bool_ else int(np.iinfo(wanted).max) + 1
    wide = wanted.name in ("int64", "float64")
    drawn = draw_wide(generator, count) if wide else take_words(generator, count).reshape(-1)[:count].astype(np.uint64)
    whole = (drawn % np.uint64(span)).view(np.int64)
    return _to_float(whole, wanted) if digits else whole.astype(wanted)


def _to_float(whole: NDArray[np.int64], dtype: np.dtype[Any]) -> Array:
    """Convert integers to nearest even."""
    if dtype.name in ("float16", "bfloat16"):
        return round_to(whole.astype(np.float32), dtype)
    return whole.astype(dtype)


def permute(generator: Generator, count: int) -> NDArray[np.int64]:
    """Return a permutation as ``torch.randperm`` does: the order of random keys; of equal ones, one thread shuffles the places.

    Parameters
    ----------
    generator : Generator
    count : int

    Returns
    -------
    int64 array (count,)

    Examples
    --------
    >>> permute(Generator(0), 4).tolist()
    [1, 2, 0, 3]
    """
    if count == 0:
        return np.empty(0, np.int64)
    bits = min(math.ceil(math.log2(count - (6.0 * count * count + 1) / (12 * math.log(0.9)))), 64)
    kind, limit = (np.int32, 1 << 31) if bits <= 32 else (np.int64, 1 << 63)
    keys = draw_integers(generator, count, -limit, limit - 1, kind)
    if bits < kind().itemsize * 8:  # else they are sorted with their signs
        keys &= (1 << bits) - 1
    order = np.argsort(keys, kind="stable")
    seed, offset = generator.take(count)
    sorted_keys = keys[order]
    same = np.flatnonzero(sorted_keys[1:] == sorted_keys[:-1])
    leaders = [place for place in same if place == 0 or sorted_keys[place - 1] != sorted_keys[place]]
    for leader in leaders:
        size = int(np.searchsorted(sorted_keys[leader:], sorted_keys[leader], side="right"))
        words = iter(_thread_words(seed, offset, int(leader), size - 1))
        for index in range(size - 1, 0, -1):
            other = next(words) % (index + 1)
            order[[leader + index, leader + other]] = order[[leader + other, leader + index]]
    return order


def _thread_words(seed: int, offset: int, thread: int, count: int) -> list[int]:
    """Draw the first words of one thread."""
    launch = Launch(thread + 1, -(-count // 4))
    return [int(each) for each in draw_words(seed, offset, launch)[:, :, thread].reshape(-1)[:count]]
