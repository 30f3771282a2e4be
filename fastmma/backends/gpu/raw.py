"""Raw registers and raw shared memory on the real GPU: exactly the opcode and the selectors that are named."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.gpu import device
from fastmma.backends.gpu.movement_ptx import MOVEMENT_BYTES, movement_kernel
from fastmma.backends.gpu.multiplication_ptx import Selectors, loop_kernel, warpgroup_kernel
from fastmma.backends.gpu.tensor_memory_ptx import PARAMETERS, dynamic_bytes, tensor_kernel
from fastmma.host.errors import OperandError
from fastmma.isa.instruction import Instruction, Movement, check_legal

Registers = NDArray[Any]
_WARPS = 1 << 18
_EXECUTIONS = 1 << 12  # whose images of Tensor Memory are in GPU memory at a time


def _fits(ins: Instruction | Movement, memory: NDArray[np.uint8]) -> None:
    """Refuse memory (warps, bytes) that a block cannot have."""
    if memory.shape[1] > MOVEMENT_BYTES:
        raise OperandError(f"{ins}: on the GPU shared memory must have at most {MOVEMENT_BYTES} bytes, not {memory.shape[1]}")


def multiply(
    ins: Instruction,
    target: str,
    a: Registers,
    b: Registers,
    c: Registers,
    extra: dict[str, Registers],
    selectors: Selectors,
) -> Registers:
    """Execute an ``mma`` or ``wmma.mma`` once on the registers (warps, 32, registers) of each warp.

    `extra` holds the metadata and scale registers (warps, 32) that the opcode takes.
    """
    device.check_target(target)
    text = loop_kernel(ins, target, selectors)
    d = np.empty((len(a), ins.lanes, ins.operands["d"].registers), dtype=c.dtype)
    for start in range(0, len(a), _WARPS):
        part = slice(start, start + _WARPS)
        given = [device.to_device(array[part]) for array in (a, b, c)]
        more = [device.to_device(extra[name][part]) if name in extra else None for name in ("metadata", "scale_a", "scale_b")]
        count = len(c[part])
        result = device.empty((count, *d.shape[1:]), d.dtype)
        device.launch(text, (count, 1), ins.lanes, (*given, result, *more, 1, 1, 0, 1, 0))
        d[part] = device.to_host(result)
    return d


def multiply_warpgroup(
    ins: Instruction,
    target: str,
    a: Registers | int,
    descriptor_b: int,
    d: Registers,
    memory: NDArray[np.uint8],
    metadata: Registers | None,
    *,
    selector: int,
    scale_d: int,
    immediates: tuple[int, ...],
) -> Registers:
    """Execute a ``wgmma`` once; `a` is registers (warpgroups, 128, registers) or a descriptor, memory (warpgroups, bytes).

    Raises
    ------
    OperandError
        If the memory does not fit into the shared memory of a block.
    BackendError, TargetError
        If there is no GPU of this target.
    """
    _fits(ins, memory)
    device.check_target(target)
    if len(d) == 0:
        return d.copy()
    images = np.pad(memory, ((0, 0), (0, -memory.shape[1] % 512)))
    in_memory = isinstance(a, int)
    text = warpgroup_kernel(ins, target, image_bytes=images.shape[1], a_in_memory=in_memory, selector=selector, immediates=immediates)
    result = device.empty(d.shape, np.uint32)
    registers = None if isinstance(a, int) else device.to_device(a)
    more = None if metadata is None else device.to_device(metadata)
    arguments = (registers, device.to_device(d), result, more, device.to_device(images), 1, 1, 0, 1, 0)
    device.launch(text, (len(d), 1), ins.lanes, (*arguments, a if isinstance(a, int) else 0, descriptor_b, scale_d))
    return device.to_host(result)


def multiply_tensor(
    ins: Instruction, target: str, memory: NDArray[np.uint8], tmem: NDArray[np.uint32], given: dict[str, int], *, a_in_tensor_memory: bool
) -> NDArray[np.uint32]:
    """Execute a ``tcgen05.mma`` once on images of shared memory and of Tensor Memory, (executions, CTAs, bytes) and (..., 128, 512).

    `given` holds the parameters of `tensor_kernel` that are no images.

    Raises
    ------
    OperandError
        If the image does not fit into the shared memory of a CTA.
    BackendError, TargetError
        If there is no GPU of this target.
    """
    device.check_target(target)
    images = np.pad(memory, ((0, 0), (0, 0), (0, -memory.shape[-1] % 512)))
    size = images.shape[-1]
    text = tensor_kernel(ins, target, image_bytes=size, a_in_tensor_memory=a_in_tensor_memory)
    result = np.empty_like(tmem)
    for start in range(0, len(tmem), _EXECUTIONS):
        part = slice(start, start + _EXECUTIONS)
        before = device.to_device(tmem[part])
        after = device.empty(before.shape, np.uint32)
        rest = (given.get(name, 0) for name in PARAMETERS[3:])
        grid = (len(tmem[part]) * ins.cta_group, 1)
        device.launch(text, grid, 128, (device.to_device(images[part]), before, after, *rest), dynamic_bytes(size))
        result[part] = device.to_host(after)
    return result


def move(
    movement: Movement,
    target: str,
    memory: NDArray[np.uint8],
    addresses: NDArray[Any],
    registers: Registers,
    *,
    stride: int | None = None,
) -> tuple[NDArray[np.uint8], Registers]:
    """Execute a movement once a warp on memory (warps, bytes); returns the memory and the registers afterwards.

    Parameters
    ----------
    addresses : (warps, 32) offsets into the memory
    registers : (warps, 32, registers), the source of stores

    Raises
    ------
    OperandError
        If the memory does not fit into the shared memory of a block.
    TargetError
        If the opcode is illegal on the target, or the GPU is another.
    """
    size = memory.shape[1]
    if not movement.op.startswith("wmma"):
        _fits(movement, memory)
    check_legal(movement, target)
    device.check_target(target)
    if len(memory) == 0 or size == 0:
        return memory.copy(), registers.copy()
    images = np.pad(memory, ((0, 0), (0, -size % 128)))
    text = movement_kernel(movement, target, memory_bytes=images.shape[1], stride=stride)
    after, held = device.to_device(images), device.to_device(registers)
    device.launch(text, (len(images), 1), 32, (device.to_device(images), after, device.to_device(addresses.astype(np.uint32)), held))
    return device.to_host(after)[:, :size], device.to_host(held)
