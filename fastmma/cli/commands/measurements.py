"""The commands that measure: accuracy, speed, recordings, and this machine."""

from __future__ import annotations

import click

from fastmma.cli import parameters
from fastmma.cli.commands import checks
from fastmma.cli.commands.late import LateCommand

_FAMILIES = (
    "f16, bf16, tf32, e4m3, e5m2, f64, s8, b1, mxfp8_e4m3, mxfp8_e5m2, mxfp6_e3m2, mxfp6_e2m3, mxfp4, nvfp4, nvfp4_16x16, fp8_tensor, "
    "fp8_tensor_e5m2, fp8_row, fp8_row_e5m2, fp8_tensor_e4m3fnuz, fp8_tensor_e5m2fnuz, fp8_row_e4m3fnuz, fp8_row_e5m2fnuz, fp8_1x128, "
    "fp8_1x128_e5m2, fp8_128x128, fp8_128x128_e5m2, fp8_1x128_ue8m0, fp8_128x128_ue8m0, int8_row"
)


@click.command(cls=LateCommand, check=checks.check_study)
@click.argument("model", type=parameters.PLACE, required=False)
@click.option("--preset", type=parameters.PRESET, help=f"A study with a name: {', '.join(parameters.PRESET.names)}.")
@click.option(
    "--output", type=parameters.PATH, help="A folder for the report, the table and the pictures; an interrupted study continues there."
)
@click.option("--format", "formats", multiple=True, help="Such as e4m3, nvfp4 or mxfp4:even (a rule); or two, as A,B.")
@click.option("--target", "targets", multiple=True, help=f"The GPU, or ieee-f32; by default {parameters.TARGET}, and of layers B200.")
@click.option("--shape", "shapes", multiple=True, metavar="MxNxK", help=f"By default {parameters.STUDY_SIZE}.")
@click.option("--distribution", "distributions", multiple=True, help="normal, uniform, positive, lognormal or outliers.")
@click.option(
    "--promote-every",
    type=click.IntRange(min=0),
    multiple=True,
    help="Add partial sums of that many k outside the tensor core; 0 for never.",
)
@click.option("--split-k", type=click.IntRange(min=1), multiple=True, help="Parts of k that are accumulated separately.")
@click.option(
    "--arithmetic",
    "arithmetics",
    multiple=True,
    help="Changes of the target's arithmetic, such as align_bits=20,rounding=rn; an empty text changes nothing.",
)
@click.option(
    "--input",
    "inputs",
    type=parameters.PLACE,
    multiple=True,
    metavar="PLACE[::NAMES]",
    help="Weights (N, K), then perhaps activations (M, K): .npy, .npz or .safetensors files, or the folder of a model; "
    "names of files and of tensors may be patterns, such as 'model.safetensors::*dense*'. Without names: all linear layers.",
)
@click.option(
    "--activations",
    type=parameters.PLACE,
    multiple=True,
    metavar="PLACE[::NAMES]",
    help="One tensor for all layers, or tensors named like the layers; drawn if not given.",
)
@click.option("--transposed/--no-transposed", default=None, help="Weights are (K, N) in files, or not; else as config.json says.")
@click.option("--seed", "seeds", type=click.IntRange(min=0), multiple=True, help="Seed of the random numbers.")
@click.option(
    "--sample", type=click.IntRange(min=1), default=parameters.STUDY_SAMPLE, help="Rows and columns of the product that are compared."
)
@parameters.threads
@parameters.as_json
def study() -> None:
    """Measure what formats and accumulators cost, against exact products.

    MODEL is a folder with a model's weights, or other weights as --input names them.

    Every option of the grid may be given more than once; the study is every combination.
    """


