"""Products with the choice of cuBLASLt and what its algorithm computed on an H200: the samples of the tests, and their recorder.

``PYTHONPATH=tests python -m reference.cublas_kernels --count 2000 --seed 5`` asks the cuBLASLt of the GPU in this machine for choices of
fresh products, runs each by that algorithm, and prints by family how many have every bit by `fastmma.cublas.plan`; ``--save FILE`` keeps
them. Those of ``cublas_sums.npz``, of the kind ``"f16acc"``, are calls of torch with ``allow_fp16_accumulation``.
"""

from __future__ import annotations

import argparse
import ctypes
import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import fastmma
from fastmma.products.library_gpu import library_gpu
from reference import cancelling
from reference.by_tile import of_kept
from reference.cancelling import KEPT, generator, kept, numbers

PATH = Path(__file__).parent / "cublas_kernels.npz"
KINDS = ("bf16", "f16", "tf32", "f32", "e4m3", "e4m3fast", "s8")
LAYOUTS = ("nn", "nt", "tn", "tt")
BIAS, RELU, GELU = 4, 2, 32  # bits of an epilogue's number
DTYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f16acc": np.float16,
    "tf32": np.float32,
    "f32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e4m3fast": ml_dtypes.float8_e4m3fn,
    "s8": np.int8,
    "s32": np.int32,
}
SCALED = -1.25, 0.75  # alpha and beta


class Query(NamedTuple):
    """A product; m, n and layout are those of row-major a and b."""

    kind: str
    layout: str
    m: int
    n: int
    k: int
    out: str
    epilogue: int = 0  # cuBLASLt's number
    batch: int = 1
    added: int = 0  # 1: alpha * a @ b + beta * c, 2: a @ b + c
    seed: int = 0


class Sample(NamedTuple):
    """A product, the attributes of its choice in their order, the workspace that it needs, and the elements that are kept."""

    query: Query
    choice: tuple[int, ...]
    workspace: int
    elements: NDArray[Any]  # (batch, rows, columns)


