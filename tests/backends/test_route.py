"""The table of kernels: the row that is chosen is the kernel that runs, edges lie where the table has them, and reasons are said."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from drivers.operations import as_operands, operands, operations
from reference.paths import taking
from reference.routes import widened

import fastmma
from fastmma.backends import quantities, route, routes
from fastmma.backends.call import Operands, Operation
from fastmma.backends.problem import Extents, Problem, Strides, problem_of
from fastmma.backends.resolve import operation_of
from fastmma.backends.routes import ROUTES
from fastmma.backends.runs import RUNS
from fastmma.cli import main
from fastmma.kernels.fma import f32, f64, m8n8k4, trees
from fastmma.kernels.fused import batch, exact, packed, portable, thin, window_lanes, windows
from fastmma.kernels.general import products as general
from fastmma.kernels.integer import amx, b1, int8
from fastmma.kernels.llvm import cpu
from fastmma.kernels.scaled import amx_groups, group_tiles, groups, small_groups
from fastmma.kernels.scaled import products as scaled_panels
from fastmma.kernels.scaled import tiles as scaled_tiles
from fastmma.products.choice import default_instruction

AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx2", "fma", "f16c"})
MMA = "mma.sync.aligned."
# what computes the products of rows, which does not compute here but says that it was reached
ENTRIES: tuple[tuple[Any, str, tuple[str, ...]], ...] = (
    (thin, "multiply", ("thin", "thin, widened")),
    (packed, "multiply", ("panels", "panels of halves")),
    (batch.Blocks, "run", ("blocks", "macro tiles in blocks")),
    (portable, "gemm", ("portable", "scaled portable")),
    (portable, "tiles", ("portable tiles", "scaled portable tiles")),
    (amx_groups, "_Product", ("groups on AMX",)),
    (small_groups, "_memory_of", ("small groups",)),
    (groups, "_PackedProduct", ("groups",)),
    (scaled_panels, "multiply", ("scaled panels",)),
    (scaled_tiles.ScaledTiles, "run", ("scaled tiles",)),
    (group_tiles.GroupTiles, "run", ("tiles of groups",)),
    (f64, "by_panels", ("f64 panels",)),
    (f64, "gemm", ("f64 chains",)),
    (f64, "tiles", ("f64 tiles",)),
    (f32, "by_panels", ("f32 panels from c",)),
    (f32, "gemm", ("f32 chains from c",)),
    (f32, "tiles", ("f32 tiles from c",)),
    (m8n8k4, "by_panels", ("f32 panels",)),
    (m8n8k4, "gemm", ("f32 chains",)),
    (m8n8k4, "tiles", ("f32 tiles",)),
    (amx, "gemm", ("bytes on AMX",)),
    (int8, "gemm", ("bytes",)),
    (int8, "tiles", ("tiles of bytes",)),
    (b1, "gemm_on_amx", ("bits on AMX",)),
    (b1, "gemm", ("bits",)),
    (b1, "tiles", ("tiles of bits",)),
    (window_lanes, "reaches", ("short steps in lanes", "steps in lanes", "exact steps in lanes")),
    (windows, "multiply", ("windows",)),
    (exact, "multiply", ("exact sums",)),
    (trees, "reaches", ("tree panels",)),
    (trees, "multiply", ("trees",)),
    (general, "run_macro_tile", ("general", "general in a window")),  # by its seventh argument
)
KINDS = (("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("tf32", "f32"), ("e4m3", "f32"), ("e4m3", "f16"), ("s8", None), ("b1", None))
OPERATIONS = (
    *((default_instruction(kind, kind, sums, "sm_80" if kind == "b1" else "sm_90a").opcode, "sm_90a") for kind, sums in KINDS[:-1]),
    (default_instruction("b1", "b1", None, "sm_80").opcode, "sm_80"),
    (MMA + "m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_90a"),
    (MMA + "m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_89"),
    (MMA + "m16n8k8.row.col.f64.f64.f64.f64", "sm_90a"),
    (MMA + "m8n8k4.row.col.f64.f64.f64.f64.rm", "sm_90a"),
    (MMA + "m8n8k4.row.col.f32.f16.f16.f32", "sm_80"),
    ("fma.rn.f32", "sm_80"),
    *(("v_mfma_f32_16x16x16_f16", target) for target in ("gfx908", "gfx90a", "gfx942")),
    ("v_mfma_f32_16x16x16_bf16", "gfx942"),
    (MMA + "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", "sm_120a"),
    (MMA + "m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0", "sm_120a"),
)
ALIGNED, EXACT = {"align_bits": 40}, {"align_rounding": "exact"}  # of one's own, in 64 bits and in more
GIVEN = [operation_of(*each) for each in OPERATIONS]
GIVEN += [replace(each, arithmetic=replace(each.arithmetic, **own)) for each in GIVEN[:3] for own in (ALIGNED, EXACT)]
SIZES = (1, 2, 3, 8, 9, 16, 17, 31, 32, 33, 63, 64, 65, 128, 256, 512, 1024, 1025, 2048, 4096, 4097)


class ReachedError(Exception):
    """What computes the products of these rows was called."""


def raising(names: tuple[str, ...]) -> Callable[..., Any]:
    def call(*args: Any, **_: Any) -> Any:
        raise ReachedError(*((names[args[6]],) if "general" in names else names))

    return call


def zeros(operation: Operation, shape: tuple[int, int, int, int], c: bool, orders: str) -> tuple[Operands, Any]:
    """Products whose memory nobody touches."""
    products, rows, columns, depth = shape
    ins, formats = operation.instruction, operation.instruction.formats

    def matrices(high: int, wide: int, dtype: Any, order: str) -> Any:
        if order == "C":
            return np.zeros((products, high, wide), dtype)
        return np.zeros((products, wide, high), dtype).swapaxes(1, 2)

    blocks = depth // ins.k * ins.scale_vec_size if ins.scale_vec_size else 0
    scales = [np.full(of, 56, np.uint8) if blocks else None for of in ((products, rows, blocks), (products, blocks, columns))]
    a, b = matrices(rows, depth, formats.a.code_dtype, orders[0]), matrices(depth, columns, formats.b.code_dtype, orders[1])
    out = matrices(rows, columns, formats.sums.code_dtype, "C")
    return Operands(a, b, np.zeros_like(out) if c else None, None, scales[0], scales[1]), out


@pytest.mark.parametrize("forbidden", [False, True])
def test_the_row_that_is_chosen_is_the_kernel_that_runs(forbidden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if forbidden:
        monkeypatch.setenv("FASTMMA_PORTABLE", "1")
    for owner, name, rows in ENTRIES:
        monkeypatch.setattr(owner, name, raising(rows))
    draw, met = random.Random(26), set()
    for _ in range(800):
        operation = draw.choice(GIVEN)
        k = operation.instruction.k
        while True:
            products, rows, columns, depth = draw.choice((1, 1, 2)), *(draw.choice(SIZES) for _ in range(3))
            depth = -(-depth // k) * k if operation.instruction.scale_vec_size else depth
            if products * max(rows * depth, depth * columns, rows * columns) <= 1 << 22:
                break
        given, out = zeros(operation, (products, rows, columns, depth), draw.random() < 0.4, draw.choice(("CC", "CF", "FC", "FF")))
        row = route.choose(problem_of(operation, given, out)).row
        with pytest.raises(ReachedError) as found:
            route.run(operation, given, out, 1)
        assert row.name in found.value.args, (operation.instruction.opcode, out.shape, depth)
        met.add(row.name)
    if cpu.usable() >= AVX512:
        assert len(met) > 20
    if forbidden:
        kernels = ("portable", "general", "bytes", "bits", "f64", "f32", "from c", "windows", "exact sums", "trees")
        assert all(any(name in row for name in kernels) and "panels" not in row for row in met)


def problem(kind: str, rows: int, columns: int, depth: int, products: int = 1) -> Problem:
    """Products in C order, as they come first."""
    operation = operation_of(default_instruction(kind, kind, None, "sm_90a"), "sm_90a")
    size = operation.instruction.formats.a.code_dtype.itemsize
    strides = Strides((rows * depth * size, depth * size, size), (depth * columns * size, columns * size, size))
    return Problem(operation, Extents(products, rows, columns, depth), strides, False, False, False)


@pytest.fixture
def avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose as on a CPU with AVX-512, which computes nothing here."""
    monkeypatch.setattr(cpu, "usable", lambda: AVX512)