@click.command(cls=LateCommand)
@click.option("--gpu", is_flag=True, help="Compare with the GPU in this machine on fresh inputs.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0),
    default=1.0,
    help="With --gpu: at least one round of everything, then more until the time is over.",
)
@click.option("--warps", type=click.IntRange(min=1), default=512, help="With --gpu: warps a trial.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="With --gpu.")
@click.option("--target", type=parameters.GPU, help=f"Without --gpu: whose recordings, by default {parameters.TARGET}'s.")
@click.option("--folder", type=parameters.FOLDER, help="Without --gpu: where `fastmma record` wrote, instead of what ships.")
@parameters.markdown
@parameters.as_json
def verify() -> None:
    """Replay the recordings that ship with fastmma on the emulator; with --gpu, compare emulator and silicon on adversarial inputs.

    The exit status is 1 if any bit differs.
    """


@click.command(cls=LateCommand, check=checks.check_record)
@click.argument("folder", type=parameters.PATH)
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Without --cublas.")
@click.option("--hip", is_flag=True, help="Without --cublas: an AMD GPU, by a C program that is compiled against HIP; its dense v_mfma.")
@click.option("--cublas", is_flag=True, help="Ask cuBLASLt what it would run for products: a plan book.")
@click.option(
    "--model",
    type=parameters.FOLDER,
    help="With --cublas: a folder with config.json or safetensors files, to ask about its linear layers.",
)
@click.option(
    "--shapes", type=parameters.FILE, help="With --cublas: a file with lines of M, N, K, type, layout, and perhaps bias and batch."
)
@click.option("--rows", default="1-128,192-8192:64", help="With --model: numbers of rows of the input, ranges with a step among them.")
@click.option(
    "--type",
    "types",
    multiple=True,
    show_default=parameters.TYPE,
    help="With --model: bf16, f16, tf32, f32, e4m3 or e4m3fast; may be given several times.",
)
@click.option("--library", type=parameters.FILE, help="With --cublas: the file of cuBLASLt, by default PyTorch's or CuPy's.")
@click.option(
    "--workspace", type=click.IntRange(min=0), help="With --cublas: bytes that cuBLASLt may use, by default as many as PyTorch lends."
)
@parameters.as_json
def record() -> None:
    """Record what the GPU in this machine computes, for every opcode that is legal on it; `fastmma verify --folder` replays it anywhere.

    FOLDER is where a folder named after the target is made; with --cublas, the .npz file to write.

    With --hip: record an AMD GPU. This has not run on one yet.

    With --cublas: ask its cuBLASLt which kernels it would run for a model, or for a file of shapes, and write a plan book.
    """


@click.command(cls=LateCommand)
@click.option("--family", "families", multiple=True, help=f"{_FAMILIES}; by default {parameters.TYPE}.")
@click.option("--size", "sizes", multiple=True, metavar="MxNxK", help=f"By default {parameters.BENCH_SIZE}.")
@click.option("--target", "targets", type=parameters.GPU, multiple=True, help=f"The GPU; by default {parameters.TARGET}.")
@click.option("--threads", type=int, multiple=True, help="Threads; all cores by default.")
@click.option(
    "--rounds", type=click.IntRange(min=1, max=1000), default=5, help="Rounds, of which the median counts; all libraries take turns."
)
@click.option(
    "--peer",
    "peers",
    multiple=True,
    help="NumPy float32, MMA-Sim, mmaemu, torch._scaled_mm, torchao, or none; by default all that are installed.",
)
@click.option("--format", "chosen", default="text", help="text, markdown, csv or json.")
@parameters.as_json
@click.option("--plot", type=parameters.PATH, help="A picture: .svg, .png or .pdf.")
def bench() -> None:
    """Measure the speed of products, and of other libraries, in multiply-adds per second.

    Families, sizes, targets, threads and peers may be given more than once; every combination is measured. A slow peer computes a part of
    the product. The last column is the share of a peer's results that equal fastmma's.
    """


@click.command(cls=LateCommand)
@click.option("--target", type=parameters.GPU, multiple=True, help=f"A GPU: H100, sm_90a, ...; by default {parameters.TARGET}.")
@click.option("--format", "format_", multiple=True, help="A format or a block-scaled scheme; by default all.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes that compile; by default one a core.")
@parameters.as_json
def warm() -> None:
    """Compile the kernels for products, single tiles and block-scaled arrays, and keep them for later processes."""


@click.command(cls=LateCommand, check=checks.check_doctor)
@click.option("--route", metavar="MxNxK", help="Instead, say which kernel computes such a product.")
@click.option("--type", "types", help=f"Of --route: the types of A and B; by default {parameters.TYPE}.")
@click.option("--instruction", help="Of --route, in place of --type.")
@click.option("--target", type=parameters.GPU, help=f"Of --route: the GPU; by default {parameters.TARGET}.")
@click.option("--kernels", is_flag=True, help="Print the table of kernels instead.")
@parameters.markdown
@parameters.as_json
def doctor() -> None:
    """Print what this machine has: CPU path, cache, GPU, libraries, variables; and try one product. Attach the output to a bug report."""