def operands(query: Query, index: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """The rows of a and the columns of b that are kept: their products cancel in pairs, so that the order of k shows."""
    fmt, dtype = query.kind.removesuffix("fast").removesuffix("acc"), DTYPES[query.kind]
    a, b = cancelling.vectors(fmt, fmt, query.k, query.seed + 1000003 * index, small=query.kind == "f16acc")
    return a[: len(kept(query.m))].astype(dtype), b[: len(kept(query.n))].astype(dtype)


def addends(query: Query) -> tuple[NDArray[Any], NDArray[Any]]:
    """What is kept of c, and of the bias."""
    rng, dtype = generator(query.seed, 77), DTYPES[query.out]
    bits, rows, columns = {"bf16": 8, "f16": 11}.get(query.out, 24), len(kept(query.m)), len(kept(query.n))
    spread = (2, 0) if query.epilogue & GELU and query.seed % 2 else (4, -6)  # a gelu of small numbers is half of them
    c, bias = numbers(rng, (KEPT, KEPT), bits, *spread), numbers(rng, (KEPT,), bits, *spread)
    return c[:rows, :columns].astype(dtype), bias[:columns].astype(dtype)


def _empty(rows: int, columns: int, dtype: Any, layout: str) -> NDArray[Any]:
    """A matrix that is never read, of which the system gives no memory."""
    return np.empty((columns, rows), dtype).T if layout == "t" else np.empty((rows, columns), dtype)


def arguments(query: Query, *, whole: bool) -> dict[str, Any]:
    """What an epilogue is given: whole arrays for a plan, and what is kept of them for a product."""
    found: dict[str, Any] = {}
    dtype = DTYPES[query.out]
    c, bias = addends(query) if query.out != "s32" else (None, None)
    if query.added:
        found |= {"c": np.empty((query.m, query.n), dtype) if whole else c, "beta": SCALED[1] if query.added == 1 else 1.0}
    if query.added == 1:
        found["alpha"] = SCALED[0]
    if query.epilogue & BIAS:
        found["bias"] = np.empty(query.n, dtype) if whole else bias
    if query.epilogue & (RELU | GELU) and whole:
        found["activation"] = "gelu" if query.epilogue & GELU else "relu"
    return found


def planned(sample: Sample, gpu: str = "H200") -> Any:
    """The plan of a sample's choice."""
    query = sample.query
    dtype, choice = DTYPES[query.kind], fastmma.cublas.Choice(*sample.choice, workspace=sample.workspace)
    a, b = _empty(query.m, query.k, dtype, query.layout[0]), _empty(query.k, query.n, dtype, query.layout[1])
    given = {"out_dtype": None if query.out == "s32" else query.out, "use_fast_accum": query.kind == "e4m3fast"}
    given |= {"accumulator": "f16"} if query.kind == "f16acc" else {}
    return fastmma.cublas.plan(a, b, choice=choice, target=gpu, **given, **arguments(query, whole=True))


def computed(sample: Sample, gpu: str = "H200") -> NDArray[Any]:
    """What the plan computes of a sample."""
    plan, query = planned(sample, gpu), sample.query
    found = []
    for index in range(query.batch):
        a, b = operands(query, index)
        given = arguments(query, whole=False)
        found.append(of_kept(plan, (query.m, query.n, query.k), partial(_multiply, a, b.T, given)))
    return np.stack(found)


def _multiply(a: NDArray[Any], b: NDArray[Any], given: dict[str, Any], plan: Any) -> NDArray[Any]:
    found: NDArray[Any] = fastmma.gemm(a, b, plan=plan, **given)
    return found


def same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays have the same bits, or both a NaN."""
    bits = {2: np.uint16, 4: np.uint32}[one.itemsize]
    nan = np.isnan(one.astype(np.float64)) & np.isnan(other.astype(np.float64))
    return bool(((np.ascontiguousarray(one).view(bits) == np.ascontiguousarray(other).view(bits)) | nan).all())


def save(samples: list[Sample], path: Path) -> None:
    """Write samples to a file."""
    about = [[*sample.query, *sample.choice, sample.workspace] for sample in samples]
    elements = [np.ascontiguousarray(sample.elements).view(np.uint8).reshape(-1) for sample in samples]
    np.savez_compressed(path, about=np.frombuffer(json.dumps(about).encode(), np.uint8), elements=np.concatenate(elements))


def samples(path: Path = PATH) -> list[Sample]:
    """What was recorded."""
    with np.load(path) as archive:
        about, data = json.loads(archive["about"].tobytes()), archive["elements"]
    found, start, width = [], 0, len(Query._fields)
    for row in about:
        query, dtype = Query(*row[:width]), np.dtype(DTYPES[row[width - 5]])
        shape = query.batch, len(kept(query.m)), len(kept(query.n))
        stop = start + int(np.prod(shape)) * dtype.itemsize
        found.append(Sample(query, tuple(row[width:-1]), row[-1], data[start:stop].view(dtype).reshape(shape)))
        start = stop
    return found


_TYPES = {"bf16": 14, "f16": 2, "tf32": 0, "f32": 0, "e4m3": 28, "e4m3fast": 28, "s8": 3, "s32": 10}  # cudaDataType
_COMPUTE = {"tf32": 77, "s8": 72}  # cublasComputeType, else CUBLAS_COMPUTE_32F
_WORKSPACE, _ALIGNED = 32 << 20, 256


class _Answer(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class Library:
    """The cuBLASLt that torch has loaded: its choices, and products by them."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")
        path = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcublasLt.so" in line)
        self._lt, self._handle, self._limits = ctypes.CDLL(path), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("Create", ctypes.byref(self._handle))
        self._call("MatmulPreferenceCreate", ctypes.byref(self._limits))
        self._set("MatmulPreferenceSetAttribute", self._limits, 1, ctypes.c_uint64(_WORKSPACE))
        for operand in (5, 6, 7, 8):
            self._set("MatmulPreferenceSetAttribute", self._limits, operand, ctypes.c_uint32(_ALIGNED))
        self._memory = torch.empty(_WORKSPACE, dtype=torch.uint8, device="cuda")
        self._scales = torch.ones(2, device="cuda")
        self._dtypes = {
            "bf16": torch.bfloat16,
            "f16": torch.float16,
            "tf32": torch.float32,
            "f32": torch.float32,
            "e4m3": torch.float8_e4m3fn,
            "e4m3fast": torch.float8_e4m3fn,
            "s8": torch.int8,
            "s32": torch.int32,
        }

    def _call(self, name: str, *values: Any) -> None:
        status = getattr(self._lt, f"cublasLt{name}")(*values)
        if status:
            raise RuntimeError(f"cublasLt{name}: {status}")

    def _set(self, name: str, where: ctypes.c_void_p, attribute: int, value: Any) -> None:
        self._call(name, where, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))

    def _described(self, query: Query, bias: int) -> tuple[ctypes.c_void_p, list[ctypes.c_void_p]]:
        """Descriptors of the product and of its matrices: row-major m x n is column-major n x m, so that b comes first."""
        whole = query.kind == "s8"
        product = ctypes.c_void_p()
        self._call("MatmulDescCreate", ctypes.byref(product), _COMPUTE.get(query.kind, 68), 10 if whole else 0)
        turned = [int(query.layout[1] == "t"), int(query.layout[0] == "t")]
        settings: list[tuple[int, Any]] = [(3, ctypes.c_int32(turned[0])), (4, ctypes.c_int32(turned[1]))]
        if query.epilogue:
            settings.append((7, ctypes.c_uint32(query.epilogue)))
        if query.epilogue & BIAS:
            settings.append((8, ctypes.c_uint64(bias)))
        if query.kind.startswith("e"):
            settings += [(17, ctypes.c_uint64(self._scales.data_ptr())), (18, ctypes.c_uint64(self._scales.data_ptr()))]
        if query.kind == "e4m3fast":
            settings.append((25, ctypes.c_int8(1)))
        for attribute, value in settings:
            self._set("MatmulDescSetAttribute", product, attribute, value)
        m, n, k = query.m, query.n, query.k
        first = (k, n) if turned[0] else (n, k)
        second = (m, k) if turned[1] else (k, m)
        matrices = []
        for kind, (rows, columns) in ((query.kind, first), (query.kind, second), (query.out, (n, m))):
            matrix = ctypes.c_void_p()
            form = _TYPES[kind], ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)
            self._call("MatrixLayoutCreate", ctypes.byref(matrix), *form)
            if query.batch > 1:
                self._set("MatrixLayoutSetAttribute", matrix, 5, ctypes.c_int32(query.batch))
                self._set("MatrixLayoutSetAttribute", matrix, 6, ctypes.c_int64(rows * columns))
            matrices.append(matrix)
        return product, matrices

    def _matrix(self, lines: NDArray[Any], places: NDArray[Any], size: int, kind: str, turned: bool) -> Any:
        """A matrix (size, K), or turned (K, size), of zeros but for the lines at their places."""
        torch, depth = self._torch, lines.shape[1]
        values = torch.from_numpy(lines.astype(np.float32)).cuda().to(self._dtypes[kind])
        matrix = torch.zeros((depth, size) if turned else (size, depth), dtype=self._dtypes[kind], device="cuda")
        plain = (lambda each: each.view(torch.uint8)) if kind.startswith("e") else (lambda each: each)
        if turned:
            plain(matrix)[:, torch.from_numpy(places).cuda()] = plain(values).t()
        else:
            plain(matrix)[torch.from_numpy(places).cuda()] = plain(values)
        return matrix

    def sample(self, query: Query) -> Sample | None:
        """Ask for the choice of a product, and run it; None where the library has no algorithm for it."""
        torch = self._torch
        rows, columns = kept(query.m), kept(query.n)
        c, bias = addends(query) if query.out != "s32" else (np.zeros((1, 1)), np.zeros(1))
        added = torch.zeros(query.n, dtype=self._dtypes[query.out], device="cuda")
        if query.epilogue & BIAS:
            added[torch.from_numpy(columns).cuda()] = torch.from_numpy(bias.astype(np.float32)).cuda().to(added.dtype)
        product, matrices = self._described(query, added.data_ptr())
        answer, count = _Answer(), ctypes.c_int()
        asked = *matrices, matrices[2], self._limits, 1, ctypes.byref(answer), ctypes.byref(count)
        if self._lt.cublasLtMatmulAlgoGetHeuristic(self._handle, product, *asked) or not count.value:
            return None
        choice = []
        for attribute in range(9):
            value, written = ctypes.c_uint64(), ctypes.c_size_t()
            size = ctypes.c_size_t(2 if attribute > 6 else 4)
            self._call(
                "MatmulAlgoConfigGetAttribute", ctypes.byref(answer.algo), attribute, ctypes.byref(value), size, ctypes.byref(written)
            )
            choice.append(value.value & 0xFFFFFFFF)
        pairs = [operands(query, index) for index in range(query.batch)]
        a = torch.stack([self._matrix(left, rows, query.m, query.kind, query.layout[0] == "t") for left, _ in pairs])
        b = torch.stack([self._matrix(right, columns, query.n, query.kind, query.layout[1] == "n") for _, right in pairs])
        d = torch.zeros((query.batch, query.m, query.n), dtype=self._dtypes[query.out], device="cuda")
        place = slice(None), torch.from_numpy(rows).cuda()[:, None], torch.from_numpy(columns).cuda()
        if query.added:
            d[place] = torch.from_numpy(c.astype(np.float32)).cuda().to(d.dtype)
        number = ctypes.c_int32 if query.kind == "s8" else ctypes.c_float
        alpha, beta = {0: (1, 0), 1: SCALED, 2: (1, 1)}[query.added]
        pointers = [ctypes.c_void_p(each.data_ptr()) for each in (b, a, d)]
        terms = ctypes.byref(number(alpha)), pointers[0], matrices[0], pointers[1], matrices[1], ctypes.byref(number(beta))
        ends = pointers[2], matrices[2], pointers[2], matrices[2], ctypes.byref(answer.algo)
        space = ctypes.c_void_p(self._memory.data_ptr()), ctypes.c_size_t(_WORKSPACE), ctypes.c_void_p(0)
        self._call("Matmul", self._handle, product, *terms, *ends, *space)
        for matrix in matrices:
            self._call("MatrixLayoutDestroy", matrix)
        self._call("MatmulDescDestroy", product)
        found = d[place].cpu()
        wide = found.float().numpy() if query.out != "s32" else found.numpy()
        return Sample(query, tuple(choice), int(answer.workspace), wide.astype(DTYPES[query.out]))


