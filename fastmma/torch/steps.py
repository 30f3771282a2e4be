"""Training steps that are recorded on a GPU, and run again on a CPU with its bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

import fastmma
from fastmma.host.errors import OperandError
from fastmma.isa.gpus import TargetName
from fastmma.torch.differences import compared
from fastmma.torch.mode import emulate
from fastmma.torch.recorded_settings import applied, read_settings
from fastmma.torch.recordings import Kept, Recording
from fastmma.torch.report import Report
from fastmma.torch.training import Loss, Step, run_step
from fastmma.torch.watch import Watch

_KEPT = 256  # numbers of each tensor


class SameStep(NamedTuple):
    """The result of `assert_same_step`.

    Attributes
    ----------
    compared : int
        How many tensors were compared; all have the recorded bits.
    unrepeated : tuple of str
        Tensors that were not compared, because the GPU itself gave them other bits when it ran the step again.
    report : Report
        The report of the emulation. It says whether anything was assumed or passed.
    """

    compared: int
    unrepeated: tuple[str, ...]
    report: Report


def record(
    model: torch.nn.Module,
    inputs: Any,
    *,
    loss: Loss | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    steps: int = 1,
    seed: int = 0,
    autocast: torch.dtype | None = None,
    target: TargetName = "H200",
    keep: int = _KEPT,
    path: str | Path | None = None,
    **options: Any,
) -> Recording:
    """Record a training step: forward, loss, backward and, with an optimizer, new weights.

    A model on a GPU runs there twice, to find the tensors whose bits the GPU itself does not repeat. A model on the CPU runs under
    `emulate`, so that you can compare two versions of a program without a GPU. Afterwards weights, gradients and the optimizer's state are
    as they were before.

    Parameters
    ----------
    model : torch.nn.Module
    inputs : Tensor, tuple or dict
        The model's inputs, on its device.
    loss : callable, optional
        Takes the model's result and returns the loss. By default the loss is the result's attribute or key ``loss``, or else the sum of all
        results, so that each gradient is 1.
    optimizer : torch.optim.Optimizer, optional
        The optimizer of the model's weights.
    steps : int
        The number of steps. More than one need an optimizer.
    seed : int
        For `torch.manual_seed` before the first step.
    autocast : torch.dtype, optional
        Forward and loss run within ``torch.autocast("cuda", dtype=autocast)``.
    target : str
        The GPU to emulate, for a model on the CPU.
    keep : int
        How many numbers of each tensor to keep beside its digest. They show how large a difference is.
    path : str or Path, optional
        A file to write.
    **options
        Of `emulate`, for a model on the CPU.

    Returns
    -------
    Recording
        It has the results of modules, their gradients, gradients of weights, losses and new weights, in the order of computation.

    Raises
    ------
    OperandError
        If there are several steps without an optimizer, or the loss is not a single number.

    Examples
    --------
    >>> layer, x = torch.nn.Linear(64, 32, dtype=torch.bfloat16), torch.ones(8, 64, dtype=torch.bfloat16)
    >>> recording = record(layer, x, target="H100")
    >>> [tensor.name for tensor in recording.tensors]
    ['step 1: the model', 'step 1: gradient of the model', 'step 1: gradient of the weight bias', 'step 1: gradient of the weight weight']
    >>> assert_same_step(recording, layer, x).compared
    4
    """
    step = Step(model, inputs, loss, optimizer, steps, seed, autocast)
    if steps < 1 or (steps > 1 and optimizer is None):
        raise OperandError("steps must be 1, or more with an optimizer")
    given = _given(step, keep)
    on_gpu = _is_on_gpu(model)
    if on_gpu:
        first, second = run_step(step, keep).tensors, run_step(step, keep).tensors
        unrepeated = tuple(one.name for one, other in zip(first, second, strict=True) if one.digest != other.digest)
        gpu = torch.cuda.get_device_name()
    else:
        with emulate(target, **options) as emulation:
            first = run_step(step, keep, emulation.report).tensors
        unrepeated, gpu = (), str(target)
    made = Recording(
        gpu=gpu,
        emulated=not on_gpu,
        versions={"torch": torch.__version__, "CUDA": torch.version.cuda or "", "fastmma": fastmma.__version__},
        settings=read_settings(),
        seed=seed,
        steps=steps,
        keep=keep,
        autocast=str(autocast or "").removeprefix("torch."),
        given=given,
        tensors=tuple(first),
        unrepeated=unrepeated,
        step=step,
    )
    if path is not None:
        made.save(path)
    return made


def assert_same_step(
    recording: Recording | str | Path,
    model: torch.nn.Module | None = None,
    inputs: Any = None,
    *,
    loss: Loss | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    steps: int | None = None,
    target: TargetName | None = None,
    **options: Any,
) -> SameStep:
    """Run a recorded step under `emulate`, and raise unless every tensor has the recorded bits.

    torch's settings, the seed and autocast come from the recording.

    Parameters
    ----------
    recording : Recording, str or Path
        The result of `record`, or the file that it wrote.
    model, inputs, loss, optimizer
        The arguments that `record` was given, with the same weights, on the CPU. By default the very model that `record` was given.
    steps : int, optional
        The number of steps to run, at most as many as were recorded; by default all.
    target : str, optional
        The GPU; by default that of the recording.
    **options
        Of `emulate`.

    Returns
    -------
    SameStep
        How many tensors were compared, and the report.

    Raises
    ------
    StepDiffersError
        If a tensor has other bits. It is an AssertionError, and names the first such tensor, the operations that computed it, and
        whether anything before it was assumed or passed.
    OperandError
        If the model, the weights or the inputs are not those of the recording.

    Examples
    --------
    >>> layer, x = torch.nn.Linear(64, 32, dtype=torch.bfloat16), torch.rand(8, 64).bfloat16()
    >>> recording = record(layer, x, loss=torch.sum)
    >>> assert_same_step(recording).compared
    5
    >>> assert_same_step(recording, layer, x, loss=lambda y: (2 * y).sum())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fastmma.torch.differences.StepDiffersError: step 1: the loss differs from the recording...
    """
    found = recording if isinstance(recording, Recording) else Recording.load(recording)
    dtype = getattr(torch, found.autocast) if found.autocast else None
    count = found.steps if steps is None else steps
    if not 1 <= count <= found.steps:
        raise OperandError(f"steps must be from 1 to {found.steps}, as many as were recorded, not {steps}")
    step = found.step._replace(steps=count) if model is None and found.step else None
    if model is not None:
        step = Step(model, inputs, loss, optimizer, count, found.seed, dtype)
    if step is None or _is_on_gpu(step.model):
        raise OperandError("assert_same_step needs the model and its inputs, on the CPU: a recording does not hold them")
    _check_given(found.given, _given(step, found.keep))
    with applied(found.settings), emulate(target or found.gpu, **options) as emulation:
        watch = run_step(step, found.keep, emulation.report)
    return SameStep(compared(found, count, watch, emulation.report), found.unrepeated, emulation.report)


def _is_on_gpu(model: torch.nn.Module) -> bool:
    return any(each.is_cuda for each in model.parameters())


def _given(step: Step, keep: int) -> tuple[Kept, ...]:
    """Keep the weights and the inputs."""
    watch = Watch(keep)
    for name, tensor in step.model.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            watch.see(f"the weight {name}", tensor)
    for index, leaf in enumerate(tree_leaves(step.inputs)):
        if isinstance(leaf, torch.Tensor):
            watch.see(f"the input {index}", leaf)
    return tuple(watch.tensors)


def _check_given(recorded: tuple[Kept, ...], given: tuple[Kept, ...]) -> None:
    """Raise OperandError unless a step begins with what was recorded."""
    before, now = ({each.name: each[1:4] for each in listed} for listed in (recorded, given))
    for name in dict.fromkeys((*before, *now)):
        if name not in now or name not in before:
            raise OperandError(f"{name} is {'given, but not recorded' if name in now else 'recorded, but not given'}")
        if before[name] != now[name]:
            (kind, shape, _), (other, size, _) = before[name], now[name]
            what = f"{kind} {shape}, not {other} {size}" if (kind, shape) != (other, size) else f"{kind} {shape} of other numbers"
            raise OperandError(f"{name} is not what it was when the step was recorded, {what}")
