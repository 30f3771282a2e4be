"""The commands about instructions and GPUs: which there are, and where their operands lie."""

from __future__ import annotations

import click

from fastmma.cli import parameters
from fastmma.cli.commands.late import LateCommand


@click.command("list", cls=LateCommand)
@click.option("--target", type=parameters.GPU, help="Only what this target takes, for example sm_90a.")
@click.option("--type", "element", help="Only those with this type, for example e4m3.")
@click.option("--shape", help="Only this shape, for example m16n8k16.")
@click.option("--op", help="Only this one, for example mma, wgmma, tcgen05.ld or v_mfma; tcgen05 in its largest shapes.")
@click.option("--summary", "grouped", is_flag=True, help="One line for opcodes that differ in shape or type only.")
@click.option("--families", "complete", is_flag=True, help="As --summary, with every shape and the PTX version.")
@parameters.markdown
@parameters.as_json
def list_instructions() -> None:
    """List the instructions."""


@click.command(cls=LateCommand)
@click.argument("opcode")
@parameters.as_json
def show() -> None:
    """Show a whole instruction; `layout` shows one operand, `trace` one output.

    Printed are its types, registers and targets, the place of every element as a formula, and how each target computes it.
    """


_LAYOUT = """
Examples:

\b
fastmma layout mma.m16n8k16.f32.f16 --operand all --output mma.pdf
fastmma layout mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 --operand b
fastmma layout mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 --lane 5
fastmma layout mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 --element 3,7
fastmma layout mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 --register 2 --format csv
fastmma layout mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 --formula
fastmma layout mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 --operand metadata --selector 1
fastmma layout ldmatrix.sync.aligned.m8n8.x4.b16 --register 2
fastmma layout wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 --operand d --output d.svg
"""


@click.command(epilog=_LAYOUT, cls=LateCommand)
@click.argument("opcode")
@click.option("--operand", help="a, b, c, d, metadata, scale_a or scale_b; r of what loads or stores; all. [default: the first]")
@parameters.form
@parameters.as_json
@parameters.output
@click.option("--lane", type=int, help="Everything that this lane holds.")
@click.option("--element", "where", help="ROW,COL: the lane, register and bits that hold this element.")
@click.option("--register", type=int, help="What this register of every lane holds.")
@click.option("--computation", type=int, help="Only this computation of m8n8k4, or this matrix of ldmatrix.")
@click.option(
    "--view", type=click.Choice(("matrix", "registers")), default="matrix", help="Who holds each element, or what each lane holds."
)
@click.option(
    "--names",
    type=click.Choice(("registers", "elements")),
    help="What a cell says beside the lane: %a1.h0, or a2. [default: registers in pictures, elements in text]",
)
@click.option("--transpose", is_flag=True, help="Swap the rows and the columns of the grid.")
@click.option("--whole", is_flag=True, help="Leave nothing out of large grids, in text and pictures.")
@click.option("--formula", is_flag=True, help="The closed formulas, in C and in PTX's words.")
@click.option("--selector", type=int, help="Sparsity selector, for metadata.")
@click.option("--byte-id", type=int, help="Byte selector, for scales.")
@click.option("--thread-id", type=int, help="Thread selector, for scales.")
def layout() -> None:
    """Show one operand; `show` shows the whole instruction, `trace` one output.

    A grid names the lane (T), the register and the bits that hold each element.
    """


_TRACE = """
Examples:

\b
fastmma trace mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 --d 4,5
fastmma trace mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 --d 4,5 --selector 1
fastmma trace wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 --d 40,100 --format json
fastmma trace mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 --d 4,5 --computation 2 --output feeds.svg
"""


@click.command(epilog=_TRACE, cls=LateCommand)
@click.argument("opcode")
@click.option("--d", "where", required=True, help="ROW,COL: the output.")
@click.option("--computation", type=int, default=0, help="Which of the four computations of m8n8k4.")
@parameters.form
@parameters.as_json
@parameters.output
@click.option("--selector", type=int, default=0, help="Sparsity selector.")
@click.option("--byte-id-a", type=int, default=0, help="Byte selector of the scales of a.")
@click.option("--thread-id-a", type=int, default=0, help="Thread selector of the scales of a.")
@click.option("--byte-id-b", type=int, default=0, help="Byte selector of the scales of b.")
@click.option("--thread-id-b", type=int, default=0, help="Thread selector of the scales of b.")
def trace() -> None:
    """Show one output; `show` shows the whole instruction, `layout` one operand.

    A table names the lane (T), the register and the bits where it lies, and those of all elements that feed it.
    """


@click.command(cls=LateCommand)
@click.option("--output", "-o", type=parameters.PATH, default="explorer.html", help="The HTML file.")
@click.option("--page", type=click.Choice(("explorer", "sum")), default="explorer", help="Which page is written.")
@parameters.as_json
def explorer() -> None:
    """Write the explorer: one HTML file that shows every layout, and sums as bars of bits, in any browser, without a network.

    The page "sum" shows how two GPUs add the same numbers.
    """


@click.command(cls=LateCommand)
@parameters.markdown
@parameters.as_json
def gpus() -> None:
    """List the names of GPUs that are accepted as targets, how each adds products, and how that is known.

    The arithmetic is that of the instruction which the GPU's libraries take: L products (`terms`) and the accumulator are aligned to the
    largest of them, F bits (`align_bits`) below its leading bit are kept, and the sum keeps `keep` fraction bits (`keep_bits`).
    """


@click.command(cls=LateCommand)
@click.option("--arithmetic", "parameters", is_flag=True, help="With the method and its parameters, one line where they are equal.")
@click.option("--op", "ops", multiple=True, help="Only these instructions, for example wgmma or v_mfma; may be given several times.")
@parameters.markdown
@parameters.as_json
def evidence() -> None:
    """Show how the arithmetic of each GPU is known.

    By definition: integers and IEEE operations, which need no GPU to be known. Measured: on our own GPU. Recorded: equal to recordings of
    a GPU made by others. Reported: taken from publications or derived, not compared with a GPU; refused by FASTMMA_STRICT=1. Unknown: the
    opcode is legal there, and fastmma refuses to emulate it.
    """
