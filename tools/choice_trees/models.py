"""Linear layers of usual models: their N and K, whole and split over 2, 4 and 8 GPUs."""

from __future__ import annotations

from typing import NamedTuple


class Model(NamedTuple):
    """The widths of a model.

    Attributes
    ----------
    hidden : int
    inner : tuple of int
        Of its feed-forward layers, those of experts too.
    queries, keys : int
        Of all heads; keys are as wide as values.
    words : int
        Of its vocabulary.
    """

    hidden: int
    inner: tuple[int, ...]
    queries: int
    keys: int
    words: int


MODELS = {
    "qwen3-235b": Model(4096, (1536, 12288), 8192, 512, 151936),
    "qwen3-next": Model(2048, (512, 5120), 8192, 512, 151936),
    "glm45": Model(5120, (12288, 1536), 12288, 1024, 151552),
    "glm45air": Model(4096, (10944, 1408), 12288, 1024, 151552),
    "glm4-9b": Model(4096, (13696,), 4096, 256, 151552),
    "glm4-32b": Model(6144, (23040,), 6144, 256, 151552),
    "kimi": Model(7168, (18432, 2048), 12288, 0, 163840),
    "dsv2lite": Model(2048, (10944, 1408), 3072, 0, 102400),
    "dsv2": Model(5120, (12288, 1536), 24576, 0, 102400),
    "ds67b": Model(8192, (22016,), 8192, 1024, 102400),
    "dscoder33": Model(7168, (19200,), 7168, 1024, 32256),
    "mixtral22": Model(6144, (16384,), 6144, 1024, 32768),
    "mistral-large": Model(12288, (28672,), 12288, 1024, 32768),
    "mistral-small": Model(5120, (32768,), 4096, 1024, 131072),
    "nemo": Model(5120, (14336,), 4096, 1024, 131072),
    "ministral": Model(4096, (12288,), 4096, 1024, 131072),
    "llama4": Model(5120, (8192, 16384), 5120, 1024, 202048),
    "nemotron340": Model(18432, (73728,), 18432, 1536, 256000),
    "minitron8": Model(4096, (16384,), 6144, 1024, 256000),
    "minitron4": Model(3072, (9216,), 3072, 1024, 256000),
    "yi34": Model(7168, (20480,), 7168, 1024, 64000),
    "yi6": Model(4096, (11008,), 4096, 512, 64000),
    "internlm20": Model(6144, (16384,), 6144, 1024, 92544),
    "internlm7": Model(4096, (14336,), 4096, 1024, 92544),
    "baichuan13": Model(5120, (13696,), 5120, 5120, 125696),
    "commandr": Model(8192, (22528,), 8192, 8192, 256000),
    "commandrp": Model(12288, (33792,), 12288, 1024, 256000),
    "commanda": Model(12288, (36864,), 12288, 1024, 256000),
    "aya8": Model(4096, (14336,), 4096, 1024, 256000),
    "falcon180": Model(14848, (59392,), 14848, 512, 65024),
    "falcon3": Model(3072, (23040,), 3072, 1024, 131072),
    "dbrx": Model(6144, (10752,), 6144, 1024, 100352),
    "grok1": Model(6144, (32768,), 6144, 1024, 131072),
    "olmo13": Model(5120, (13824,), 5120, 5120, 100352),
    "olmo32": Model(5120, (27648,), 5120, 1024, 100352),
    "olmoe": Model(2048, (1024,), 2048, 2048, 50304),
    "phi4": Model(5120, (17920,), 5120, 1280, 100352),
    "phi35moe": Model(4096, (6400,), 4096, 1024, 32064),
    "phi2": Model(2560, (10240,), 2560, 2560, 51200),
    "granite8": Model(4096, (12800,), 4096, 1024, 49152),
    "granite20": Model(6144, (24576,), 6144, 128, 49152),
    "granite2": Model(2048, (8192,), 2048, 512, 49152),
    "starcoder15": Model(6144, (24576,), 6144, 512, 49152),
    "starcoder7": Model(4608, (18432,), 4608, 512, 49152),
    "starcoder3": Model(3072, (12288,), 3072, 256, 49152),
    "mpt30": Model(7168, (28672,), 7168, 7168, 50432),
    "neox": Model(6144, (24576,), 6144, 6144, 50432),
    "gptj": Model(4096, (16384,), 4096, 4096, 50400),
    "pythia12": Model(5120, (20480,), 5120, 5120, 50688),
    "pythia2": Model(2560, (10240,), 2560, 2560, 50304),
    "opt30": Model(7168, (28672,), 7168, 7168, 50272),
    "opt66": Model(9216, (36864,), 9216, 9216, 50272),
    "gpt3": Model(12288, (49152,), 12288, 12288, 50257),
    "bloom": Model(14336, (57344,), 14336, 14336, 250880),
    "qwen110": Model(8192, (49152,), 8192, 1024, 152064),
    "qwen72": Model(8192, (24576, 29568), 8192, 8192, 152064),
    "qwen57": Model(3584, (2560, 20480), 3584, 512, 151936),
    "qwen32": Model(5120, (27392,), 5120, 1024, 152064),
    "qwen14": Model(5120, (13696,), 5120, 5120, 152064),
    "qwen3b": Model(2048, (11008,), 2048, 256, 151936),
    "gemma7": Model(3072, (24576,), 4096, 4096, 256000),
    "gemma3n": Model(2048, (8192, 16384), 2048, 512, 262144),
    "hunyuan": Model(6400, (18304,), 10240, 1024, 128512),
    "minimax": Model(6144, (9216,), 8192, 1024, 200064),
    "jamba": Model(8192, (24576,), 8192, 1024, 65536),
    "arctic": Model(7168, (4864,), 7168, 1024, 32000),
    "vith": Model(1280, (5120,), 1280, 1280, 1000),
    "whisper": Model(1280, (5120,), 1280, 1280, 51866),
    "t5": Model(1024, (65536, 16384), 16384, 16384, 32128),
    "flux": Model(3072, (12288, 15360), 3072, 3072, 64),
    "wan": Model(5120, (13824,), 5120, 5120, 64),
    "minicpm": Model(2304, (5760,), 2304, 2304, 122753),
    "minicpm3": Model(2560, (6400,), 2560, 2560, 73448),
    "exaone32": Model(5120, (27392,), 5120, 1024, 102400),
    "exaone7": Model(4096, (14336,), 4096, 1024, 102400),
    "ernie300": Model(8192, (28672, 3584), 8192, 1024, 103424),
    "ernie21": Model(2560, (12288, 1536), 2560, 512, 103424),
    "seed36": Model(5120, (27648,), 10240, 1024, 155136),
    "llama1b": Model(2048, (8192,), 2048, 512, 128256),
    "llama3b": Model(3072, (8192,), 3072, 1024, 128256),
    "llama8b": Model(4096, (14336,), 4096, 1024, 128256),
    "llama70b": Model(8192, (28672,), 8192, 1024, 128256),
    "llama405": Model(16384, (53248,), 16384, 1024, 128256),
    "llama2-7": Model(4096, (11008,), 4096, 4096, 32000),
    "llama30": Model(6656, (17920,), 6656, 6656, 32000),
    "llama65": Model(8192, (22016,), 8192, 8192, 32000),
    "qwen25-7": Model(3584, (18944,), 3584, 512, 152064),
    "qwen3-8": Model(4096, (12288,), 4096, 1024, 151936),
    "qwen3-14": Model(5120, (17408,), 5120, 1024, 151936),
    "qwen3-32": Model(5120, (25600,), 8192, 1024, 151936),
    "qwen3-4": Model(2560, (9728,), 4096, 1024, 151936),
    "gptoss": Model(2880, (2880,), 4096, 512, 201088),
    "gemma2-9": Model(3584, (14336,), 4096, 2048, 256000),
    "gemma3-12": Model(3840, (15360,), 4096, 2048, 262208),
    "gemma3-4": Model(2560, (10240,), 2048, 1024, 262208),
    "gemma3-27": Model(5376, (21504,), 4096, 2048, 262208),
    "qwen3-coder480": Model(6144, (2560, 8192), 12288, 1024, 151936),
    "step3": Model(7168, (18432, 5120), 16384, 256, 128815),
    "smol3": Model(2048, (11008,), 2048, 512, 128256),
    "gpt2xl": Model(1600, (6400,), 1600, 1600, 50257),
    "gpt2l": Model(1280, (5120,), 1280, 1280, 50257),
    "gpt2m": Model(1024, (4096,), 1024, 1024, 50257),
    "gpt2": Model(768, (3072,), 768, 768, 50257),
    "bertl": Model(1024, (4096,), 1024, 1024, 30522),
    "vitg": Model(1408, (6144,), 1408, 1408, 1000),
    "bigG": Model(1664, (8192,), 1664, 1664, 1000),
    "siglip": Model(1152, (4304,), 1152, 1152, 1000),
}
_OTHERS = (
    (24576, 1536),
    (3072, 7168),
    (2112, 7168),
    (576, 7168),
    (32768, 512),
    (1536, 7168),
    (16384, 7168),
    (7168, 16384),
    (7168, 8192),
    (32, 4096),
    (8, 4096),
    (128, 2048),
    (64, 2880),
    (256, 7168),
    (384, 7168),
    (160, 5120),
)
_SQUARES = (*range(256, 4097, 256), 4608, *range(5120, 16385, 1024), 500, 1000, 2000, 3000, 4000, 5000, 6000, 8000, 10000, 12000, 16000)
_SPLITS = (1, 2, 4, 8)
_LEAST = 8


def layers() -> list[tuple[int, int]]:
    """List N and K of layers: those whose columns are split over GPUs have a part of N, those whose rows are have a part of K.

    Examples
    --------
    >>> (14336, 4096) in layers(), (4096, 14336 // 8) in layers()
    (True, True)
    """
    found = {*_OTHERS, *((side, side) for side in _SQUARES)}
    for model in MODELS.values():
        by_columns = {model.queries + 2 * model.keys, model.queries, model.keys, 2 * model.keys, model.words}
        by_columns |= {width for inner in model.inner for width in (inner, 2 * inner)}
        for split in _SPLITS:
            found |= {(width // split, model.hidden) for width in by_columns if width % split == 0 and width // split >= _LEAST}
            inputs = {model.queries, *model.inner}
            found |= {(model.hidden, width // split) for width in inputs if width % split == 0 and width // split >= _LEAST}
    return sorted(found)
