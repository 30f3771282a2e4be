"""Plans of cuBLASLt's choices: products that its kernels computed on an H200, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fastmma.cublas import Choice, plan
from numpy.typing import NDArray
from reference import cancelling, cublas_kernels, cublas_last_waves
from reference.cases import cases

import fastmma
from fastmma.products.cublas.raster import Grid, last_wave
from fastmma.products.cublas.rows import Product
from fastmma.products.cublas.segments import CLUSTERS
from fastmma.products.lanes import Lanes
from fastmma.products.lanes_plan import LanesPlan

SAMPLES = cublas_kernels.samples()
H100 = cublas_kernels.samples(cublas_kernels.PATH.with_name("cublas_kernels_h100.npz"))
RARE = cublas_kernels.samples(cublas_kernels.PATH.with_name("cublas_rare.npz"))
GELU = cublas_kernels.samples(cublas_kernels.PATH.with_name("cublas_gelu.npz"))
ALGOS = sorted({sample.choice[0] for sample in SAMPLES})
# of the samples: rare kinds of parts whose order no rule has, and a bias of one column
REFUSED = 2
BF16 = ml_dtypes.bfloat16


def operands(m: int, n: int, k: int, dtype: Any = BF16, layout: str = "nt") -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    return np.asarray(a, order="C" if layout[0] == "n" else "F"), np.asarray(b, order="C" if layout[1] == "n" else "F")


def untouched(m: int, n: int, k: int, dtype: Any = BF16) -> tuple[NDArray[Any], NDArray[Any]]:
    """Operands that only plans are asked about: the system gives no memory for them."""
    return np.empty((m, k), dtype), np.empty((n, k), dtype).T


@cases("algo", ALGOS)
def test_products_of_an_h200_are_replayed(algo: int) -> None:
    compared = 0
    for sample in SAMPLES:
        if sample.choice[0] != algo:
            continue
        try:
            found = cublas_kernels.computed(sample)
        except fastmma.OperandError:
            continue
        assert cublas_kernels.same(found, sample.elements), (sample.query, sample.choice)
        compared += 1
    assert compared


@cases("algo", sorted({sample.choice[0] for sample in RARE}))
def test_products_of_rare_choices_are_replayed(algo: int) -> None:
    for sample in RARE:
        if sample.choice[0] == algo:
            assert cublas_kernels.same(cublas_kernels.computed(sample), sample.elements), (sample.query, sample.choice)


def test_what_was_found_on_an_h200_alone_is_refused_on_an_h100() -> None:
    for algo, named in ((13, "results"), (35, "algo 35")):
        sample = next(sample for sample in RARE if sample.choice[0] == algo)
        with pytest.raises(fastmma.OperandError, match=f"cuBLASLt 13.1 on H100: nothing is known of {named}"):
            cublas_kernels.planned(sample, "H100")


@pytest.mark.parametrize(
    ("cluster", "m", "n", "swizzle", "known"),
    [(17, 792, 504, 0, False), (17, 768, 504, 0, True), (32, 504, 792, 0, True), (32, 504, 792, 1, False), (3, 792, 504, 1, True)],
)
def test_clusters_that_are_not_whole_are_refused_where_their_raster_is_not_known(
    cluster: int, m: int, n: int, swizzle: int, known: bool
) -> None:
    grid = Grid((64, 64), CLUSTERS[cluster], (m, n), 39)
    assert (last_wave(grid, ((0, 448), (448, 896)), is_transposed=False, in_bands=bool(swizzle)) is not None) == known


def test_tiles_of_the_last_wave_are_cut() -> None:
    """Which tiles, and the bits of an element of each kind, as recorded."""
    for waves in cublas_last_waves.recorded():
        a = np.empty((waves.m, waves.k), np.float32, order="F" if waves.layout[0] == "t" else "C")
        b = np.empty((waves.k, waves.n), np.float32, order="F" if waves.layout[1] == "t" else "C")
        try:
            found = plan(a, b, choice=waves.choice, target=waves.gpu)
        except fastmma.OperandError:
            assert waves.choice.cluster in (0, 38, 43, 51), waves
            continue
        cut = np.zeros((waves.m, waves.n), bool)
        for rows, columns, cuts in found.order.blocks(waves.m, waves.n, waves.k):
            cut[rows, columns] = len(cuts) > 1
        cut = cut[:: cublas_last_waves.STEP, :: cublas_last_waves.STEP]
        assert (cut == waves.map).all() or (cut != waves.map).all(), waves
        if waves.k > 2000:
            continue
        first, second = cancelling.vectors("tf32", "tf32", waves.k, waves.seed)
        parts = found.split_k.parts
        sums = [fastmma.gemm(first[:1], second[:1].T, plan=replace(found, split_k=each)) for each in (1, parts)]
        codes = [int(each.view(np.int32)[0, 0]) for each in sums]
        assert sorted(codes) == sorted(waves.codes), waves


def test_products_of_an_h100_are_replayed() -> None:
    """The kernels add as an H200's do; the samples are of choices that an H100 answered after all rules were made."""
    compared = 0
    for sample in H100:
        try:
            found = cublas_kernels.computed(sample, "H100")
        except fastmma.OperandError:
            continue
        assert cublas_kernels.same(found, sample.elements), (sample.query, sample.choice)
        compared += 1
    assert compared > 0.95 * len(H100)


