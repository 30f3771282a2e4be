"""Studies of several layers: patterns, folders of models, activations, conclusions, and what the command says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.studies import check_files, lines, safetensors

import fastmma
from fastmma import study
from fastmma.cli import main
from fastmma.study.conclusion import conclusion
from fastmma.study.layered import layered
from fastmma.study.report import markdown

GRID = study.Grid(("e4m3", "nvfp4"), ("sm_120a",), ((5, 9, 9),))
RNG = np.random.default_rng(7)


def saved(path: Path, tensors: dict[str, NDArray[Any]]) -> Path:
    """A file of float32 tensors, and of others as raw U8."""
    header, data = {}, b""
    for name, array in tensors.items():
        dtype = {"float32": "F32", "float16": "F16"}.get(str(array.dtype), "U8")
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    return safetensors(path, header, data)


def weights(rows: int, depth: int) -> NDArray[np.float32]:
    return RNG.standard_normal((rows, depth), dtype=np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder as Hugging Face has them, in two files with an index: twelve layers, an embedding, biases, integers."""
    folder = tmp_path / "model"
    folder.mkdir()
    layers = {f"layer.{i}.dense.weight": weights(4, 32) for i in range(11)}
    first = {"embeddings.word_embeddings.weight": weights(9, 32), "ids": np.zeros((1, 4), np.uint8), "pooler.dense.weight": weights(4, 32)}
    saved(folder / "model-00001-of-00002.safetensors", {**first, "layer.0.dense.bias": np.ones(4, np.float32)})
    saved(folder / "model-00002-of-00002.safetensors", layers)
    places = {**dict.fromkeys((*first, "layer.0.dense.bias"), "model-00001-of-00002.safetensors")}
    places |= dict.fromkeys(layers, "model-00002-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    return folder


def test_what_sources_mean(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [f"layer.{i}.dense" for i in range(11)]
    assert [layer.name for layer in study.layers(model)] == [*blocks, "pooler.dense"]
    assert [layer.name for layer in study.layers(f"{model}::*layer.1*,pooler.dense.weight")] == [
        "layer.1.dense",
        "layer.10.dense",
        "pooler.dense",
    ]
    assert [layer.shape for layer in study.layers(f"{model}/model-*.safetensors::*embeddings*")] == [(9, 32)]
    assert [layer.name for layer in study.layers(f"{model}/*2-of*.safetensors")] == blocks
    monkeypatch.chdir(model.parent)
    assert study.layers("model")[0].source == "model/model-00002-of-00002.safetensors::layer.0.dense.weight"
    np.save("one[1].npy", weights(3, 32))
    np.savez("q.npz", **{"a*b": weights(2, 32), "a_b": weights(2, 32)})
    assert [(layer.name, layer.shape) for layer in study.layers("one[1].npy")] == [("one[1]", (3, 32))]
    assert [layer.name for layer in study.layers("q.npz::a*b")] == ["a*b"]
    assert [record["layer"] for record in study.run(GRID, tensors="q.npz::a?b")] == ["a*b", "a*b", "a_b", "a_b"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("::layer.1.dense.wieght", "has no tensor 'layer.1.dense.wieght'; did you mean layer.1.dense.weight"),
        ("::*poooler*", "none of its 15 tensors has a name like '\\*poooler\\*'; did you mean pooler?"),
        ("::*xyz*", "has a name like '\\*xyz\\*'; it has embeddings.word_embeddings.weight, ids,"),
        ("::*bias", r"studies take matrices of floats, and there are layer.0.dense.bias \(4,\)"),
        ("::ids", r"studies take matrices of floats, and there are ids \(no floats\)"),
        ("/nothing-*.safetensors", "no file has a name like that"),
        ("/..", "is a folder without .safetensors files; name a file, or the folder of a model"),
    ],
)
def test_what_sources_do_not_mean(names: str, message: str, model: Path) -> None:
    for call in (study.layers, lambda source: study.run(GRID, tensors=source)):
        with pytest.raises(fastmma.OperandError, match=message):
            call(f"{model}{names}")


def test_damaged_folders(model: Path) -> None:
    index = model / "model.safetensors.index.json"
    whole = json.loads(index.read_text())
    for content, message in (
        ("{", "is no readable JSON"),
        ("[]", "is no object of JSON"),
        ("{}", "has no weight_map"),
        (json.dumps({"weight_map": {"a": "../model.safetensors"}}), "is no .safetensors file of its folder"),
        (json.dumps({"weight_map": {"a": "gone.safetensors"}}), "there is no such file"),
        (json.dumps({"weight_map": whole["weight_map"] | {"a": "model-00001-of-00002.safetensors"}}), "has no tensor 'a', which the index"),
    ):
        index.write_text(content)
        with pytest.raises(fastmma.OperandError, match=message):
            study.layers(model)
    index.unlink()
    assert len(study.layers(model)) == 12
    (model / "config.json").write_text("{")
    with pytest.raises(fastmma.OperandError, match=r"config\.json: is no readable JSON"):
        study.layers(model)


def test_transposed_weights(tmp_path: Path) -> None:
    """Conv1D's of GPT-2 as its config says, or as a caller says; the product is the same as of the transposed matrix."""
    values = weights(32, 6)
    tensors = {"h.0.attn.c_attn.weight": values, "lm_head.weight": values.T.copy(), "wte.weight": values}
    file = saved(tmp_path / "model.safetensors", tensors)
    plain = {layer.name: layer.shape for layer in study.layers(tmp_path)}
    assert plain == {"h.0.attn.c_attn": (32, 6), "lm_head": (6, 32)}
    told = {layer.name: layer.shape for layer in study.layers(tmp_path, transposed=True)}
    (tmp_path / "config.json").write_text(json.dumps({"decoder": {"model_type": "gpt2"}}))
    known = {layer.name: layer.shape for layer in study.layers(tmp_path)}
    assert known == {"h.0.attn.c_attn": (6, 32), "lm_head": (6, 32)}
    assert told == {"h.0.attn.c_attn": (6, 32), "lm_head": (32, 6)}
    first, second = (study.run(GRID, tensors=f"{file}::{name}.weight") for name in known)
    assert [record["sha256_d"] for record in first] == [record["sha256_d"] for record in second]
    assert first[0]["weights"].rpartition(" ")[0] == f"{file}::h.0.attn.c_attn.weight, transposed"
    (untouched,) = study.run(study.Case("e4m3", "sm_120a", 5, 9, 9), tensors=f"{file}::h.0.attn.c_attn.weight", transposed=False)
    assert (untouched["n"], untouched["k"]) == (32, 6)


def test_a_study_of_layers(model: Path, tmp_path: Path) -> None:
    """Layer by layer as one at a time, resumed, on workers, and with activations that are named like the layers."""
    found = study.run(GRID, tmp_path / "out", tensors=model)
    assert len(found) == 2 * 12
    check_files(tmp_path / "out", found)
    last = study.run(GRID, tensors=f"{model}/model-00001-of-00002.safetensors::pooler.dense.weight")
    assert found[-2:] == last
    seen: list[tuple[int, int]] = []
    assert study.run(GRID, tmp_path / "out", tensors=model, progress=lambda done, of, _: seen.append((done, of))) == found
    assert seen == [(done, 24) for done in range(24)]
    some = study.layers(f"{model}::*dense.weight")
    activations = {layer.name: weights(3, 32)[None] for layer in some}
    np.savez(tmp_path / "x.npz", **{f"{name}.input": values for name, values in activations.items()})
    named = study.run(GRID, tensors=[some, tmp_path / "x.npz"])
    one = [study.Tensor(f"x.npz::{name}", "0", values[0]) for name, values in activations.items()]
    assert [record["sha256_d"] for record in named] == [record["sha256_d"] for record in study.run(GRID, tensors=[some, one])]
    assert {record["m"] for record in named} == {3}
    assert len({record["sha256_a"] for record in named}) == 12
    shared = study.run(GRID, tensors=[some, one[0]])
    assert {record["sha256_a"] for record in shared} == {named[0]["sha256_a"]}
    with pytest.raises(fastmma.OperandError, match=r"x\.npz: has no activations for layer 'a'; it has layer\.0"):
        study.run(GRID, tensors=[study.Tensor("a", "0", one[0].values), tmp_path / "x.npz"])
    with pytest.raises(fastmma.OperandError, match="different K"):
        study.run(GRID, tensors=[model, study.Tensor("a", "0", weights(3, 16))])
    with pytest.raises(fastmma.OperandError, match="needs at least one"):
        study.run(GRID, tensors=[[]])


def records(errors: dict[str, list[float]], activations: str = "") -> list[dict[str, Any]]:
    """Records of formats, with a relative error for each layer."""
    tensors = [study.Tensor(f"model.npz::layer.{i}.weight", str(i), weights(2, 32)) for i in range(len(next(iter(errors.values()))))]
    given: list[Any] = [tensors, study.Tensor("x.npz", "0", weights(3, 32))] if activations else [tensors]
    found = study.run(study.Grid(tuple(errors), ("sm_120a",), ((5, 9, 9),)), tensors=given)
    changed = {f"layer.{i}": {name: row[i] for name, row in errors.items()} for i in range(len(tensors))}
    return [record | {"relative_error": changed[record["layer"]][record["format"]], "accumulation_error": 0.0} for record in found]


def test_conclusions() -> None:
    errors = {"nvfp4": [0.1, 0.1, 0.3, 0.1, 0.25], "e4m3": [0.03, 0.03, 0.031, 0.03, 0.029], "mxfp4": [0.2, 0.2, 0.2, 0.2, 0.5]}
    found = records(errors)
    found[0] |= {"accumulation_error": 0.05}
    (table,) = layered(found)
    assert conclusion(table) == [
        "5 layers of model.npz; activations drawn: N(0, 1), 5 rows (sm_120a).",
        "e4m3 loses least: a relative error of 3.00 % (median over 5 layers), then nvfp4 (10.0 %); mxfp4 loses most (20.0 %).",
        "Under e4m3, all layers lose about the same, 2.90 % to 3.10 %.",
        "Under nvfp4, layer.2 (30.0 %) and layer.4 (25.0 %) lose most, layer.3 least (10.0 %).",
        "Under mxfp4, layer.4 (50.0 %) loses most, layer.3 least (20.0 %).",
        "The sums on the tensor core count under nvfp4 (up to 50.0 % of the error, in layer.0).",
        "Activations are drawn, and not the model's own, which may have outliers.",
    ]
    (table,) = layered(records(errors, "x.npz"))
    said = conclusion(table)
    assert said[0] == "5 layers of model.npz; activations from x.npz (sm_120a)."
    assert said[-1].startswith("The sums on the tensor core are below 10 % of the error everywhere")
    text = markdown(found, title="A title")
    for line in (
        "## 5 layers of model.npz; activations drawn: N(0, 1), 5 rows",
        "- e4m3 loses least: a relative error of 3.00 % (median over 5 layers), then nvfp4 (10.0 %); mxfp4 loses most (20.0 %).",
        "Relative error ‖d - x‖ / ‖x‖ of every layer: 5 layers of model.npz; activations drawn: N(0, 1), 5 rows; sm_120a.",
        "| layer | N x K | e4m3 | nvfp4 | mxfp4 |",
        "| layer.2 | 2 x 32 | 3.10 % | 30.0 % | 20.0 % |",
        "| median |  | 3.00 % | 10.0 % | 20.0 % |",
    ):
        assert line in text.splitlines()
    assert layered(found[:3]) == []


def test_pictures_of_layers() -> None:
    pytest.importorskip("matplotlib")
    from fastmma.study.pictures import PICTURES

    found = records({"e4m3": [0.03, 0.04, 0.0], "nvfp4": [0.1, 0.1, 0.2]})
    figures = {name: figure for name, (_, draw) in PICTURES.items() for figure in draw(found)}
    assert list(figures) == ["formats", "layers"]
    strips, heat = (figure.axes[0] for figure in figures.values())
    assert [text.get_text() for text in heat.texts] == ["3.00 %", "10.0 %", "4.00 %", "10.0 %", "0", "20.0 %"]
    assert [label.get_text() for label in heat.get_yticklabels()] == ["layer.0", "layer.1", "layer.2"]
    assert [label.get_text() for label in strips.get_yticklabels()] == ["e4m3", "nvfp4"]
    for axes in (heat, strips):
        assert "activations drawn: N(0, 1), 5 rows" in " ".join(axes.get_title(loc="left").split())
        axes.figure.draw_without_rendering()
        extent = axes._left_title.get_window_extent()
        assert 0 <= extent.x0 < extent.x1 <= axes.figure.bbox.width


def test_the_command_on_a_folder(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("fastmma.study.pictures.save", lambda *_: [])
    options = ["--shape", "4x1x1", "--format", "e4m3", "--format", "nvfp4"]
    assert main(["study", f"{model}::*layer.1*", *options]) == 0
    said = capsys.readouterr().out
    assert "layer.10.dense  4 x 32" in said
    assert "activations drawn: N(0, 1), 4 rows" in said
    assert "e4m3 loses least" in said
    out = tmp_path / "out"
    np.save(tmp_path / "x.npy", weights(6, 32))
    chosen = ["--input", f"{model}::*layer.1*", "--input", f"{model}::pooler*", "--activations", str(tmp_path / "x.npy")]
    assert main(["study", *chosen, *options, "--no-transposed", "--output", str(out)]) == 0
    assert [record["layer"] for record in lines(out)[::2]] == ["layer.1.dense", "layer.10.dense", "pooler.dense"]
    assert {record["m"] for record in lines(out)} == {6}
    report = (out / "report.md").read_text()
    assert report.startswith("# What formats cost the layers of a model\n\n3 layers of ")
    assert report.index("loses least") < report.index("```sh\nfastmma study --format e4m3 --format nvfp4")
    assert f"activations from {tmp_path / 'x.npy'}" in report
    assert "--no-transposed --output" in report
    assert "lose" in capsys.readouterr().out
    for arguments, message in (
        (["--activations", str(tmp_path / "x.npy"), *options], "name them with --input"),
        ([str(model / "config.json")], "files of tensors end in .npy, .npz, .safetensors"),
    ):
        assert main(["study", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_a_layer_that_changes(model: Path) -> None:
    layer = study.layers(f"{model}::pooler*")[0]
    file = model / "model-00001-of-00002.safetensors"
    file.write_bytes(file.read_bytes().replace(b'"shape": [4, 32]', b'"shape": [32, 4]'))
    with pytest.raises(fastmma.OperandError, match=r"was changed while the study ran: its shape was \(4, 32\), and is \(32, 4\)"):
        study.run(GRID, tensors=layer)


def test_fused_experts_are_layers(tmp_path: Path) -> None:
    """One by one, in files of both kinds, turned where the config says so; a convolution is none."""
    experts = weights(4 * 8, 32).reshape(4, 8, 32)
    names = ["blk.0.mlp.experts.gate_up_proj", "conv1.weight"]
    np.savez(tmp_path / "model.npz", **dict.fromkeys(names, experts), **{"blk.0.mlp.experts.gate_up_proj_bias": weights(4, 8)})
    saved(tmp_path / "model.safetensors", dict.fromkeys(names, experts))
    for model_type, turned in (("mixtral", False), ("gpt_oss", True)):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
        for file in ("model.npz", "model.safetensors"):
            found = study.layers(tmp_path / file)
            assert [layer.name for layer in found] == [f"{names[0]}.{i}" for i in range(4)]
            assert {layer.shape for layer in found} == {(32, 8) if turned else (8, 32)}
            for expert, layer in zip(experts, found, strict=True):
                assert (layer.read().values == (expert.T if turned else expert)).all()
            several = study.layers(f"{tmp_path / file}::*experts*")
            assert several == found
            (record,) = study.run(study.Case("e4m3", "sm_90a", 1, 1, 1), tensors=f"{tmp_path / file}::{names[0]}.2")
            assert (record["layer"], record["n"], record["k"]) == (f"{names[0]}.2", *((32, 8) if turned else (8, 32)))
    assert len(study.run(study.Case("e4m3", "sm_90a", 1, 1, 1), tensors=f"{tmp_path / 'model.npz'}::{names[0]}")) == 4
    with pytest.raises(fastmma.OperandError, match=r"has no tensor 'blk\.0\.mlp\.experts\.gate_up_proj\.4'"):
        study.layers(f"{tmp_path / 'model.npz'}::{names[0]}.4")
    with pytest.raises(fastmma.OperandError, match="has no part 4"):
        study.read(f"{tmp_path / 'model.safetensors'}::{names[1]}.4")
