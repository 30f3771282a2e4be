"""Random numbers that PyTorch 2.11 drew on an H200: calls after a seed, checksums of their results, and the offsets after each.

A case is a row of ``torch_random.json``: a seed, the way in which it is set, and calls: a name, arguments, a shape and a dtype.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

PATH = Path(__file__).parent / "torch_random.json"
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64, "i8": torch.int8, "u8": torch.uint8}
DTYPES |= {"i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "bool": torch.bool}
WHOLE, PIECE, FEW = 4096, 1024, 300000
_CODES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Call:
    """A call: its arguments, a shape and a dtype, operands that NumPy draws, and a generator."""

    def __init__(self, seed: int, index: int, row: list[Any], device: str, generator: torch.Generator | None) -> None:
        self.name, self.arguments, shape, self.fmt = row
        self.shape, self.device, self.dtype = tuple(shape), device, DTYPES[self.fmt]
        self.rng = seeded(abs(seed), self.name, index)
        self.generator = generator

    def empty(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device=self.device)

    def normal(self, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        drawn = self.rng.standard_normal(self.shape if shape is None else shape, np.float32)
        return torch.from_numpy(drawn).to(self.dtype).to(self.device)

    def uniform(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.from_numpy(self.rng.random(self.shape, np.float32)).to(dtype or self.dtype).to(self.device)


def seeded(*seeds: Any) -> np.random.Generator:
    """A generator of NumPy's that draws the same on every machine."""
    return np.random.Generator(np.random.PCG64([each if isinstance(each, int) else zlib.crc32(str(each).encode()) for each in seeds]))


def _factory(name: str) -> Callable[[Call], torch.Tensor]:
    return lambda c: getattr(torch, name)(c.shape, dtype=c.dtype, device=c.device, generator=c.generator)


def _in_place(name: str) -> Callable[[Call], torch.Tensor]:
    return lambda c: getattr(c.empty(), name)(*c.arguments, generator=c.generator)


def _with_gradient(function: Callable[[Call, torch.Tensor], torch.Tensor]) -> Callable[[Call], list[torch.Tensor]]:
    def run(c: Call) -> list[torch.Tensor]:
        x = c.normal().requires_grad_()
        y = function(c, x)
        y.backward(c.normal(tuple(y.shape)))
        assert x.grad is not None
        return [y.detach(), x.grad]

    return run


def _turned(c: Call) -> torch.Tensor:
    base = torch.zeros(c.shape[::-1], dtype=c.dtype, device=c.device)
    base.t().normal_(0.0, 1.0, generator=c.generator)
    return base


def _sliced(c: Call) -> torch.Tensor:
    base = torch.zeros((*c.shape, 3), dtype=c.dtype, device=c.device)
    base[..., 1].uniform_(0.0, 1.0, generator=c.generator)
    return base[..., 1].contiguous()


def _parameters(module: torch.nn.Module) -> list[torch.Tensor]:
    return [each.detach() for each in module.parameters()]