def test_gelu_epilogues_of_an_h200_are_replayed() -> None:
    """Products that no rule was made from; half of the biases are near 1, where tanh counts."""
    for sample in GELU:
        assert cublas_kernels.same(cublas_kernels.computed(sample), sample.elements), (sample.query, sample.choice)
    refused = GELU[0]._replace(query=GELU[0].query._replace(added=2))
    with pytest.raises(fastmma.OperandError, match="does not say how gelu is applied with c here"):
        cublas_kernels.planned(refused)
    with pytest.raises(fastmma.OperandError, match="of which sm_90 is known, not sm_80"):
        fastmma.gemm_plan(*untouched(16, 16, 16), target="A100", activation="gelu", out_dtype="bf16")


def test_sums_in_f16_are_replayed() -> None:
    """Calls of torch that no rule was made from."""
    for sample in cublas_kernels.samples(cublas_kernels.PATH.with_name("cublas_sums.npz")):
        assert cublas_kernels.same(cublas_kernels.computed(sample), sample.elements), (sample.query, sample.choice)
    a, b = untouched(48, 56, 100, np.float16)
    found = fastmma.cublas.plan(a, b, out_dtype="f16", accumulator="f16")
    assert found.operation.instruction.dtype == "f16"
    for given, message in (({"out_dtype": "f32"}, "sums f16 with f16 results in f16"), ({"beta": 0.5, "c": a[:, :1]}, "nothing is known")):
        with pytest.raises(fastmma.OperandError, match=message):
            fastmma.cublas.plan(a, b, accumulator="f16", **({"out_dtype": "f16"} | given))


def test_parts_are_joined_in_f32_alone() -> None:
    a, b = untouched(172, 29, 497)
    plans = [
        fastmma.cublas.plan(a, b, bias=np.empty(29, BF16), out_dtype="bf16", reduced_precision_reduction=each) for each in (True, False)
    ]
    assert [plan.join for plan in plans] == ["workspace", "ascending"]
    a, b = untouched(16, 4096, 4096)
    plans = [fastmma.cublas.plan(a, b, out_dtype="bf16", reduced_precision_reduction=each) for each in (True, False)]
    assert plans[0].order == plans[1].order


def test_few_samples_are_refused() -> None:
    refused = []
    for sample in SAMPLES:
        try:
            cublas_kernels.planned(sample)
        except fastmma.OperandError as error:
            refused.append(str(error))
    assert len(refused) == REFUSED, refused


def test_a_choice_prints_and_reads_rows() -> None:
    choice = Choice.of_row((66, 10, 0xFFFFFFFF, 2, 0, 1, 35, 0, 4))
    assert choice.split_k == -1
    assert choice.parts == 1
    assert str(replace(choice, split_k=3)) == "algo 66, tile 10, split_k 3, reduction 2, custom 1, stages 35, cluster 4"


