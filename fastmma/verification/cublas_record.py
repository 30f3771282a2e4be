"""Recording a plan book: the orders of k that cuBLAS takes on the GPU in the machine, by its own log, confirmed by bits of samples."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import BackendError
from fastmma.host.files import written
from fastmma.products.book import Entry, Request, book
from fastmma.verification.cublas_log import VARIABLES, Choice, choices, entry
from fastmma.verification.cublas_samples import confirmed, kept, vectors

Progress = Callable[[int, int], None]


def record_cublas(path: Path, requests: Sequence[Request] | None = None, *, progress: Progress | None = None) -> Path:
    """Ask cuBLAS, through PyTorch, for products, and write a plan book of the orders of k that it took.

    Parameters
    ----------
    path : Path
        The ``.npz`` file to be written; where ``FASTMMA_PLAN_BOOK`` names it, presets look products up in it.
    requests : sequence of Request, optional
        The products; by default those of the book that ships with fastmma.
    progress : callable, optional
        Called with the number of products done and their total.

    Returns
    -------
    Path

    Raises
    ------
    BackendError
        If there is no Hopper GPU with PyTorch, or PyTorch was imported before, since cuBLAS then keeps no log.

    Examples
    --------
    >>> record_cublas(Path("cublas.npz"))  # doctest: +SKIP
    """
    asked = book("cublas").requests() if requests is None else list(requests)
    if "torch" in sys.modules:
        raise BackendError("PyTorch is imported already, so cuBLAS keeps no log of its choices: record in a fresh process")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "cublaslt.log"
        os.environ |= VARIABLES | {"CUBLASLT_LOG_FILE": str(log)}
        samples, about = _products(asked, progress)
        taken = _matched(asked, choices(log.read_text(errors="replace").splitlines()))
    found = [
        None if choice is None else confirmed(request, entry(request, choice), sample)
        for request, choice, sample in zip(asked, taken, samples, strict=True)
    ]
    write_book(path, asked, found, **about)
    return path


def _products(asked: list[Request], progress: Progress | None) -> tuple[list[NDArray[np.float32]], dict[str, str]]:
    """Samples of the products, and what computed them."""
    try:
        import torch
    except ImportError:
        raise BackendError("recording cuBLAS needs PyTorch") from None
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        raise BackendError("recording cuBLAS needs a Hopper GPU")
    torch.backends.cuda.matmul.allow_tf32 = True
    types = {"bf16": torch.bfloat16, "f16": torch.float16, "tf32": torch.float32, "e4m3": torch.float8_e4m3fn}
    one = torch.ones((), device="cuda")

    def operand(vector: NDArray[Any], size: int, fmt: str, turned: bool) -> Any:
        """A matrix of zeros but for the vectors at the rows that are kept."""
        places = kept(size)
        matrix = torch.zeros((size, vector.shape[1]), device="cuda")
        matrix[torch.from_numpy(places).cuda()] = torch.from_numpy(vector[: len(places)].astype(np.float32)).cuda()
        narrow = matrix.to(types[fmt])
        return narrow.t().contiguous().t() if turned else narrow

    samples = []
    for done, request in enumerate(asked):
        first, second = vectors(request.fmt, request.k)
        a = operand(first, request.m, request.fmt, request.layout[0] == "t")
        b = operand(second, request.n, request.fmt, request.layout[1] == "n").t()
        if request.kind == "biased":
            d = torch.nn.functional.linear(a, b.t(), torch.zeros(request.n, dtype=a.dtype, device="cuda"))
        elif request.fmt == "e4m3":
            d = torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)
        else:
            d = torch.mm(a, b)
        rows, columns = (torch.from_numpy(kept(size)).cuda() for size in (request.m, request.n))
        samples.append(d[rows[:, None], columns].float().cpu().numpy())
        if progress is not None:
            progress(done + 1, len(asked))
    name = torch.cuda.get_device_name()
    short = next((word for word in name.split() if any(map(str.isdigit, word))), name)
    version = str(torch.backends.cuda.cublas_version()) if hasattr(torch.backends.cuda, "cublas_version") else torch.version.cuda
    return samples, {"gpu": short, "name": name, "library": f"cuBLAS of CUDA {version}", "through": f"PyTorch {torch.__version__}"}


def _matched(asked: list[Request], taken: Iterable[Choice]) -> list[Choice | None]:
    """The choice for each product; products without tensor cores may have none."""
    found: list[Choice | None] = [None] * len(asked)
    place = 0
    for choice in taken:
        later = place
        while later < len(asked) and asked[later][3:] != choice[:3]:
            later += 1
        if later < len(asked):
            found[later], place = choice, later + 1
    return found


def write_book(
    path: Path, asked: Sequence[Request], found: Sequence[Entry | None], *, gpu: str, name: str, library: str, through: str
) -> None:
    """Write a plan book of one GPU, which `fastmma.products.book.Book` reads."""
    rows = sorted(dict(zip(asked, found, strict=True)).items(), key=lambda row: row[0])
    kinds = sorted({request[:3] for request, _ in rows})
    entries = list(dict.fromkeys(each for _, each in rows if each is not None))
    places = {each: index for index, each in enumerate(entries, 1)}
    about = {"library": library, "through": through, "gpus": {gpu: name}, "kinds": kinds, "entries": [astuple(each) for each in entries]}
    columns: dict[str, NDArray[Any]] = {
        "kind": np.array([kinds.index(request[:3]) for request, _ in rows], np.uint8),
        gpu: np.array([0 if each is None else places[each] for _, each in rows], np.uint16),
        "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
    }
    columns |= {size: np.array([getattr(request, size) for request, _ in rows], np.uint32) for size in "mnk"}
    with written(path) as file:
        np.savez_compressed(file, allow_pickle=False, **columns)
