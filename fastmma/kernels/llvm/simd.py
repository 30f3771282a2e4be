"""Typed SIMD vectors for Numba kernels: LLVM's generic vectors, legal on every CPU, written as arithmetic.

Inside a jitted function ``load(address, np.int32, 16)`` is a vector of 16 elements, and ``+ - * & | ^ << >>`` and comparisons work
lane by lane as NumPy's do for the same dtype (integers wrap, ``>>`` follows the sign of the type); a scalar operand is converted to
the element type. Comparisons give masks for `select`. A vector wider than the CPU's registers is split by LLVM.
Lane counts are literals or module constants, dtypes are NumPy scalar kinds. Addresses are integers, of any alignment: kernels
take them instead of arrays, so that one compiled kernel serves every layout of the caller's arrays. Nothing checks bounds.
"""

# Numba prescribes these functions' arguments

from __future__ import annotations

from typing import Any

from llvmlite import ir

from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.emit import Emitter, undefined
from fastmma.kernels.llvm.intrinsics import intrinsic
from fastmma.kernels.llvm.vectors import VectorType, as_vector, is_float, llvm_element, llvm_vector, operand_vector

# --- memory ---


def _pointer(builder: ir.IRBuilder, address: ir.Value, target: ir.Type) -> ir.Value:
    """The address as a pointer.

    LLVM may split an address into base and offset either way round. Should the "base" then be a constant 0 in the function that this
    one is inlined into, the access would count as one through a null pointer, and be deleted, without this attribute.
    """
    set.add(builder.function.attributes, "null_pointer_is_valid")  # llvmlite has no name for it, and checks names only in its own add
    return builder.inttoptr(address, ir.PointerType(target))


def _load(builder: ir.IRBuilder, address: ir.Value, target: ir.Type) -> ir.Value:
    value = builder.load(_pointer(builder, address, target))
    value.align = 1
    return value


@intrinsic(prefer_literal=True)
def load(typingctx: Any, address: Any, dtype: Any, lanes: Any) -> Any:
    """``load(address, dtype, lanes)``: consecutive elements."""
    vector = VectorType(dtype.dtype, lanes.literal_value)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return _load(builder, args[0], llvm_vector(vector.dtype, vector.lanes))

    return vector(kinds.int64, dtype, lanes), codegen


@intrinsic
def load_scalar(typingctx: Any, address: Any, dtype: Any) -> Any:
    """``load_scalar(address, dtype)``."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return _load(builder, args[0], llvm_element(dtype.dtype))

    return dtype.dtype(kinds.int64, dtype), codegen


@intrinsic(prefer_literal=True)
def load_pair(typingctx: Any, address: Any, dtype: Any, lanes: Any) -> Any:
    """``load_pair(address, dtype, lanes)``: two consecutive elements, alternating through the lanes."""
    vector = VectorType(dtype.dtype, lanes.literal_value)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        if vector.dtype.bitwidth <= 32:
            # one wider scalar broadcasts from memory in one instruction
            both = _load(builder, args[0], ir.IntType(2 * vector.dtype.bitwidth))
            pairs = Emitter(builder).splat(ir.VectorType(both.type, vector.lanes // 2), both)
            return builder.bitcast(pairs, llvm_vector(vector.dtype, vector.lanes))
        both = _load(builder, args[0], llvm_vector(vector.dtype, 2))
        return Emitter(builder).shuffle(both, undefined(both.type), [0, 1] * (vector.lanes // 2))

    return vector(kinds.int64, dtype, lanes), codegen


@intrinsic(prefer_literal=True)
def load_twice(typingctx: Any, address: Any, dtype: Any, lanes: Any) -> Any:
    """``load_twice(address, dtype, lanes)``: half as many consecutive elements, every one in two neighbouring lanes."""
    vector = VectorType(dtype.dtype, lanes.literal_value)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        elements = _load(builder, args[0], llvm_vector(vector.dtype, vector.lanes // 2))
        return Emitter(builder).shuffle(elements, undefined(elements.type), [lane // 2 for lane in range(vector.lanes)])

    return vector(kinds.int64, dtype, lanes), codegen


@intrinsic
def itemsize_of(typingctx: Any, dtype: Any) -> Any:
    """``itemsize_of(dtype)``: its bytes."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return context.get_constant(kinds.int64, dtype.dtype.bitwidth // 8)

    return kinds.int64(dtype), codegen


@intrinsic
def store(typingctx: Any, value: Any, address: Any) -> Any:
    """``store(value, address)``: a vector's lanes to consecutive elements, or a scalar."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        builder.store(args[0], _pointer(builder, args[1], args[0].type)).align = 1
        return context.get_dummy_value()

    return kinds.none(value, kinds.int64), codegen


@intrinsic
def aligned_stack(typingctx: Any) -> Any:
    """Let the stack of the function that calls this start at a cache line: a vector that straddles two costs twice."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        set.add(builder.function.attributes, '"stackrealign"')
        return context.get_dummy_value()

    return kinds.none(), codegen