@pytest.mark.parametrize(
    ("choice", "named"),
    [
        (Choice(74), "algo 74"),
        (Choice(66, stages=36), "stages 36"),
        (Choice(13, custom=79), "custom 79"),
        (Choice(66, stages=35, split_k=2, reduction=4), "reduction 4"),
        (Choice(66, stages=35, inner=1), "inner 1"),
        (Choice(41, stages=35, split_k=-1, reduction=2), "split_k -1"),
        (Choice(10, tile=10, reduction=1), "format bf16"),
        (Choice(66, tile=9999, stages=35), "tile 9999"),
        (Choice(66, stages=35, cluster=999), "cluster 999"),
        (Choice(24, tile=15, cluster=2), "cluster 2"),
        (Choice(66, stages=35, split_k=4000, reduction=2), "split_k 4000"),
        (Choice(66, stages=35, split_k=0), "split_k 0"),
        (Choice(43, stages=34, split_k=0), "split_k 0"),
        (Choice(35, tile=11, stages=18, custom=2, split_k=8, reduction=2), "split_k 8"),
    ],
)
def test_unknown_fields_are_named(choice: Choice, named: str) -> None:
    a, b = untouched(1, 64, 256)
    with pytest.raises(fastmma.OperandError, match=rf"nothing is known of {named} in the choice {choice} for bf16 nt of M = 1"):
        plan(a, b, choice=choice, out_dtype="bf16")


def test_the_workspace_tells_one_part_from_several() -> None:
    a, b = untouched(16, 64, 256)
    choice = Choice(41, stages=35, split_k=-1, reduction=2)
    assert plan(a, b, choice=replace(choice, workspace=131)).split_k == 1
    with pytest.raises(fastmma.OperandError, match="split_k -1"):
        plan(a, b, choice=replace(choice, workspace=1 << 20))


def test_evidence_has_the_rate_of_the_family() -> None:
    a, b = untouched(16, 64, 4096)
    fitted = plan(a, b, choice=Choice(66, stages=35, split_k=3, reduction=2), out_dtype="bf16").evidence
    assert fitted.level == "fitted"
    assert fitted.rate[1] > 2000
    assert "cuBLASLt 13.1 on H200: algo 66, split_k 3, reduction 2, stages 35, for bf16 nt of M = 16, N = 64, K = 4096" in fitted.source
    assumed = plan(a, b, choice=Choice(41, stages=35), out_dtype="bf16").evidence
    assert assumed.level == "assumed"


def test_without_a_choice_the_recorded_plan_is_followed() -> None:
    a, b = np.zeros((16, 4096), np.float16), np.zeros((4096, 4096), np.float16)
    found = plan(a, b, out_dtype="f16")
    assert found == fastmma.gemm_plan(a, b, target="H200", preset="cublas", out_dtype="f16")
    assert found.evidence.level == "recorded"
    with pytest.raises(fastmma.OperandError, match="not recorded"):  # a GPU was asked about no matrices with gaps
        plan(a[:, :77], b[:77], out_dtype="f16")
    guess = plan(a[:, :77], b[:77], out_dtype="f16", unknown="one").evidence
    assert guess.level == "assumed"
    predicted = plan(a[:, :77].copy(), b[:77].copy(), out_dtype="f16").evidence
    assert predicted.level == "fitted"
    biased = plan(a, b.T, out_dtype="f16", bias=a[0], workspace=1 << 20)
    assert biased.evidence.level == "recorded"
    with pytest.raises(fastmma.OperandError, match="nothing is known of what cuBLASLt chooses with 1048576 bytes of workspace"):
        plan(a, b, out_dtype="f16", workspace=1 << 20)


A, B = untouched(16, 64, 256)
CHOICE, LANES = Choice(66, stages=35), Lanes()
HALF = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
ABROAD = "nothing is known of the kernels of cuBLASLt"
REFUSALS: list[tuple[Any, type[fastmma.FastmmaError], str]] = [
    *(
        (lambda given=given: Choice(**given), fastmma.OperandError, "Choice: ")
        for given in ({"algo": -1}, {"algo": 66, "split_k": -2}, {"algo": 66, "workspace": -1}, {"algo": 66, "stages": 3.5})
    ),
    *((lambda where=where: plan(A, B, choice=CHOICE, target=where), fastmma.OperandError, ABROAD) for where in ("H100 PCIe", "sm_80")),
    (lambda: plan(A, B, choice=CHOICE, version="12.8"), fastmma.OperandError, ABROAD),
    (lambda: plan(A, B[:, :0]), fastmma.OperandError, "b has no elements"),
    (lambda: plan([[1.0]], B), fastmma.OperandTypeError, "a must be an array of two or three dimensions, not list"),
    (lambda: plan(A, B, version=13.1), fastmma.OperandTypeError, "version must be a string, for example '13.1', not float"),
    (lambda: plan(A, B, version=None), fastmma.OperandTypeError, "version must be a string"),
    (lambda: plan(A, B, choice=(66,)), fastmma.OperandTypeError, "choice must be a Choice"),
    (lambda: plan(A, B.astype(np.float16), choice=CHOICE), fastmma.OperandTypeError, "same dtype"),
    (lambda: plan(A[::2, ::2], B[::2], choice=CHOICE), fastmma.OperandError, "contiguous"),
    (lambda: plan(A, B.T, choice=CHOICE), fastmma.OperandError, r"a must be \(M, K\)"),
    (lambda: plan(A[0], B, choice=CHOICE), fastmma.OperandTypeError, "two or three dimensions"),
    (lambda: plan(A, B, choice=CHOICE, activation="silu"), fastmma.OperandError, "activation"),
    *(
        (lambda wrong=wrong: Lanes(**wrong), fastmma.OperandError, "Lanes: ")
        for wrong in ({"lanes": 0}, {"tree": "pairwise"}, {"blocks": 2, "parts": 2}, {"vector": -1})
    ),
    (lambda: LanesPlan("sm_90a", HALF), fastmma.OperandError, r"take fma\.rn\.f32"),
    (lambda: LanesPlan("sm_90a", "fma.rn.f32", 32), fastmma.OperandTypeError, "must be Lanes"),
    (lambda: LanesPlan("sm_90a", "fma.rn.f32", LANES, "e4m3"), fastmma.OperandError, "operands must be"),
    (lambda: LanesPlan("sm_90a", "fma.rn.f32", LANES, "f32", ("alpha", "round"), "f32", "a"), fastmma.OperandError, "scaled must be"),
]


