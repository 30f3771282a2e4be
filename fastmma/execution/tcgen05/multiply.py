"""tcgen05.mma on shared memory and Tensor Memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Operands, Operation
from fastmma.backends.engine import Backend
from fastmma.backends.gpu.arrays import accepts_cupy
from fastmma.backends.resolve import backend_of
from fastmma.execution.plan import MmaPlan, chosen_operation
from fastmma.execution.tcgen05 import modifiers
from fastmma.execution.tcgen05 import operands as places
from fastmma.execution.tcgen05.cells import address, tensor_memory
from fastmma.execution.tcgen05.copies import matrix_descriptor
from fastmma.host.calls import public_call
from fastmma.host.errors import BackendError, InstructionError, OperandError, TargetError
from fastmma.host.integers import flag, one_of, whole
from fastmma.host.threads import thread_count
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.isa.table import instruction
from fastmma.isa.tcgen05.column_mask import ZeroColumnMask
from fastmma.isa.tcgen05.descriptor import InstructionDescriptor
from fastmma.isa.tcgen05.matrix_descriptor import MatrixDescriptor
from fastmma.isa.tcgen05.syntax import Syntax, parsed
from fastmma.isa.tcgen05.tensor_memory import COLUMNS, LANES, metadata_layout, parts
from fastmma.operands.check import flatten, leading_dimensions
from fastmma.operands.sparse import check_metadata
from fastmma.shared.memory import memory_bytes

_ADDRESSES = 1 << 32  # numbers from here on are descriptors
_SELECTING_KINDS = ("f16", "tf32")  # whose metadata has one column, that the sparsity selector chooses


def _read(ins: Any, idesc: Any) -> tuple[Any, InstructionDescriptor | None]:
    """The instruction without its negations, which are the operands' here, and its descriptor."""
    if idesc is None:
        return ins, None
    if not isinstance(ins, str):
        raise InstructionError(f"{ins}: idesc goes with an opcode as text, which has no descriptor of its own")
    kind = parsed(ins.strip().removesuffix(";").strip()).kind.name
    given = idesc if isinstance(idesc, InstructionDescriptor) else InstructionDescriptor.decode(kind, idesc)
    return instruction(ins, idesc=replace(given, negate_a=False, negate_b=False).encode()), given


def _check_form(syntax: Syntax, ins: Instruction, target: str, **given: bool) -> None:
    """Raise unless ptxas takes the opcode with these operands on the target, and what it then does is known."""
    takers = syntax.targets_with(**given)
    if target not in takers:
        names = ", ".join(name for name, there in given.items() if there)
        if not takers:
            raise InstructionError(f"{ins}: the instruction takes no {names}")
        raise TargetError(f"{ins}: illegal with {names or 'these operands'} on {target}; it needs one of {', '.join(takers)}")


