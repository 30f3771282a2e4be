"""Block-scaled arrays: shapes, storage, slices, values, and what they refuse."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from reference import quantisation as exact

import fastmma
from fastmma.scaling import SCHEMES, ScaledArray, quantize

E8M0, E4M3, E2M1 = ml_dtypes.float8_e8m0fnu, ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn
# scheme, shape, axis: block, shape of scales, bytes of packed elements and of scales, counted by hand
FORMS = [
    ("mxfp8_e4m3", (128, 256), 1, (1, 32), (128, 8), 128 * 256 + 1024),
    ("mxfp6_e3m2", (128, 256), 0, (32, 1), (4, 256), 128 * 256 * 3 // 4 + 1024),
    ("mxfp4", (3, 70), 1, (1, 32), (3, 3), 105 + 9),
    ("nvfp4", (3, 70), 1, (1, 16), (3, 5), 105 + 15 + 4),
    ("nvfp4_16x16", (3, 70), 1, (16, 16), (1, 5), 105 + 5 + 4),
    ("fp8_tensor", (3, 5, 7), 1, (3, 5, 7), (1, 1, 1), 105 + 4),
    ("fp8_row", (3, 5, 7), 1, (1, 5, 1), (3, 1, 7), 105 + 84),
    ("fp8_1x128", (2, 300), 1, (1, 128), (2, 3), 600 + 24),
    ("fp8_128x128", (2, 200, 300), 2, (1, 128, 128), (2, 2, 3), 120000 + 48),
    ("fp8_128x128", (2, 200, 300), 0, (128, 1, 128), (1, 200, 3), 120000 + 2400),
    ("int8_row", (4, 9), 0, (4, 1), (1, 9), 36 + 36),
    ("mxfp4", (0, 64), 1, (1, 32), (0, 2), 0),
    ("nvfp4", (5, 0), 1, (1, 16), (5, 0), 4),
]


def ramp(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 7) / 8


@pytest.mark.parametrize(("scheme", "shape", "axis", "block", "scales", "nbytes"), FORMS)
def test_form(scheme: str, shape: tuple[int, ...], axis: int, block: tuple[int, ...], scales: tuple[int, ...], nbytes: int) -> None:
    q = quantize(ramp(*shape), scheme, axis=axis)
    assert (q.shape, q.ndim, q.axis, q.block, q.scales.shape, q.nbytes) == (shape, len(shape), axis, block, scales, nbytes)
    assert q.dtype == q.elements.dtype
    assert (q.global_scale is not None) == scheme.startswith("nvfp4")
    t = q.T
    assert (t.shape, t.axis, t.block, t.scales.shape) == (shape[::-1], len(shape) - 1 - axis, block[::-1], scales[::-1])
    assert np.array_equal(t.dequantize(), q.dequantize().T)


def nvfp4() -> ScaledArray:
    """Elements 0.5 to 6, scales 1 and 2 and 0.5 a row, global scale 0.25."""
    elements = np.tile(np.array([0.5, 1, 1.5, 2, 3, 4, 6, -6], E2M1), (2, 5))
    scales = np.array([[1, 2, 0.5], [448, 2**-9, 0]], E4M3)
    return ScaledArray(elements, scales, (1, 16), 1, np.float32(0.25), "nvfp4")


def test_values() -> None:
    q = nvfp4()
    assert repr(q) == "ScaledArray(nvfp4, shape=(2, 40), block=(1, 16), axis=1, global_scale=0.25)"
    values = q.dequantize()
    assert values.dtype == np.float32
    assert values[0, [0, 6, 7, 16, 32, 39]].tolist() == [0.125, 1.5, -1.5, 0.25, 0.0625, -0.75]
    assert values[1, [0, 6, 16, 23, 32, 39]].tolist() == [56, 672, 2**-12, -3 * 2**-10, 0, 0]
    assert np.array_equal(q.dequantize(np.float64), values.astype(np.float64))
    assert q.dequantize(np.float16).dtype == np.float16
    for name, dtype in (("float64", np.float64), ("f32", np.float32), ("bf16", ml_dtypes.bfloat16), ("bfloat16", ml_dtypes.bfloat16)):
        assert q.dequantize(name).dtype == dtype
    assert q.dequantize(ml_dtypes.bfloat16)[1, 6] == 672


def test_values_are_rounded_once() -> None:
    """The product is just above a tie of bfloat16 that its float32 rounding would hit."""
    scale = np.float32(257 / 256 / 7)
    assert 7 * float(scale) > 257 / 256
    assert np.float32(7 * float(scale)) == 257 / 256
    q = ScaledArray(np.array([[7]], np.int8), scale.reshape(1, 1), (1, 1), 1, None, "int8_row")
    assert q.dequantize(ml_dtypes.bfloat16)[0, 0] == 1 + 2**-7
    assert q.dequantize()[0, 0] == 257 / 256


PRECISIONS = {
    np.float16: exact.Float(10, -14, 15),
    ml_dtypes.bfloat16: exact.Float(7, -126, 127),
    np.float32: exact.F32,
    np.float64: exact.F64,
}


def any_codes(scheme: str, shape: tuple[int, ...], axis: int) -> ScaledArray:
    """Every code of elements and scales but NaN, float32 scales of any magnitude."""
    rng = np.random.default_rng(3)
    form = quantize(ramp(*shape), scheme, axis=axis)
    bits = form.row.element_format.bits
    elements = rng.integers(0, 1 << bits, shape, dtype=np.uint8).view(form.dtype)
    elements = np.where(np.isfinite(elements.astype(np.float32)), elements, np.array(1, form.dtype)).astype(form.dtype)
    if form.scales.dtype == np.float32:
        scales = rng.standard_normal(form.scales.shape).astype(np.float32) * np.exp2(rng.integers(-149, 128, form.scales.shape))
        scales = np.abs(scales).astype(np.float32)
    else:
        scales = rng.integers(0, 127 if form.row.two_level else 255, form.scales.shape, dtype=np.uint8).view(form.scales.dtype)
    overall = None if form.global_scale is None else np.float32(1.7e-3)
    return ScaledArray(elements, scales, form.block, form.axis, overall, scheme)


@pytest.mark.parametrize(
    ("scheme", "shape", "axis"),
    [
        ("mxfp8_e4m3", (9, 200), 1),
        ("mxfp8_e5m2", (70, 33), 0),
        ("mxfp6_e3m2", (3, 40, 5), 1),
        ("mxfp6_e2m3", (70,), 0),
        ("mxfp4", (9, 200), 1),
        ("nvfp4", (9, 200), 1),
        ("nvfp4_16x16", (2, 33, 50), 2),
        ("fp8_row", (99, 7), 1),
        ("fp8_row_e5m2", (7, 99), 0),
        ("fp8_1x128", (9, 300), 1),
        ("int8_row", (150, 11), 1),
    ],
)
def test_values_are_exact_and_rounded_once(scheme: str, shape: tuple[int, ...], axis: int) -> None:
    q = any_codes(scheme, shape, axis)
    wide = q.scales.astype(np.float64)
    for d, size in enumerate(q.block):
        wide = np.repeat(wide, size, axis=d)[(*[slice(None)] * d, slice(shape[d]))]
    pairs = zip(q.elements.astype(np.float64).reshape(-1).tolist(), wide.reshape(-1).tolist(), strict=True)
    overall = Fraction(1 if q.global_scale is None else float(q.global_scale))
    products = [(Fraction(e) * Fraction(s) * overall, e) for e, s in pairs]
    for dtype, precision in PRECISIONS.items():
        wanted = np.array([precision.round(*p.as_integer_ratio()) if p else np.copysign(0.0, e) for p, e in products]).reshape(shape)
        for array in (q, q.T):
            values = array.dequantize(dtype)
            assert values.dtype == dtype
            same = values.astype(np.float64)
            assert np.array_equal(same.view(np.uint64), (wanted if array is q else wanted.T).copy(order="K").view(np.uint64))


def test_nan_scales_and_elements() -> None:
    q = quantize(np.float32([np.nan, *[1] * 31, *[2] * 32]), "mxfp8")
    for dtype in PRECISIONS:
        values = q.dequantize(dtype).astype(np.float32)
        assert np.isnan(values[:32]).all()
        assert (values[32:] == 2).all()


@pytest.mark.parametrize(
    ("key", "shape", "scales"),
    [
        (np.s_[:, 16:], (2, 24), (2, 2)),
        (np.s_[1:, 16:32], (1, 16), (1, 1)),
        (np.s_[..., 32:], (2, 8), (2, 1)),
        (np.s_[:1], (1, 40), (1, 3)),
        (np.s_[1:1, 16:16], (0, 0), (0, 0)),
        (np.s_[:, -8:], (2, 8), (2, 1)),
    ],
)
def test_slices(key: object, shape: tuple[int, ...], scales: tuple[int, ...]) -> None:
    q = nvfp4()
    cut = q[key]
    assert (cut.shape, cut.scales.shape, cut.axis, cut.global_scale) == (shape, scales, 1, np.float32(0.25))
    assert np.array_equal(cut.dequantize(), q.dequantize()[key])


@pytest.mark.parametrize(
    ("scheme", "axis", "key"),
    [
        ("mxfp4", 2, np.s_[1]),
        ("mxfp4", 2, np.s_[-1, 3:5, 32:64]),
        ("mxfp8_e5m2", 0, np.s_[..., -2]),
        ("nvfp4", 1, np.s_[0, :16, 1]),
        ("nvfp4_16x16", 2, np.s_[2, 16:]),
        ("fp8_tensor", 2, np.s_[1, 7]),
        ("fp8_row", 1, np.s_[:, 2:9, 4]),
    ],
)
def test_integers_drop_a_dimension(scheme: str, axis: int, key: object) -> None:
    q = quantize(ramp(33, 40, 70), scheme, axis=axis)
    assert np.array_equal(q[key].dequantize(), q.dequantize()[key])


def test_iteration_goes_along_the_first_dimension() -> None:
    q = nvfp4()
    assert [row.scales.astype(float).tolist() for row in q] == q.scales.astype(float).tolist()
    with pytest.raises(fastmma.OperandError, match="dimension 0 is in blocks of 16: take a slice"):
        list(q[0])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_scheme_follows_from_the_parts(scheme: str) -> None:
    q = quantize(ramp(160, 320), scheme)
    assert ScaledArray(q.elements, q.scales, q.block, global_scale=q.global_scale).scheme == scheme


def test_parts_of_no_scheme() -> None:
    elements, scales = np.zeros((2, 64), E2M1), np.ones((2, 2), E8M0)
    assert ScaledArray(elements, scales, (1, 32)).scheme == "mxfp4"
    for block, overall in (((1, 16), None), ((1, 32), np.float32(1))):
        with pytest.raises(fastmma.OperandError, match="no scheme has elements of float4_e2m1fn and scales of float8_e8m0fnu in blocks"):
            ScaledArray(elements, scales, block, 1, overall)


def test_slices_of_one_block_cut_anywhere() -> None:
    q = quantize(ramp(5, 9), "fp8_tensor")
    assert np.array_equal(q[1:4, 2:7].dequantize(), q.dequantize()[1:4, 2:7])
    assert q[1:4, 2:7].block == (3, 5)


@pytest.mark.parametrize(
    "key",
    [
        np.s_[:, 8:],
        np.s_[:, :17],
        np.s_[:, 0],
        np.s_[2],
        np.s_[-3],
        np.s_[::2],
        np.s_[::0],
        np.s_["a":],
        np.s_[:, :, :],
        np.s_[:, [0]],
        np.s_[None],
        np.s_[True],
    ],
)
def test_slices_that_are_refused(key: object) -> None:
    with pytest.raises(fastmma.OperandError, match="slice"):
        nvfp4()[key]


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"elements": np.zeros((2, 40), np.uint8)}, fastmma.OperandTypeError, "elements of nvfp4 must have dtype float4_e2m1fn"),
        ({"scales": np.ones((2, 3), np.float32)}, fastmma.OperandTypeError, "scales of nvfp4 must have dtype float8_e4m3fn"),
        ({"scales": np.ones((2, 4), E4M3)}, fastmma.OperandError, r"scales must have shape \(2, 3\)"),
        ({"scales": -np.ones((2, 3), E4M3)}, fastmma.OperandError, "must not be negative"),
        ({"block": (1, 32)}, fastmma.OperandError, r"block of nvfp4 must be \(1, 16\)"),
        ({"axis": 2}, fastmma.OperandError, "axis must be"),
        ({"axis": -3}, fastmma.OperandError, "axis must be an integer from -2 to 1, not -3"),
        ({"axis": True}, fastmma.OperandError, "axis must be"),
        ({"block": 16}, fastmma.OperandError, r"block of nvfp4 must be \(1, 16\) .* not 16"),
        ({"block": np.ones((2, 2))}, fastmma.OperandError, "block of nvfp4 must be"),
        ({"block": (16, 1)}, fastmma.OperandError, "block of nvfp4 must be"),
        ({"block": ([1], [16])}, fastmma.OperandError, "block of nvfp4 must be"),
        ({"global_scale": None}, fastmma.OperandError, "global_scale of nvfp4 must be a float32"),
        ({"global_scale": -1.0}, fastmma.OperandError, "global_scale of nvfp4 must be a float32 that is not negative, not -1.0"),
        ({"global_scale": "1"}, fastmma.OperandError, "global_scale of nvfp4 must be a float32"),
        ({"global_scale": np.ones(1, np.float32)}, fastmma.OperandError, "global_scale of nvfp4 must be a float32"),
        ({"elements": np.zeros(40, E2M1)}, fastmma.OperandError, "axis must be an integer from -1 to 0"),
        ({"scheme": "nvfp5"}, fastmma.OperandError, "scheme must be one of mxfp8_e4m3"),
    ],
)
def test_construction_checks(change: dict[str, object], error: type[Exception], says: str) -> None:
    q = nvfp4()
    given = {name: getattr(q, name) for name in ("elements", "scales", "block", "axis", "global_scale", "scheme")}
    with pytest.raises(error, match=says):
        ScaledArray(**(given | change))


def test_schemes_of_one_level_have_no_global_scale() -> None:
    q = quantize(ramp(4, 32), "mxfp4")
    with pytest.raises(fastmma.OperandError, match=r"global_scale of mxfp4 must be None, not 1\.0"):
        ScaledArray(q.elements, q.scales, q.block, q.axis, 1.0, "mxfp4")
    q = quantize(ramp(4, 32), "nvfp4_16x16")
    with pytest.raises(fastmma.OperandError, match="at least 2 dimension"):
        ScaledArray(q.elements[0], q.scales[0], (16,), 0, q.global_scale, "nvfp4_16x16")


@pytest.mark.parametrize("dtype", [np.int32, "complex64", object, "no such dtype", E4M3, "e4m3", "tf32", None, 5, {"x": 1}])
def test_dequantize_to_floats_only(dtype: object) -> None:
    with pytest.raises(fastmma.OperandTypeError, match="dtype must be float16"):
        nvfp4().dequantize(dtype)
