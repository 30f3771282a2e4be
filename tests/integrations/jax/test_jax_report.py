"""Reports of a closed world: every operation that JAX compiles has a status, and a place in the caller's source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.experimental import io_callback  # noqa: E402
from jax.extend.core import Primitive  # noqa: E402
from jax.interpreters import mlir  # noqa: E402

import fastmma  # noqa: E402
import fastmma.jax  # noqa: E402
from fastmma.jax.internals import is_of_jax, lower_equations  # noqa: E402
from fastmma.jax.primitives import KINDS, is_fixed  # noqa: E402
from fastmma.testing import adversarial, assert_bits_equal  # noqa: E402

lax = jax.lax
PLAIN = (((1,), (0,)), ((), ()))
A, B = adversarial((16, 64), "bf16"), adversarial((64, 16), "bf16", seed=1)
X = np.ones((4, 4), np.float32)
INTEGERS = np.arange(4, dtype=np.int32)


def run(function, *arguments):
    """The report of a call, and the line of this file that made it."""
    with fastmma.jax.emulate("H100") as report:
        jax.block_until_ready(function(*arguments))
    return report


def operators(report, status: str) -> set[str]:
    return {line.operator for line, _ in report.lines(status)}


# what ran, the operator that is passed, and why
PASSED = {
    "convolution": (lambda: lax.conv(X[None, None], X[None, None], (1, 1), "SAME"), "conv_general_dilated", "its algorithm on a GPU"),
    "exponential": (lambda: jnp.exp(X), "exp", "approximates"),
    "square root": (lambda: lax.sqrt(X), "sqrt", "approximates"),
    "complex absolute value": (lambda: lax.abs(X.astype(np.complex64)), "abs", "complex"),
    "sum": (lambda: lax.reduce_sum(X, (0, 1)), "reduce_sum", "adds in another order"),
    "running sum": (lambda: lax.cumsum(X), "cumsum", "adds in another order"),
    "scattered sum": (lambda: jnp.asarray(X).at[INTEGERS].add(1.0), "scatter-add", "adds in another order"),
    "product and sum": (lambda: jax.jit(lambda x: x * x + x)(X), "mul", "contracts"),
    "comparison": (lambda: lax.lt(X, X), "lt", "flushes subnormals"),
    "rounding": (lambda: lax.convert_element_type(jnp.asarray(X), jnp.bfloat16), "convert_element_type", "skip this rounding"),
    "writes in no order": (lambda: jnp.asarray(X).at[INTEGERS].set(X), "scatter", "in no fixed order"),
    "sort": (lambda: lax.sort(X), "sort", "flushes subnormals"),
    "largest": (lambda: lax.top_k(X, 2), "top_k", "order of its own"),
    "cholesky": (lambda: jnp.linalg.cholesky(jnp.eye(3)), "cholesky", "another library"),
    "solve": (lambda: jnp.linalg.solve(jnp.eye(3), jnp.ones(3)), "triangular_solve", "another library"),
    "fft": (lambda: jnp.fft.fft(X), "fft", "another library"),
    "normal": (lambda: jax.random.normal(jax.random.key(0), (3,)), "erf_inv", "approximates"),
    "other generator": (lambda: jax.random.bits(jax.random.key(0, impl="rbg"), (3,)), "rng_bit_generator", "another generator"),
    "no values": (lambda: lax.empty((3,), np.float32), "empty", "does not initialise"),
    "other branch": (lambda: lax.platform_dependent(X, cpu=lambda x: x, default=lambda x: -x), "platform_index", "another branch"),
    "inside of a loop": (lambda: lax.fori_loop(0, 3, lambda _, x: jnp.tanh(x), X), "tanh", "approximates"),
    "inside of a branch": (lambda: lax.cond(True, jnp.tanh, jnp.sin, X), "sin", "approximates"),
    "inside of a derivative": (lambda: jax.grad(jax.checkpoint(lambda x: jnp.tanh(x).sum()))(X), "tanh", "approximates"),
}


@pytest.mark.parametrize("name", PASSED)
def test_what_xla_computes_is_passed(name: str) -> None:
    function, operator, why = PASSED[name]
    report = run(function)
    lines = [line for line, _ in report.lines("passed") if line.operator == operator]
    assert lines
    assert all(why in line.how for line in lines)
    assert all(line.where.startswith(f"{__file__}:") for line in lines)
    assert report.unseen == 0
    with pytest.raises(fastmma.NotEmulatedError, match=operator):
        report.assert_all_emulated(assumed=True)


IMAGES, FILTERS = jnp.ones((2, 8, 8, 4), jnp.bfloat16), jnp.ones((1, 1, 4, 4), jnp.bfloat16)


def convolve(images, filters):
    return lax.conv_general_dilated(images, filters, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def total(images, filters):
    return convolve(images, filters).astype(np.float32).sum()


CONVOLUTIONS = {
    "at once": (lambda: convolve(IMAGES, FILTERS), 1),
    "jit": (lambda: jax.jit(convolve)(IMAGES, FILTERS), 1),
    "vmap": (lambda: jax.vmap(convolve, (0, None))(IMAGES[None], FILTERS), 1),
    "gradients": (lambda: jax.jit(jax.value_and_grad(total, (0, 1)))(IMAGES, FILTERS), 3),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_counted_and_can_be_refused(name: str) -> None:
    """Those of 1 x 1 filters, too, which cuDNN computes."""
    function, number = CONVOLUTIONS[name]
    found = [(line, count) for line, count in run(function).lines("passed") if line.operator == "conv_general_dilated"]
    assert sum(count for _, count in found) == number
    assert all("cuDNN or XLA chooses its algorithm" in line.how for line, _ in found)
    with fastmma.jax.emulate("H100", other="error"), pytest.raises(fastmma.NotEmulatedError, match="conv_general_dilated of bfloat16"):
        jax.block_until_ready(function())
    with fastmma.jax.emulate("H100", other="warn"), pytest.warns(UserWarning, match="not an emulated GPU: conv_general_dilated"):
        jax.block_until_ready(function())


NEUTRAL = {
    "moves": lambda: (X.T, jnp.roll(X, 1, 0), jnp.stack([X, X]), jnp.asarray(X)[1:, ::2], jnp.asarray(X)[INTEGERS]),
    "triangles and borders": lambda: (jnp.tril(X), jnp.pad(X, 1)),
    "integers": lambda: (jnp.cumsum(INTEGERS), jnp.sort(INTEGERS), INTEGERS // 3 + jnp.asarray(INTEGERS) * 7),
    "sums of integers": lambda: jnp.asarray(INTEGERS).at[INTEGERS].add(1),
    "one write": lambda: jnp.asarray(X).at[2].set(3.0),
    "random bits": lambda: (jax.random.bits(jax.random.key(0), (3,)), jax.random.permutation(jax.random.key(1), 8)),
    "gradients of a scan": lambda: jax.grad(lambda x: lax.scan(lambda c, _: (-c[::-1], c), x, None, length=3)[0][0, 0])(jnp.asarray(X)),
    "exact conversions": lambda: (jnp.asarray(A).astype(np.float32), jnp.asarray(INTEGERS > 1).astype(jnp.bfloat16)),
    "signs": lambda: (lax.neg(X), lax.abs(X), lax.is_finite(X)),
    "control": lambda: (lax.scan(lambda c, x: (c, x), X[0], X), lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0)),
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_what_is_neutral(name: str) -> None:
    report = run(NEUTRAL[name])
    assert report.neutral > 0
    assert (report.emulated, report.assumed, report.passed, report.unseen) == (0, 0, 0, 0), str(report)
    with pytest.raises(fastmma.NotEmulatedError, match="there was no product"):
        report.assert_all_emulated()


def test_neutral_operations_on_floats_keep_every_bit() -> None:
    """Moves and signs touch no bits but the sign, of subnormals too, which arithmetic of XLA flushes on a CPU."""
    x = np.arange(0, 2**32, 2**32 // 4093, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = x[~np.isnan(x)]
    moved = jax.jit(lambda x: (x[::-1], -x, jnp.abs(x), jnp.where(jnp.arange(x.size) % 2, x, -x), jnp.isfinite(x)))(x)
    sign = np.where(np.arange(x.size) % 2, x, -x)
    for found, expected in zip(moved, (x[::-1], -x, np.abs(x), sign, np.isfinite(x)), strict=True):
        assert np.asarray(found).tobytes() == expected.tobytes()
    tiny = np.float32([1e-40])
    assert float(lax.add(tiny, tiny)[0]) == 0
    assert bool(lax.eq(tiny, np.float32([0]))[0])


FORMATS = [
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e8m0fnu",
    "float4_e2m1fn",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int4",
]


@pytest.mark.parametrize("name", FORMATS)
def test_exact_conversions_are_exact(name: str) -> None:
    """Every code of a dtype, converted by XLA, is what NumPy converts it to, and has the same value."""
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    codes = np.arange(2**16 if dtype.itemsize == 2 else 2**8).astype(f"u{dtype.itemsize}")
    values = (codes % 16).view(np.int8).astype(dtype) if name == "int4" else (codes % 16 if "4_" in name else codes).view(dtype)
    exact = [each for each in ("float32", "float16", "bfloat16", "int32") if is_fixed(dtype, np.dtype(getattr(ml_dtypes, each, each)))]
    assert "float32" in exact
    dtypes = [np.dtype(getattr(ml_dtypes, each, each)) for each in exact]
    converted = jax.jit(lambda x: [lax.convert_element_type(x, dtype) for dtype in dtypes])(jnp.asarray(values))
    kept = ~np.isnan(values.astype(np.float32))
    for found, dtype in zip(map(np.asarray, converted), dtypes, strict=True):
        assert found[kept].tobytes() == values[kept].astype(dtype).tobytes()
        assert (found[kept].astype(np.float64) == values[kept].astype(np.float64)).all()


@pytest.mark.parametrize("name", ["int32", "uint32"])
def test_integers_are_rounded_to_nearest_even(name: str) -> None:
    values = (
        np.random.default_rng(0).integers(0, 2**32, 1 << 16, dtype=np.uint64).astype(np.uint32) >> np.arange(1 << 16, dtype=np.uint32) % 9
    )
    values = values.view(name)
    assert is_fixed(values.dtype, np.dtype(np.float32))
    found = np.asarray(jax.jit(partial(lax.convert_element_type, new_dtype=np.float32))(values))
    assert found.tobytes() == values.astype(np.float32).tobytes()


def test_what_is_no_exact_conversion() -> None:
    pairs = [("float32", "bfloat16"), ("float32", "float64"), ("bfloat16", "float16"), ("float16", "bfloat16"), ("int64", "float32")]
    pairs += [("int16", "float16"), ("float32", "int32"), ("float32", "bool"), ("complex64", "float32"), ("bfloat16", "float64")]
    for source, result in pairs:
        first, second = (np.dtype(getattr(ml_dtypes, each, each)) for each in (source, result))
        assert not is_fixed(first, second)
    assert is_fixed(np.dtype(np.int64), np.dtype(np.int8))
    assert is_fixed(np.dtype(np.int32), np.dtype(bool))


# primitives that a version of JAX has not yet, or not any more
SINCE = {
    (0, 10, 2): {"mulhi", "philox2x32", "philox4x32", "stack", "stage", "threefry4x32", "unstack"},
    (0, 11): {"eval_jaxpr", "log2", "one_minus_square", "relayout", "unreduced_pmax", "unreduced_pmin"},
    (0, 11, 1): {"xla_metadata_call", "xla_metadata_value"},
    (0, 12): {"polynomial", "reduced_vary_cast", "vary_unreduced_cast"},
}
UNTIL = {(0, 11): {"call", "closed_call", "core_map"}}


def test_the_list_names_primitives_of_jax() -> None:
    import jax.experimental.pallas

    primitives = [value for name, module in list(sys.modules.items()) if name.startswith("jax._src") for value in vars(module).values()]
    names = {each.name for each in primitives if isinstance(each, Primitive)}
    version = jax.__version_info__
    missing = [each for since, several in SINCE.items() if version < since for each in several]
    gone = [each for until, several in UNTIL.items() if version >= until for each in several]
    assert set(KINDS) - names <= {*missing, *gone}


def own_primitive(name: str) -> Primitive:
    """A primitive that doubles, as a caller may make one."""
    primitive = Primitive(name)
    primitive.def_abstract_eval(lambda x: x)
    mlir.register_lowering(primitive, mlir.lower_fun(lambda x: x + x, multiple_results=False))
    return primitive


@pytest.mark.parametrize("name", ["made_up", "reshape"])
def test_what_is_in_no_list_is_unseen(name: str) -> None:
    primitive = own_primitive(name)
    assert not is_of_jax(primitive)
    report = run(jax.jit(lambda a, b: primitive.bind(a @ b)), A, B)
    ((line, count),) = report.lines("unseen")
    assert (line.operator, line.how, count) == (name, "is in no list of fastmma", 1)
    with pytest.raises(fastmma.NotEmulatedError, match=name):
        report.assert_all_emulated(assumed=True)


def test_functions_of_the_host_are_unseen() -> None:
    shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
    report = run(jax.jit(lambda x: jax.pure_callback(np.sin, shape, x)), X)
    assert operators(report, "unseen") == {"pure_callback"}
    report = run(jax.jit(lambda x: io_callback(np.sin, shape, x)), X)
    assert operators(report, "unseen") == {"io_callback"}


def test_programs_compiled_before_are_unseen() -> None:
    product = jax.jit(jnp.matmul)
    lowered = product.lower(A, B)
    before, native = lowered.compile(), np.asarray(product(A, B))
    with fastmma.jax.emulate("H100") as report:
        assert_bits_equal(before(A, B), native)
        lowered.compile()(A, B)
        assert report.unseen == 2
        ((line, _), _) = report.lines("unseen")
        assert line.operator == "jax.stages.Compiled"
        assert line.where.startswith(f"{__file__}:")
        within = product.lower(A, B).compile()
        with fastmma.jax.emulate("A100") as inner:
            within(A, B)
        assert (inner.unseen, inner.assumed) == (1, 0)
        report.clear()
        assert_bits_equal(within(A, B), fastmma.gemm(A, B, target="H100", out_dtype="bf16"))
        assert (report.unseen, report.assumed) == (0, 1)
    assert_bits_equal(before(A, B), native)


def test_exported_programs_are_unseen() -> None:
    exported = jax.export.export(jax.jit(jnp.matmul))(A, B)
    assert operators(run(exported.call, A, B), "unseen") == {"call_exported"}


def test_programs_for_a_gpu_are_passed() -> None:
    """Where JAX computes on a GPU nothing is emulated, and the report says so."""
    with fastmma.jax.emulate("H100") as report:
        jax.jit(lambda a, b: jnp.exp(a @ b).T).trace(A, B).lower(lowering_platforms=("cuda",))
    assert operators(report, "passed") == {"dot_general", "exp"}
    assert operators(report, "neutral") == {"transpose"}
    assert {line.how for line, _ in report.lines("passed")} == {"is compiled for cuda, where nothing is emulated"}
    with pytest.raises(fastmma.NotEmulatedError, match="compiled for cuda"):
        report.assert_all_emulated(assumed=True)


def test_the_order_of_k_is_assumed_unless_it_is_named_or_cannot_matter() -> None:
    x, y = np.ones((4, 32), np.int8), np.ones((32, 4), np.int8)

    def products(x, y):
        return jnp.matmul(A, B), lax.dot_general(x, y, PLAIN, preferred_element_type=np.int32)

    with fastmma.jax.emulate("H100") as report:
        jax.block_until_ready(jax.jit(products)(x, y))
    ((assumed, _),), ((emulated, _),) = report.lines("assumed"), report.lines("emulated")
    assert "one accumulator, k ascending: XLA tunes tiles and parts of k by time" in assumed.how
    assert emulated.operands == "int8 (4, 32) x int8 (32, 4)"
    assert assumed.known == "measured"
    with pytest.raises(fastmma.NotEmulatedError, match=r"not emulated:\n  assumed"):
        report.assert_all_emulated()
    report.assert_all_emulated(assumed=True)
    with fastmma.jax.emulate("H100", plans={(16, 16, 64): 2}) as report:
        jax.block_until_ready(jnp.matmul(A, B))
    report.assert_all_emulated()
    assert report.lines()[0][0].how.endswith("split_k=2")


def test_products_in_one_place_count_in_the_emulation_around_them() -> None:
    hopper = partial(fastmma.jax.dot_general, dimension_numbers=PLAIN, target="H100")
    with fastmma.jax.emulate("A100") as report:
        jax.block_until_ready([hopper(A, B), jax.jit(hopper)(A, B), hopper(A, B, plans={(16, 16, 64): 2})])
    assert (report.assumed, report.emulated, report.unseen) == (2, 1, 0)
    assert operators(report, "assumed") == {"fastmma.jax.dot_general"}
    assert all(line.where.startswith(f"{__file__}:") for line, _ in report.lines("assumed", "emulated"))
    x, scales = jnp.ones((1, 4, 64), jnp.float8_e4m3fn), jnp.ones((1, 4, 2), jnp.float8_e8m0fnu)
    scaled = partial(fastmma.jax.scaled_matmul, x, x, scales, scales, target="B200")
    with fastmma.jax.emulate("B200") as report:
        jax.block_until_ready([scaled(), jax.jit(scaled)()])
    assert operators(report, "assumed") == {"fastmma.jax.scaled_matmul"}
    assert (report.assumed, report.unseen, report.passed) == (2, 0, 0)


def lines_of(*calls: str) -> list[str]:
    """The places of this file where text stands."""
    source = Path(__file__).read_text().splitlines()
    return [f"{__file__}:{number}" for call in calls for number, line in enumerate(source, 1) if line.strip() == call]


def test_places() -> None:
    """Equal products on different lines are different lines of the report; derivatives stand where the product is."""

    def twice(a, b):
        first = a @ b
        second = a @ b
        return (first + second).astype(np.float32).sum()

    report = run(jax.jit(jax.grad(twice)), A, B)
    products = [line.where for line, _ in report.lines("assumed")]
    assert set(products) == set(lines_of("first = a @ b", "second = a @ b"))
    assert all(line.where.startswith(f"{__file__}:") for line, _ in report.lines())
    with fastmma.jax.emulate("H100", other="warn"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jax.jit(jnp.matmul)(X, X)  # in f32
    (warning,) = [each for each in caught if "XLA computes, not an emulated GPU" in str(each.message)]
    assert f"{warning.filename}:{warning.lineno}" == lines_of("jax.jit(jnp.matmul)(X, X)  # in f32")[0]


def test_clearing_a_report_compiles_again() -> None:
    function = jax.jit(jnp.tanh)
    with fastmma.jax.emulate("H100") as report:
        function(X)
        function(X)
        assert report.passed == 1
        report.clear()
        assert report.lines() == []
        function(X)
        assert report.passed == 1


def test_emulations_that_end_in_another_order() -> None:
    """The one that is still entered computes, and its report sees everything."""
    native = np.asarray(jnp.matmul(A, B))
    first, second = fastmma.jax.emulate("V100"), fastmma.jax.emulate("H100")
    first.__enter__()
    report = second.__enter__()
    first.__exit__(None, None, None)
    try:
        assert_bits_equal(jnp.matmul(A, B), fastmma.gemm(A, B, target="H100", out_dtype="bf16"))
        jnp.tanh(X).block_until_ready()
    finally:
        second.__exit__(None, None, None)
    assert (report.assumed, report.passed) == (1, 1)
    assert_bits_equal(jnp.matmul(A, B), native)
    assert sys.modules["jax._src.interpreters.mlir"].jaxpr_subcomp is lower_equations


def test_what_the_inner_emulation_passes_is_xlas() -> None:
    native = np.asarray(jnp.matmul(X, X))
    with fastmma.jax.emulate("H100", f32="tf32") as outer, fastmma.jax.emulate("H100") as inner:
        assert_bits_equal(jnp.matmul(X, X), native)
    assert (outer.assumed, inner.passed) == (0, 1)


DEVICES = """
import json
import os
import jax, jax.numpy as jnp, numpy as np
from functools import partial
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import fastmma, fastmma.jax

