"""PTX of a kernel that executes one tcgen05.mma on raw images: shared memory and all of Tensor Memory before, Tensor Memory after."""

from __future__ import annotations

from fastmma.backends.gpu.ptx import RegisterNames, header, vector
from fastmma.host.errors import OperandError
from fastmma.isa.instruction import Instruction
from fastmma.isa.tcgen05.tensor_memory import COLUMNS, LANES

# 64-bit parameters of the kernel: images before and after, (execution and CTA, bytes) and (execution and CTA, lane, column); the operands
PARAMETERS = ("shared", "before", "after", "d", "a", "b", "idesc", "metadata", "scale_a", "scale_b", "enable")
_AT_ONCE = 8  # columns that a thread moves
_LIMIT = 200 << 10  # of the image, beside the barrier and the address that tcgen05.alloc writes
_TAIL = 16  # bytes of these two


def dynamic_bytes(image_bytes: int) -> int:
    """Shared memory that the kernel of an image needs."""
    return image_bytes + _TAIL


def tensor_kernel(ins: Instruction, target: str, *, image_bytes: int, a_in_tensor_memory: bool = False) -> str:
    """A kernel of 128 threads a CTA; each cluster of as many CTAs as the instruction has executes it once.

    Parameters
    ----------
    image_bytes : int
        Of the shared memory that a CTA begins with, a multiple of 512. Descriptors count from the start of the image.
    a_in_tensor_memory : bool
        Whether the parameter a is an address and not a descriptor.

    Raises
    ------
    TargetError, OperandError
    """
    if ins.op != "tcgen05":
        raise OperandError(f"{ins}: the instruction is no tcgen05.mma")
    if image_bytes % 512 or not 0 < image_bytes <= _LIMIT:
        raise OperandError(f"image_bytes must be a multiple of 512 up to {_LIMIT}, not {image_bytes}")
    group, pair = f"cta_group::{ins.cta_group}", ins.cta_group == 2
    held = RegisterNames(wide=False)
    words = held.take(_AT_ONCE)
    lines = header(ins, target, ", ".join(f".param .u64 p_{name}" for name in PARAMETERS))
    # the image is declared before the kernel, whose CTAs form a cluster
    lines.insert(3, ".extern .shared .align 1024 .b8 image[];")
    if pair:
        lines.insert(5, ".reqnctapercluster 2")
    given = {name: f"%p_{i}" for i, name in enumerate(PARAMETERS)}
    every_cta = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" if pair else "bar.sync 0;"
    lines += [
        f".reg .b32 %r<{held.count}>, %t, %warp, %rank, %base, %slot, %bar, %to, %word, %column, %cell, %tensor;",
        ".reg .b32 %d, %idesc, %a_at, %metadata, %scale_a, %scale_b;",
        f".reg .b64 %p_<{len(PARAMETERS)}>, %at, %index, %da, %db, %start;",
        ".reg .b16 %both; .reg .pred %first, %leader, %more, %enable, %done;",
        *(f"ld.param.u64 {given[name]}, [p_{name}];" for name in PARAMETERS),
        "mov.u32 %t, %tid.x; shr.u32 %warp, %t, 5; setp.eq.u32 %first, %t, 0; setp.eq.u32 %leader, %warp, 0;",
        f"mov.u32 %rank, {'%cluster_ctarank' if pair else '0'};",
        f"mov.u32 %base, image; add.u32 %slot, %base, {image_bytes}; add.u32 %bar, %slot, 8;",
        # the image of this CTA
        "mov.u32 %t, %ctaid.x; cvt.u64.u32 %index, %t; mov.u32 %t, %tid.x;",
        f"mad.lo.u64 %at, %index, {image_bytes}, {given['shared']}; cvt.u64.u32 %start, %t; mad.lo.u64 %at, %start, 4, %at;",
        "mad.lo.u32 %to, %t, 4, %base; mov.u32 %column, 0;",
        "COPY:",
        "ld.global.b32 %word, [%at]; st.shared.b32 [%to], %word;",
        "add.u64 %at, %at, 512; add.u32 %to, %to, 512; add.u32 %column, %column, 512;",
        f"setp.lt.u32 %more, %column, {image_bytes};",
        "@%more bra COPY;",
        f"@%leader tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [%slot], {COLUMNS};",
        "@%first mbarrier.init.shared.b64 [%bar], 1;",
        "@%first fence.mbarrier_init.release.cluster;",
        "fence.proxy.async.shared::cta;",
        every_cta,
        "tcgen05.fence::after_thread_sync;",
        # a thread has a lane: 512 words of the image before
        "ld.shared.b32 %tensor, [%slot]; shl.b32 %cell, %warp, 21; add.u32 %cell, %cell, %tensor;",
        f"cvt.u64.u32 %start, %t; mad.lo.u64 %start, %index, {LANES}, %start; mul.lo.u64 %start, %start, {4 * COLUMNS};",
        f"add.u64 %at, {given['before']}, %start; mov.u32 %column, 0;",
        "FILL:",
        *held.load(words, "%at"),
        f"tcgen05.st.sync.aligned.32x32b.x{_AT_ONCE}.b32 [%cell], {vector(words)};",
        f"add.u64 %at, %at, {4 * _AT_ONCE}; add.u32 %cell, %cell, {_AT_ONCE}; add.u32 %column, %column, {_AT_ONCE};",
        f"setp.lt.u32 %more, %column, {COLUMNS};",
        "@%more bra FILL;",
        "tcgen05.wait::st.sync.aligned;",
        "tcgen05.fence::before_thread_sync;",
        every_cta,
        "tcgen05.fence::after_thread_sync;",
        # the address of the image is part of the descriptors
        "cvt.u64.u32 %at, %base; shr.u64 %at, %at, 4;",
        f"add.u64 %da, {given['a']}, %at; add.u64 %db, {given['b']}, %at;",
        f"setp.ne.u64 %enable, {given['enable']}, 0;",
        f"cvt.u32.u64 %idesc, {given['idesc']};",
    ]
    for register, name in (("%d", "d"), ("%a_at", "a"), ("%metadata", "metadata"), ("%scale_a", "scale_a"), ("%scale_b", "scale_b")):
        lines.append(f"cvt.u32.u64 {register}, {given[name]}; add.u32 {register}, {register}, %tensor;")
    metadata = "[%metadata], " if ins.sparse else ""
    scales = "[%scale_a], [%scale_b], " if ins.scale_vec_size else ""
    operands = f"[%d], {'[%a_at]' if a_in_tensor_memory else '%da'}, %db, {metadata}%idesc, {scales}%enable"
    arrive = "mbarrier::arrive::one.shared::cluster"
    commit = (
        f"tcgen05.commit.{group}.{arrive}.multicast::cluster.b64 [%bar], %both;" if pair else f"tcgen05.commit.{group}.{arrive}.b64 [%bar];"
    )
    lines += [
        "setp.ne.and.u32 %done, %rank, 0, %first; not.pred %more, %first; or.pred %more, %more, %done; mov.b16 %both, 3;",
        "@%more bra WAIT;",
        f"{ins.opcode.split(' ')[0]} {operands};",
        commit,
        "WAIT:",
        "mbarrier.try_wait.parity.shared.b64 %done, [%bar], 0;",
        "@!%done bra WAIT;",
        "bar.warp.sync 0xffffffff;",
        "tcgen05.fence::after_thread_sync;",
        "shl.b32 %cell, %warp, 21; add.u32 %cell, %cell, %tensor;",
        f"add.u64 %at, {given['after']}, %start; mov.u32 %column, 0;",
        "DRAIN:",
        f"tcgen05.ld.sync.aligned.32x32b.x{_AT_ONCE}.b32 {vector(words)}, [%cell];",
        "tcgen05.wait::ld.sync.aligned;",
        *held.store(words, "%at"),
        f"add.u64 %at, %at, {4 * _AT_ONCE}; add.u32 %cell, %cell, {_AT_ONCE}; add.u32 %column, %column, {_AT_ONCE};",
        f"setp.lt.u32 %more, %column, {COLUMNS};",
        "@%more bra DRAIN;",
        "tcgen05.fence::before_thread_sync;",
        every_cta,
        "tcgen05.fence::after_thread_sync;",
        f"@%leader tcgen05.dealloc.{group}.sync.aligned.b32 %tensor, {COLUMNS};",
        f"@%leader tcgen05.relinquish_alloc_permit.{group}.sync.aligned;",
        "ret;",
        "}",
    ]
    return "\n".join(lines) + "\n"