@public_call
@accepts_cupy
def mma(
    ins: str | Instruction | None,
    d: int,
    a: MatrixDescriptor | int,
    b: MatrixDescriptor | int,
    *,
    idesc: InstructionDescriptor | int | None = None,
    target: str | None = None,
    tmem: Any,
    memory: Any,
    metadata: int | None = None,
    scale_a: int | None = None,
    scale_b: int | None = None,
    enable_input_d: bool = True,
    scale_input_d: int = 0,
    disable_output_lane: Any = None,
    zero_column_mask: ZeroColumnMask | int = 0,
    plan: MmaPlan | None = None,
    threads: int | None = None,
    backend: str = "numba",
) -> NDArray[np.uint32]:
    """Execute a ``tcgen05.mma`` on shared memory and Tensor Memory, of any number of CTAs (or pairs of them).

    Parameters
    ----------
    ins : str or Instruction, or None with a plan
        An opcode with its descriptor, ``"tcgen05.mma... idesc=0x08200490"``, or a result of `instruction`.
    d : int
        The address of D in Tensor Memory, ``lane << 16 | column``.
    a : MatrixDescriptor or int
        The matrix descriptor of A, or the address of A in Tensor Memory: a number of no more than 32 bits.
    b : MatrixDescriptor or int
        The matrix descriptor of B.
    idesc : InstructionDescriptor or int, optional
        The instruction descriptor, for an opcode without one. Only this argument can negate A or B.
    target : str, optional
        By default that of the plan, or ``"sm_100a"``.
    tmem : uint32 array (..., 128, 512); (..., 2, 128, 512) for ``.cta_group::2``
        Tensor Memory before; it is not modified.
    memory : uint8 array (..., bytes); (..., 2, bytes) for ``.cta_group::2``
        Shared memory; descriptors' addresses are offsets into it, and swizzles count from its start. Leading dimensions broadcast.
    metadata, scale_a, scale_b : int, where the instruction has them
        Their addresses in Tensor Memory.
    enable_input_d : bool
        False computes A x B alone.
    scale_input_d : int
        Only for kind::f16 and tf32: D is first multiplied by 2 to the power of minus this number, 0 to 15, without rounding. If D becomes
        subnormal, that is an assumption, and strict mode refuses it.
    disable_output_lane : 4 integers, or 8 for ``.cta_group::2``
        A bit for each lane of D; lanes whose bit is set stay unchanged.
    zero_column_mask : ZeroColumnMask or int
        ``.ws`` only: the columns of B that count as zeros, and the shift of B.
    plan : MmaPlan, optional
        The plan to follow, from `fastmma.mma_plan` for an instruction and a target.
    threads : int, optional
        All cores by default, or ``FASTMMA_NUM_THREADS``.
    backend : {"numba", "reference", "cupy", "cupy-emulate"}
        As for `fastmma.mma`; ``"cupy"`` executes the opcode on the GPU in the machine.

    Returns
    -------
    uint32 array of the shape of `tmem`, with the broadcast leading dimensions
        Tensor Memory afterwards.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError, BackendError
        All are `fastmma.FastmmaError`. If an operand lies outside Tensor Memory or shared memory, overlaps D, or differs between copies,
        the message names the place.

    Notes
    -----
    PTX: tcgen05.mma; Data path layouts; Matrix descriptors; Sparse matrices; Block scaling.

    Examples
    --------
    >>> from fastmma import tcgen05
    >>> ins = tcgen05.instruction("f16", "f32", "f16", "f16", m=128, n=8)
    >>> memory = np.ones(4096, np.float16).view(np.uint8)
    >>> rows = tcgen05.MatrixDescriptor(0, leading=128, stride=256)
    >>> after = mma(ins, 0, rows, rows, tmem=np.zeros((128, 512), np.uint32), memory=memory)
    >>> after.view(np.float32)[127, 6:10].tolist()
    [16.0, 16.0, 0.0, 0.0]
    """
    runner = backend_of(backend)
    ins, word = _read(ins, idesc)
    operation = chosen_operation(ins, target, plan, "tcgen05.mma", "sm_100a")
    ins = operation.instruction
    if ins.op != "tcgen05":
        raise InstructionError(f"{ins}: tcgen05.mma takes tcgen05.mma opcodes only")
    said = word or places.descriptor_of(ins)
    in_tmem = not isinstance(a, MatrixDescriptor) and (number := whole(a)) is not None and number < _ADDRESSES
    shift = one_of(scale_input_d, range(16), f"{ins}: scale_input_d")
    syntax = parsed(ins.opcode.split()[0])
    _check_form(
        syntax,
        ins,
        operation.target,
        a_in_tensor_memory=in_tmem,
        lane_mask=disable_output_lane is not None,
        scale_input_d=shift > 0,
        zero_column_mask=isinstance(zero_column_mask, ZeroColumnMask) or whole(zero_column_mask) != 0,
    )
    if syntax.ashift:
        modifiers.check_row_shift(ins)
    columns = modifiers.zero_columns(zero_column_mask, ins, said.max_shift)
    if in_tmem and ins.alayout == "col":
        raise OperandError(f"{ins}: A in Tensor Memory is K-major; transpose_a must be 0")
    ctas = ins.cta_group if ins.cta_group == 2 else 0
    before, shared = tensor_memory(tmem, str(ins), ctas), memory_bytes(memory, str(ins))
    if ctas and shared.shape[-2:-1] != (ctas,):
        raise OperandError(f"{ins}: memory must have shape (..., {ctas}, bytes), not {shared.shape}")
    outer = 2 if ctas else 1
    lead = leading_dimensions(ins, tmem=before.shape[: -outer - 1], memory=shared.shape[:-outer])
    flat = before.reshape(*before.shape[: -outer - 1], outer * LANES, COLUMNS)
    if runner.raw is not None and (shift or disable_output_lane is not None or columns.active or columns.shift):
        raise BackendError(f"{ins}: the backend {backend!r} takes no scale_input_d, no disable_output_lane and no zero_column_mask")
    cells = _cells(ins, said, {"d": d, "a": a if in_tmem else None, "metadata": metadata, "scale_a": scale_a, "scale_b": scale_b})
    enabled = flag(enable_input_d, f"{ins}: enable_input_d")
    if runner.raw is not None:
        operation.of_silicon()
        numbers: dict[str, Any] = {
            "d": d,
            "metadata": metadata,
            "scale_a": scale_a,
            "scale_b": scale_b,
            "idesc": said.encode(),
            "enable": enabled,
        }
        numbers["a"] = a if in_tmem else matrix_descriptor(a, f"{ins}: a").encode()
        numbers["b"] = matrix_descriptor(b, f"{ins}: b").encode()
        passed = {name: int(value) for name, value in numbers.items() if value is not None}
        images = np.broadcast_to(shared, (*lead, *shared.shape[-outer:])).reshape(math.prod(lead), outer, -1)
        started = np.broadcast_to(flat, (*lead, *flat.shape[-2:])).reshape(math.prod(lead), outer, LANES, COLUMNS)
        done = runner.raw.multiply_tensor(ins, operation.target, images, started, passed, a_in_tensor_memory=in_tmem)
        return np.asarray(done.reshape(*lead, *before.shape[-outer - 1 :]))
    held = places.accumulators(flat, cells["d"], ins)
    held = held if enabled else np.zeros_like(held)
    shift = 0 if ins.kind == "i8" else shift
    c, beyond = modifiers.shrunk(held, ins.formats.d, shift, f"{ins}: scale_input_d")
    if in_tmem:
        acodes = places.a_in_tensor_memory(flat, cells["a"], ins)
        if syntax.ashift:
            acodes = modifiers.shifted_rows(acodes, ins)
    else:
        acodes = places.in_shared_memory(shared, matrix_descriptor(a, f"{ins}: a"), "a", ins)[..., None, :, :]
    bcodes = places.in_shared_memory(shared, matrix_descriptor(b, f"{ins}: b"), "b", ins, columns.shift).swapaxes(-1, -2)
    bcodes = np.where(columns.columns(ins.n, parts(ins)), bcodes.dtype.type(0), bcodes) if columns.active else bcodes
    given = {
        "a": modifiers.negated(acodes, ins.formats.a, said.negate_a),
        "b": modifiers.negated(bcodes, ins.formats.b, said.negate_b),
        "c": c,
        **_extra(ins, said, flat, cells),
    }
    if syntax.ashift and "metadata" in given:
        given["metadata"] = modifiers.shifted_rows(given["metadata"], ins)
    result = _multiply(runner, operation, given, lead, thread_count(threads))
    if beyond.any():
        modifiers.exact_shift(operation, {**given, "c": held}, beyond, shift, lead, result)
    after = np.array(np.broadcast_to(flat, (*lead, *flat.shape[-2:])))
    places.write_accumulators(after, cells["d"], result, ins, modifiers.kept_lanes(disable_output_lane, ins))
    return after.reshape(*lead, *before.shape[-outer - 1 :])