found = {}
mesh = jax.make_mesh((4,), ("k",), axis_types=(AxisType.Auto,))
rng = np.random.default_rng(0)
a, b = (rng.standard_normal(shape).astype(jnp.bfloat16) for shape in ((8, 128), (128, 8)))
over = lambda *spec: NamedSharding(mesh, P(*spec))

def note(name, function, expected=None, **options):
    with fastmma.jax.emulate("H100", **options) as report:
        d = np.asarray(function(a, b))
    found[name] = {each["operator"] + " " + each["status"]: [each["count"], each["how"]] for each in report.to_dict()["calls"]}
    found[name]["equal"] = expected is None or bool((d == expected).all())

gemm = partial(fastmma.gemm, target="H100")
whole, parts = gemm(a, b, out_dtype="bf16"), [gemm(a[:, i : i + 32], b[i : i + 32]) for i in range(0, 128, 32)]
rounded = [gemm(a[:, i : i + 32], b[i : i + 32], out_dtype="bf16") for i in range(0, 128, 32)]
added = sum(rounded[1:], rounded[0])
note("partitioned", jax.jit(jnp.matmul, in_shardings=(over(None, "k"), over("k", None))), added)
note("rows", jax.jit(jnp.matmul, in_shardings=(over("k", None), over(None, None))), whole)
loss = lambda x, w: jnp.matmul(x, w).astype(np.float32).sum()
gradient = jax.jit(jax.grad(loss, 1), in_shardings=(over("k", None), over(None, None)))
ones = np.ones((8, 8), jnp.bfloat16)
of_rows = [gemm(a[i : i + 2].T, ones[i : i + 2], out_dtype="bf16") for i in range(0, 8, 2)]
note("gradient", gradient, sum(of_rows[1:], of_rows[0]))
halves = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
of = lambda *spec: NamedSharding(halves, P(*spec))
pair = [gemm(a[:, i : i + 64], b[i : i + 64], out_dtype="bf16") for i in (0, 64)]
note("halved", jax.jit(jnp.matmul, in_shardings=(of("y", "x"), of("x", None))), pair[0] + pair[1])

