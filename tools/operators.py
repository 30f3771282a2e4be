"""The page of torch's operators: ``python -m tools.operators`` runs torch's own samples of each within `emulate`, and writes what it says.

It needs the package expecttest, which torch's list of operators imports, and the libdevice of CUDA 13.0.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

import fastmma.torch

PAGE = Path(__file__).parents[1] / "docs" / "torch_operators.md"
_DTYPES = (torch.float32, torch.bfloat16)
_WIDTH = 120
_MOST = 6  # samples of an operator and a dtype
# solvers, transforms, sparse and quantised tensors, random numbers: the page of PyTorch says what becomes of them
_ELSEWHERE = re.compile(
    "linalg|fft_|stft|svd|^lu|cholesky|geqrf|ormqr|^qr|pca|pinverse|triangular|logdet|matrix_exp|sparse|jiterator|scaled_mm|histogram|"
    "chebyshev|hermite|laguerre|legendre|signal_windows|normal(?!iz)|rand|bernoulli|multinomial|dropout|rrelu|uniform|cauchy|exponential|"
    "geometric|empty|resize|complex|cfloat|cdouble|chalf|hash_tensor|triton|fractional|view_as|^item|ctc|nuc"
)
_SECTION = re.compile(r"(<!-- operators -->\n).*?(<!-- /operators -->)", re.DOTALL)


def dtypes_of(op: Any) -> list[torch.dtype]:
    """List the dtypes of the page that an operator takes on a GPU."""
    return [dtype for dtype in _DTYPES if dtype in op.supported_dtypes("cuda")]


def samples(op: Any, dtype: torch.dtype) -> Iterator[tuple[Any, ...]]:
    """Draw the first operand of some samples, the other arguments, and those by name."""
    torch.manual_seed(0)
    gradient = op.supports_autograd and dtype in op.supported_backward_dtypes("cuda")
    found = list(op.sample_inputs("cpu", dtype, requires_grad=gradient))
    for index in sorted({place * len(found) // _MOST for place in range(_MOST)} if len(found) > _MOST else range(len(found))):
        yield found[index].input, found[index].args, found[index].kwargs


def _run(op: Any, sample: tuple[Any, ...]) -> None:
    """Compute a sample and its gradient."""
    first, args, kwargs = sample
    results = [each for each in tree_leaves(op.op(first, *args, **kwargs)) if isinstance(each, torch.Tensor)]
    live = [each for each in results if each.requires_grad and each.is_floating_point()]
    leaves = [each for each in tree_leaves(sample) if isinstance(each, torch.Tensor) and each.requires_grad]
    if live and leaves:
        torch.autograd.grad(live, leaves, [torch.ones_like(each) for each in live], allow_unused=True)


def told(op: Any) -> Counter[str]:
    """Count the samples of an operator by what the report says of them: nothing, or each operator that is not known and why."""
    found: Counter[str] = Counter()
    for dtype in dtypes_of(op):
        for sample in samples(op, dtype):
            try:
                with fastmma.torch.emulate("H200", unknown="one") as gpu:
                    _run(op, sample)
                lines = gpu.report.lines("assumed", "passed", "unseen")
                found[""] += not lines
                found.update({f"{line.status}: `{line.operator.split('.')[1]}`, {line.how.partition(';')[0]}" for line, _ in lines})
            except NotImplementedError:
                found["a CPU's torch has no kernel of 16 bits"] += 1
    return found


def listed() -> list[Any]:
    """List torch's operators that the page has."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if not _ELSEWHERE.search(op.formatted_name) and dtypes_of(op)]


def row(name: str, counts: Counter[str]) -> str:
    """Write the row of an operator that has a note in some samples."""
    others = "; ".join(f"{why} ({count})" for why, count in sorted(counts.items()) if why)
    return f"| `{name}` | {counts['']} | {others} |"


def version() -> str:
    """Name the version of torch whose samples the page has."""
    return torch.__version__.partition("+")[0]


def table() -> str:
    """Print which operators are known in all samples, and the notes about the others."""
    found = {op.formatted_name: told(op) for op in listed()}
    known = sorted(name for name, counts in found.items() if set(counts) == {""})
    others = sorted(name for name, counts in found.items() if set(counts) - {""})
    lines = [f"Of {len(known) + len(others)} operators of PyTorch {version()} {len(known)} are emulated or neutral in all samples:", ""]
    lines += [
        *wrap(", ".join(f"`{name}`" for name in known) + ".", _WIDTH),
        "",
        f"For {len(others)} others the report has a note in some samples:",
        "",
    ]
    lines += ["| operator | samples without a note | notes in the others, with their counts |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(row(name, found[name]) for name in others)]) + "\n"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_SECTION.sub(lambda found: found[1] + "\n" + table() + "\n" + found[2], page), encoding="utf-8")
