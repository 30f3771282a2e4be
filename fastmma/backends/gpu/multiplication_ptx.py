"""PTX of kernels that multiply: exactly one opcode on raw registers, in a loop over k with D fed back as C."""

from __future__ import annotations

from dataclasses import dataclass

from fastmma.backends.gpu.ptx import RegisterNames, fragment_address, header, vector
from fastmma.host.errors import OperandError
from fastmma.isa.instruction import Instruction


@dataclass(frozen=True)
class Selectors:
    """The immediate operands of an opcode: sparsity selector, and byte and thread ids of the scales."""

    sparsity: int = 0
    byte_id_a: int = 0
    thread_id_a: int = 0
    byte_id_b: int = 0
    thread_id_b: int = 0


# 64-bit parameters of the loop kernel, in order; strides count fragments
LOOP_PARAMETERS = ("a", "b", "c", "d", "metadata", "scale_a", "scale_b", "steps", "a_x", "a_y", "b_x", "b_y")


def loop_kernel(ins: Instruction, target: str, selectors: Selectors | None = None) -> str:
    """A kernel in which each warp accumulates one tile: ``steps`` fragments of A and B, one execution of the opcode each.

    Fragments are arrays (fragments, 32, registers). Warp (x, y) of the grid uses fragments ``(x * a_x + y * a_y) * steps + step`` of A (and
    of metadata and scale_a), ``(x * b_x + y * b_y) * steps + step`` of B (and scale_b), and fragment ``y * gridDim.x + x`` of C and D.

    Raises
    ------
    TargetError
        If the opcode is illegal on the target.
    OperandError
        If the instruction takes operands from shared memory.

    Examples
    --------
    >>> from fastmma.isa.table import multiply
    >>> text = loop_kernel(multiply("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), "sm_90a")
    >>> text.count("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    1
    """
    if ins.op == "wgmma":
        raise OperandError(f"{ins}: B lies in shared memory; use warpgroup_kernel")
    chosen = selectors or Selectors()
    operands = ins.operands
    registers = RegisterNames(operands["d"].layout.register_bits == 64)
    names = {name: registers.take(operands[name].registers) for name in "abcd"}
    size = registers.size
    lines = header(ins, target, ", ".join(f".param .u64 p_{name}" for name in LOOP_PARAMETERS))
    lines += [
        f".reg .{registers.type} %{registers.letter}<{registers.count}>;",
        ".reg .b64 %p_<12>, %index, %at, %lane, %lanes, %x, %y, %step, %steps, %a0, %b0, %cd;",
        ".reg .b32 %t, %metadata, %scale_a, %scale_b;",
        ".reg .pred %more;",
        "mov.u32 %t, %tid.x; cvt.u64.u32 %lane, %t; mov.u64 %lanes, 32;",
        "mov.u32 %t, %ctaid.x; cvt.u64.u32 %x, %t; mov.u32 %t, %ctaid.y; cvt.u64.u32 %y, %t;",
        *(f"ld.param.u64 %p_{i}, [p_{name}];" for i, name in enumerate(LOOP_PARAMETERS)),
        "mov.u64 %steps, %p_7;",
        "mul.lo.u64 %a0, %x, %p_8; mad.lo.u64 %a0, %y, %p_9, %a0; mul.lo.u64 %a0, %a0, %steps;",
        "mul.lo.u64 %b0, %x, %p_10; mad.lo.u64 %b0, %y, %p_11, %b0; mul.lo.u64 %b0, %b0, %steps;",
        "mov.u32 %t, %nctaid.x; cvt.u64.u32 %cd, %t; mad.lo.u64 %cd, %y, %cd, %x;",
        *fragment_address("%at", "%p_2", "%cd", len(names["c"]), size),
        *registers.load(names["c"], "%at"),
        "mov.u64 %step, 0;",
        "LOOP:",
    ]
    extra = []
    for operand, base, pointer in (("a", "%a0", 0), ("b", "%b0", 1)):
        lines += [f"add.u64 %index, {base}, %step;", *fragment_address("%at", f"%p_{pointer}", "%index", len(names[operand]), size)]
        lines += registers.load(names[operand], "%at")
    sources = [("metadata", "%a0", 4)] * bool(ins.sparse) + [("scale_a", "%a0", 5), ("scale_b", "%b0", 6)] * bool(ins.scale_vec_size)
    for name, base, pointer in sources:
        lines += [f"add.u64 %index, {base}, %step;", *fragment_address("%at", f"%p_{pointer}", "%index", 1, 4)]
        lines.append(f"ld.global.b32 %{name}, [%at];")
    if ins.sparse:
        extra += ["%metadata", str(chosen.sparsity)]
    if ins.scale_vec_size:
        extra += ["%scale_a", f"{{{chosen.byte_id_a}, {chosen.thread_id_a}}}", "%scale_b", f"{{{chosen.byte_id_b}, {chosen.thread_id_b}}}"]
    operand_text = ", ".join([*(vector(names[name]) for name in "dabc"), *extra])
    lines += [
        f"{ins.opcode} {operand_text};",
        "add.u64 %step, %step, 1;",
        "setp.lt.u64 %more, %step, %steps;",
        *(_feed_back(registers, names) if ins.ctype == ins.dtype else ()),
        "@%more bra LOOP;",
        *fragment_address("%at", "%p_3", "%cd", len(names["d"]), size),
        *registers.store(names["d"], "%at"),
        "ret;",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _feed_back(registers: RegisterNames, names: dict[str, list[str]]) -> list[str]:
    return [f"mov.{registers.type} {c}, {d};" for c, d in zip(names["c"], names["d"], strict=True)]


# 64-bit parameters of the warpgroup kernel, in order; memory images are `image_bytes` apart
WARPGROUP_PARAMETERS = (
    "a",
    "d_in",
    "d",
    "metadata",
    "memory",
    "steps",
    "a_x",
    "a_y",
    "b_x",
    "b_y",
    "descriptor_a",
    "descriptor_b",
    "scale_d",
)


def warpgroup_kernel(
    ins: Instruction,
    target: str,
    *,
    image_bytes: int,
    a_in_memory: bool = False,
    selector: int = 0,
    immediates: tuple[int, ...] = (),
) -> str:
    """A kernel in which each warpgroup accumulates one tile with ``wgmma``: the shared memory is filled with a raw image before each step.

    Parameters
    ----------
    image_bytes : int
        Size of a memory image, a multiple of 512. Image ``(x * b_x + y * b_y) * steps + step`` is used in each step, for A too.
    a_in_memory : bool
        Whether A has a descriptor and is not in registers.
    selector : int
        Sparsity selector.
    immediates : tuple of int
        imm-scale-a, imm-scale-b and the transposes, as many as the opcode takes.

    Raises
    ------
    TargetError, OperandError
    """
    if ins.op != "wgmma":
        raise OperandError(f"{ins}: the instruction is no wgmma; use loop_kernel")
    if image_bytes % 512 or image_bytes <= 0:
        raise OperandError(f"image_bytes must be a positive multiple of 512, not {image_bytes}")
    registers = RegisterNames(wide=False)
    a_names = [] if a_in_memory else registers.take(ins.operands["a"].registers)
    d_names = registers.take(ins.operands["d"].registers)
    lines = header(ins, target, ", ".join(f".param .u64 p_{name}" for name in WARPGROUP_PARAMETERS))
    parameters = {name: f"%p_{i}" for i, name in enumerate(WARPGROUP_PARAMETERS)}
    lines += [
        f".shared .align 1024 .b8 image[{image_bytes}];",
        f".reg .b32 %r<{registers.count}>, %t, %metadata, %to, %word, %base;",
        f".reg .b64 %p_<{len(WARPGROUP_PARAMETERS)}>, %index, %at, %lane, %lanes, %x, %y, %step, %steps, %a0, %b0, %cd, %da, %db, %shared;",
        ".reg .pred %more, %copy, %scale;",
        "mov.u32 %t, %tid.x; cvt.u64.u32 %lane, %t; mov.u64 %lanes, 128;",
        "mov.u32 %t, %ctaid.x; cvt.u64.u32 %x, %t; mov.u32 %t, %ctaid.y; cvt.u64.u32 %y, %t;",
        *(f"ld.param.u64 {parameters[name]}, [p_{name}];" for name in WARPGROUP_PARAMETERS),
        f"mov.u64 %steps, {parameters['steps']};",
        f"mul.lo.u64 %a0, %x, {parameters['a_x']}; mad.lo.u64 %a0, %y, {parameters['a_y']}, %a0; mul.lo.u64 %a0, %a0, %steps;",
        f"mul.lo.u64 %b0, %x, {parameters['b_x']}; mad.lo.u64 %b0, %y, {parameters['b_y']}, %b0; mul.lo.u64 %b0, %b0, %steps;",
        "mov.u32 %t, %nctaid.x; cvt.u64.u32 %cd, %t; mad.lo.u64 %cd, %y, %cd, %x;",
        "mov.u32 %base, image; cvt.u64.u32 %shared, %base; shr.u64 %shared, %shared, 4;",
        f"add.u64 %da, {parameters['descriptor_a']}, %shared; add.u64 %db, {parameters['descriptor_b']}, %shared;",
        f"setp.ne.u64 %scale, {parameters['scale_d']}, 0;",
        *fragment_address("%at", parameters["d_in"], "%cd", len(d_names), 4),
        *registers.load(d_names, "%at"),
        "mov.u64 %step, 0;",
        "LOOP:",
        "bar.sync 0;",
        "add.u64 %index, %b0, %step;",
        f"mad.lo.u64 %at, %index, {image_bytes}, {parameters['memory']}; mad.lo.u64 %at, %lane, 4, %at;",
        "cvt.u32.u64 %to, %lane; mad.lo.u32 %to, %to, 4, %base; mov.u32 %t, 0;",
        "COPY:",
        "ld.global.b32 %word, [%at]; st.shared.b32 [%to], %word;",
        f"add.u64 %at, %at, 512; add.u32 %to, %to, 512; add.u32 %t, %t, 512; setp.lt.u32 %copy, %t, {image_bytes};",
        "@%copy bra COPY;",
        "fence.proxy.async.shared::cta;",
        "bar.sync 0;",
        "add.u64 %index, %a0, %step;",
    ]
    if a_names:
        lines += [*fragment_address("%at", parameters["a"], "%index", len(a_names), 4), *registers.load(a_names, "%at")]
    extra = ""
    if ins.sparse:
        lines += [*fragment_address("%at", parameters["metadata"], "%index", 1, 4), "ld.global.b32 %metadata, [%at];"]
        extra = f"%metadata, {selector}, "
    operands = f"{vector(d_names)}, {vector(a_names) if a_names else '%da'}, %db, {extra}%scale"
    lines += [
        "wgmma.fence.sync.aligned;",
        f"{ins.opcode} {', '.join([operands, *map(str, immediates)])};",
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
        "setp.ne.u64 %scale, 1, 0;",
        "add.u64 %step, %step, 1;",
        "setp.lt.u64 %more, %step, %steps;",
        "@%more bra LOOP;",
        *fragment_address("%at", parameters["d"], "%cd", len(d_names), 4),
        *registers.store(d_names, "%at"),
        "ret;",
        "}",
    ]
    return "\n".join(lines) + "\n"
