"""The versions of torch whose CUDA kernels were recorded, and how a recording of another version agrees with one of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fastmma.torch.report import ASSUMED, EMULATED

_SHOWN = 8  # operators of a line


class Version(NamedTuple):
    """A version of torch, of which a GPU's bits are recorded.

    Attributes
    ----------
    torch, cuda, cudnn : str
    gpus : str
        The GPUs that recorded it.
    """

    torch: str
    cuda: str
    cudnn: str
    gpus: str

    def __str__(self) -> str:
        return f"PyTorch {self.torch} for CUDA {self.cuda} on {self.gpus}"


VERSIONS = {"2.11": Version("2.11", "13.0", "9.19", "an H100 and an H200")}
RECORDED = VERSIONS["2.11"]


@dataclass(frozen=True)
class FunctionAgreement:
    """Which functions of another version of torch have the bits of the recorded version. `compare_functions` returns it.

    Attributes
    ----------
    gpu : str
        The GPU of the recording, by its driver.
    versions : tuple of (str, str)
        Of torch and CUDA there.
    equal : frozenset of str
        Operators all of whose calls have the same bits, for example ``"gelu"``.
    differ : frozenset of str
        Operators of which a call has other bits.
    calls : tuple of str
        The calls that differ, for example ``"gelu float32"``.
    unrepeated : tuple of str
        Calls that the GPU itself does not repeat. They are not compared.
    """

    gpu: str
    versions: tuple[tuple[str, str], ...]
    equal: frozenset[str]
    differ: frozenset[str] = frozenset()
    calls: tuple[str, ...] = field(default=(), repr=False)
    unrepeated: tuple[str, ...] = field(default=(), repr=False)

    @property
    def where(self) -> str:
        """What was recorded, in words."""
        return f"{', '.join(f'{name} {version}' for name, version in self.versions)} on {self.gpu}"

    def __str__(self) -> str:
        count = len(self.equal) + len(self.differ)
        text = f"{self.where}: {len(self.equal)} of {count} operators have the bits of PyTorch {RECORDED.torch}"
        if self.differ:
            names = sorted(self.differ)
            text += f"; others have {', '.join(names[:_SHOWN])}{' and more' * (len(names) > _SHOWN)}"
        return text

    def status_of(self, operator: str) -> tuple[str, str]:
        """Say whether an operator has the bits of the recorded GPU, and why."""
        name = base_name(operator)
        if name in self.equal:
            return EMULATED, f"{self.where}, whose recording has the bits of PyTorch {RECORDED.torch}"
        why = "whose recording has other bits" if name in self.differ else "whose recording does not have it"
        return ASSUMED, f"as PyTorch {RECORDED.torch} computes it, not {self.where}, {why}"


def base_name(operator: str) -> str:
    """Name an operator without its namespace, its overload, and the mark of those in place.

    Examples
    --------
    >>> base_name("aten.add_.Tensor"), base_name("aten._softmax.default")
    ('add', '_softmax')
    """
    return operator.split(".")[1].removesuffix("_")
