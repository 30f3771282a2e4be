"""Functions that torch.compile leaves as they are, at no cost for their calls."""

from __future__ import annotations

from types import CodeType

try:
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
except ImportError:  # another torch
    can_skip = False
else:
    can_skip = True


def skip(code: CodeType) -> None:
    """Let torch.compile neither compile a function nor what it calls, where `can_skip`; `torch._dynamo.disable` takes time at each call."""
    if can_skip:
        set_code_exec_strategy(code, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