@intrinsic
def never_inlined(typingctx: Any) -> Any:
    """Let the function that calls this be one of its own: none of its operations moves before or behind a call of it."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return kinds.none(), codegen


# --- lanes ---


@intrinsic
def any_lane(typingctx: Any, mask: Any) -> Any:
    """Tell whether any lane of a mask is true."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return Emitter(builder).any_lane(args[0])

    return kinds.boolean(mask), codegen


@intrinsic
def lane_bits(typingctx: Any, mask: Any) -> Any:
    """A mask of at most 64 lanes as the bits of an integer."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return builder.zext(builder.bitcast(args[0], ir.IntType(mask.lanes)), ir.IntType(64))

    return kinds.int64(mask), codegen


@intrinsic(prefer_literal=True)
def splat(typingctx: Any, scalar: Any, lanes: Any) -> Any:
    """``splat(scalar, lanes)``: the scalar in every lane."""
    element = getattr(scalar, "literal_type", scalar)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return Emitter(builder).splat(llvm_vector(element, lanes.literal_value), args[0])

    return VectorType(element, lanes.literal_value)(element, lanes), codegen


@intrinsic(prefer_literal=True)
def zeros(typingctx: Any, dtype: Any, lanes: Any) -> Any:
    """``zeros(dtype, lanes)``."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return ir.Constant(llvm_vector(dtype.dtype, lanes.literal_value), None)

    return VectorType(dtype.dtype, lanes.literal_value)(dtype, lanes), codegen


@intrinsic
def insert(typingctx: Any, vector: Any, lane: Any, scalar: Any) -> Any:
    """``insert(vector, lane, scalar)``: the vector with one lane replaced."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return builder.insert_element(args[0], args[2], args[1])

    return vector(vector, kinds.int64, vector.dtype), codegen


@intrinsic
def extract(typingctx: Any, vector: Any, lane: Any) -> Any:
    """``extract(vector, lane)``: one lane as a scalar."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return builder.extract_element(args[0], args[1])

    return vector.dtype(vector, kinds.int64), codegen


def _reduction(which: str, vector: VectorType) -> Any:
    """The extremum of an integer vector's lanes."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return Emitter(builder).reduced(("s" if vector.dtype.signed else "u") + which, args[0])

    return vector.dtype(vector), codegen


@intrinsic
def lowest_lane(typingctx: Any, vector: Any) -> Any:
    """The smallest lane of an integer vector."""
    return _reduction("min", vector)


@intrinsic
def highest_lane(typingctx: Any, vector: Any) -> Any:
    """The largest lane of an integer vector."""
    return _reduction("max", vector)


def _shuffled(vector: VectorType, second: bool, lanes: list[int]) -> Any:
    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        other = args[1] if second else undefined(args[0].type)
        return Emitter(builder).shuffle(args[0], other, lanes)

    arguments = (vector, vector) if second else (vector,)
    return VectorType(vector.dtype, len(lanes))(*arguments), codegen


@intrinsic
def interleave(typingctx: Any, first: Any, second: Any) -> Any:
    """``interleave(first, second)``: first[0], second[0], first[1], second[1], ...: twice as many lanes."""
    if first != second:
        return None
    return _shuffled(first, True, [lane + part * first.lanes for lane in range(first.lanes) for part in (0, 1)])


@intrinsic
def even_lanes(typingctx: Any, vector: Any) -> Any:
    """Lanes 0, 2, 4, ...: half as many."""
    return _shuffled(vector, False, list(range(0, vector.lanes, 2)))


@intrinsic
def odd_lanes(typingctx: Any, vector: Any) -> Any:
    """Lanes 1, 3, 5, ...: half as many."""
    return _shuffled(vector, False, list(range(1, vector.lanes, 2)))


@intrinsic
def select(typingctx: Any, mask: Any, chosen: Any, otherwise: Any) -> Any:
    """``select(mask, chosen, otherwise)``, lane by lane; scalars are converted to the other operand's element type."""
    vector = operand_vector(chosen, otherwise)
    if vector is None or vector.lanes != mask.lanes:
        return None

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        values = (as_vector(context, builder, value, kind, vector) for value, kind in zip(args[1:], sig.args[1:], strict=True))
        return builder.select(args[0], *values)

    return vector(mask, chosen, otherwise), codegen


