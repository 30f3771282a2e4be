"""Random numbers that torch's CUDA kernels draw: by operator, the function of `fastmma.functions`.

A GPU draws for tensors that stand for its own: what is drawn like a tensor or in place, for a device that `as_cuda` pretends, or from
one of its generators. Numbers for new tensors are else the CPU's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from fastmma.functions import distributions, dropout, libdevice
from fastmma.functions.philox import WORDS, Generator, launch_of
from fastmma.host.errors import NotEmulatedError
from fastmma.torch import generators
from fastmma.torch.arrays import DTYPES, to_numpy, to_torch
from fastmma.torch.operators import OUT, form_of

Arguments = Mapping[str, Any]
Row = Callable[[Arguments, Generator], Any]

_LARGEST = 1 << 31  # bytes of a tensor that a kernel takes at once
# by how much other kernels move the generator
_OFFSETS = {"poisson": 20, "binomial": 42, "_standard_gamma": 10, "_sample_dirichlet": 10}


def _filled(out: Tensor, draw: Callable[..., NDArray[Any]], state: Generator, *numbers: Any) -> Tensor:
    """Fill a tensor with what is drawn, in the order in which its elements lie in memory."""
    if out.numel() * out.itemsize > _LARGEST:
        raise NotEmulatedError("larger tensors are drawn in parts")
    order = sorted(range(out.dim()), key=lambda dim: (-out.stride(dim), dim))
    turned = out.permute(order)
    found = draw(state, out.numel(), *numbers, DTYPES[out.dtype])
    turned.copy_(to_torch(found.reshape(tuple(turned.shape))))
    return out


def _in_place(draw: Callable[..., NDArray[Any]], *names: str) -> Row:
    return lambda given, state: _filled(given["self"], draw, state, *(given[name] for name in names))


def _made(given: Arguments, dtype: torch.dtype | None = None) -> Tensor:
    """Make a tensor as a factory does, or one like another."""
    chosen = given["dtype"] if isinstance(given["dtype"], torch.dtype) else None
    if "self" in given:
        form = given.get("memory_format")
        return torch.empty_like(given["self"], dtype=chosen, memory_format=torch.preserve_format if form is None else form)
    return torch.empty(given["size"], dtype=chosen or dtype or torch.get_default_dtype())


def _new(draw: Callable[..., NDArray[Any]], *numbers: float) -> Row:
    return lambda given, state: _filled(_made(given), draw, state, *numbers)


def _integers(given: Arguments, state: Generator) -> Tensor:
    return _filled(_made(given, torch.int64), distributions.draw_integers, state, given.get("low", 0), given["high"])


def _to(given: Arguments, state: Generator) -> Tensor:
    return _filled(given["self"], distributions.draw_integers, state, given.get("from", 0), given["to"])


def _bernoulli(out: Tensor, probability: float, state: Generator) -> Tensor:
    def draw(source: Generator, count: int, dtype: Any) -> NDArray[Any]:
        return distributions.draw_bernoulli(source, count, probability, double=dtype.itemsize == 8 and dtype.kind == "f").astype(dtype)

    return _filled(out, draw, state)


def _bernoulli_each(out: Tensor, probabilities: Tensor, state: Generator) -> Tensor:
    if not out.is_contiguous():
        raise NotEmulatedError("the places of truth values are known for contiguous tensors only")
    wide = probabilities.to(torch.float64 if out.dtype is torch.float64 else torch.float32).expand(out.shape).contiguous()
    return out.copy_(to_torch(distributions.draw_bernoulli_each(state, to_numpy(wide))))


def _like(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor)


def _permutation(given: Arguments, state: Generator) -> Tensor:
    return to_torch(distributions.permute(state, given["n"])).to(given["dtype"] if isinstance(given["dtype"], torch.dtype) else torch.int64)


def _sample(given: Arguments, state: Generator) -> Tensor:
    """Choose the categories whose probabilities, divided by exponential numbers, are the largest."""
    if given["replacement"] and given["num_samples"] != 1:
        state.take(WORDS)
        raise NotEmulatedError("samples with replacement are not known")
    weights, count = given["self"], given["num_samples"]
    ratios = weights / _filled(_like(weights), distributions.draw_exponential, state, 1.0)
    if count == 1:
        return ratios.argmax(-1, keepdim=True)
    if weights.dtype is not torch.float32:
        raise NotEmulatedError("the order of equal ones is not known")
    return ratios.topk(count, -1).indices


def _drop(given: Arguments, state: Generator) -> tuple[Tensor, Tensor]:
    x, probability = given["input"], given["p"]
    if not given["train"] or probability == 1:
        return (torch.zeros_like(x) if given["train"] else x.clone()), torch.full_like(x, not given["train"], dtype=torch.bool)
    dense = bool(torch.ops.aten.is_non_overlapping_and_dense(x))
    order = sorted(range(x.dim()), key=lambda dim: (-x.stride(dim), dim)) if dense else list(range(x.dim()))
    turned = x.permute(order)
    address = x.storage_offset() * x.itemsize if dense else None
    arrays = dropout.drop(state, to_numpy(turned), probability, address)
    out, mask = torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)
    for place, array in zip((out, mask), arrays, strict=True):
        place.permute(order).copy_(to_torch(array))
    return out, mask


def _drop_backward(given: Arguments) -> Tensor:
    arrays = to_numpy(given["grad_output"]), to_numpy(given["mask"])
    return to_torch(dropout.drop_backward(*arrays, given["scale"]))


def _normal(given: Arguments, state: Generator) -> Tensor:
    """Draw normal numbers of the deviations, each of which is one or all elements', and add the means."""
    mean, deviation = given["mean"], given["std"]
    shape = torch.broadcast_shapes(*(each.shape for each in (mean, deviation) if isinstance(each, Tensor)))
    out = torch.empty(shape, dtype=(mean if isinstance(mean, Tensor) else deviation).dtype)
    if not isinstance(deviation, Tensor):
        return _filled(out, distributions.draw_normal, state, 0.0, deviation).add_(mean)
    return _filled(out, distributions.draw_normal, state, 0.0, 1.0).mul_(deviation).add_(mean)