# on both sides of every bound
EDGES = (
    (("f16", 128, 128, 128), "blocks"),
    (("f16", 128, 128, 129), "macro tiles in blocks"),
    (("f16", 256, 256, 256), "macro tiles in blocks"),
    (("f16", 256, 257, 256), "panels"),
    (("f16", 2048, 2048, 64), "macro tiles in blocks"),
    (("f64", 64, 64, 16), "f64 panels"),
    (("f64", 64, 64, 15), "f64 chains"),
    (("f64", 4, 4096, 64), "f64 panels"),
    (("f64", 3, 4096, 64), "f64 chains"),
    (("f64", 4096, 3, 64), "f64 chains"),
    (("f16", 2048, 2048, 65), "panels"),
    (("f16", 32, 4096, 4096), "macro tiles in blocks"),
    (("f16", 33, 4096, 4096), "panels"),
    (("f16", 15, 2048, 4096), "panels"),
    (("f16", 17, 4096, 4097), "panels"),
    (("f16", 8, 1024, 1024), "thin"),
    (("f16", 8, 1023, 1024), "macro tiles in blocks"),
    (("f16", 9, 1024, 1024), "macro tiles in blocks"),
    (("f16", 16, 4096, 4096), "thin"),
    (("f16", 17, 4096, 4096), "macro tiles in blocks"),
    (("f16", 1, 63, 1 << 20), "panels"),
    (("f16", 1, 64, 1 << 15), "thin"),
    (("f16", 4096, 16, 4096), "thin"),
    (("e4m3", 8, 2048, 2048), "thin"),
    (("e4m3", 8, 2047, 2048), "macro tiles in blocks"),
    (("e4m3", 9, 2048, 2048), "macro tiles in blocks"),
    (("e4m3", 33, 2048, 2048), "panels"),
    (("f16", 0, 64, 64), "portable"),
    (("s8", 64, 64, 64), "bytes"),
)


