"""fastmma bench: what it prints, whom it measures, and that peers are said to be exact where their bits are."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastmma import BackendError
from fastmma.cli import main
from fastmma.study.speed import jobs, peers, processes
from fastmma.study.speed.jobs import Job, Measurement, jobs_of, measured
from fastmma.study.speed.peers import PEERS, Peer
from fastmma.study.speed.products import FAMILIES, TimedProduct, operand, product_of, refusal

NUMPY = "NumPy float32"
SMALL = (64, 64, 512)


def test_in_processes_of_their_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "speed.svg"
    options = "--family f16 --family b1 --target A100 --size 32x32x256 --threads 1 --threads 2 --rounds 1 --format json"
    assert main(["bench", *options.split(), "--peer", NUMPY, "--plot", str(picture)]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["rounds"] == 1
    measurements = [Measurement(**each) for each in found["measurements"]]
    assert [(each.family, each.threads, each.library) for each in measurements] == [
        (family, threads, library) for threads in (1, 2) for family in ("f16", "b1") for library in ("fastmma", NUMPY)
    ]
    for each in measurements:
        assert (each.target, each.m, each.n, each.k) == ("sm_80", 32, 32, 256)
        assert each.seconds > 0
        assert each.gmacs == pytest.approx(32 * 32 * 256 / each.seconds / 1e9)
        assert each.exact == (each.library == "fastmma")
    ones = {each.library: each.same_bits for each in measurements if each.family == "b1"}
    assert ones == {"fastmma": 1.0, NUMPY: 1.0}  # counts of bits are exact in float32
    assert all(line.startswith("fastmma bench: ") for line in printed.err.splitlines())  # how far it is
    assert found["left_out"] == []
    assert "NumPy float32" in picture.read_text()


def test_formats(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    one = Measurement("f16", "sm_80", "mma", 32, 32, 256, 1, "fastmma", True, 0.5, 1.25, 1.0)
    monkeypatch.setattr(processes, "run", lambda jobs: ([one] for _ in jobs))
    wanted = ["bench", "--family", "f16", "--target", "A100", "--threads", "1", "--peer", "none"]
    assert main([*wanted, "--format", "csv"]) == 0
    (read,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert {name: str(value) for name, value in one._asdict().items()} == read
    assert main([*wanted, "--format", "markdown"]) == 0
    assert "| f16 | sm_80 | 1 | fastmma | exact | 32 x 32 x 256 | 0.5 | 1.25 | 100 % |" in capsys.readouterr().out
    assert main(wanted) == 0
    assert "1.25" in capsys.readouterr().out


def test_what_a_target_cannot_do_is_left_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "run", lambda jobs: ([] for _ in jobs))
    monkeypatch.setattr(Job, "seconds", lambda _job: 100.0)
    assert main(["bench", "--family", "f16", "--family", "e4m3", "--target", "V100", "--threads", "1", "--peer", "none"]) == 0
    printed = capsys.readouterr()
    assert "left out: e4m3 on V100: sm_70 has no instruction for e4m3 times e4m3" in printed.out
    assert printed.err == "1 product, about 1 min 40 s\n"
    assert main(["bench", "--family", "e4m3", "--target", "V100", "--peer", "none"]) == 2
    assert "nothing is left to measure" in capsys.readouterr().err
    assert main(["bench", "--family", "f16", "--target", "V100", "--target", "V1000", "--peer", "none"]) == 2
    assert "unknown target 'V1000'" in capsys.readouterr().err


def test_peers_without_such_a_product_are_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(jobs: list[Job]) -> Iterator[list[Measurement]]:
        for job in jobs:
            ours = Measurement(job.family, job.target, "mma", *job.shape, 1, "fastmma", True, 0.5, 1.25, 1.0)
            yield [ours, ours._replace(library=NUMPY)] if job.shape[1] == 64 else [ours]

    monkeypatch.setattr(processes, "run", run)
    options = "--family f16 --target A100 --threads 1 --size 32x32x256 --size 64x64x64 --size 8x8x8"
    assert main(["bench", *options.split(), "--peer", NUMPY]) == 0
    wanted = "left out: NumPy float32 has no product for f16 on A100, 32 x 32 x 256; f16 on A100, 8 x 8 x 8"
    assert wanted in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--family f17", "there is no family 'f17'"),
        ("--size 3x4", "--size takes a size"),
        ("--size 3x0x4", "sizes of at least 1"),
        ("--size 999999999x99999999x1", "of memory"),
        ("--rounds 1001", "--rounds"),
        ("--peer torchx", "there is no peer 'torchx'"),
        ("--format xml", "there is no format 'xml'"),
        ("--plot speed.gif", "a picture is .png, .svg, .pdf, not speed.gif"),
        ("--threads 0", "threads must be an integer from 1"),
    ],
)
def test_wrong_options(options: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *options.split(), *(() if "--rounds" in options else ("--rounds", "1"))]) == 2
    assert message in capsys.readouterr().err


def test_a_peer_that_is_not_installed_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda _name: None)
    assert main(["bench", "--peer", "MMA-Sim"]) == 2
    assert "not installed: MMA-Sim" in capsys.readouterr().err


def test_a_failing_measurement_says_why() -> None:
    with pytest.raises(BackendError, match="there is no family 'f17'"):
        list(processes.run([Job("f17", "sm_80", SMALL, 1, 1, ())]))


def test_peers_are_cut_to_what_they_can_take() -> None:
    for peer in PEERS:
        for shape in ((64, 64, 128), (4096, 4096, 4096), (1, 8192, 100_000)):
            m, n, k = peer.shape(shape)
            assert m * n * k <= peer.macs or (max(m, n) <= 64 and k <= 128)
            assert (m, n, k) <= shape
    assert PEERS[1].shape((1024, 512, 4096)) == (64, 64, 256)
    assert PEERS[1].shape((1024, 1000, 4096), (64, 256)) == (64, 256, 128)


def test_shares_of_equal_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that gets three of four rows right is not said to have the bits."""

    def product(given: Any, shape: tuple[int, int, int]) -> Any:
        def run() -> NDArray[Any]:
            found: NDArray[Any] = given.run(shape)(1).copy()
            found[: shape[0] // 4] += 1
            return found

        return run

    monkeypatch.setattr(jobs, "PEERS", (Peer("three quarters", "numpy", False, "", 1 << 40, product),))
    ours, theirs = measured(Job("f16", "sm_80", SMALL, 1, 1, ("three quarters",)))
    assert (ours.same_bits, theirs.same_bits) == (1.0, 0.75)


def test_families() -> None:
    known = {family: [target for target in ("sm_80", "sm_90a", "sm_100a", "sm_120a") if not refusal(family, target)] for family in FAMILIES}
    assert known["f16"] == ["sm_80", "sm_90a", "sm_100a", "sm_120a"]
    assert "sm_80" not in known["e4m3"]
    assert known["nvfp4"]
    assert known["fp8_1x128"]
    found = product_of("s8", "A100")
    assert isinstance(found, TimedProduct)
    assert found.target == "sm_80"
    assert operand("s8", (100, 100), 0).min() == -128
    together = jobs_of(("f16",), ("A100", "H100"), (SMALL,), (1, 2), 3, ())
    assert [(job.threads, job.target) for job in together] == [(1, "A100"), (1, "H100"), (2, "A100"), (2, "H100")]
    assert together[0].seconds() > together[2].seconds()


@pytest.mark.parametrize(
    ("module", "family", "target"), [("mmasim", "f16", "sm_90a"), ("mmasim", "e4m3", "sm_89"), ("mmaemu", "e4m3", "sm_90a")]
)
def test_exact_peers_have_the_bits(module: str, family: str, target: str) -> None:
    pytest.importorskip(module, reason=f"{module} is not installed")
    (peer,) = (each for each in PEERS if each.module == module)
    product = product_of(family, target)
    shape = (64, 256, 128)
    theirs = peer.product(product, shape)
    assert np.array_equal(theirs(), product.run(shape)(1))


@pytest.mark.parametrize(("module", "family"), [("torch", "e4m3"), ("torchao", "mxfp8_e4m3"), ("torchao", "nvfp4")])
def test_other_peers_come_close(module: str, family: str) -> None:
    pytest.importorskip(module, reason=f"{module} is not installed")
    (peer,) = (each for each in PEERS if each.module == module)
    product = product_of(family, "sm_100a")
    theirs = peer.product(product, SMALL)
    assert np.corrcoef(theirs().ravel(), product.run(SMALL)(1).ravel())[0, 1] > 0.98
