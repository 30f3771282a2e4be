"""The commands about products: their bits, why they are so, and which plans and GPUs agree."""

from __future__ import annotations

import click

from fastmma.cli import parameters
from fastmma.cli.commands import checks
from fastmma.cli.commands.late import LateCommand

_types = click.option("--type", "types", default=parameters.TYPE, help="Format of both operands, such as bf16, f16, f32 or e4m3.")
_layout = click.option("--layout", default="nt", help="Of a and b, n where rows are contiguous: nn, nt, tn or tt.")
_preset = click.option("--preset", default="cublas", help="The library: cublas or cublas-fast-accum.")
_bias = click.option("--bias", is_flag=True, help="With a bias.")
_least_rate = click.option(
    "--least-rate", type=float, default="0.99995", help="Predicted plans count as known from this share of fresh products on."
)
_ROWS = "Numbers of rows: single ones, ranges, and ranges with a step, such as 1-64,128-4096:64."


@click.command(cls=LateCommand)
@click.argument("files", nargs=-1, type=parameters.FILE)
@click.option("--random", "size", metavar="MxNxK", help="Random operands of this size instead of files.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the random numbers.")
@click.option("--distribution", default="normal", help="normal, uniform, positive, wide (exponents) or bits (any code).")
@click.option("--type", "types", help="Format of A and B, such as f16 or e4m3,e5m2. Floats are rounded to it; raw bytes are viewed.")
@parameters.accumulate
@parameters.instruction
@parameters.target
@parameters.threads
@parameters.plan
@click.option("--promote-every", type=int, help="Add partial sums of that many k outside the tensor core.")
@click.option("--split-k", type=int, default=1, help="Parts of k that are accumulated separately.")
@click.option("--arithmetic", "own", default="", help="Changes of the target's arithmetic, such as align_bits=20,rounding=rn.")
@click.option(
    "--backend", default="numba", help="numba, reference, cupy (the real tensor cores) or cupy-emulate (the emulator on any GPU)."
)
@click.option("--output", type=parameters.PATH, help="Write D to this .npy file.")
@click.option("--compare/--no-compare", default=True, help="Report the error, and the difference from IEEE f32.")
@parameters.as_json
def gemm() -> None:
    """Multiply two matrices as a GPU's tensor cores do, and report speed and error.

    FILES are a.npy b.npy [c.npy], or one .npz file with a, b and perhaps c.
    """


_EXPLAIN = """
Matrices are read as `fastmma gemm` reads them; an .npz file may hold bias, metadata, scale_a and scale_b, too. Without files, --a and --b
are the operands of one --instruction in hexadecimal: either the codes that meet in the element, that is a row of A, a column of B and one
accumulator c, or all registers of the warp (of the four warps of a wgmma), as a debugger shows them: those of lane 0, then those of lane
1, and so on. --row and --col choose the element. Where both are as many numbers, they are registers if one of them exceeds a code. @FILE
reads the numbers from a file.

Examples:

\b
fastmma explain a.npy b.npy --row 3 --col 5 --target H100
fastmma explain a.npy b.npy --row 3 --col 5 --target sm_90a --against sm_80
fastmma explain a.npy b.npy --row 3 --col 5 --plan split_k=2,out_dtype=bf16 --against split_k=4 --format json
fastmma explain --instruction mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 --target sm_80
    --a 3ff0000000000000,0,0,4000000000000000 --b 3ff0000000000000,0,0,3cb0000000000000
fastmma explain --instruction mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 --target sm_80
    --a @a.hex --b @b.hex --c @c.hex --row 9 --col 2 --picture d.svg
"""


@click.command(epilog=_EXPLAIN, cls=LateCommand)
@click.argument("files", nargs=-1, type=parameters.FILE)
@click.option("--row", type=click.IntRange(min=0), default=0, help="Row of the element of D.")
@click.option("--col", type=click.IntRange(min=0), default=0, help="Column of the element of D.")
@parameters.target
@click.option("--against", help="What to compare with: another GPU, or other choices as in --plan.")
@click.option("--type", "types", help="Format of A and B in files, such as f16 or e4m3,e5m2.")
@parameters.accumulate
@parameters.instruction
@parameters.plan
@click.option("--a", help="Codes of a row of A, or all registers of A.")
@click.option("--b", help="Codes of a column of B, or all registers of B.")
@click.option("--c", help="The code of the accumulator, or all registers of C; 0 by default.")
@click.option("--metadata", help="Sparse A: the words of the row, or the registers of all lanes.")
@click.option("--scale-a", help="Block scaling: the codes of the row's scales, or the registers of all lanes.")
@click.option("--scale-b", help="Block scaling: the codes of the column's scales, or all registers.")
@click.option("--selector", type=int, default=0, help="Sparsity selector of registers of metadata.")
@click.option("--computation", type=int, default=0, help="Which of the four computations of m8n8k4 in registers.")
@click.option("--k", metavar="FIRST:STOP", help="Show the steps of these k, in full.")
@click.option("--format", "fmt", default="text", help="text, markdown or json.")
@parameters.as_json
@click.option("--picture", type=parameters.PATH, help="Draw the bits of all terms to this .svg, .png, .pdf or .tex file.")
def explain() -> None:
    """Explain why an element of a product has its bits: each term, what alignment takes from it, each sum and each rounding.

    FILES are a.npy b.npy [c.npy], or one .npz file with a, b and other operands.
    """