@pytest.mark.usefixtures("avx512")
@pytest.mark.parametrize(("given", "name"), EDGES)
def test_edges(given: tuple[str, int, int, int], name: str) -> None:
    verdicts = route.explain(problem(*given))
    assert [verdict.row.name for verdict in verdicts if not verdict.reason] == [name]
    assert route.choose(problem(*given)).row.name == name


def test_few_columns_are_computed_as_rows() -> None:
    shapes = ((508, 127, 64), (507, 127, 64), (1 << 20, 128, 64), (4, 1, 64), (3, 1, 64))
    assert [quantities.is_turned(problem("f16", *shape)) for shape in shapes] == [True, False, False, True, False]


MATRIX_CORES = (
    (("v_mfma_f32_16x16x16_f16", "gfx942"), (64, 64, 16), "short steps in lanes"),
    (("v_mfma_f32_16x16x32_fp8_fp8", "gfx942"), (64, 64, 16), "short steps in lanes"),
    (("v_mfma_f32_16x16x32_bf8_bf8", "gfx942"), (4, 4, 4096), "short steps in lanes"),
    (("v_mfma_f32_16x16x16_bf16", "gfx942"), (64, 64, 16), "steps in lanes"),
    (("v_mfma_f32_16x16x8_xf32", "gfx942"), (4, 4, 4096), "steps in lanes"),
    (("v_mfma_f32_16x16x16_f16", "gfx942"), (64, 64, 15), "windows"),
    (("v_mfma_f32_16x16x16_bf16", "gfx942"), (3, 64, 4096), "windows"),
    (("v_mfma_f32_16x16x16_f16", "gfx942"), (64, 3, 4096), "windows"),
    (("v_mfma_f32_16x16x16_f16", "gfx908"), (64, 64, 16), "exact steps in lanes"),
    (("v_mfma_f32_16x16x8bf16", "gfx908"), (4, 4, 4096), "exact steps in lanes"),
    (("v_mfma_f32_16x16x16_f16", "gfx908"), (64, 64, 15), "exact sums"),
    (("v_mfma_f32_16x16x16_f16", "gfx908"), (3, 64, 4096), "exact sums"),
)


