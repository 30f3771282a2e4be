"""The commands: what each is for, and the module that has it, which is imported when the command runs."""

from __future__ import annotations

from importlib import import_module
from typing import Final, NamedTuple

import click

from fastmma import __version__


class Entry(NamedTuple):
    """The module of `fastmma.cli.commands` that declares a command, a line that tells what it does, and an example of it."""

    module: str
    summary: str
    example: str


COMMANDS: Final = {
    "list": Entry("instructions", "List the instructions.", "fastmma list --target sm_90a --type e4m3 --summary"),
    "show": Entry(
        "instructions", "Show an instruction: types, registers, targets, and how each computes it.", "fastmma show mma.m16n8k16.f32.f16"
    ),
    "layout": Entry(
        "instructions",
        "Show one operand of an instruction: the lane, register and bits of each element.",
        "fastmma layout mma.m16n8k16.f32.f16 --operand all --output mma.pdf",
    ),
    "trace": Entry(
        "instructions",
        "Show one output of an instruction: the lanes, registers and bits that feed it.",
        "fastmma trace mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 --d 4,5",
    ),
    "explorer": Entry(
        "instructions", "Write an HTML file that shows every layout, and sums as bars of bits.", "fastmma explorer -o explorer.html"
    ),
    "gpus": Entry("instructions", "List the names of GPUs that are accepted as targets.", "fastmma gpus"),
    "evidence": Entry("instructions", "Show how the arithmetic of each GPU is known.", "fastmma evidence --arithmetic"),
    "gemm": Entry(
        "products",
        "Multiply two matrices as a GPU does, and report speed and error.",
        "fastmma gemm a.npy b.npy --type e4m3 --target H100 --output d.npy",
    ),
    "explain": Entry(
        "products",
        "Explain the bits of an element of a product, term by term.",
        "fastmma explain a.npy b.npy --row 3 --col 5 --target H100 --against A100",
    ),
    "compare": Entry(
        "products",
        "Count the elements of two results that differ, and show where.",
        "fastmma compare a.npy b.npy --target H100 --against A100 --tile 128x256",
    ),
    "identify": Entry("products", "Find the plans that give the bits of a matrix product.", "fastmma identify d.npy a.npy b.npy"),
    "agree": Entry("products", "Tell whether two GPUs have the same bits for a model's layers.", "fastmma agree H100 H200 --model FOLDER"),
    "invariance": Entry(
        "products", "Tell which numbers of rows of a layer share their bits.", "fastmma invariance 4096 14336 --target H200"
    ),
    "study": Entry(
        "measurements",
        "Measure what formats and accumulators cost, against exact products.",
        "fastmma study --preset block-formats --output blocks",
    ),
    "verify": Entry(
        "measurements", "Replay recordings of GPUs on the emulator, or compare with the GPU here.", "fastmma verify --target H200"
    ),
    "record": Entry(
        "measurements",
        "Record what the GPU here computes, or what its cuBLAS would run.",
        "fastmma record book.npz --cublas --model FOLDER",
    ),
    "bench": Entry(
        "measurements", "Measure the speed of products, and of other libraries beside them.", "fastmma bench --family e4m3 --target H100"
    ),
    "warm": Entry("measurements", "Compile kernels ahead, and keep them for later processes.", "fastmma warm --target H100"),
    "doctor": Entry(
        "measurements", "Print what this machine has, and try one product.", "fastmma doctor --route 16x4096x4096 --type f16 --target H100"
    ),
}
# the exit statuses that a command has beside 0, and 2 after an error
STATUSES: Final = {
    "compare": {1: "elements differ"},
    "identify": {1: "no plan gives every bit"},
    "agree": {1: "bits differ", 3: "something is not known"},
    "invariance": {1: "bits differ", 3: "something is not known"},
    "verify": {1: "bits differ"},
    "warm": {1: "no kernel could be kept"},
    "doctor": {1: "the product that it tries is wrong, or a setting is"},
}


class Commands(click.Group):
    """The commands of `COMMANDS`, of which one is imported when it is called or asked for help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of a name; None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        declared = import_module(f"fastmma.cli.commands.{COMMANDS[cmd_name].module}")
        command: click.Command = getattr(declared, "list_instructions" if cmd_name == "list" else cmd_name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments begin with.

        Raises
        ------
        UsageError
            If there is none; the message names the nearest one.
        """
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, 1)
            ctx.fail(f"there is no command {args[0]!r}; " + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(COMMANDS)}"))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each command without importing it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"show_default": True, "help_option_names": ["--help", "-h"]})
@click.version_option(__version__, prog_name="fastmma", message="%(prog)s %(version)s", help="Print the version.")
def app() -> None:
    """Compute what NVIDIA tensor cores compute, bit for bit, on any CPU."""
