"""PTX of kernels that move matrices between memory and registers: exactly one opcode a warp."""

from __future__ import annotations

from fastmma.backends.gpu.ptx import RegisterNames, fragment_address, header, vector
from fastmma.host.errors import OperandError
from fastmma.isa.instruction import Movement

MOVEMENT_BYTES = 48 * 1024  # static shared memory of a block
# 64-bit parameters of the movement kernel, in order
MOVEMENT_PARAMETERS = ("memory_in", "memory", "addresses", "registers")


def movement_kernel(move: Movement, target: str, *, memory_bytes: int, stride: int | None = None) -> str:
    """A kernel in which each warp executes a movement once.

    Memory images are (warps, memory_bytes) uint8, addresses (warps, 32) uint32 offsets, registers (warps, 32, registers). Images are copied
    to shared memory before and back after; those of wmma stay in global memory, where PTX's alignment suffices: from shared memory, silicon
    loads multiplicands in rows of 16 bytes.

    Raises
    ------
    TargetError, OperandError
    """
    in_global = move.op.startswith("wmma")
    if memory_bytes % 128 or memory_bytes <= 0 or (memory_bytes > MOVEMENT_BYTES and not in_global):
        raise OperandError(f"memory_bytes must be a positive multiple of 128 up to {MOVEMENT_BYTES}, not {memory_bytes}")
    registers = RegisterNames(move.layout.register_bits == 64)
    names = registers.take(move.registers)
    result = registers.take(move.registers) if move.op == "movmatrix" else names
    lines = header(move, target, ", ".join(f".param .u64 p_{name}" for name in MOVEMENT_PARAMETERS))
    reads = move.op in ("stmatrix", "wmma.store", "movmatrix")
    lines += [
        *(() if in_global else (f".shared .align 128 .b8 image[{memory_bytes}];",)),
        f".reg .{registers.type} %{registers.letter}<{registers.count}>;",
        ".reg .b64 %p_<4>, %at, %lane, %lanes, %warp, %whole;",
        ".reg .b32 %t, %to, %word, %base, %address;",
        ".reg .pred %copy;",
        "mov.u32 %t, %tid.x; cvt.u64.u32 %lane, %t; mov.u64 %lanes, 32; mov.u32 %t, %ctaid.x; cvt.u64.u32 %warp, %t;",
        *(f"ld.param.u64 %p_{i}, [p_{name}];" for i, name in enumerate(MOVEMENT_PARAMETERS)),
        *([f"mad.lo.u64 %whole, %warp, {memory_bytes}, %p_1;"] if in_global else _to_shared(memory_bytes)),
        *fragment_address("%at", "%p_3", "%warp", move.registers, registers.size),
        *(registers.load(names, "%at") if reads else ()),
    ]
    opcode = move.opcode
    if move.op == "movmatrix":
        lines.append(f"{opcode} {result[0]}, {names[0]};")
    else:
        words = opcode.split(".")
        last = -2 if "b8x16" in words else -1  # an expanding type is two words
        text = ".".join([*words[:last], "global" if in_global else "shared", *words[last:]])
        where = "[%whole]" if in_global else "[%address]"
        tail = f", {stride}" if stride is not None else ""
        operands = f"{where}, {vector(names)}" if reads else f"{vector(names)}, {where}"
        lines.append(f"{text} {operands}{tail};")
    lines += [
        *fragment_address("%at", "%p_3", "%warp", move.registers, registers.size),
        *registers.store(result, "%at"),
        *(
            ()
            if in_global
            else ["bar.sync 0;", *_copy("OUT", "%p_1", memory_bytes, "ld.shared.b32 %word, [%to]; st.global.b32 [%at], %word;")]
        ),
        "ret;",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _to_shared(size: int) -> list[str]:
    """Copy the warp's image to shared memory, and add this lane's address to where it lies."""
    return [
        "mov.u32 %base, image;",
        *_copy("IN", "%p_0", size, "ld.global.b32 %word, [%at]; st.shared.b32 [%to], %word;"),
        "bar.sync 0;",
        "mad.lo.u64 %at, %warp, %lanes, %lane; mad.lo.u64 %at, %at, 4, %p_2;",
        "ld.global.b32 %address, [%at]; add.u32 %address, %address, %base;",
    ]


def _copy(label: str, pointer: str, size: int, body: str) -> list[str]:
    """Every lane copies a word of the warp's memory image at a time."""
    return [
        f"mad.lo.u64 %at, %warp, {size}, {pointer}; mad.lo.u64 %at, %lane, 4, %at;",
        "cvt.u32.u64 %to, %lane; mad.lo.u32 %to, %to, 4, %base; mov.u32 %t, 0;",
        f"{label}:",
        body,
        f"add.u64 %at, %at, 128; add.u32 %to, %to, 128; add.u32 %t, %t, 128; setp.lt.u32 %copy, %t, {size};",
        f"@%copy bra {label};",
    ]