def layers(x, w):
    inner = jax.lax.with_sharding_constraint(x @ w, of("x", "y"))
    return inner @ inner.T

note("layers", jax.jit(layers, in_shardings=(of("x", None), of(None, "y"))))
product = jax.jit(jnp.matmul)
both = jax.jit(lambda x, w, y, v: product(x, w) + product(y, v), in_shardings=(of(None, "x"), of("x", None), of("x", None), of()))
note("twice", lambda x, w: both(x, w, x, w))
note("named", jax.jit(jnp.matmul, in_shardings=(over(None, "k"), over("k", None))), plans={(8, 8, 128): 4})
mapped = partial(jax.shard_map, mesh=mesh, in_specs=(P(None, "k"), P("k", None)))
dot = partial(jnp.matmul, preferred_element_type=np.float32)
note("mapped", jax.jit(mapped(lambda x, y: dot(x, y)[None], out_specs=P("k", None, None))), np.stack(parts))
note("added", jax.jit(mapped(lambda x, y: jax.lax.psum(dot(x, y), "k"), out_specs=P(None, None))))
two = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
note("half", jax.jit(jax.shard_map(dot, mesh=two, in_specs=(P("x", None), P(None, None)), out_specs=P("x", None), axis_names={"x"})))
hopper = partial(fastmma.jax.dot_general, dimension_numbers=(((1,), (0,)), ((), ())), target="H100")
note("in one place", jax.jit(hopper, in_shardings=(over(None, "k"), over("k", None))), whole)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def devices() -> dict[str, dict]:
    """What reports say of programs on four devices of the CPU, in a process of their own."""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    found = subprocess.run([sys.executable, "-c", DEVICES], capture_output=True, text=True, env=environment, check=False)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def test_a_product_that_xla_partitions_is_cut_as_its_partitioner_cuts(devices) -> None:
    for name, said in (
        ("partitioned", "4 devices multiply 32 k each and add by all-reduce; cut as XLA's partitioner cuts for a CPU; added in the order"),
        ("halved", "2 devices multiply 64 k each and add by all-reduce; cut as XLA's partitioner cuts for a CPU; one accumulator"),
        ("rows", "f32.bf16.bf16; one accumulator"),
        ("gradient", "4 devices multiply 2 k each and add by all-reduce; cut as XLA's partitioner cuts for a CPU; added in the order"),
        ("named", "one product of the whole operands: where XLA cuts k among the 4 devices, it adds their parts"),
    ):
        ((count, how),) = (value for key, value in devices[name].items() if key == "dot_general assumed")
        assert count == 1
        assert said in how
        assert devices[name]["equal"]
        assert "dot_general emulated" not in devices[name]
    assert "4 devices" in devices["in one place"]["fastmma.jax.dot_general assumed"][1]


def test_products_of_one_program_wait_for_each_other(devices) -> None:
    """Devices that add wait for all others, each in a thread: none of them may need another thread meanwhile."""
    assert "dot_general assumed" in devices["layers"]


def test_a_function_that_two_calls_partition_differently_is_one_product(devices) -> None:
    assert "one product of the whole operands" in devices["twice"]["dot_general assumed"][1]


def test_products_of_a_mapped_program_are_those_of_each_device(devices) -> None:
    assert devices["mapped"]["equal"]
    assert devices["mapped"]["dot_general assumed"][0] == 4
    assert "4 devices" not in devices["mapped"]["dot_general assumed"][1]
    assert any("psum" in key and key.endswith("passed") for key in devices["added"])


def test_a_mesh_that_is_half_automatic_is_passed(devices) -> None:
    assert "JAX runs no callbacks on a mesh of which some axes are automatic" in devices["half"]["dot_general passed"][1]
