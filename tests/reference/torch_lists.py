"""Lists of tensors that PyTorch 2.11 took at once on an H200, and steps of its optimizers: checksums of what came out.

A case is a row of ``torch_lists.json``; its operands are drawn by NumPy, from a seed that the case itself makes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reference.torch_random import DTYPES, seeded

PATH = Path(__file__).parent / "torch_lists.json"
WHOLE, SAMPLES = 512, 128
_POSITIVE = ("log", "log10", "log1p", "log2", "sqrt", "rsqrt", "pow", "lgamma", "pow_base")
_WAYS: dict[str, dict[str, bool]] = {"foreach": {"foreach": True}, "single": {"foreach": False}, "fused": {"fused": True}, "default": {}}
_WAYS |= {"capturable": {"foreach": True, "capturable": True}}


class Operands:
    """What a case takes: three lists of tensors, a number, and a number for each tensor."""

    def __init__(self, case: dict[str, Any], device: str) -> None:
        rng, name = drawn_by(case), case["name"]
        self.case, self.device = case, device
        self.first = lists(rng, case, device, name in _POSITIVE, 0.5 if name in ("acos", "asin") else 1.0)
        self.numbers = [float(each) for each in rng.uniform(0.01, 3, len(self.first))]
        self.second = lists(rng, case, device, name in ("div", "addcdiv", "pow"))
        self.third = lists(rng, case, device, True)
        self.number = case["scalar"]


def drawn_by(case: dict[str, Any]) -> np.random.Generator:
    """The generator of a case."""
    return seeded(json.dumps({name: value for name, value in case.items() if name not in ("results", "of")}, sort_keys=True))


def lists(rng: np.random.Generator, case: dict[str, Any], device: str, positive: bool = False, scale: float = 1.0) -> list[torch.Tensor]:
    """Tensors of the shapes of a case."""
    dtype, found = DTYPES[case["dt"]], []
    for shape in case["shapes"]:
        x = torch.from_numpy(rng.standard_normal(tuple(shape), np.float32) * np.float32(scale)).to(dtype).to(device)
        found.append(x.abs() + 0.01 if positive else x)
    return found


def _operator(o: Operands, *given: Any, **named: Any) -> list[torch.Tensor]:
    place = o.case["inplace"]
    found = getattr(torch, f"_foreach_{o.case['name']}{'_' if place else ''}")(o.first, *given, **named)
    return o.first if place else list(found)


def _scalar(o: Operands) -> list[torch.Tensor]:
    name = o.case["name"]
    if name in ("addcmul", "addcdiv"):
        return _operator(o, o.second, o.third, value=o.number)
    return _operator(o, o.second, o.number) if name == "lerp" else _operator(o, o.number)


def _scalars(o: Operands) -> list[torch.Tensor]:
    lists_of = {"addcmul": [o.second, o.third], "addcdiv": [o.second, o.third], "lerp": [o.second]}
    return _operator(o, *lists_of.get(o.case["name"], []), o.numbers)


def _list(o: Operands) -> list[torch.Tensor]:
    if o.case["name"] == "lerp":
        return _operator(o, o.second, o.third)
    return _operator(o, o.second, **({"alpha": o.case["alpha"]} if o.case["name"] in ("add", "sub") else {}))


def _tensor(o: Operands) -> list[torch.Tensor]:
    if o.case["name"] in ("addcmul", "addcdiv"):
        return _operator(o, o.second, o.third, torch.tensor(o.numbers))
    same = o.case["scalar_dt"] == "same"
    number = torch.tensor(o.number, dtype=DTYPES[o.case["dt"]] if same else torch.float32, device=o.device)
    return _operator(o, number, **({"alpha": o.case["alpha"]} if o.case["name"] == "add" else {}))


def _mixed(o: Operands) -> list[torch.Tensor]:
    wide, function = [each.float() for each in o.second], getattr(torch, f"_foreach_{o.case['name'][6:]}")
    return list(function(wide, o.first) if o.case["inplace"] else function(o.first, wide))


def _clipped(o: Operands) -> list[torch.Tensor]:
    parameters = [torch.nn.Parameter(torch.zeros_like(each)) for each in o.first]
    for parameter, gradient in zip(parameters, o.first, strict=True):
        parameter.grad = gradient
    if o.case["form"] == "clip_value":
        torch.nn.utils.clip_grad_value_(parameters, o.case["limit"], foreach=o.case["foreach"])
        return o.first
    total = torch.nn.utils.clip_grad_norm_(parameters, o.case["limit"], o.case["order"], foreach=o.case["foreach"])
    return [total, *o.first]


def _unscaled(o: Operands) -> list[torch.Tensor]:
    if o.case["bad"]:
        o.first[-1].view(-1)[0] = float("inf")
    found = torch.zeros(1, device=o.device)
    inverse = torch.tensor([1 / o.case["scale"]], dtype=torch.float64).float().to(o.device)
    torch._amp_foreach_non_finite_check_and_unscale_(o.first, found, inverse)
    return [found, *o.first]


FORMS: dict[str, Callable[[Operands], list[torch.Tensor]]] = {
    "unary": _operator,
    "scalar": _scalar,
    "scalars": _scalars,
    "list": _list,
    "tensor": _tensor,
    "mixed": _mixed,
    "clip": _clipped,
    "clip_value": _clipped,
    "unscale": _unscaled,
    "norm": lambda o: list(torch._foreach_norm(o.first, o.case["order"])),
    "pow_base": lambda o: list(torch._foreach_pow(abs(o.number), o.first)),
}


def _stepped(case: dict[str, Any], device: str) -> list[torch.Tensor]:
    rng = drawn_by(case)
    parameters = [torch.nn.Parameter(each) for each in lists(rng, case, device)]
    options: dict[str, Any] = case["options"] | _WAYS[case["way"]]
    if "betas" in options:
        options["betas"] = tuple(options["betas"])
    optimizer = getattr(torch.optim, case["name"])(parameters, **options)
    scaler = torch.amp.GradScaler(device, init_scale=1024.0) if case["scaler"] else None
    for step in range(case["steps"]):
        gradients = lists(rng, case, device, scale=float(rng.choice([1.0, 0.01, 10.0])))
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient * 1024 if scaler else gradient
        if scaler is None:
            optimizer.step()
            continue
        scaler.scale(torch.zeros((), device=device))
        last = parameters[-1].grad
        if step == 1 and last is not None:
            last.view(-1)[0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
    found = [each.detach() for each in parameters]
    for each in parameters:
        kept = [value for _, value in sorted(optimizer.state[each].items()) if isinstance(value, torch.Tensor)]
        found += [value.detach() for value in kept if value.dtype.is_floating_point and value.shape == each.shape]
    return found


def run(case: dict[str, Any], device: str = "cuda") -> list[torch.Tensor]:
    """Run a case."""
    return _stepped(case, device) if case["kind"] == "optimizer" else FORMS[case["form"]](Operands(case, device))


def recorded() -> list[dict[str, Any]]:
    """All cases, with what was recorded."""
    found: list[dict[str, Any]] = json.loads(PATH.read_text())
    return found