@pytest.mark.usefixtures("avx512")
@pytest.mark.parametrize(("of", "shape", "name"), MATRIX_CORES)
def test_edges_of_matrix_cores(of: tuple[str, str], shape: tuple[int, int, int], name: str) -> None:
    """Bits of exponents and sizes choose."""
    given = problem("f16", *shape)._replace(operation=operation_of(*of))
    assert [verdict.row.name for verdict in route.explain(given) if not verdict.reason] == [name]


SIDES = (1, 8, 9, 32, 33, 64, 129, 256, 1024, 2049)
LARGEST = 1 << 25  # multiply-adds, which portable kernels do in a moment
_MATRIX_CORES = [operation_of(*each) for each in OPERATIONS if each[1].startswith("gfx")]
DENSE = [
    each for each in (*operations(), *_MATRIX_CORES) if not each.instruction.sparse and each.instruction.ctype == each.instruction.dtype
]
# one for each method and rounding, scales, formats that are multiplied, and widening in as many k
KINDS_OF_ROWS = {
    (
        each.arithmetic.method,
        each.instruction.rounding,
        each.instruction.stype,
        each.multiplied,
        bool(each.arithmetic.widened) * each.instruction.k,
        each.target.startswith("gfx") and each.target,
    ): each
    for each in DENSE
}


# rows that no GPU's arithmetic takes first where a CPU has vectors: tests of arithmetics of one's own, and what others miss, take them;
# and one that takes larger products only, which tests/kernels/test_amx.py compares
LATER = ("general in a window", "general", "thin, widened", "scaled portable", "portable tiles", "bits on AMX")


