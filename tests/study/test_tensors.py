"""Tensors from files, in studies: formats of files, damage, objects, infinities and NaN."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.cases import cases
from reference.studies import safetensors

import fastmma
from fastmma import study
from fastmma.scaling import SCHEMES


class Bomb:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return (Path.write_text, (self.trace, "executed"))


def test_numpy_files(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float16).reshape(2, 2, 3) / 4
    np.save(tmp_path / "x.npy", values)
    np.savez(tmp_path / "x.npz", first=values.astype(np.float64), second=values[0].T)
    assert study.read(tmp_path / "x.npy").values.tolist() == values.reshape(4, 3).tolist()
    first, second = (study.read(f"{tmp_path}/x.npz::{name}") for name in ("first", "second"))
    assert (first.values.dtype, second.values.dtype) == (np.float64, np.float32)
    assert second.values.tolist() == values[0].T.tolist()
    assert len({first.digest, second.digest, study.read(tmp_path / "x.npy").digest}) == 3


def test_safetensors_files(tmp_path: Path) -> None:
    # bf16 0x3fc0 is 1.5 and 0xc000 is -2; e4m3 0x38 is 1 and 0x7e is 448; e5m2 0x3c is 1 and 0xbe is -1.5
    data = bytes([0xC0, 0x3F, 0x00, 0xC0, 0x38, 0x7E, 0x3C, 0xBE]) + np.array([0.25, -3.0], "<f4").tobytes() + bytes([1, 2])
    header = {
        "__metadata__": {"format": "pt"},
        "b": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [0, 4]},
        "e4": {"dtype": "F8_E4M3", "shape": [2, 1], "data_offsets": [4, 6]},
        "e5": {"dtype": "F8_E5M2", "shape": [1, 2], "data_offsets": [6, 8]},
        "f": {"dtype": "F32", "shape": [1, 2], "data_offsets": [8, 16]},
        "i": {"dtype": "U8", "shape": [1, 2], "data_offsets": [16, 18]},
    }
    file = safetensors(tmp_path / "m.safetensors", header, data)
    found = {name: study.read(f"{file}::{name}").values.tolist() for name in ("b", "e4", "e5", "f")}
    assert found == {"b": [[1.5, -2.0]], "e4": [[1.0], [448.0]], "e5": [[1.0, -1.5]], "f": [[0.25, -3.0]]}
    several = "name one of its tensors as m.safetensors::NAME; it has b, e4, e5, f, i"
    for name, message in ((f"{file}::i", "elements of type U8"), (file, several), (f"{file}::x", "has no tensor 'x'")):
        with pytest.raises(fastmma.FastmmaError, match=message):
            study.read(name)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = safetensors(tmp_path / "m.safetensors", {"t": {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]}}, bytes(4))
    assert study.read(file).values.tolist() == [[0]]
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(fastmma.BackendError, match=r"m.safetensors: such files need safetensors: pip install 'fastmma\[study\]'"):
        study.read(file)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    objects = np.empty((1, 1), dtype=object)
    objects[0, 0] = Bomb(tmp_path / "trace")
    np.save(tmp_path / "o.npy", objects)
    np.savez(tmp_path / "o.npz", objects)
    (tmp_path / "p.npy").write_bytes((tmp_path / "o.npy").read_bytes()[128:])
    for name in ("o.npy", "o.npz", "p.npy"):
        with pytest.raises(fastmma.FastmmaError, match="holds Python objects, which are never unpickled"):
            study.read(tmp_path / name)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("x.npy", np.ones(3, np.float32), "must be a matrix"),
        ("x.npy", np.ones((0, 3), np.float32), "must be a matrix with elements"),
        ("x.npy", np.ones((2, 3), np.int32), "floating-point numbers, not int32"),
        ("x.npy", np.ones((2, 3), np.complex64), "floating-point numbers"),
        ("x.npy", np.zeros((2, 3), "V2"), "raw elements"),
        ("x.npy", np.zeros((2, 3), [("a", "f4")]), "holds records"),
    ],
)
def test_arrays_that_are_no_matrices(name: str, array: NDArray[Any], message: str, tmp_path: Path) -> None:
    np.save(tmp_path / name, array)
    with pytest.raises(fastmma.FastmmaError, match=message):
        study.read(tmp_path / name)


@pytest.mark.skipif(os.name == "nt", reason="named pipes are those of POSIX")
def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 and no more")
    (tmp_path / "folder.npy").mkdir()
    os.mkfifo(tmp_path / "pipe.npy")
    for name, message in (
        ("x.npz", "no readable"),
        ("none.npy", "no such file"),
        ("x.pt", r"end in \.npy, \.npz, \.safetensors"),
        ("folder.npy", "folder"),
        ("pipe.npy", "is a pipe"),
    ):
        with pytest.raises(fastmma.FastmmaError, match=message):
            study.read(tmp_path / name)


def test_tensors_in_a_study(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    activations = np.random.default_rng(1).standard_normal((2, 2, 64)).astype(np.float32)
    np.savez(tmp_path / "x.npz", w=weights, x=activations)
    files = [f"{tmp_path}/x.npz::w", f"{tmp_path}/x.npz::x"]
    grid = study.Grid(("e4m3",), ("sm_90a",), ((9, 9, 9),))
    (with_weights,) = study.run(grid, tensors=files[:1])
    assert (with_weights["m"], with_weights["n"], with_weights["k"]) == (9, 6, 64)
    (with_both,) = study.run(grid, tensors=files)
    assert (with_both["m"], with_both["n"], with_both["k"], with_both["compared"]) == (4, 6, 64, 24)
    opcode = "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3"
    d = fastmma.gemm(activations.reshape(4, 64), weights.T, target="sm_90a", cast=True, instruction=opcode)
    exact = activations.reshape(4, 64).astype(np.float64) @ weights.T.astype(np.float64)
    assert with_both["relative_error"] == pytest.approx(np.linalg.norm(d - exact) / np.linalg.norm(exact), rel=1e-6)
    np.savez(tmp_path / "x.npz", w=weights + 1, x=activations)
    assert study.run(grid, tensors=files)[0]["case"] != with_both["case"]
    np.save(tmp_path / "y.npy", weights[:, :32])
    with pytest.raises(fastmma.FastmmaError, match="different K"):
        study.run(grid, tensors=[files[0], tmp_path / "y.npy"])
    assert study.run(grid, tensors=files[0]) == study.run(grid, tensors=[study.read(files[0])])
    with pytest.raises(fastmma.FastmmaError, match="at most two"):
        study.run(grid, tensors=[*files, files[0]])


def test_tensors_with_specials(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    weights[2, 5], weights[4, 6] = np.nan, np.inf
    np.save(tmp_path / "w.npy", weights)
    grid = study.Grid(("bf16", "mxfp8_e4m3"), ("sm_120a",), ((8, 8, 8),))
    plain, scaled = study.run(grid, tensors=[tmp_path / "w.npy"])
    # a NaN of B makes a column of the product NaN; the infinity is one in the original product, whatever a format makes of it
    assert (plain["compared"], plain["left_out"], plain["special_mismatches"]) == (32, 16, 0)
    assert (scaled["compared"], scaled["left_out"], scaled["special_mismatches"]) == (32, 16, 0)
    assert not plain["exact"]
    assert plain["relative_error"] < 0.01 < scaled["relative_error"] < 0.1
    with pytest.raises(fastmma.FastmmaError, match="holds NaN, and e2m1 has none"):
        study.run(replace(grid, formats=("e2m1",)), tensors=[tmp_path / "w.npy"])


@cases("value", [np.nan, np.inf, -np.inf])
@cases("name", SCHEMES)
def test_specials_in_scaled_tensors(name: str, value: float) -> None:
    """Results are finite where the exact product is, or are counted; nothing warns."""
    values = np.ones((3, 256), np.float32)
    values[1, 5] = value
    for target in ("MI300X" if name.endswith("fnuz") else "sm_120a", study.IEEE):
        (record,) = study.run(study.Case(name, target, 4, 3, 256), tensors=[study.Tensor("w", "0", values)])
        assert record["compared"] + record["left_out"] == 12
        assert record["left_out"] >= 4
