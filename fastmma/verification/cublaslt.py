"""cuBLASLt as it is: what it would run for a product, and the product by that very algorithm, without PyTorch."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import BackendError
from fastmma.isa.formats import FORMATS
from fastmma.products.cublas.book_file import ATTRIBUTES, TYPES
from fastmma.products.cublas.choice import Choice
from fastmma.verification.cublas_requests import Request
from fastmma.verification.cuda_driver import Driver

_FORMATS = {"bf16": 14, "f16": 2, "tf32": 0, "f32": 0, "e4m3": 28}  # cudaDataType_t
_F32, _TF32 = 68, 77  # cublasComputeType_t
_TRANSA, _TRANSB, _EPILOGUE, _BIAS, _SCALES, _FAST = 3, 4, 7, 8, (17, 18), 25  # cublasLtMatmulDescAttributes_t
_WITH_BIAS = 4  # cublasLtEpilogue_t
_BATCH, _STRIDE = 5, 6  # cublasLtMatrixLayoutAttribute_t
_WORKSPACE, _ALIGNMENTS = 1, (5, 6, 7, 8)  # cublasLtMatmulPreferenceAttributes_t
_ALIGNED = 256  # bytes, of every operand
_WIDE = 7  # attributes from this one on have two bytes
# bytes of workspace that PyTorch 2.11 lends: by the compute capability, on other GPUs, and where cuBLASLt adds a bias or multiplies fp8
_BY_MAJOR, _OTHER, _BY_LT = {9: 32 << 20, 10: 32 << 20}, 8_519_680, 1 << 20


class _Answer(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class _Described(NamedTuple):
    """A product and its three matrices, as cuBLASLt knows them; row-major m x n is column-major n x m, so that b comes first."""

    product: ctypes.c_void_p
    matrices: list[ctypes.c_void_p]


def library_path() -> Path | str:
    """Find the cuBLASLt that PyTorch or CuPy load, or else the system's.

    Raises
    ------
    BackendError
        If there is none.
    """
    for package, pattern in (("nvidia", "*/lib/libcublasLt.so.*"), ("nvidia", "*/bin/**/cublasLt64_*.dll"), ("torch", "lib/*cublasLt*")):
        spec = find_spec(package)
        folders = [Path(each) for each in (spec.submodule_search_locations or ())] if spec else []
        found = sorted(path for folder in folders for path in folder.glob(pattern))
        if found:
            return found[-1]
    found_by_system = ctypes.util.find_library("cublasLt")
    if found_by_system is None:
        raise BackendError("no cuBLASLt was found: install PyTorch or CuPy, or name the library")
    return found_by_system


def load_library(path: Path | str | None = None) -> Any:
    """Load cuBLASLt.

    Raises
    ------
    BackendError
        If there is none, or it cannot be loaded.
    """
    place = library_path() if path is None else path
    try:
        return ctypes.CDLL(str(place))
    except OSError as error:
        raise BackendError(f"{place}: cannot be loaded: {error}") from None


class CublasLt:
    """What answers and computes: a library on a GPU.

    Parameters
    ----------
    library
        cuBLASLt, as `load_library` loads it.
    driver : Driver
    workspace : int, optional
        How many bytes the library may use; by default what PyTorch lends it.

    Attributes
    ----------
    gpu : str
    capability : (int, int)
    version : str

    Raises
    ------
    BackendError
        Here or by the methods: what the library answers.
    """

    def __init__(self, library: Any, driver: Driver, workspace: int | None = None) -> None:
        self._library, self._driver, self._given = library, driver, workspace
        self._handle, self._limits = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("Create", ctypes.byref(self._handle))
        self._call("MatmulPreferenceCreate", ctypes.byref(self._limits))
        for attribute in _ALIGNMENTS:
            self._set("MatmulPreference", self._limits, attribute, ctypes.c_uint32(_ALIGNED))
        self._ones = driver.allocate(_ALIGNED)  # a scale of each operand
        driver.upload(self._ones, np.ones(2, np.float32))
        number = int(library.cublasLtGetVersion())
        self.gpu, self.capability = driver.name, driver.capability
        self.version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    @property
    def how(self) -> str:
        """Say how the library was asked."""
        said = "the workspace of PyTorch 2.11" if self._given is None else f"{self._given} bytes of workspace"
        return f"by cublasLtMatmulAlgoGetHeuristic with {said}"

    def ask(self, request: Request) -> Choice | None:
        """Ask for the choice of a product; None where the library has no algorithm for it."""
        with self._describe(request, 0) as described:
            answer = self._answer(request, described)
        return None if answer is None else self._choice(answer)

    def run(self, request: Request, a: NDArray[Any], b: NDArray[Any], bias: NDArray[Any] | None) -> tuple[Choice, NDArray[Any]]:
        """Compute a product by the algorithm that the library answers.

        Parameters
        ----------
        request : Request
        a, b : arrays
            The operands as they lie in memory: (M, K) and (K, N), or turned where the layout says so; of a stack the first ones, and the
            others are zeros.
        bias : array (N,), optional

        Returns
        -------
        (Choice, array (M, N))
        """
        out = FORMATS[TYPES[request.type].out].dtype
        d = np.empty((request.m, request.n), out)
        places = [self._driver.allocate(size * request.stack) for size in (a.nbytes, b.nbytes, d.nbytes)]
        places += [self._driver.allocate(self._space(request)), self._driver.allocate(0 if bias is None else bias.nbytes)]
        try:
            for place, array in ((places[0], a), (places[1], b), (places[4], bias)):
                if array is not None:
                    zeros = np.zeros((request.stack - 1, *array.shape), array.dtype)
                    self._driver.upload(place, array if request.stack == 1 or array is bias else np.concatenate([array[None], zeros]))
            with self._describe(request, places[4].value or 0) as described:
                answer = self._answer(request, described)
                if answer is None:
                    raise BackendError(f"cublasLtMatmulAlgoGetHeuristic answered {request} before, and does not now")
                self._multiply(request, described, answer, places)
            self._driver.download(places[2], d)
        finally:
            for place in places:
                self._driver.free(place)
        return self._choice(answer), d

    def _multiply(self, request: Request, described: _Described, answer: _Answer, places: list[ctypes.c_void_p]) -> None:
        a, b, d, space, _ = places
        one, none = ctypes.c_float(1), ctypes.c_float(0)
        of_b, of_a, of_d = described.matrices
        terms = ctypes.byref(one), b, of_b, a, of_a, ctypes.byref(none)
        ends = d, of_d, d, of_d, ctypes.byref(answer.algo), space, ctypes.c_size_t(self._space(request)), ctypes.c_void_p(0)
        self._call("Matmul", self._handle, described.product, *terms, *ends)

    def _call(self, name: str, *values: Any) -> None:
        status = getattr(self._library, f"cublasLt{name}")(*values)
        if status:
            raise BackendError(f"cublasLt{name} answers {status}")

    def _set(self, what: str, where: ctypes.c_void_p, attribute: int, value: Any) -> None:
        self._call(f"{what}SetAttribute", where, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))

    def _space(self, request: Request) -> int:
        if self._given is not None:
            return self._given
        by_lt = request.biased or TYPES[request.type].fmt == "e4m3"
        return _BY_LT if by_lt else _BY_MAJOR.get(self.capability[0], _OTHER)

    @contextmanager
    def _describe(self, request: Request, bias: int) -> Iterator[_Described]:
        kind, product = TYPES[request.type], ctypes.c_void_p()
        self._call("MatmulDescCreate", ctypes.byref(product), _TF32 if kind.fmt == "tf32" else _F32, _FORMATS["f32"])
        turned = [int(side == "t") for side in reversed(request.layout)]
        values: list[tuple[int, Any]] = [(_TRANSA, ctypes.c_int32(turned[0])), (_TRANSB, ctypes.c_int32(turned[1]))]
        if request.biased:
            values += [(_EPILOGUE, ctypes.c_uint32(_WITH_BIAS)), (_BIAS, ctypes.c_uint64(bias or self._ones.value or 0))]
        if kind.fmt == "e4m3":
            values += [(attribute, ctypes.c_uint64(self._ones.value or 0)) for attribute in _SCALES]
        values += [(_FAST, ctypes.c_int8(1))] if kind.fast else []
        for attribute, value in values:
            self._set("MatmulDesc", product, attribute, value)
        m, n, k = request.m, request.n, request.k
        sides = (kind.fmt, (k, n) if turned[0] else (n, k)), (kind.fmt, (m, k) if turned[1] else (k, m)), (kind.out, (n, m))
        matrices = [self._matrix(fmt, *size, request.stack) for fmt, size in sides]
        try:
            yield _Described(product, matrices)
        finally:
            for matrix in matrices:
                self._call("MatrixLayoutDestroy", matrix)
            self._call("MatmulDescDestroy", product)

    def _matrix(self, fmt: str, rows: int, columns: int, stack: int) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._call(
            "MatrixLayoutCreate", ctypes.byref(made), _FORMATS[fmt], ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)
        )
        if stack > 1:
            self._set("MatrixLayout", made, _BATCH, ctypes.c_int32(stack))
            self._set("MatrixLayout", made, _STRIDE, ctypes.c_int64(rows * columns))
        return made

    def _answer(self, request: Request, described: _Described) -> _Answer | None:
        self._set("MatmulPreference", self._limits, _WORKSPACE, ctypes.c_uint64(self._space(request)))
        answer, count = _Answer(), ctypes.c_int()
        b, a, d = described.matrices
        asked = (self._handle, described.product, b, a, d, d, self._limits, 1, ctypes.byref(answer), ctypes.byref(count))
        return None if self._library.cublasLtMatmulAlgoGetHeuristic(*asked) or not count.value else answer

    def _choice(self, answer: _Answer) -> Choice:
        found = []
        for attribute in range(ATTRIBUTES):
            value, written, size = ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_size_t(2 if attribute >= _WIDE else 4)
            where = ctypes.byref(value), size, ctypes.byref(written)
            self._call("MatmulAlgoConfigGetAttribute", ctypes.byref(answer.algo), attribute, *where)
            found.append(value.value & 0xFFFFFFFF)
        choice = Choice.of_row(tuple(found))
        return choice if choice.split_k > 0 else replace(choice, workspace=int(answer.workspace))
