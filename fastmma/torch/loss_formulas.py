"""By loss of torch, the formula that its CUDA kernel computes of each element, and what is made of the results."""

from __future__ import annotations

from torch import Tensor

from fastmma.torch.formulas import BITS, Arguments, Formula, Row, rounded_to

NONE, MEAN = 0, 1  # torch's numbers of reductions
_SQUARED = "mse_backward"


def _loss(name: str, parameter: str = "") -> Row:
    def row(given: Arguments) -> Formula:
        dtype = given["self"].dtype
        parameters = (rounded_to(given[parameter], dtype), BITS[dtype]) if parameter else (BITS[dtype],)
        return Formula(name, (given["self"], given["target"]), parameters)

    return row


def _share(given: Arguments) -> float:
    """Return the share of an element in a mean; 1 of a sum."""
    return 1.0 / max(given["self"].numel(), 1) if given["reduction"] == MEAN else 1.0


def _gradient(name: str, parameter: str = "") -> Row:
    def row(given: Arguments) -> Formula:
        dtype = given["self"].dtype
        norm = _share(given) * (2.0 if name == _SQUARED else 1.0)
        parameters = (rounded_to(norm, dtype), *((rounded_to(given[parameter], dtype),) if parameter else ()), BITS[dtype])
        return Formula(name, (given["self"], given["target"], given["grad_output"]), parameters)

    return row


def _soft_margin_backward(given: Arguments) -> Formula:
    operands = given["grad_output"], given["self"], given["target"]
    return Formula("soft_margin_backward", operands, (_share(given), BITS[given["self"].dtype]))


def _entropy_backward(given: Arguments) -> Formula:
    operands = given["grad_output"], given["self"], given["target"]
    return Formula("bce_backward", operands, (BITS[given["self"].dtype],))


# whose results are weighted, and then summed
LOSSES: dict[str, Row] = {
    "mse_loss": _loss("squared_difference"),
    "smooth_l1_loss": _loss("smooth_l1", "beta"),
    "huber_loss": _loss("huber", "delta"),
    "binary_cross_entropy": _loss("bce"),
    "soft_margin_loss": _loss("soft_margin"),
}
ROWS: dict[str, Row] = LOSSES | {
    "mse_loss_backward": _gradient(_SQUARED),
    "smooth_l1_loss_backward": _gradient("smooth_l1_backward", "beta"),
    "huber_loss_backward": _gradient("huber_backward", "delta"),
    "soft_margin_loss_backward": _soft_margin_backward,
    "binary_cross_entropy_backward": _entropy_backward,
}


def shared(name: str, given: Arguments, found: Tensor) -> Formula | None:
    """Return what becomes of a gradient that is divided by the number of elements at last."""
    if name != "binary_cross_entropy_backward" or given["reduction"] != MEAN:
        return None
    return Formula("divide_by", (found,), (float(given["self"].numel()),))