@cases(("call", "error", "message"), REFUSALS)
def test_what_is_refused(call: Any, error: type[fastmma.FastmmaError], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_lines_of_wider_matrices_are_taken() -> None:
    assert plan(A[:, :64], B[:64], choice=CHOICE).split_k == 1


def chain(a: NDArray[Any], b: NDArray[Any], places: list[int]) -> np.float32:
    """One chain of fma; products of bfloat16 are exact, and so are their sums with few bits."""
    total = np.float32(0)
    for k in places:
        total = np.float32(np.float64(total) + np.float64(a[k]) * np.float64(b[k]))
    return total


def test_lanes_add_as_they_say() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(BF16) for shape in ((2, 37), (37, 3)))
    whole = fastmma.gemm(a, b, plan=LanesPlan("sm_90a", "fma.rn.f32", Lanes(4, 2, chunk=4, tree="halves"), "bf16"))
    for row in range(2):
        for column in range(3):
            lanes = []
            for lane in range(4):
                mine = [k for k in range(37) if k // 2 % 4 == lane]
                chunks = [chain(a[row], b[:, column], mine[first : first + 4]) for first in range(0, len(mine), 4)]
                total = chunks[0]
                for chunk in chunks[1:]:
                    total = total + chunk
                lanes.append(total)
            assert whole[row, column] == (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])


def test_lanes_that_are_no_power_of_two_are_added_as_if_zeros_followed() -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 6), (6, 1)))
    found = fastmma.gemm(a, b, plan=LanesPlan("sm_90a", "fma.rn.f32", Lanes(6), "f32")).item()
    x = a[0] * b[:, 0]
    assert found == ((x[0] + x[4]) + x[2]) + ((x[1] + x[5]) + x[3])


def test_a_negative_alpha_leaves_zeros_positive() -> None:
    a, b = np.array([[1, 1], [1, 2]], np.float32), np.array([[1], [-1]], np.float32)
    found = plan(a, b, choice=Choice(13, custom=75), alpha=-1.25)
    assert "fma(x, alpha, 0)" in str(found)
    assert np.signbit(fastmma.gemm(a, b, plan=found, alpha=-1.25)).tolist() == [[False], [False]]
    opcode = "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32"
    tiles = fastmma.GemmPlan("sm_90a", opcode, cast=True, epilogue=("alpha+0", "round"), out="f32")
    for compute in (fastmma.gemm, fastmma.prepare(plan=tiles)):
        given = {"plan": tiles} if compute is fastmma.gemm else {}
        assert np.signbit(compute(a, b, alpha=-1.25, **given)).tolist() == [[False], [False]]
    plain = fastmma.gemm(a, b, plan=replace(tiles, epilogue=("alpha", "round")), alpha=-1.25)
    assert np.signbit(plain).tolist() == [[True], [False]]


