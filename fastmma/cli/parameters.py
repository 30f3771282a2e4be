"""The options that several commands take, each written once, with the defaults of all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

TARGET: Final = "H200"
TYPE: Final = "bf16"
STUDY_SIZE: Final = "256x256x4096"
BENCH_SIZE: Final = "1024x1024x1024"
PATH: Final = click.Path(path_type=Path)

target = click.option("--target", default=TARGET, help="The GPU or target, such as H100 or sm_90a.")
threads = click.option("--threads", type=int, help="Threads; all cores by default.")
types = click.option("--type", "types", help="Format of A and B, such as f16, or of each, such as e4m3,e5m2.")
accumulate = click.option("--accumulate", "dtype", help="Format of C and D, such as f16; the widest by default.")
instruction = click.option("--instruction", help="The opcode, instead of the target's usual one.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
markdown = click.option("--markdown", is_flag=True, help="Print a Markdown table.")
form = click.option("--format", "fmt", help="text, csv, markdown, asciidoc, json, svg, png, pdf or tikz.")
output = click.option("--output", type=PATH, help="Write to this file; its suffix tells the format if --format does not.")
plan = click.option("--plan", metavar="NAME=VALUE,...", help="Choices of the plan, such as split_k=4,out_dtype=bf16.")