def _cells(ins: Instruction, said: InstructionDescriptor, addresses: dict[str, Any]) -> dict[str, places.Cells]:
    """Return where the operands lie whose addresses in Tensor Memory are given; D overlaps none of them."""
    for name, there in (("metadata", ins.sparse), ("scale_a", ins.stype), ("scale_b", ins.stype)):
        if bool(there) != (addresses[name] is not None):
            raise OperandError(f"{ins}: the instruction {'needs' if there else 'takes no'} {name}")
    cells = {}
    for name, taddr in addresses.items():
        what = f"{ins}: {name}"
        if taddr is None and name != "d":
            continue
        if name.startswith("scale"):
            cells[name] = places.scale_cells(ins, name[-1], taddr, getattr(said, f"{name}_id"), what)
        elif name == "metadata":
            if ins.kind in _SELECTING_KINDS and address(taddr, what)[1] % 2:
                raise OperandError(f"{what}: it must begin in an even column; the descriptor's sparsity selector chooses the next one")
            cells[name] = places.matrix_cells(metadata_layout(ins), ins, taddr, what, said.sparsity_selector)
        else:
            cells[name] = places.matrix_cells(ins.operands[name].layout, ins, taddr, what)
    for name in {"a", "metadata"} & set(cells):
        lane, lane_of_d = (int(cells[each].lanes[0, 0]) for each in (name, "d"))
        if lane != lane_of_d:
            raise OperandError(f"{ins}: {name} must begin in the lane of d, {lane_of_d}, not {lane}")
    places.check_apart(cells, str(ins))
    return cells


def _extra(
    ins: Instruction, said: InstructionDescriptor, tmem: NDArray[np.uint32], cells: dict[str, places.Cells]
) -> dict[str, NDArray[Any]]:
    """Metadata and scales, checked."""
    extra: dict[str, NDArray[Any]] = {}
    if "metadata" in cells:
        what = f"{ins}: metadata"
        words = places.metadata_words(tmem, cells["metadata"], ins, what)
        extra["metadata"] = check_metadata(words, words.shape, pattern_of(ins), ordered=ins.ordered_metadata, what=what)
    if "scale_a" in cells:
        extra["scale_a"] = places.scale_codes(tmem, cells["scale_a"], said.scale_a_id, ins, f"{ins}: scale_a")
        extra["scale_b"] = places.scale_codes(tmem, cells["scale_b"], said.scale_b_id, ins, f"{ins}: scale_b").swapaxes(-1, -2)
    return extra


def _multiply(runner: Backend, operation: Operation, given: dict[str, NDArray[Any]], lead: tuple[int, ...], threads: int) -> NDArray[Any]:
    """Codes of D; where A has a copy for each part of N that is not the others', the parts are products of their own."""
    ins = operation.instruction
    copies = given["a"].shape[-3]
    width = ins.n // copies
    result = np.empty((math.prod(lead), ins.m, ins.n), ins.formats.d.code_dtype)
    fixed = {name: flatten(array, lead) for name, array in given.items() if name not in "abc"}
    for copy in range(copies):
        part = slice(copy * width, (copy + 1) * width)
        operands = {
            "a": flatten(given["a"][..., copy, :, :], lead),
            **{name: flatten(given[name][..., part], lead) for name in "bc"},
            **fixed,
        }
        found = np.empty((len(result), ins.m, width), result.dtype)
        runner.run(operation, Operands(**operands), found, threads)
        result[..., part] = found
    return result.reshape(*lead, ins.m, ins.n)