_PLACES = "random_ uniform_ normal_ exponential_ log_normal_ cauchy_ geometric_"
CALLS: dict[str, Callable[[Call], Any]] = {name: _factory(name) for name in ("rand", "randn")}
CALLS |= {name: _in_place(name) for name in _PLACES.split()}
CALLS |= {
    "rand_like": lambda c: torch.rand_like(c.empty()),
    "randn_like": lambda c: torch.randn_like(c.empty()),
    "randint": lambda c: torch.randint(*c.arguments, c.shape, dtype=c.dtype, device=c.device, generator=c.generator),
    "randint_like": lambda c: torch.randint_like(c.empty(), *c.arguments),
    "normal_tt": lambda c: torch.normal(c.normal(), c.uniform(), generator=c.generator),
    "normal_tf": lambda c: torch.normal(c.normal(), c.arguments[0], generator=c.generator),
    "normal_ft": lambda c: torch.normal(c.arguments[0], c.uniform(), generator=c.generator),
    "bernoulli_p": lambda c: c.empty().bernoulli_(c.arguments[0], generator=c.generator),
    "bernoulli_t": lambda c: c.empty().bernoulli_(c.uniform(DTYPES[c.arguments[0]]), generator=c.generator),
    "bernoulli": lambda c: torch.bernoulli(c.uniform(), generator=c.generator),
    "randperm": lambda c: torch.randperm(int(np.prod(c.shape)), dtype=c.dtype, device=c.device, generator=c.generator),
    "multinomial": lambda c: torch.multinomial(c.uniform(), *c.arguments, generator=c.generator),
    "dropout": _with_gradient(lambda c, x: functional.dropout(x, c.arguments[0])),
    "dropout_inplace": lambda c: functional.dropout(c.normal(), c.arguments[0], inplace=True),
    "dropout_t": lambda c: functional.dropout(c.normal().t(), c.arguments[0]),
    "dropout_slice": lambda c: functional.dropout(c.normal((*c.shape, 3))[..., 1], c.arguments[0]),
    "dropout_off": lambda c: functional.dropout(c.normal((int(np.prod(c.shape)) + 1,))[1:], c.arguments[0]),
    "native_dropout": lambda c: list(torch.native_dropout(c.normal(), c.arguments[0], True)),
    "native_dropout_eval": lambda c: list(torch.native_dropout(c.normal(), c.arguments[0], False)),
    "dropout1d": _with_gradient(lambda c, x: functional.dropout1d(x.reshape(2, -1, x.shape[-1]), c.arguments[0])),
    "dropout2d": _with_gradient(lambda c, x: functional.dropout2d(x.reshape(2, -1, 1, x.shape[-1]), c.arguments[0])),
    "alpha_dropout": _with_gradient(lambda c, x: functional.alpha_dropout(x, c.arguments[0], True)),
    "feature_alpha_dropout": _with_gradient(
        lambda c, x: functional.feature_alpha_dropout(x.reshape(2, -1, 1, x.shape[-1]), c.arguments[0], True)
    ),
    "gumbel_softmax": _with_gradient(lambda c, x: functional.gumbel_softmax(x, c.arguments[0], bool(c.arguments[1]))),
    "kaiming_uniform_": lambda c: torch.nn.init.kaiming_uniform_(c.empty(), a=5**0.5),
    "xavier_normal_": lambda c: torch.nn.init.xavier_normal_(c.empty()),
    "normal_t_": _turned,
    "uniform_slice_": _sliced,
    "linear_init": lambda c: _parameters(torch.nn.Linear(c.shape[-1], c.shape[0], device=c.device, dtype=c.dtype)),
    "embedding_init": lambda c: _parameters(torch.nn.Embedding(c.shape[0], c.shape[-1], device=c.device, dtype=c.dtype)),
}


def _offset(state: torch.Tensor) -> int:
    return int.from_bytes(bytes(state[8:16].tolist()), "little")


def run(case: dict[str, Any], device: str = "cuda") -> Iterator[tuple[list[torch.Tensor], list[int]]]:
    """Run a case; of each call its results, and the offsets of the GPU's generator and of one of its own."""
    seed, own = case["seed"], None
    torch.manual_seed(seed + 1 if case["way"] == "generator" else 12345 if case["way"] == "cuda.manual_seed" else seed)
    if case["way"] == "cuda.manual_seed":
        torch.cuda.manual_seed(seed)
    if case["way"] == "offset":
        state = torch.cuda.get_rng_state()
        state[8:16] = torch.tensor(list(case["offset"].to_bytes(8, "little")), dtype=torch.uint8)
        torch.cuda.set_rng_state(state)
    if case["way"] == "generator":
        own = torch.Generator(device=device)
        own.manual_seed(seed)
    for index, row in enumerate(case["calls"]):
        found = CALLS[row[0]](Call(seed, index, row, device, own))
        offsets = [_offset(torch.cuda.get_rng_state()), 0 if own is None else _offset(own.get_state())]
        yield (found if isinstance(found, list) else [found]), offsets


def bits(tensor: torch.Tensor) -> NDArray[Any]:
    """The codes of a tensor, of all NaN one."""
    plain = tensor.detach()
    if plain.dtype.is_floating_point:
        plain = torch.where(plain.isnan(), torch.full_like(plain, float("nan")), plain)
    plain = plain.contiguous().reshape(-1).cpu()
    found: NDArray[Any] = (plain.to(torch.uint8) if plain.dtype is torch.bool else plain.view(_CODES[plain.element_size()])).numpy()
    return found


def checksum(tensor: torch.Tensor, seed: int, whole: int = WHOLE, samples: int = 1024) -> int:
    """A checksum of the codes of a tensor, its shape and its dtype; of more than `whole` elements through those of pieces."""
    codes = bits(tensor)
    parts = codes.tobytes()
    if codes.size > whole:
        places = seeded(seed, codes.size).integers(0, codes.size, samples)
        piece = PIECE if codes.size <= FEW else 16 * PIECE
        sums = [zlib.crc32(codes[first : first + piece].tobytes()) for first in range(0, codes.size, piece)]
        parts = codes[places].tobytes() + np.array(sums, np.uint32).tobytes()
    return zlib.crc32(parts + f"{list(tensor.shape)} {tensor.dtype}".encode())


def recorded() -> list[dict[str, Any]]:
    """All cases, with what was recorded."""
    found: list[dict[str, Any]] = json.loads(PATH.read_text())
    return found
