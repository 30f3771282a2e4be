"""Which lane and byte holds which scale, as PTX's text (Block Scaling) states it."""

from __future__ import annotations

BYTE_IDS = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}
THREAD_IDS = {"a": (0, 1), "b": (0, 1, 2, 3)}


def scale_at(operand: str, lane: int, byte: int, size: int, byte_id: int, thread_id: int) -> tuple[int, int] | None:
    """Row of A (or column of B) and index of the scale in a byte of a lane's register; None if it holds none.

    The lower thread of the pair that contributes to A has row %laneid / 4, the upper one that row plus 8.
    """
    index = byte - byte_id
    if not 0 <= index < size:
        return None
    group, thread = divmod(lane, 4)
    if operand == "b":
        return (group, index) if thread == thread_id else None
    return (group + 8 * (thread % 2), index) if thread // 2 == thread_id else None
