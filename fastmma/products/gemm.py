"""Bulk: matrix products of any size as a GPU's tensor cores accumulate them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Batch
from fastmma.backends.gpu.arrays import accepts_cupy
from fastmma.backends.resolve import plan, resolved_target
from fastmma.host.arrays import as_array, whole
from fastmma.host.calls import public_call
from fastmma.host.errors import InstructionError, OperandError, OperandTypeError
from fastmma.host.threads import thread_count
from fastmma.isa.formats import Format, format_of
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.isa.table import multiplications, multiply
from fastmma.isa.targets import architecture
from fastmma.kernels.params import Promotion
from fastmma.numerics.rows import arithmetic
from fastmma.operands.check import as_elements, check_output, codes_of, elements_of, extra_operands
from fastmma.products.loop import accumulate
from fastmma.products.presets import gemm_preset

# what a vendor library reaches for first: wgmma where there is one, and the deepest k
_OP_PREFERENCE = {"wgmma": 0, "mma": 1, "wmma": 2}
_SCALE_FORMATS = {"float8_e8m0fnu": "ue8m0", "float8_e4m3fn": "ue4m3"}


@cache
def default_instruction(
    atype: str, btype: str, dtype: str | None, target: str, *, sparse: bool = False, stype: str = "", chunk: int = 0
) -> Instruction:
    """The instruction that a vendor library would use for these element formats.

    Parameters
    ----------
    atype, btype : str
        PTX names of the multiplicands' formats.
    dtype : str or None
        Format of the accumulator, or None for the widest (f32, s32 or f64).
    target : str
    sparse : bool
        Whether A is stored without its zeros.
    stype : str
        Format of the scales, or empty where there is no block scaling.
    chunk : int
        What the instruction's k must divide, or 0.

    Raises
    ------
    InstructionError
        If the target has no instruction for them.

    Examples
    --------
    >>> default_instruction("e4m3", "e4m3", None, "sm_90a").opcode
    'wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3'
    """
    architecture(target)
    fitting = [
        ins
        for ins in multiplications(target)
        if (ins.atype, ins.btype) == (atype, btype)
        and ins.ctype == ins.dtype
        and (dtype is None or ins.dtype == dtype)
        and bool(ins.sparse) == sparse
        and ins.stype == stype
        and chunk % ins.k == 0
        and not ins.satfinite
        and ins.rounding in ("", "rn")
        and (ins.alayout, ins.blayout) == ("row", "col")
    ]
    if not fitting:
        more = (
            (f" with a {dtype} accumulator" if dtype else "")
            + (" and sparse A" if sparse else "")
            + (f" and {stype} scales" if stype else "")
            + (f", whose k divides {chunk}" if chunk else "")
        )
        raise InstructionError(f"{target} has no instruction for {atype} times {btype}{more}")
    return min(
        fitting,
        key=lambda ins: (
            *(_OP_PREFERENCE[ins.op], -format_of(ins.dtype).bits, -ins.k, -ins.n, -ins.m),
            *(ins.bit_op != "and", ins.kind, ins.sparse == "sp"),
        ),
    )


def _format_of_operand(value: Any, what: str) -> Format:
    dtype = as_array(value, what).dtype
    try:
        fmt = format_of(dtype)
    except InstructionError:
        raise OperandTypeError(f"{what} has dtype {dtype}, which is no multiplicand of any instruction") from None
    if fmt.name in ("f32", "s32"):
        raise OperandTypeError(
            f"{what} has dtype {dtype}: name the instruction (a tf32 one takes float32), or convert it to the format to be multiplied"
        )
    return fmt


def _choose(
    ins: str | Instruction | None, a: Any, b: Any, c: Any, out: Any, target: str, metadata: Any = None, scale: Any = None
) -> Instruction:
    if ins is not None:
        chosen = multiply(ins)
        if chosen.ctype != chosen.dtype:
            raise InstructionError(f"{chosen}: D cannot be fed back as C, because their types differ")
        return chosen
    atype, btype = _format_of_operand(a, "gemm: a"), _format_of_operand(b, "gemm: b")
    accumulator = c if c is not None else out
    dtype = None
    if accumulator is not None:
        array = as_array(accumulator, "gemm: c")
        dtype = {"float16": "f16", "float32": "f32", "float64": "f64", "int32": "s32"}.get(array.dtype.name)
        if dtype is None:
            raise OperandTypeError(f"gemm: c and out must be float16, float32, float64 or int32, not {array.dtype}")
    stype = ""
    if scale is not None:
        name = as_array(scale, "gemm: a scale").dtype.name
        if name not in _SCALE_FORMATS:
            raise OperandTypeError(f"gemm: scales must have dtype {' or '.join(_SCALE_FORMATS)}, not {name}")
        stype = _SCALE_FORMATS[name]
    return default_instruction(atype.name, btype.name, dtype, target, sparse=metadata is not None, stype=stype)


def _whole(value: Any, name: str, least: int) -> int:
    found = whole(value)
    if found is None or found < least:
        raise OperandError(f"{name} must be an integer of at least {least}, not {value!r}")
    return found


@public_call
@accepts_cupy
def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    instruction: str | Instruction | None = None,
    target: str = "sm_90a",
    metadata: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    promote_every: int | None = None,
    split_k: int = 1,
    preset: str | None = None,
    cast: bool = False,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    backend: str = "numba",
) -> NDArray[Any]:
    """Matrix product plus accumulator, with the bits of a GPU's tensor cores.

    It is the instruction looped over k in ascending order, D fed back as C; what is missing to a multiple of its shape counts as zero.

    Parameters
    ----------
    a : array (M, K), or (M, K / 2) if sparse
    b : array (K, N)
        Elements in the dtype of the instruction's format, of any strides and byte order; any of M, N and K may be 0.
    c : array (M, N), optional
        Accumulator to start from; zero if not given.
    instruction : str or Instruction, optional
        By default the one that a vendor library would use for these dtypes on the target (on sm_90a wgmma; else the deepest mma),
        accumulating in the dtype of `c` or `out` if given, else in the widest.
    target : str
        The GPU, for example ``"sm_80"`` or ``"sm_120a"``.
    metadata : integer array (M, K / chunk), optional
        Sparse A: the 4-bit words that `fastmma.sparse.compress` returns with the stored elements.
    scale_a, scale_b : arrays (M, ceil(K / block)) and (ceil(K / block), N), optional
        Block scaling: float8_e8m0fnu, or float8_e4m3fn (not negative) for ue4m3. The block is the instruction's k over its
        `scale_vec_size`: 32 for MX formats, 16 for NVFP4.
    promote_every : int, optional
        Accumulate that many k in the tensor core from zero, then add the partial sum to the result by one IEEE add (round to nearest), as
        DeepGEMM does. It must be a multiple of the instruction's k.
    split_k : int
        Cut K into that many parts of equal length (rounded up to the instruction's k), accumulate each from zero (the first from `c`), then
        add them in ascending order by IEEE adds.
    preset : str, optional
        Accumulate as a library does: one of `fastmma.products.presets.GEMM_PRESETS`, for example ``"cublas"``. It sets `promote_every` and
        where `split_k` cuts; how many parts the library's heuristics choose is still to be given. It takes no `c`, which libraries add
        otherwise.
    cast : bool
        Round float16, float32 and float64 inputs to the instruction's formats first, to nearest even.
    out : ndarray (M, N), optional
        Where to put the result; it may be `c`.
    threads : int, optional
        All cores by default, or ``FASTMMA_NUM_THREADS``. The result does not depend on it.
    backend : {"numba", "reference", "cupy", "cupy-emulate"}
        Compiled for the CPU; exact Python integers; the tensor cores of the GPU in the machine; or the emulator, for any target, on any
        NVIDIA GPU. The last two need CuPy.

    Returns
    -------
    array (M, N) in the dtype of d

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError, BackendError
        All are `fastmma.FastmmaError`.

    Examples
    --------
    >>> import ml_dtypes
    >>> a = np.full((3, 100), 0.5, ml_dtypes.float8_e4m3fn)
    >>> gemm(a, a.T, target="sm_90a").tolist()[0]
    [25.0, 25.0, 25.0]
    """
    target = resolved_target(target)
    chosen = _choose(instruction, a, b, c, out, target, metadata, scale_a if scale_a is not None else scale_b)
    todo = plan(chosen, target, backend)
    row = None if preset is None else gemm_preset(preset, chosen, target)
    rounded = cast or (row is not None and row.cast)
    acodes = codes_of(a, chosen.atype, f"{chosen}: a", cast=rounded)
    bcodes = codes_of(b, chosen.btype, f"{chosen}: b", cast=rounded)
    if acodes.ndim != 2 or bcodes.ndim != 2 or acodes.shape[1] * chosen.k != bcodes.shape[0] * chosen.stored_k:
        inner = "K / 2" if chosen.sparse else "K"
        raise OperandError(f"{chosen}: gemm needs a of shape (M, {inner}) and b of shape (K, N), not {acodes.shape} and {bcodes.shape}")
    depth = bcodes.shape[0]
    shape = acodes.shape[0], bcodes.shape[1]
    dfmt = format_of(chosen.dtype)
    if chosen.sparse and depth % pattern_of(chosen).chunk:
        raise OperandError(f"{chosen}: K must be a multiple of {pattern_of(chosen).chunk}, not {depth}")
    extra = extra_operands(chosen, metadata, scale_a, scale_b, shape[0], shape[1], depth)
    for name, array in extra.items():
        if array.ndim != 2:
            raise OperandError(f"{chosen}: {name} must have two dimensions, not {array.ndim}")
    ccodes = None
    if c is not None:
        ccodes = codes_of(c, chosen.ctype, f"{chosen}: c", cast=cast)
        if ccodes.shape != shape:
            raise OperandError(f"{chosen}: c must have shape {shape}, not {ccodes.shape}")
    count = thread_count(threads)
    if out is not None:
        check_output(out, shape, dfmt, str(chosen))
    overlaps = out is not None and (np.may_share_memory(out, acodes) or np.may_share_memory(out, bcodes))
    aliased = out is not None and ccodes is not None and np.may_share_memory(out, ccodes) and not _same_memory(out, ccodes)
    direct = out is not None and not overlaps and not aliased
    dcodes = out.view(dfmt.code_dtype) if out is not None and direct else np.empty(shape, dtype=dfmt.code_dtype)
    parts = _whole(split_k, "split_k", 1)
    unit = chosen.k
    if row is not None:
        if promote_every not in (None, row.promote_every):
            raise OperandError(f"preset {preset!r} sets promote_every to {row.promote_every}; leave it out")
        if c is not None:
            raise OperandError(
                f"preset {preset!r} is known without c, which gemm starts from; leave it out, and add it as the library does"
            )
        promote_every, unit = row.promote_every, row.split_unit
    accumulate(todo, Batch(acodes, bcodes, ccodes, **extra), dcodes, _promotion(chosen, promote_every), parts, count, unit)
    if out is None:
        return elements_of(dcodes, chosen.dtype)
    if not direct:
        out[...] = elements_of(dcodes, chosen.dtype)
    return out


def _same_memory(x: NDArray[Any], y: NDArray[Any]) -> bool:
    return x.ctypes.data == y.ctypes.data and x.strides == y.strides and x.shape == y.shape


def _promotion(ins: Instruction, every: int | None) -> Promotion | None:
    if every is None:
        return None
    chunk = _whole(every, "promote_every", 1)
    if chunk % ins.k:
        raise OperandError(f"promote_every must be a multiple of the instruction's k, {ins.k}, not {chunk}")
    return Promotion(chunk)


@public_call
@accepts_cupy
def matmul(
    a: Any,
    b: Any,
    *,
    instruction: str | Instruction | None = None,
    target: str = "sm_90a",
    promote_every: int | None = None,
    split_k: int = 1,
    preset: str | None = None,
    cast: bool = False,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    backend: str = "numba",
) -> NDArray[Any]:
    """`numpy.matmul` with the bits of a GPU's tensor cores: its shapes and broadcasting, on top of `gemm`.

    Parameters
    ----------
    a, b : array
        Of at least one dimension. One-dimensional operands are promoted to matrices and the added dimension is dropped from the result;
        leading dimensions broadcast.
    out : ndarray, optional
        Where to put the result, of exactly its shape and dtype.

    The other parameters are those of `gemm`.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError, BackendError
        All are `fastmma.FastmmaError`.

    Examples
    --------
    >>> a, b = np.ones((5, 1, 4, 32), np.float16), np.ones((2, 32, 3), np.float16)
    >>> matmul(a, b, target="sm_80").shape
    (5, 2, 4, 3)
    """
    x, y = as_array(a, "matmul: a"), as_array(b, "matmul: b")
    if x.ndim == 0 or y.ndim == 0:
        raise OperandError("matmul: operands must have at least one dimension; multiply by a scalar instead")
    target = resolved_target(target)
    chosen = _choose(instruction, x, y, None, out, target)
    x, y = as_elements(a, chosen.atype, "matmul: a"), as_elements(b, chosen.btype, "matmul: b")
    left = x[None, :] if x.ndim == 1 else x
    right = y[:, None] if y.ndim == 1 else y
    if left.shape[-1] != right.shape[-2]:
        raise OperandError(f"matmul: the inner dimensions differ: a {x.shape}, b {y.shape}")
    try:
        lead = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        raise OperandError(f"matmul: the leading dimensions do not broadcast: a {x.shape}, b {y.shape}") from None
    rows, columns = left.shape[-2], right.shape[-1]
    shape = (*lead, *((rows,) if x.ndim > 1 else ()), *((columns,) if y.ndim > 1 else ()))
    dfmt = format_of(chosen.dtype)
    arithmetic(chosen, target)
    if out is not None:
        check_output(out, shape, dfmt, str(chosen))
    result = np.empty((*lead, rows, columns), dtype=dfmt.dtype)
    left = np.broadcast_to(left, (*lead, *left.shape[-2:]))
    right = np.broadcast_to(right, (*lead, *right.shape[-2:]))
    for index in np.ndindex(*lead):
        gemm(
            left[index],
            right[index],
            instruction=chosen,
            target=target,
            promote_every=promote_every,
            split_k=split_k,
            preset=preset,
            cast=cast,
            out=result[index],
            threads=threads,
            backend=backend,
        )
    result = result.reshape(shape)
    if out is None:
        return result
    out[...] = result
    return out
