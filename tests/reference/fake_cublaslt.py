"""CUDA's driver and cuBLASLt as ctypes would have them, on the memory of this machine: what they answer is a test's to say."""

# ruff: noqa: N802, N815 - the names are NVIDIA's
from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from fastmma.cublas import Choice
from numpy.typing import NDArray

import fastmma
from fastmma.products.cublas.follow import Call, follow
from fastmma.products.cublas.look_up import Known
from fastmma.products.cublas.rows import Product
from fastmma.products.cublas.tables import nearest_table
from fastmma.products.gemm_choice import EpilogueInputs

_DTYPES: dict[int, Any] = {14: ml_dtypes.bfloat16, 2: np.float16, 0: np.float32, 28: ml_dtypes.float8_e4m3fn}
_NAMES = {14: "bf16", 2: "f16", 0: "f32", 28: "e4m3"}
_TURNED = {0: "n", 1: "t"}


def _value(pointer: Any) -> Any:
    """What a pointer made by ``byref`` points at."""
    return pointer._obj


class FakeDriver:
    """``libcuda``: a GPU whose memory is that of this machine."""

    def __init__(self, name: str = "NVIDIA B200", capability: tuple[int, int] = (10, 0)) -> None:
        self.name, self.capability, self.held = name, capability, dict[int, Any]()

    def cuInit(self, _flags: int) -> int:
        return 0

    def cuDeviceGet(self, _device: Any, _number: int) -> int:
        return 0

    def cuDevicePrimaryCtxRetain(self, _context: Any, _device: Any) -> int:
        return 0

    def cuCtxSetCurrent(self, _context: Any) -> int:
        return 0

    def cuCtxSynchronize(self) -> int:
        return 0

    def cuDeviceGetName(self, text: Any, _size: int, _device: Any) -> int:
        text.value = self.name.encode()
        return 0

    def cuDeviceGetAttribute(self, found: Any, number: int, _device: Any) -> int:
        _value(found).value = self.capability[number - 75]
        return 0

    def cuMemAlloc_v2(self, place: Any, size: ctypes.c_size_t) -> int:
        memory = ctypes.create_string_buffer(size.value)
        _value(place).value = ctypes.addressof(memory)
        self.held[ctypes.addressof(memory)] = memory
        return 0

    def cuMemFree_v2(self, place: ctypes.c_void_p) -> int:
        del self.held[place.value or 0]
        return 0

    def cuMemcpyHtoD_v2(self, place: ctypes.c_void_p, data: ctypes.c_void_p, size: ctypes.c_size_t) -> int:
        ctypes.memmove(place, data, size.value)
        return 0

    cuMemcpyDtoH_v2 = cuMemcpyHtoD_v2