@pytest.mark.parametrize("depth", [0, 1, 5, 64, 333, 4000])
@pytest.mark.parametrize(
    "lanes",
    [
        Lanes(),
        Lanes(32),
        Lanes(16, 0, chunk=16, tree="ascending"),
        Lanes(8, 64, shrinks=True, parts=3),
        Lanes(128, 2, apart=True, blocks=31),
        Lanes(128, 1, apart=True, blocks=200),
        Lanes(4, 2, blocks=2),
        Lanes(12, 4),
    ],
)
def test_every_k_has_one_place(lanes: Lanes, depth: int) -> None:
    places = lanes.places(depth)
    assert sorted(places[places >= 0].tolist()) == list(range(depth))
    ones = np.ones((1, depth), np.float32)
    assert fastmma.gemm(ones, ones.T, plan=LanesPlan("sm_90a", "fma.rn.f32", lanes)).item() == depth
    assert isinstance(str(lanes), str)


def test_gemm_takes_a_plan_of_lanes_alone() -> None:
    ones, lanes = np.ones((2, 8), np.float32), LanesPlan("sm_90a", "fma.rn.f32", Lanes(2))
    for wrong, words in (({"split_k": 2}, "must be left out"), ({"c": ones[:, :2]}, "no step for c"), ({"metadata": ones}, "dense")):
        with pytest.raises(fastmma.OperandError, match=words):
            fastmma.gemm(ones, ones.T, plan=lanes, **wrong)
    with pytest.raises(fastmma.OperandError, match="shape"):
        fastmma.gemm(ones, ones, plan=lanes)
    out = np.empty((2, 2), np.float32)
    assert fastmma.gemm(ones, ones.T, plan=lanes, out=out, target="sm_90a") is out
    assert (out == 8).all()


def test_a_vector_lies_as_its_matrix() -> None:
    for layout, sizes, contiguous in (
        ("nt", (1, 9), True),
        ("nn", (1, 9), False),
        ("nn", (9, 1), True),
        ("tn", (9, 1), False),
        ("tn", (1, 1), True),
    ):
        assert Product("bf16", layout, *sizes, 16, "bf16").is_contiguous is contiguous