def _lane_function(name: str, arguments: tuple[Any, ...]) -> Any:
    """Typing and code of an LLVM intrinsic whose operands share one vector (or scalar) type."""
    vector = next((kind for kind in arguments if isinstance(kind, VectorType)), None)
    result = getattr(arguments[0], "literal_type", arguments[0]) if vector is None else vector

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        values = args
        if vector is not None:
            values = [as_vector(context, builder, value, kind, vector) for value, kind in zip(args, sig.args, strict=True)]
        return Emitter(builder).call(name, *values)

    return result(*(arguments if vector is not None else (result,) * len(arguments))), codegen


def _extremum(which: str, first: Any, second: Any) -> Any:
    vector = operand_vector(first, second)
    if vector is None or is_float(vector.dtype):
        return None
    return _lane_function(("s" if vector.dtype.signed else "u") + which, (first, second))


@intrinsic
def minimum(typingctx: Any, first: Any, second: Any) -> Any:
    """The smaller of two integer vectors, lane by lane."""
    return _extremum("min", first, second)


@intrinsic
def maximum(typingctx: Any, first: Any, second: Any) -> Any:
    """The larger of two integer vectors, lane by lane."""
    return _extremum("max", first, second)


@intrinsic
def subtract_or_zero(typingctx: Any, first: Any, second: Any) -> Any:
    """The difference of two unsigned integer vectors, lane by lane, 0 where it is negative."""
    return _lane_function("usub.sat", (first, second))


@intrinsic
def truncated(typingctx: Any, value: Any) -> Any:
    """Floats rounded toward zero to integers, as floats."""
    return _lane_function("trunc", (value,))


@intrinsic
def integer_part(typingctx: Any, value: Any) -> Any:
    """Floats rounded toward zero, in lanes that add them exactly: float32 (below 2**31) to int32, float64 to float64."""
    if value.dtype == kinds.float64:
        return _lane_function("trunc", (value,))
    result = VectorType(kinds.int32, value.lanes)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return builder.fptosi(args[0], llvm_vector(kinds.int32, value.lanes))

    return result(value), codegen


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` rounded once; vectors or float scalars."""
    return _lane_function("fma", (a, b, c))


@intrinsic
def ones(typingctx: Any, value: Any) -> Any:
    """The bits of each lane that are set."""
    return _lane_function("ctpop", (value,))


# --- conversions ---


@intrinsic
def bitcast(typingctx: Any, value: Any, dtype: Any) -> Any:
    """``bitcast(value, dtype)``: the same bits as lanes of another dtype; also for a scalar of the same width."""
    target = dtype.dtype
    if isinstance(value, VectorType):
        result = VectorType(target, value.lanes * value.dtype.bitwidth // target.bitwidth)
        llvm_result = llvm_vector(target, result.lanes)
    else:
        result, llvm_result = target, llvm_element(target)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return builder.bitcast(args[0], llvm_result)

    return result(value, dtype), codegen


@intrinsic
def convert(typingctx: Any, vector: Any, dtype: Any) -> Any:
    """``convert(vector, dtype)``: the same values in another dtype; floats out of an integer's range give any value there."""
    source, target = vector.dtype, dtype.dtype
    result = VectorType(target, vector.lanes)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        kind = llvm_vector(target, vector.lanes)
        if args[0].type == kind:
            return args[0]
        if is_float(source) and is_float(target):
            return builder.fpext(args[0], kind) if target.bitwidth > source.bitwidth else builder.fptrunc(args[0], kind)
        if is_float(source):
            return builder.fptosi(args[0], kind) if target.signed else builder.fptoui(args[0], kind)
        if is_float(target):
            return builder.sitofp(args[0], kind) if source.signed else builder.uitofp(args[0], kind)
        if target.bitwidth < source.bitwidth:
            return builder.trunc(args[0], kind)
        return builder.sext(args[0], kind) if source.signed else builder.zext(args[0], kind)

    return result(vector, dtype), codegen


_EXPONENT_FIELD = {32: (127, 23), 64: (1023, 52)}  # bits: bias, position


@intrinsic
def power_of_two(typingctx: Any, exponent: Any, dtype: Any) -> Any:
    """``power_of_two(exponent, dtype)``: 2**exponent from int32 lanes; for exponents of normal numbers of the float dtype only."""
    target = dtype.dtype
    bias, position = _EXPONENT_FIELD[target.bitwidth]

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        emit = Emitter(builder)
        biased = emit.plus(args[0], bias)
        if target.bitwidth > exponent.dtype.bitwidth:
            biased = builder.zext(biased, ir.VectorType(ir.IntType(target.bitwidth), exponent.lanes))
        return builder.bitcast(emit.shifted_left(biased, position), llvm_vector(target, exponent.lanes))

    return VectorType(target, exponent.lanes)(exponent, dtype), codegen