class FakeCublasLt:
    """``libcublasLt``: chooses as a function of the product says, and adds as the nearest table says of another choice.

    Parameters
    ----------
    chooses : callable
        From a product to its choice, or None.
    version : int
    adds_by : callable
        From what was chosen to the choice by which products are really added.
    """

    def __init__(
        self,
        chooses: Callable[[Product], Choice | None],
        version: int = 120805,
        adds_by: Callable[[Choice], Choice] = lambda choice: choice,
    ) -> None:
        self._chooses, self._version, self._adds_by = chooses, version, adds_by
        self._settings: dict[int, dict[Any, Any]] = {}
        self._answers: list[Choice] = []
        self.asked: list[tuple[Product, int]] = []  # with the bytes of workspace
        self.runs = 0

    def __getattr__(self, name: str) -> Any:
        if name.endswith("Create"):
            return self._create
        if name.endswith("SetAttribute"):
            return self._set
        if name.endswith("Destroy"):
            return self._destroy
        raise AttributeError(name)

    def cublasLtGetVersion(self) -> int:
        return self._version

    def _create(self, made: Any, *values: Any) -> int:
        number = 1 + len(self._settings)
        _value(made).value = number
        self._settings[number] = {"made": [getattr(value, "value", value) for value in values]}
        return 0

    def _set(self, where: ctypes.c_void_p, attribute: int, value: Any, size: ctypes.c_size_t) -> int:
        assert ctypes.sizeof(_value(value)) == size.value
        self._settings[where.value or 0][attribute] = _value(value).value
        return 0

    def _destroy(self, where: ctypes.c_void_p) -> int:
        self._settings[where.value or 0]["gone"] = True
        return 0

    def _of(self, where: Any) -> dict[Any, Any]:
        found = self._settings[where.value]
        assert "gone" not in found
        return found

    def _product(self, product: Any, b: Any, a: Any, d: Any) -> Product:
        """The product that descriptors are about."""
        about, (kind, *_), (_, n, m, _) = self._of(product), self._of(b)["made"], self._of(d)["made"]
        rows, columns = self._of(b)["made"][1:3]
        k = rows if about[3] else columns
        assert self._of(a)["made"][1:3] == ([m, k] if about[4] else [k, m])
        fmt = "tf32" if about["made"][0] == 77 else _NAMES[kind]
        return Product(fmt, _TURNED[about[4]] + _TURNED[about[3]], m, n, k, _NAMES[self._of(d)["made"][0]], self._of(a).get(5, 1) > 1)

    def cublasLtMatmulAlgoGetHeuristic(self, _handle: Any, product: Any, b: Any, a: Any, d: Any, *rest: Any) -> int:
        _, limits, count, answer, found = rest
        asked = self._product(product, b, a, d)
        self.asked.append((asked, self._of(limits)[1]))
        choice = self._chooses(asked)
        assert count == 1
        _value(found).value = int(choice is not None)
        if choice is None:
            return 0
        self._answers.append(choice)
        _value(answer).algo[0] = len(self._answers) - 1
        _value(answer).workspace = choice.workspace or 0
        return 0

    def cublasLtMatmulAlgoConfigGetAttribute(self, algo: Any, attribute: int, value: Any, size: Any, _written: Any) -> int:
        choice = self._answers[_value(algo)[0]]
        fields = (choice.algo, choice.tile, choice.split_k, choice.reduction, choice.swizzle, choice.custom, choice.stages)
        _value(value).value = (*fields, choice.inner, choice.cluster)[attribute] & 0xFFFFFFFF
        assert size.value == (2 if attribute > 6 else 4)
        return 0

    def cublasLtMatmul(self, _handle: Any, product: Any, alpha: Any, *rest: Any) -> int:
        b, of_b, a, of_a, beta, _, _, d, of_d, algo, _, _, _ = rest
        about, asked = self._of(product), self._product(product, of_b, of_a, of_d)
        self.runs += 1
        assert (_value(alpha).value, _value(beta).value) == (1, 0)
        dtype, out = _DTYPES[self._of(of_a)["made"][0]], _DTYPES[self._of(of_d)["made"][0]]
        x, y = _matrix(a, asked.m, asked.k, dtype, asked.layout[0]), _matrix(b, asked.k, asked.n, dtype, asked.layout[1])
        choice = self._adds_by(self._answers[_value(algo)[0]])
        known = Known(choice, nearest_table("", ""), None)
        plan = follow(known, Call(asked, EpilogueInputs(bias=7 in about), None, bool(about.get(25)), "sm_90a"))
        added = {"bias": _read(about[8], asked.n, out)} if 7 in about else {}
        result = fastmma.gemm(x, y, plan=plan, **added)
        ctypes.memmove(d, np.ascontiguousarray(result).ctypes.data, result.nbytes)
        return 0


def _read(place: int, count: int, dtype: Any) -> NDArray[Any]:
    found: NDArray[Any] = np.frombuffer(ctypes.string_at(place, count * np.dtype(dtype).itemsize), dtype)
    return found


def _matrix(place: ctypes.c_void_p, rows: int, columns: int, dtype: Any, layout: str) -> NDArray[Any]:
    flat = _read(place.value or 0, rows * columns, dtype)
    return flat.reshape(rows, columns) if layout == "n" else flat.reshape(columns, rows).T


def several_parts(choice: Choice) -> Choice:
    """The same kernel in one part more."""
    return replace(choice, split_k=choice.split_k + 1, reduction=2)
