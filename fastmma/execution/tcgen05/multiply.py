"""One tcgen05.mma as a kernel issues it: descriptors and addresses, shared memory and Tensor Memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Operands
from fastmma.backends.resolve import backend_of, operation_of
from fastmma.execution.tcgen05.operands import from_shared, from_tensor, into_tensor, negated, picked, tensor_address
from fastmma.host.arrays import as_array, flag
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.threads import thread_count
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.isa.tcgen05.descriptor import InstructionDescriptor
from fastmma.isa.tcgen05.extra_places import metadata_places, scale_places
from fastmma.isa.tcgen05.instruction import read
from fastmma.isa.tcgen05.matrix_descriptor import MatrixDescriptor
from fastmma.isa.tcgen05.syntax import Syntax, parsed
from fastmma.isa.tcgen05.tensor_memory import COLUMNS, LANES, data_path

_NEGATE = 3 << 13  # of A and B, in the instruction descriptor


def memory_of(value: Any, dtype: Any, tail: tuple[int | None, ...], what: str) -> NDArray[Any]:
    """An array of a dtype whose last dimensions are as given; None is any number."""
    array = as_array(value, what)
    if array.dtype != dtype:
        raise OperandTypeError(f"{what} must be {np.dtype(dtype)}, not {array.dtype}")
    shape = array.shape[len(array.shape) - len(tail) :]
    if array.ndim < len(tail) or any(size not in (None, found) for size, found in zip(tail, shape, strict=True)):
        shown = ", ".join("..." if size is None else str(size) for size in tail)
        raise OperandError(f"{what} must have shape (..., {shown}), not {array.shape}")
    return array


def _mask(value: Any, ins: Instruction, syntax: Syntax) -> NDArray[np.bool_]:
    """Which lanes (CTA, lane) of D stay as they are."""
    kept = np.zeros(ins.cta_group * LANES, np.bool_)
    if value is not None:
        if syntax.ws or ins.scale_vec_size:
            raise OperandError(f"{ins}: there is no lane mask with .ws or block scaling")
        words = as_array(value, f"{ins}: lane_mask")
        if words.shape != (4 * ins.cta_group,) or words.dtype.kind not in "ui" or ((words < 0) | (words >= 1 << 32)).any():
            raise OperandError(f"{ins}: lane_mask must be {4 * ins.cta_group} integers of 32 bits")
        kept = (words.astype(np.uint64)[:, None] >> np.arange(32, dtype=np.uint64) & np.uint64(1)).astype(np.bool_).ravel()
    return kept.reshape(ins.cta_group, LANES)


def _matrix(value: Any, ins: Instruction, what: str) -> MatrixDescriptor:
    try:
        return value if isinstance(value, MatrixDescriptor) else MatrixDescriptor.decode(value)
    except OperandError as error:
        raise OperandError(f"{ins}: {what}: {error}") from None


def _given(value: Any, ins: Instruction, name: str, wanted: bool) -> None:
    if (value is not None) != wanted:
        raise OperandError(f"{ins}: {name} must be {'given' if wanted else 'left out'}")


@public_call
def mma(
    opcode: str,
    tensor_memory: Any,
    shared: Any,
    d: int,
    a: int | MatrixDescriptor | None,
    b: int | MatrixDescriptor,
    idesc: int,
    *,
    target: str,
    a_address: int | None = None,
    metadata: int | None = None,
    scale_a: int | None = None,
    scale_b: int | None = None,
    enable_input_d: bool = True,
    lane_mask: Any = None,
    threads: int | None = None,
    backend: str = "numba",
) -> NDArray[np.uint32]:
    """Execute one tcgen05.mma on memory.

    Parameters
    ----------
    opcode : str
        For example ``"tcgen05.mma.cta_group::1.kind::f16"``.
    tensor_memory : uint32 array (..., CTAs, 128, 512)
        CTAs, lanes and columns before; it is not modified. There are as many CTAs as the opcode's cta_group says.
    shared : uint8 array (..., CTAs, bytes)
        The CTAs' shared memory. Leading dimensions broadcast with those of `tensor_memory`.
    d : int
        The address of D, ``lane << 16 | column``. The lane is 0, or 16 where M of 64 leaves half of the lanes.
    a, b : int or MatrixDescriptor
        64-bit descriptors; of two CTAs each reads its half of the rows of A and of the columns of B from its own memory.
    idesc : int
        The instruction descriptor.
    target : str
        For example ``"sm_100a"``.
    a_address : int, optional
        The address of A in Tensor Memory, in the place of `a`, which is then None.
    metadata : int, optional
        The address of the metadata of sparse A.
    scale_a, scale_b : int, optional
        The addresses of the scales.
    enable_input_d : bool
        Whether D is added to.
    lane_mask : array of 4 or 8 words, optional
        Lanes of D that stay as they are: bit i of word w is lane 32 w + i.
    threads, backend
        As in `fastmma.mma`.

    Returns
    -------
    uint32 array (..., CTAs, 128, 512)
        Tensor Memory afterwards.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError, BackendError
        An address beyond a memory, or copies that differ, are named. So are operands whose effect is not known well enough: scale-input-d,
        zero-column masks and ``.ashift``.

    Examples
    --------
    >>> shared = np.zeros((1, 65536), np.uint8)
    >>> shared[0, :4096].view(np.float16)[:] = 1  # 128 x 16, K-major, not swizzled
    >>> shared[0, 8192:8448].view(np.float16)[:] = 2  # 8 x 16
    >>> a, b = MatrixDescriptor(0, leading=128, stride=256), MatrixDescriptor(8192, leading=128, stride=256)
    >>> word = InstructionDescriptor("f16", "f32", "f16", "f16", 128, 8).encode()
    >>> before = np.zeros((1, 128, 512), np.uint32)
    >>> after = mma("tcgen05.mma.cta_group::1.kind::f16", before, shared, 64, a, b, word, target="sm_100a")
    >>> after[0, 5, 63:73].view(np.float32).tolist()
    [0.0, 32.0, 32.0, 32.0, 32.0, 32.0, 32.0, 32.0, 32.0, 0.0]
    """
    syntax = parsed(opcode.strip().removesuffix(";").strip()) if isinstance(opcode, str) else parsed(str(opcode))
    descriptor = InstructionDescriptor.decode(syntax.kind.name, idesc)
    ins = read(syntax.opcode, int(idesc) & ~_NEGATE)
    operation, runner = operation_of(ins, target), backend_of(backend)
    if syntax.ashift:
        raise OperandError(f"{ins}: what .ashift does is not known well enough to emulate")
    if syntax.kind.k != ins.k // (2 if ins.sparse else 1):
        raise OperandError(f"{ins}: how rows of k of 96 lie in memory is not known well enough to emulate")
    tensor = memory_of(tensor_memory, np.uint32, (ins.cta_group, LANES, COLUMNS), f"{ins}: tensor_memory")
    bytes_of = memory_of(shared, np.uint8, (ins.cta_group, None), f"{ins}: shared")
    lead = np.broadcast_shapes(tensor.shape[:-3], bytes_of.shape[:-2])
    count = math.prod(lead)
    result = np.array(np.broadcast_to(tensor, (*lead, *tensor.shape[-3:])).reshape(count, *tensor.shape[-3:]))
    source = np.broadcast_to(bytes_of, (*lead, *bytes_of.shape[-2:])).reshape(count, *bytes_of.shape[-2:])
    for name, value, wanted in (
        ("a_address", a_address, a is None),
        ("metadata", metadata, bool(ins.sparse)),
        ("scale_a", scale_a, bool(ins.scale_vec_size)),
        ("scale_b", scale_b, bool(ins.scale_vec_size)),
    ):
        _given(value, ins, name, wanted)
    half = data_path(ins) in ("C", "F")
    place = tensor_address(d, "d", ins, any_lane=half)
    formats, kept = ins.formats, _mask(lane_mask, ins, syntax)
    acodes = _a(ins, result, source, a, a_address, descriptor, place)
    bcodes = _from_ctas(ins, source, _matrix(b, ins, "b"), "b", descriptor.transpose_b).swapaxes(-1, -2)
    layout = ins.operands["d"].layout
    ccodes = from_tensor(result, layout, formats.c, "", place, f"{ins}: d") if flag(enable_input_d, "enable_input_d") else None
    extra: dict[str, NDArray[Any]] = {}
    if metadata is not None:
        extra["metadata"] = _metadata(ins, result, metadata, descriptor.sparsity_selector, half)
    for name, address, first in (("a", scale_a, descriptor.scale_a_id), ("b", scale_b, descriptor.scale_b_id)):
        if address is not None:
            found = picked(result, scale_places(ins, name, first), tensor_address(address, f"scale_{name}", ins), 8, f"{ins}: scale_{name}")
            extra[f"scale_{name}"] = found if name == "a" else np.ascontiguousarray(found.swapaxes(-1, -2))
    codes = np.empty((count, ins.m, ins.n), formats.d.code_dtype)
    given = negated(acodes, formats.a, descriptor.negate_a), negated(bcodes, formats.b, descriptor.negate_b)
    operands = Operands(np.ascontiguousarray(given[0]), np.ascontiguousarray(given[1]), ccodes, **extra)
    runner.run(operation, operands, codes, thread_count(threads))
    into_tensor(result, layout, codes, place, kept, f"{ins}: d")
    return result.reshape(*lead, *tensor.shape[-3:])


def _from_ctas(ins: Instruction, source: NDArray[Any], matrix: MatrixDescriptor, name: str, mn_major: bool) -> NDArray[Any]:
    """A matrix (count, outer, k) of which every CTA holds a share of the lines."""
    outer, k = (ins.m, ins.stored_k) if name == "a" else (ins.n, ins.k)
    shape, fmt = (outer // ins.cta_group, k), ins.formats.a if name == "a" else ins.formats.b
    shares = [from_shared(source[:, cta], matrix, fmt, ins.kind, shape, mn_major, f"{ins}: {name}") for cta in range(ins.cta_group)]
    return np.concatenate(shares, axis=1)


def _a(
    ins: Instruction,
    tensor: NDArray[Any],
    source: NDArray[Any],
    a: Any,
    address: Any,
    descriptor: InstructionDescriptor,
    d: tuple[int, int],
) -> NDArray[Any]:
    if a is not None:
        return _from_ctas(ins, source, _matrix(a, ins, "a"), "a", descriptor.transpose_a)
    if descriptor.transpose_a:
        raise OperandError(f"{ins}: a in Tensor Memory is K-major; transpose_a must be 0")
    place = tensor_address(address, "a", ins, any_lane=d[0] == 16)
    if place[0] != d[0]:
        raise OperandError(f"{ins}: a must start at the lane of d, {d[0]}, not {place[0]}")
    return from_tensor(tensor, ins.operands["a"].layout, ins.formats.a, ins.kind, place, f"{ins}: a")


def _metadata(ins: Instruction, tensor: NDArray[Any], address: Any, selector: int, half: bool) -> NDArray[Any]:
    place = tensor_address(address, "metadata", ins, any_lane=half)
    words = picked(tensor, metadata_places(ins, selector), place, 4, f"{ins}: metadata")
    legal = pattern_of(ins).table(ins.ordered_metadata)[:, 0] >= 0
    if not legal[words].all():
        at = np.argwhere(~legal[words])[0]
        raise OperandError(f"{ins}: metadata of row {at[1]}, chunk {at[2]} is {words[tuple(at)]:#x}, which names no places")
    return words