def test_dealt_parts_are_those_of_k_in_another_order() -> None:
    a, b = operands(3, 5, 100, np.float32)
    dealt = fastmma.GemmPlan("sm_90a", "fma.rn.f32", split_k=3, dealt=8)
    parts = [[k for k in range(100) if k // 8 % 3 == part] for part in range(3)]
    sums = [fastmma.gemm(a[:, part], b[part], instruction="fma.rn.f32") for part in parts]
    assert (fastmma.gemm(a, b, plan=dealt) == (sums[0] + sums[1]) + sums[2]).all()
    assert (fastmma.gemm(a, b, plan=replace(dealt, join="second half")) == (sums[0] + sums[2]) + sums[1]).all()
    parts = [[k for k in range(100) if k // 8 % 7 == part] for part in range(7)]
    sums = [fastmma.gemm(a[:, part], b[part], instruction="fma.rn.f32") for part in parts]
    folded = fastmma.gemm(a, b, plan=replace(dealt, split_k=7, join="second half"))
    assert (folded == (((sums[0] + sums[4]) + sums[6]) + (sums[1] + sums[5]) + sums[2]) + sums[3]).all()
    few = fastmma.gemm(a[:, :20], b[:20], plan=replace(dealt, split_k=7, join="second half"))  # of seven parts three have any k
    assert (few == fastmma.gemm(a[:, :20], b[:20], plan=replace(dealt, split_k=7))).all()
    assert "3 parts, to which tiles of 8 k are dealt in turn" in str(dealt)
    with pytest.raises(fastmma.OperandError, match="is for parts to which tiles of k are dealt"):
        fastmma.GemmPlan("sm_90a", "fma.rn.f32", split_k=3, join="second half")
    with pytest.raises(fastmma.OperandError, match="dealt needs a number of parts"):
        fastmma.GemmPlan("sm_90a", "fma.rn.f32", split_k=((0, 8), (8, 16)), dealt=8)


def test_parts_are_joined_from_the_end() -> None:
    a, b = operands(3, 5, 100, np.float16)
    cuts = tuple((start, start + 20) for start in range(0, 100, 20))
    opcode = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    sums = [fastmma.gemm(a[:, k:stop], b[k:stop], plan=fastmma.GemmPlan("sm_90a", opcode)) for k, stop in cuts]
    joined = fastmma.GemmPlan("sm_90a", opcode, split_k=cuts, join="pairwise from the end")
    assert (fastmma.gemm(a, b, plan=joined) == sums[0] + ((sums[1] + sums[2]) + (sums[3] + sums[4]))).all()
    three = replace(joined, split_k=(*cuts[:2], (40, 100)))
    last = fastmma.gemm(a[:, 40:], b[40:], plan=fastmma.GemmPlan("sm_90a", opcode))
    assert (fastmma.gemm(a, b, plan=three) == sums[0] + (sums[1] + last)).all()


SEGMENTED = Choice(43, tile=20, split_k=-1, reduction=2, stages=34, cluster=3)


@pytest.mark.parametrize(
    ("m", "n", "k", "parts"),
    [
        (128, 8192, 4096, ((0, 2048), (2048, 4096))),  # 64 tiles on 132 multiprocessors
        (256, 8192, 4096, 1),
        (640, 1024, 10000, ((0, 3328), (3328, 6656), (6656, 10000))),
        (1280, 8192, 4096, 1),  # whole waves but for a last one that is nearly full
    ],
)
def test_parts_that_a_choice_does_not_say(m: int, n: int, k: int, parts: Any) -> None:
    found = plan(*untouched(m, n, k, np.float32), choice=SEGMENTED)
    assert isinstance(found, fastmma.GemmPlan)
    assert found.split_k == parts
    assert found.join == ("ascending" if parts == 1 else "pairwise from the end")
    assert found.evidence.level == "fitted"


@pytest.mark.parametrize(
    ("shape", "change"),
    [
        ((1536, 1536, 4096), {}),  # only the last of 144 tiles are cut
        ((128, 4096, 1024), {}),  # what a join costs is not known well enough
        ((128, 8192, 4096), {"cluster": 27}),
        ((128, 8192, 4096), {"tile": 16}),
        ((128, 4096, 4096), {"tile": 18}),
    ],
)
def test_parts_that_are_not_known_are_refused(shape: tuple[int, int, int], change: dict[str, int]) -> None:
    a, b = untouched(*shape, np.float32)
    with pytest.raises(fastmma.OperandError, match=r"nothing is known of (split_k -1|tile 16)"):
        plan(a, b, choice=replace(SEGMENTED, **change))  # type: ignore[arg-type]


def test_the_workspace_confirms_the_parts_of_segments() -> None:
    a, b = untouched(128, 8192, 4096, np.float32)
    tiles = 64 * 128 * 128 * 4  # bytes of one part of all
    assert plan(a, b, choice=replace(SEGMENTED, workspace=2 * tiles + 1087)).split_k == ((0, 2048), (2048, 4096))
    assert plan(a, b, choice=replace(SEGMENTED, workspace=0)).split_k == 1
    with pytest.raises(fastmma.OperandError, match="nothing is known of split_k -1"):
        plan(a, b, choice=replace(SEGMENTED, workspace=3 * tiles))


@pytest.mark.parametrize(
    ("m", "workspace", "known"),
    [(5, None, True), (4, None, False), (3, None, False), (3, 12 * 8 * 128 * 128 * 4, True), (3, 12 * 9 * 128 * 128 * 4, False)],
)
def test_many_parts_are_joined_in_an_order_that_is_not_known(m: int, workspace: int | None, known: bool) -> None:
    a, b = untouched(128 * m, 512, 120000, np.float32)
    choice = replace(SEGMENTED, cluster=2, workspace=workspace)
    if known:
        assert len(plan(a, b, choice=choice).split_k) <= 8  # type: ignore[arg-type]
    else:
        with pytest.raises(fastmma.OperandError, match="nothing is known of split_k -1"):
            plan(a, b, choice=choice)


def test_segments_of_stacks_are_refused() -> None:
    a, b = untouched(128, 8192, 4096, np.float32)
    with pytest.raises(fastmma.OperandError, match="nothing is known of split_k -1"):
        plan(np.broadcast_to(a, (2, *a.shape)), np.broadcast_to(b, (2, *b.shape)), choice=SEGMENTED)


def test_an_activation_is_left_to_the_last_part_in_place() -> None:
    a, b = operands(3, 8, 64, np.float16)
    opcode = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    steps = {"join": "in-place", "join_dtype": "f16", "out": "f16"}
    plain = fastmma.GemmPlan("sm_90a", opcode, split_k=2, epilogue=("round",), **steps)
    clipped = replace(plain, epilogue=("relu", "round"))
    assert (fastmma.gemm(a, b, plan=clipped) == np.maximum(fastmma.gemm(a, b, plan=plain), 0)).all()