_COMPARE = """
Two files are two results. With --against, files are operands, read as `fastmma gemm` reads them (an .npz file may hold
bias, metadata, scale_a and scale_b, too), and their product on the target is
compared with that on another one, by another plan, or with a result in a file. The exit status is 1 if they differ.

Examples:

\b
fastmma compare d.npy other.npy --tile 128x256
fastmma compare a.npy b.npy --target sm_90a --against sm_80
fastmma compare a.npy b.npy --against split_k=4
fastmma compare a.npy b.npy --target H100 --plan split_k=2,out_dtype=f16 --against d.npy --json
"""


@click.command(epilog=_COMPARE, cls=LateCommand)
@click.argument("files", nargs=-1, type=parameters.FILE, required=True)
@click.option("--against", help="Another GPU, other choices as in --plan, or a file with a result.")
@parameters.target
@click.option("--type", "types", help="Format of A and B, such as f16; of two results, what raw bytes are.")
@parameters.accumulate
@parameters.instruction
@parameters.plan
@click.option("--tile", default="64x64", metavar="MxN", help="The size of the tiles that are counted.")
@parameters.as_json
def compare() -> None:
    """Count the elements of two results that differ, by how much they do, and where.

    FILES are two results; or with --against a.npy b.npy [c.npy], or one .npz file.
    """


@click.command(cls=LateCommand)
@click.argument("d", type=parameters.FILE)
@click.argument("a", type=parameters.FILE)
@click.argument("b", type=parameters.FILE)
@click.option("--c", type=parameters.FILE, help="What was added, times beta: M x N.")
@click.option("--bias", type=parameters.FILE, help="What was added to every row: N elements.")
@click.option("--alpha", type=float, default=1.0, help="Factor of the product.")
@click.option("--beta", type=float, default=1.0, help="Factor of c.")
@click.option("--type", "types", help="Format of A and B, such as bf16 or e4m3,e5m2, where files hold raw bytes.")
@click.option("--result", help="Format of D, C and the bias, where files hold raw bytes.")
@click.option("--target", type=parameters.GPU, multiple=True, help="A GPU to try; by default one of each kind. May be given several times.")
@click.option("--most", type=click.IntRange(min=1), default=3, help="Plans to print.")
@parameters.as_json
def identify() -> None:
    """Find the plans (instruction, order of k, epilogue) that give the bits of a matrix product; the exit status is 1 if none gives all.

    Three .npy files: the result D, M x N, and the operands A, M x K, and B, K x N.
    """


@click.command(cls=LateCommand)
@click.argument("n", type=click.IntRange(min=1))
@click.argument("k", type=click.IntRange(min=1))
@_types
@parameters.target
@click.option("--rows", default="1-4096", help=_ROWS)
@_layout
@_preset
@_bias
@_least_rate
@click.option("--stack", type=click.IntRange(min=1), default=1, help="Products of a call, as of torch.bmm.")
@click.option("--ranks", type=click.IntRange(min=1), default=1, help="GPUs that share the product.")
@click.option("--cut", default="k", help="What ranks share: k or n.")
@click.option("--all-reduce", default="ring", help="How ranks that share k add their results: ring or tree.")
@parameters.as_json
def invariance() -> None:
    """Tell which numbers of rows of a layer share their bits; the exit status is 1 if some differ, and 3 if some are not known.

    N is the columns of the result (outputs of a layer), K the length of the sums (its inputs).
    """


@click.command(cls=LateCommand, check=checks.check_agree)
@click.argument("gpu", type=parameters.GPU, required=False)
@click.argument("other", type=parameters.GPU, required=False)
@click.option("--model", type=parameters.FOLDER, help="A folder with a model's config or tensors, whose linear layers are compared.")
@click.option("--layer", multiple=True, help="A layer as NxK, outputs by inputs; may be given several times.")
@_types
@click.option("--rows", default="1-128,192-4096:64", help=_ROWS)
@_layout
@_preset
@_bias
@_least_rate
@click.option("--table", is_flag=True, help="Compare the instructions of all kinds of GPUs, in Markdown.")
@parameters.as_json
def agree() -> None:
    """Tell whether two GPUs have the same bits for a model's layers; the exit status is 1 if some differ, and 3 if some are not known.

    GPU and OTHER are names of GPUs, such as H100 and H200.
    """