_DRAW = distributions
# by operators and their overloads; those that end with "generator" are those that do not
ROWS: dict[str, Row] = {
    "rand": _new(_DRAW.draw_uniform, 0.0, 1.0),
    "rand_like": _new(_DRAW.draw_uniform, 0.0, 1.0),
    "randn": _new(_DRAW.draw_normal, 0.0, 1.0),
    "randn_like": _new(_DRAW.draw_normal, 0.0, 1.0),
    "randint": _integers,
    "randint.low": _integers,
    "randint_like": _integers,
    "randint_like.low_dtype": _integers,
    "randperm": _permutation,
    "uniform_": _in_place(_DRAW.draw_uniform, "from", "to"),
    "normal_": _in_place(_DRAW.draw_normal, "mean", "std"),
    "log_normal_": _in_place(_DRAW.draw_log_normal, "mean", "std"),
    "exponential_": _in_place(_DRAW.draw_exponential, "lambd"),
    "cauchy_": _in_place(_DRAW.draw_cauchy, "median", "sigma"),
    "geometric_": _in_place(_DRAW.draw_geometric, "p"),
    "random_": _in_place(_DRAW.draw_all),
    "random_.to": _to,
    "random_.from": _to,
    "bernoulli_.float": lambda given, state: _bernoulli(given["self"], given["p"], state),
    "bernoulli.p": lambda given, state: _bernoulli(_like(given["self"]), given["p"], state),
    "bernoulli_.Tensor": lambda given, state: _bernoulli_each(given["self"], given["p"], state),
    "bernoulli": lambda given, state: _bernoulli_each(_like(given["self"]), given["self"], state),
    "multinomial": _sample,
    "native_dropout": _drop,
    "normal.Tensor_float": _normal,
    "normal.float_Tensor": _normal,
    "normal.Tensor_Tensor": _normal,
}
# which draw nothing
_GRADIENTS = {
    "native_dropout_backward": _drop_backward,
}
_FACTORIES = frozenset({"rand", "randn", "randint", "randint.low", "randperm", "normal.float_float"})
_ALIKE = "_like"  # in names of operators that take a device, which may be the CPU beside a GPU


def draws(func: Any) -> bool:
    """Tell whether an operator draws random numbers, or is the gradient of one that does."""
    return torch.Tag.nondeterministic_seeded in func.tags or func._schema.name.partition("::")[2] in _GRADIENTS


def _key(func: Any) -> str:
    """Name an operator and its overload, whether a generator is given or not."""
    overload = func._overloadname.removesuffix("generator").removesuffix("_").removeprefix("default")
    name: str = func._schema.name.partition("::")[2]
    return f"{name}.{overload}" if overload else name


def compute(func: Any, given: Arguments) -> Any:
    """Draw random numbers as a GPU does; None where its generator is not asked, or where it is not known what it draws."""
    key, generator = _key(func), given.get("generator")
    if key in _GRADIENTS:
        return _GRADIENTS[key](given) if all(each.device.type == "cpu" for each in given.values() if isinstance(each, Tensor)) else None
    if generator is None and key in _FACTORIES and not generators.on_gpu():
        return None
    state = generators.of_call(generator)
    tensors = [each for each in given.values() if isinstance(each, Tensor)]
    if (
        state is None
        or state.lost
        or any(each.device.type != "cpu" or each.layout is not torch.strided or each.dtype not in DTYPES for each in tensors)
    ):
        return None
    if key == "rrelu_with_noise" and given["training"]:
        state.take(launch_of(given["self"].numel()).calls * WORDS)
        return None
    elsewhere = _ALIKE in key and given["device"] is not None and not generators.on_gpu()
    if key not in ROWS or form_of(func) == OUT or elsewhere:
        _lose(state, key)
        return None
    libdevice.required_release()
    before = state.offset
    try:
        return ROWS[key](given, state)
    except NotEmulatedError:
        if state.offset == before:
            _lose(state, key)
        return None


def _lose(state: Generator, key: str) -> None:
    """Move a generator on by what a kernel takes whose numbers are not known; without that nobody knows what comes next."""
    count = _OFFSETS.get(key.partition(".")[0])
    if count is None:
        state.lost = True
    else:
        state.take(count)