def drawn(count: int, seed: int) -> Iterator[Query]:
    """Fresh products: log-uniform sizes, a third of them in multiples of 16, decode steps among them, with and without what is added."""
    rng = np.random.default_rng(seed)
    for index in range(count):
        kind = KINDS[int(rng.choice(7, p=(0.32, 0.32, 0.12, 0.12, 0.05, 0.05, 0.02)))]
        narrow = kind in ("bf16", "f16")
        m, n, k = (int(2 ** rng.uniform(0, most)) for most in (12.5, 12.5, 14))
        if rng.random() < 0.3:
            m, n, k = int(rng.integers(1, 129)), 64 * int(rng.integers(1, 257)), 64 * int(rng.integers(1, 257))
        if rng.random() < 0.35 or not (narrow or kind in ("tf32", "f32")):
            m, n, k = (-(-size // 16) * 16 for size in (m, n, k))
        if kind == "s8":
            m = max(m, 32)
        layout = LAYOUTS[int(rng.integers(4))] if narrow or kind in ("tf32", "f32") else "nt"
        out = {"tf32": "f32", "f32": "f32", "s8": "s32"}.get(kind, "f32" if rng.random() < 0.15 else kind if narrow else "bf16")
        epilogue = int(rng.choice((0, BIAS, BIAS | RELU), p=(0.8, 0.15, 0.05))) if narrow and out == kind else 0
        added = int(rng.choice(3, p=(0.8, 0.12, 0.08))) if not epilogue and (narrow or kind in ("tf32", "f32")) else 0
        if max(m, n) * k <= 1 << 27 and m * n <= 1 << 26:
            yield Query(kind, layout, m, n, k, out, epilogue, 1, added, seed * 1000003 + index)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    library, found, table = Library(), [], Counter[tuple[int, str, str]]()
    gpu = library_gpu("native")
    for query in drawn(options.count, options.seed):
        sample = library.sample(query)
        if sample is None:
            continue
        found.append(sample)
        try:
            verdict = "equal" if same(computed(sample, gpu), sample.elements) else "differs"
        except fastmma.FastmmaError as error:
            verdict = "refused"
            print(f"refused: {error}")
        if verdict == "differs":
            print(f"differs: {sample.query}, {sample.choice}")
        table[sample.choice[0], query.kind, verdict] += 1
    for (algo, kind, verdict), number in sorted(table.items()):
        print(f"algo {algo:3} {kind:9} {verdict:8} {number:6}")
    if options.save:
        save(found, options.save)


if __name__ == "__main__":
    main()
