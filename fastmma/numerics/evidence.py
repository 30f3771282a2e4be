"""Evidence of an arithmetic: how well it is known, and the sources that rows of the numerics table name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Level = Literal["by definition", "measured", "recorded", "reported", "unknown", "own"]
LEVELS: dict[str, str] = {
    "by definition": "PTX and IEEE 754 fix every bit (integers, a single operation): no GPU is needed to know it",
    "measured": "compared with registers of our own H200 or H100",
    "recorded": "equal to others' recordings of the GPU",
    "reported": "taken from publications, or derived from a related GPU, and compared with no recording of this one",
    "unknown": "nobody has published it: fastmma refuses to compute it",
}


@dataclass(frozen=True)
class Source:
    """Something that others can look up.

    Attributes
    ----------
    title : str
        Of the publication, the software or the recordings.
    reference : str
        An arXiv number, a DOI, a repository, a package, or a folder of this package.
    year : int
    gpu : str
        The GPU that it is about, or empty.
    software : str
        Its driver, or the toolkit that was looked at, or empty.
    words : int
        Results that were compared with ours, and equal; 0 where the source states a rule and no results were compared.
    """

    title: str
    reference: str
    year: int
    gpu: str = ""
    software: str = ""
    words: int = 0

    def __str__(self) -> str:
        about = [self.gpu, self.software, f"{self.words:,} words" if self.words else ""]
        return "; ".join(filter(None, (f"{self.title}, {self.reference}, {self.year}", *about)))


@dataclass(frozen=True)
class Evidence:
    """The evidence of a row; `LEVELS` says what each level means.

    An arithmetic of your own claims to be no GPU's; its level is ``"own"``.

    Attributes
    ----------
    level : {"by definition", "measured", "recorded", "reported", "unknown", "own"}
    source : str
        In one line.
    sources : tuple of Source
        What the line stands on.

    Examples
    --------
    >>> print(ADA_FP8.sources[0])
    MATLAB-tensor-core, github.com/north-numerical-computing/MATLAB-tensor-core, 2025; Ada and L40S; 5,000 words
    """

    level: Level
    source: str
    sources: tuple[Source, ...] = ()

    def __str__(self) -> str:
        return f"{self.level}: {self.source}"


def _recordings(gpu: str, words: int) -> Source:
    return Source("MATLAB-tensor-core", "github.com/north-numerical-computing/MATLAB-tensor-core", 2025, gpu, words=words)


def _model(gpu: str) -> Source:
    return replace(_MMA_SIM, gpu=gpu)


_MMA_SIM = Source("MMA-Sim 2.1.1: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores", "arXiv:2511.10909, PyPI mmasim", 2026)
_KHATTAK = Source("Accurate Models of NVIDIA Tensor Cores", "arXiv:2512.07004, doi:10.1145/3830409", 2025)
_OWN = Source("recordings of fastmma", "fastmma/verification/golden/sm_90a", 2026, "H200", "driver 580.159.04", 11_007_200)
_PTXAS = Source("machine code of ptxas", "PyPI nvidia-cuda-nvcc", 2026, software="CUDA 13.0.88 and 13.5.37")
_SF_TENSOR = Source("tcgen05", "github.com/sf-tensor/tcgen05", 2026, "B200")
_MMAEMU = Source("mmaemu 0.1.0", "PyPI mmaemu", 2026, "H100 PCIe and RTX 4060", "cuBLASLt 12.8.3")
_CUBLAS_BITS = Source(
    "bitequiv: cuBLAS bit for bit", "github.com/facebookexperimental/triton, bitequiv/cublas_match", 2026, "GB200 and GB300"
)

V100 = Evidence("recorded", "V100, 10,000 dot products", (_recordings("V100", 10_000), _KHATTAK, _model("Volta")))
AMPERE = Evidence(
    "recorded",
    "A100, A2, Ada and L40S, 5,000 dot products a format",
    (_recordings("A100, A2, Ada and L40S", 5_000), _KHATTAK, _model("Ampere and Ada Lovelace")),
)
ADA_FP8 = Evidence(
    "recorded",
    "Ada and L40S, 5,000 dot products a format",
    (_recordings("Ada and L40S", 5_000), _model("Ada Lovelace"), _MMAEMU),
)
B200 = Evidence("recorded", "B200, 5,000 dot products a format", (_recordings("B200", 5_000), _KHATTAK, _model("Blackwell"), _CUBLAS_BITS))
H200 = Evidence("measured", "H200, registers of every opcode on adversarial inputs", (_OWN, _model("Hopper")))
H200_FP8 = replace(H200, sources=(*H200.sources, _MMAEMU))
TURING = Evidence("reported", "MMA-Sim on a T4; no recording of an sm_75 part", (_model("Turing, T4"),))
LIKE_AMPERE = Evidence("reported", "the machine instruction of sm_80 and sm_86; no recording of this part", (_PTXAS,))
LIKE_B200 = Evidence("reported", "the machine instruction of sm_100; no recording of this part", (_PTXAS,))
SM120 = Evidence("reported", "MMA-Sim and an independent model of the RTX 5090", (_model("RTX Blackwell"),))
SM120_GROUPS = Evidence(
    "reported",
    "MMA-Sim, and a model of a B200's 4-bit arithmetic; no recording of this part",
    (_model("RTX Blackwell"), replace(_SF_TENSOR, title="tcgen05, 46 paths of 1,000,000 cases")),
)
TCGEN05 = Evidence(
    "recorded",
    "B200, 36 words of sf-tensor, which reports 46 paths of 1,000,000 cases, and MMA-Sim",
    (replace(_SF_TENSOR, words=36), _model("Blackwell"), _CUBLAS_BITS),
)
TCGEN05_F16 = Evidence("reported", "MMA-Sim on a B200; no recording of f16 results but a NaN", (_model("Blackwell"),))
TCGEN05_FORMS = Evidence("reported", "sf-tensor, paths of 1,000,000 cases on a B200; no recording of this form", (_SF_TENSOR,))
TCGEN05_ASSUMED = Evidence(
    "reported", "assumed to be as the dense instruction on one CTA; nobody has published it", (_model("Blackwell"), _SF_TENSOR)
)
LIKE_TCGEN05 = Evidence(
    "reported",
    "as sm_100; cuBLAS has the same bits on a GB300 for 16-bit and 8-bit floats, other parts and types are unpublished",
    (_CUBLAS_BITS,),
)
TCGEN05_K96 = Evidence("reported", "assumed to be one step of six groups; nobody has published k of 96", (_model("Blackwell"),))
_MATLAB = Source("MATLAB-tensor-core: models of matrix cores", "github.com/north-numerical-computing/MATLAB-tensor-core", 2026)
_AMD_ISA = Source("instruction set architectures of CDNA1 to CDNA4, RDNA3 and RDNA4", "amd.com, GPUOpen", 2025)


def _two_models(gpu: str, agree: str) -> Evidence:
    """Evidence of a GPU in MMA-Sim and MATLAB-tensor-core."""
    return Evidence("reported", f"MMA-Sim on a {gpu}, {agree}; no recording of this part", (_model(gpu), replace(_MATLAB, gpu=gpu)))


CDNA1 = _two_models("MI100", "and MATLAB-tensor-core's model alike")
CDNA2 = _two_models("MI250X", "and MATLAB-tensor-core's model alike but for signs of infinities")
CDNA3 = _two_models("MI300X", "and MATLAB-tensor-core's model alike but for one bit, where products below c are cut at 31 and not 32 bits")
CDNA_CHAINS = {
    name: _two_models(gpu, "and MATLAB-tensor-core's notes, which say so without a model")
    for name, gpu in (("gfx908", "MI100"), ("gfx90a", "MI250X"), ("gfx942", "MI300X"))
}
AMD_INTEGERS = Evidence("reported", "AMD's documents: sums of 32 bits that wrap, or saturate under clamp; no recording", (_AMD_ISA,))
EXACT = Evidence(
    "by definition",
    "integer sums modulo 2**32, saturated where the opcode says so; an H200 has these registers where it takes the opcode",
    (_OWN,),
)
LIKE_DENSE = Evidence("reported", "as the dense instruction of the target, stored products for products; no recording", (_MMA_SIM,))
LIKE_H200 = Evidence("reported", "the instruction sequence that ptxas emits for sm_90, measured on an H200", (_PTXAS, _OWN))
IEEE = Evidence("reported", "IEEE fma, as measured on an H200; NaN bits of other parts are not measured", (_OWN,))
FMA = Evidence(
    "by definition",
    "IEEE 754 and PTX fix every bit; float32 products of cuBLAS and Triton on an H100 and an H200 have them",
    (
        Source(
            "recordings of fastmma",
            "tests/integrations/torch and tests/integrations/triton",
            2026,
            "H100 and H200",
            "cuBLAS 13, Triton 3.6",
        ),
    ),
)

# PTX leaves the fragments of wmma unspecified
FRAGMENTS = Evidence("measured", "H200, every load and store, element by element", (replace(_OWN, words=0),))
SAME_FRAGMENTS = Evidence("reported", "the fragments of the mma instructions that wmma is made of; not measured on this part", (_PTXAS,))
