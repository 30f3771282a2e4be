"""Damaged and lying .npy, .npz and .safetensors files: what the format says, or a FastmmaError, and nothing is unpickled."""

from __future__ import annotations

import io
import json
import pickle
import random
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from reference.hostile import archive, mutated, retyped, seeds, truncations

from fastmma import study
from fastmma.cli.inputs import read as read_operands
from fastmma.host.errors import FastmmaError, OperandError
from fastmma.host.npy import arrays_in

SEEDS, MUTATIONS = 6, 400  # mutations a seed and file
VALUES = np.random.default_rng(0).standard_normal((5, 6))
DTYPES: tuple[Any, ...] = ("<f4", ">f8", "<f2", "|i1", "?", "<c8", "V3", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2)


def npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(compressed: bool, **arrays: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def safetensors(header: Any, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def converted(dtype: Any) -> NDArray[Any]:
    return np.zeros((5, 6), dtype) if dtype == "V3" else VALUES.astype(dtype)


@cache
def valid() -> dict[str, tuple[bytes, ...]]:
    """Files by their suffixes."""
    one = {"t": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
    more = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
        "b": {"dtype": "F8_E4M3", "shape": [4, 1], "data_offsets": [12, 16]},
        "none": {"dtype": "F64", "shape": [0, 3], "data_offsets": [16, 16]},
        "c": {"dtype": "U8", "shape": [8], "data_offsets": [16, 24]},
    }
    return {
        ".npy": (*(npy(converted(dtype)) for dtype in DTYPES), npy(np.asfortranarray(VALUES)), npy(VALUES[:0])),
        ".npz": tuple(npz(compressed, a=VALUES, b=VALUES.T) for compressed in (False, True)),
        ".safetensors": tuple(safetensors(header, bytes(range(24))) for header in (one, more)),
    }


def read_all(data: bytes) -> dict[str, NDArray[Any]] | None:
    """The arrays of a numpy file; None after a FastmmaError."""
    try:
        return {name: array() for name, array in arrays_in(io.BytesIO(data), "file").items()}
    except FastmmaError:
        return None


def numpy_reads(data: bytes, name: str) -> NDArray[Any]:
    """What NumPy makes of an array in a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = np.load(io.BytesIO(data), allow_pickle=False)
        return np.asarray(loaded[name] if name else loaded)


def check_numpy_file(data: bytes) -> bool:
    """Compare with NumPy; whether the file was read."""
    found = read_all(data)
    for name, array in (found or {}).items():
        if b"f1" not in data:  # NumPy does not read its own name of e5m2
            other = numpy_reads(data, name)
            assert (array.dtype, array.shape, array.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return found is not None


def check_tensor(path: Path, data: bytes) -> bool:
    """Read the tensors that a study and a gemm could take; whether one was read."""
    path.write_bytes(data)
    read = False
    for name in ("", "::a", "::t", "::none", "::c"):
        try:
            values = study.read(f"{path}{name}").values
            assert values.dtype in (np.float32, np.float64)
            assert values.size
            read = True
        except FastmmaError:
            continue
    return read


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_numpy_files_that_are_cut_off(suffix: str) -> None:
    for data in valid()[suffix]:
        assert check_numpy_file(data)
        for size, cut in enumerate(truncations(data)):
            # an archive is found by its end, so that bytes before it are none of its own
            assert not check_numpy_file(cut) or suffix == ".npz", size


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_mutated_numpy_files(suffix: str) -> None:
    read = tried = 0
    for seed in seeds(SEEDS):
        rng = random.Random(f"{suffix} {seed}")
        for _ in range(MUTATIONS):
            read += check_numpy_file(mutated(rng.choice(valid()[suffix]), rng))
            tried += 1
    assert 0 < read < tried


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors"])
def test_mutated_files_of_tensors(suffix: str, tmp_path: Path) -> None:
    read = tried = 0
    path = tmp_path / f"x{suffix}"
    for data in valid()[suffix]:
        for cut in truncations(data, 7):
            check_tensor(path, cut)
    for seed in seeds(SEEDS):
        rng = random.Random(f"{suffix} {seed}")
        for _ in range(MUTATIONS // 4):
            read += check_tensor(path, mutated(rng.choice(valid()[suffix]), rng))
            tried += 1
    assert 0 < read < tried


def test_safetensors_with_other_headers(tmp_path: Path) -> None:
    read = 0
    for seed in seeds(SEEDS):
        rng = random.Random(seed)
        for _ in range(MUTATIONS // 2):
            data = rng.choice(valid()[".safetensors"])
            length = int.from_bytes(data[:8], "little")
            read += check_tensor(tmp_path / "x.safetensors", safetensors(retyped(data[8 : 8 + length], rng), data[8 + length :]))
    assert read


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_mutated_operands_of_gemm(suffix: str, tmp_path: Path) -> None:
    read, files = 0, [tmp_path / "a", tmp_path / "b"]
    for seed in seeds(SEEDS):
        rng = random.Random(f"{suffix} {seed}")
        for _ in range(MUTATIONS // 4):
            for file in files:
                file.write_bytes(mutated(rng.choice(valid()[suffix]), rng))
            try:
                found = read_operands(files if suffix == ".npy" else files[:1])
                assert found["a"].shape[1] == found["b"].shape[0]
                read += 1
            except FastmmaError:
                continue
    assert read or suffix == ".npy"


HUGE = (1 << 63) - 1


def claims(descr: str, shape: str, data: bytes = b"", more: str = "") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, {more}}}".encode()
    return b"\x93NUMPY\x02\0" + len(header).to_bytes(4, "little") + header + data


def lying_numpy_files() -> Iterator[tuple[str, bytes, str]]:
    """Name, file, and what is said of it."""
    yield "empty", b"", "it is empty"
    yield "text", b"1 2 3\n4 5 6\n", "begins as neither"
    yield "pickle", pickle.dumps([1.0]), "never unpickled"
    yield "objects", claims("'|O'", "(1,)", pickle.dumps(1)), "never unpickled"
    yield "records", claims("[('a', '<f4')]", "(1,)", bytes(4)), "holds records"
    yield "text for elements", claims("'<U3'", "(1,)", bytes(12)), "elements of type <U3"
    yield "times", claims("'<M8[ns]'", "(1,)", bytes(8)), "elements of type"
    yield "nothing for elements", claims("'|V0'", "(1,)"), "elements of type"
    yield "terabytes", claims("'<f4'", f"({1 << 20}, {1 << 20})"), "4,096 GiB, and 0 bytes follow"
    yield "beyond 64 bits", claims("'<f4'", f"({HUGE}, {HUGE}, {HUGE})"), "no array has the shape"
    yield "nothing, but huge", claims("'<f4'", f"(0, {HUGE}, {HUGE})"), "no array has the shape"
    yield "negative", claims("'<f4'", "(-1, -2)", bytes(8)), "no array has the shape"
    yield "33 dimensions", claims("'<f4'", f"({'1, ' * 33})", bytes(4)), "no array has the shape"
    yield "digits", claims("'<f4'", f"({'9' * 5000},)"), "no readable .npy file"
    yield "a call", claims("'<f4'", "__import__('os').abort()"), "no readable .npy file"
    yield "a long header", claims("'<f4'", "(1,)", b"", " " * 70_000), "no readable .npy file"
    yield "a header without end", b"\x93NUMPY\x02\0\xff\xff\xff\xff{", "no readable .npy file"
    yield "another version", b"\x93NUMPY\x09\0", "its version is unknown"
    yield "two arrays", npy(VALUES) * 2, "follow its header"
    yield "no archive", b"PK\3\4 and no more", "no readable .npz file"


@pytest.mark.parametrize(("data", "said"), [pytest.param(data, said, id=name) for name, data, said in lying_numpy_files()])
def test_lying_numpy_files(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    for read in (lambda: study.read(path), lambda: read_operands([path, path])):
        with pytest.raises(FastmmaError) as found:
            read()
        assert said in str(found.value)


def test_truth_values_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(claims("'|b1'", "(1, 1)", b"\2"))
    with path.open("rb") as file, pytest.raises(OperandError, match="truth values are neither 0 nor 1"):
        arrays_in(file, "x")[""]()
    with pytest.raises(OperandError, match="truth values are neither 0 nor 1"):
        read_operands([path, path])


SMALL, LARGE = 1 << 12, 1 << 25  # bytes: of a bound, and of what a small file inflates to
WHOLE, SQUARE = f"({LARGE >> 2},)", f"({1 << 12}, {1 << 11})"
ONE = claims("'<f4'", "(3, 2)", bytes(24))


def inflating(shape: str, descr: str = "'<f4'", **more: bytes) -> bytes:
    """An archive with an array of 32 MiB, in some 32 KiB."""
    return archive({"a.npy": claims(descr, shape, bytes(LARGE))} | {f"{name}.npy": data for name, data in more.items()})


def with_claim(data: bytes, size: int) -> bytes:
    """An archive whose list of members gives the first one another size."""
    place = data.index(b"PK\1\2") + 24
    return data[:place] + size.to_bytes(4, "little") + data[place + 4 :]


def of_gemm(path: Path) -> Any:
    return read_operands([path])


def of_two(path: Path) -> Any:
    return read_operands([path, path])


def of_a_part(path: Path) -> Any:
    return study.read(f"{path}::a.3")


def within_a_bound(path: Path) -> Any:
    with path.open("rb") as file:
        return [array() for array in arrays_in(file, "file", bound=SMALL).values()]


# archives of little room, what refuses them, and what it says
BOMBS: dict[str, tuple[Callable[[], bytes], Callable[[Path], Any], str]] = {
    "no b": (lambda: inflating(SQUARE), of_gemm, "must hold arrays named a, b and perhaps c; of these it has a"),
    "a vector": (lambda: inflating(WHOLE, b=ONE), of_gemm, "a must be a matrix, but its shape is"),
    "complex numbers": (lambda: inflating(f"({1 << 11}, {1 << 11})", "'<c8'", b=ONE), of_gemm, "a must hold real numbers"),
    "sizes": (lambda: inflating(SQUARE, b=ONE), of_gemm, "do not multiply"),
    "more than gemm takes": (lambda: inflating(SQUARE, b=ONE, bias=ONE), of_gemm, "holds bias, too"),
    "files": (lambda: inflating(SQUARE), of_two, "an .npz file must be the only one"),
    "a vector of a study": (lambda: inflating(WHOLE), study.read, "must be a matrix with elements"),
    "integers of a study": (lambda: inflating(SQUARE, "'<i4'"), study.read, "must hold floating-point numbers"),
    "a part of a study": (lambda: inflating(SQUARE), of_a_part, "must be a matrix with elements"),
    "weights": (lambda: inflating(WHOLE), study.layers, "studies take matrices of floats"),
    "a bound": (lambda: inflating(SQUARE), within_a_bound, "has 32 MiB, and of such arrays at most 4,096 bytes are read"),
    "a list that claims little": (lambda: with_claim(inflating("(30, 30)"), 128), within_a_bound, "Bad CRC-32"),
    "two that claim little": (lambda: with_claim(inflating("(30, 30)"), 73 + 3600), within_a_bound, "Bad CRC-32"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_is_refused_is_not_inflated(name: str, tmp_path: Path) -> None:
    make, read, said = BOMBS[name]
    path = tmp_path / "x.npz"
    path.write_bytes(make())
    tracemalloc.start()
    try:
        with pytest.raises(FastmmaError) as found:
            read(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert said in str(found.value)
    assert most < LARGE >> 3


def test_tensors_are_listed_without_their_elements(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(inflating(SQUARE))
    tracemalloc.start()
    try:
        (found,) = study.layers(tmp_path / "x.npz")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.shape == (1 << 12, 1 << 11)
    assert most < LARGE >> 3


def marked(data: bytes, at: int, mark: bytes) -> bytes:
    """An archive whose entry in the list of members has other bytes at an offset."""
    place = data.rindex(b"PK\1\2") + at
    return data[:place] + mark + data[place + len(mark) :]


def lying_archives() -> Iterator[tuple[str, bytes, str]]:
    member = npy(VALUES.astype(np.float32))
    whole = archive({"a.npy": member})
    # the offsets are those of the central directory: flags 8, method 10, CRC 16, sizes 20 and 24, extra field 30, place 42
    yield "nothing", archive({}), "it has none"
    yield "no arrays", archive({"a.txt": b"x"}), "it has none"
    yield "encrypted", marked(whole, 8, b"\1\0"), "is encrypted"
    yield "bzip2", archive({"a.npy": member}, zipfile.ZIP_BZIP2), "compressed by method 12"
    yield "lzma", archive({"a.npy": member}, zipfile.ZIP_LZMA), "compressed by method 14"
    yield "unknown method", marked(whole, 10, b"\x63\0"), "compressed by method 99"
    yield "checksum", marked(whole, 16, b"\0\0\0\0"), "Bad CRC-32"
    yield "claims 4 GiB", marked(whole, 24, b"\xff\xff\xff\xff"), "ends after"
    yield "claims nothing", marked(whole, 24, b"\0\0\0\0"), "no readable .npy file"
    yield "lies elsewhere", marked(whole, 42, b"\xff\xff\xff\x7f"), "no readable .npz file"
    yield "terabytes", archive({"a.npy": claims("'<f4'", f"({1 << 20}, {1 << 20})")}), "4,096 GiB, and 0 bytes follow"
    yield "objects", archive({"a.npy": npy(np.array([[None]]))}), "never unpickled"
    yield "an archive", archive({"a.npy": whole}), "no readable .npy file"
    deflated = whole.index(b"a.npy") + 5
    yield "no deflation", whole[:deflated] + b"\xff" * 20 + whole[deflated + 20 :], "no readable .npz file"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as twice:
            twice.writestr("a.npy", member)
            twice.writestr("a.npy", member)
    yield "one name twice", file.getvalue(), "two arrays named 'a'"


@pytest.mark.parametrize(("data", "said"), [pytest.param(data, said, id=name) for name, data, said in lying_archives()])
def test_lying_archives(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(data)
    with pytest.raises(FastmmaError) as found:
        study.read(path)
    assert said in str(found.value)
    with pytest.raises(FastmmaError):
        read_operands([path])


def entry(shape: Any = (2, 3), offsets: Any = (0, 24), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def lying_safetensors() -> Iterator[tuple[str, bytes, str]]:
    data = bytes(24)
    for length in (25, 1 << 32, (1 << 63) - 1, (1 << 64) - 1):
        yield f"a header of {length}", length.to_bytes(8, "little") + data[:16], "no readable .safetensors file"
    yield "a header of 32 MiB", ((1 << 25) + 1).to_bytes(8, "little") + bytes((1 << 25) + 1), "no more than 32 MiB are read"
    yield "no tensors", safetensors({}, b""), "it has none"
    yield "NaN", safetensors(b'{"t": NaN}', data), "no readable .safetensors file"
    yield "overlap", safetensors({"t": entry(), "u": entry(offsets=[12, 36])}, bytes(36)), "no readable .safetensors file"
    yield "beyond the end", safetensors({"t": entry(offsets=[0, 48])}, data), "no readable .safetensors file"
    yield "too many dimensions", safetensors({"t": entry(shape=[1] * 70 + [6])}, data), "tensor 't': "
    yield "nothing, but huge", safetensors({"t": entry(shape=[0, 1 << 61, 1 << 61], offsets=[0, 0])}, b""), "tensor 't': "


@pytest.mark.parametrize(("data", "said"), [pytest.param(data, said, id=name) for name, data, said in lying_safetensors()])
def test_lying_safetensors(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(FastmmaError) as found:
        study.read(path)
    assert said in str(found.value)