@cache
def ends_of_rows() -> dict[str, list[tuple[Operation, Extents, bool]]]:
    """The smallest and the largest products that take each row."""
    found: dict[str, list[tuple[Operation, Extents, bool]]] = {}
    for operation, c in itertools.product(KINDS_OF_ROWS.values(), (False, True)):
        ins = operation.instruction
        a, b = (each.code_dtype.itemsize for each in (ins.formats.a, ins.formats.b))
        for count, rows, columns, k in (
            *itertools.product((1,), SIDES, SIDES, SIDES),
            *itertools.product((3,), (1, 16, 256), (8, 256), (1, ins.k, 33)),
        ):
            extents = Extents(count, rows, columns, -(-k // ins.k) * ins.k if ins.stype else k)
            if extents.work <= LARGEST:
                strides = Strides((rows * k * a, k * a, a), (k * columns * b, columns * b, b))
                row = route.choose(Problem(operation, extents, strides, c, bool(ins.stype), False)).row.name
                both = sorted([*found.get(row, ()), (operation, extents, c)], key=lambda each: each[1].work)
                found[row] = [both[0], both[-1]]
    return found


@pytest.mark.parametrize("row", [row for row in ROUTES if row.call == "products"], ids=lambda row: row.name)
def test_both_ends_of_a_row_have_the_bits_of_portable_kernels(row: routes.Route) -> None:
    if (features := route.features_of(row)) and not any(each <= cpu.usable() for each in features):
        pytest.skip(f"needs a CPU with {route.text_of_features(row)}")
    if row.name not in ends_of_rows():
        assert row.name in LATER
        return
    for operation, extents, c in ends_of_rows()[row.name]:
        given = as_operands(operands(np.random.default_rng(0), operation.instruction, *extents[1:], extents.products))
        given = given if c else given._replace(c=None)
        found, expected = (np.empty(extents[:3], operation.instruction.formats.d.code_dtype) for _ in range(2))
        route.run(operation, given, found, 2)
        with taking("portable"):
            route.run(operation, given, expected, 1)
        np.testing.assert_array_equal(found, expected, err_msg=f"{operation.instruction} {extents}")


@pytest.mark.usefixtures("avx512")
def test_forms_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(threads: int, *given: Any) -> list[str]:
        found = route.explain(problem(*given), threads, ("forms",))
        return [verdict.row.name for verdict in found if not verdict.reason]

    assert taken(2, "f16", 128, 128, 128) == taken(1, "f16", 255, 256, 256) == ["blocks of a form"]
    assert taken(1, "f16", 512, 256, 255) == taken(1, "f16", 127, 512, 512) == taken(1, "f16", 1024, 127, 256) == ["blocks of a form"]
    assert taken(2, "f16", 128, 128, 256) == taken(2, "f16", 512, 256, 257) == taken(1, "f16", 8, 8, 8, 1025) == []
    assert taken(1, "f16", 256, 256, 256) == taken(1, "f16", 363, 363, 128) == taken(1, "f16", 16, 1024, 2049) == ["panels of a form"]
    assert taken(1, "f16", 2049, 512, 257) == taken(1, "f16", 1024, 1025, 257) == taken(1, "f16", 512, 127, 1024) == []
    assert taken(1, "f16", 512, 128, 1024) == taken(1, "f16", 1024, 256, 512) == ["panels of a form"]
    assert taken(2, "s8", 256, 256, 512) == taken(1, "s8", 256, 256, 512) == ["bytes of a form"]
    assert taken(2, "s8", 256, 256, 513) == taken(1, "s8", 257, 256, 512) == taken(2, "s8", 256, 257, 256) == []
    assert taken(1, "f16", 363, 363, 4) == []  # results
    monkeypatch.setattr(cpu, "usable", lambda: AVX512 | {"amx-tile", "amx-int8"})
    assert taken(1, "s8", 512, 512, 512) == taken(4, "s8", 512, 512, 512) == ["bytes on AMX of a form"]
    assert taken(1, "s8", 512, 512, 513) == taken(1, "s8", 16, 2048, 4097) == []
    bits = operation_of(default_instruction("b1", "b1", None, "sm_80"), "sm_80")
    chosen = [route.choose(problem("s8", *shape)._replace(operation=bits)).row.name for shape in ((2048, 2048, 2047), (2048,) * 3)]
    assert chosen == ["bits", "bits on AMX"]
    assert taken(1, "s8", 15, 256, 512) == taken(2, "s8", 1, 1, 1) == ["bytes on AMX of a form"]
    chains = problem("f64", 1, 1, 1)._replace(operation=operation_of("fma.rn.f32", "sm_90a"), parts=4)
    for threads, k, names in ((2, 512, ["chains of a form"]), (2, 1024, []), (1, 2048, ["chains of a form"]), (1, 2049, [])):
        found = route.explain(chains._replace(extents=Extents(1, 128, 128, k)), threads, ("forms",))
        assert [verdict.row.name for verdict in found if not verdict.reason] == names


def test_names_are_keys() -> None:
    names = [row.name for row in ROUTES]
    assert len(set(names)) == len(names)
    assert {row.name for row in ROUTES if row.call == "products"} == set(RUNS)
    for row in ROUTES:
        for bounds in row.ranges:
            assert set(bounds) <= set(quantities.QUANTITIES), row.name
            assert all(least <= most for least, most in bounds.values()), row.name
    assert {row.name for row in ROUTES if row.call == "products"} == {name for _, _, rows in ENTRIES for name in rows}


def test_every_product_has_an_exact_kernel() -> None:
    for opcode, target in OPERATIONS:
        operation = operation_of(opcode, target)
        for first, only_exact in itertools.product((0, 3), (False, True)):
            given, out = zeros(operation, (1, 40, 40, 2 * operation.instruction.k), True, "CC")
            row = route.choose(problem_of(operation, given, out), first, only_exact).row
            assert not (only_exact and row.fallback)


def test_doctor_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--route", "16x4096x4096", "--type", "f16", "--target", "H100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found["kernels"]] == [row.name for row in ROUTES]
    assert [row["name"] for row in found["kernels"] if row["taken"]] == [found["taken"]]
    assert all(row["taken"] != bool(row["reason"]) for row in found["kernels"])
    reasons = {row["name"]: row["reason"] for row in found["kernels"]}
    assert reasons["bytes"] == "computes integer, not fused"
    assert reasons["groups"] == "takes block scaling only"
    assert reasons["registers"] == "takes registers of warps"
    assert main(["doctor", "--route", "100x200x20000", "--type", "bf16"]) == 0
    assert "100x200x20000 by wgmma" in capsys.readouterr().out.replace("\n", " ")
    assert main(["doctor", "--route", "4096x4096x20000", "--type", "bf16"]) == 0
    assert "of which a part is 2048x4096x8192" in capsys.readouterr().out.replace("\n", " ")
    assert main(["doctor", "--route", "0x2x3"]) == 2
    assert "at least 1" in capsys.readouterr().err


def test_doctor_knows_instructions(capsys: pytest.CaptureFixture[str]) -> None:
    sparse = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    assert main(["doctor", "--route", "256x256x4096", "--instruction", sparse, "--target", "A100", "--json"]) == 0
    taken = json.loads(capsys.readouterr().out)["taken"]
    assert taken == "sparse panels" if cpu.usable() >= AVX512 else taken in ("panels", "portable")
    scaled = OPERATIONS[-2][0]
    assert main(["doctor", "--route", "64x64x256", "--instruction", scaled, "--target", "sm_120a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["taken"] in ("groups on AMX", "small groups", "scaled portable")


def test_the_table_of_kernels_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--kernels", "--json"]) == 0
    assert [row["kernel"] for row in json.loads(capsys.readouterr().out)] == [row.name for row in ROUTES]


@pytest.mark.parametrize(("rows", "columns", "depth"), [(320, 70, 130), (300, 3, 70), (3, 300, 70), (90, 100, 2000)])
@pytest.mark.parametrize("name", ["thin", "panels"])
def test_what_is_missed_is_redone(name: str, rows: int, columns: int, depth: int) -> None:
    """Turned or not, with infinities and NaNs, where c lies where results go."""
    rng = np.random.default_rng(rows)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((rows, depth), (depth, columns)))
    c = rng.standard_normal((rows, columns), np.float32)
    a[rows // 2, 3], b[5, columns // 2], a[1, 1], c[0, 0] = np.nan, np.inf, -np.inf, np.inf
    picked = np.unique([0, 1, rows // 2, rows - 1]), np.unique([0, columns // 2, columns - 1])
    expected = fastmma.gemm(a[picked[0]], b[:, picked[1]], c[np.ix_(*picked)], target="H100", backend="reference")
    with widened(name):
        found = fastmma.gemm(a, b, c, target="H100", out=c)
    assert found is c
    assert found[np.ix_(*picked)].tobytes() == expected.tobytes()
