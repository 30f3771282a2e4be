"""Refuse options of a command that do not go together, before it imports what would do its work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from fastmma.cli import parameters
from fastmma.host.errors import OperandError

# the options of a study's grid, by the names of their values
_GRID: Final = {
    "formats": "--format",
    "targets": "--target",
    "shapes": "--shape",
    "distributions": "--distribution",
    "promote_every": "--promote-every",
    "split_k": "--split-k",
    "arithmetics": "--arithmetic",
}
_OF_ROUTE: Final = {"types": "--type", "instruction": "--instruction", "target": "--target"}


def check_study(given: Mapping[str, Any]) -> None:
    """Raise OperandError if a study has nothing to measure, or options that its preset has already."""
    weights = given["model"] or given["inputs"]
    if given["activations"] and not weights:
        raise OperandError("--activations are those of weights: name them with --input")
    if given["preset"] is None:
        if not (weights or given["formats"]):
            raise OperandError(f"give --preset ({', '.join(parameters.PRESET.names)}), weights, or a grid: at least --format")
        return
    if given["seeds"] or given["sample"] != parameters.STUDY_SAMPLE:
        raise OperandError("--preset has seeds and a sample of its own: leave out --seed and --sample")
    besides = [option for name, option in _GRID.items() if given[name]]
    if besides:
        raise OperandError(f"--preset has a grid of its own: leave out {', '.join(besides)}")


def check_record(given: Mapping[str, Any]) -> None:
    """Raise BadParameter if options belong to the other of both kinds of recordings, or a book has no products."""
    if given["cublas"] and not (given["model"] or given["shapes"]):
        raise click.BadParameter("--cublas needs --model or --shapes")
    if not given["cublas"] and (given["model"] or given["shapes"] or given["library"]):
        raise click.BadParameter("--model, --shapes and --library are for --cublas")


def check_agree(given: Mapping[str, Any]) -> None:
    """Raise OperandError if there is nothing to compare."""
    if given["table"]:
        return
    if given["gpu"] is None or given["other"] is None:
        raise OperandError("agree needs two GPUs, or --table")
    if not (given["model"] or given["layer"]):
        raise OperandError("agree needs --model or --layer")


def check_doctor(given: Mapping[str, Any]) -> None:
    """Raise BadParameter if there are options that nothing would read."""
    if given["kernels"] and given["route"]:
        raise click.BadParameter("--kernels prints the table of kernels, --route the kernel of one product: give only one of them")
    if given["markdown"] and not given["kernels"]:
        raise click.BadParameter("--markdown is for the table of kernels: give it with --kernels")
    unread = [option for name, option in _OF_ROUTE.items() if given[name] is not None]
    if unread and not given["route"]:
        raise click.BadParameter(f"{' and '.join(unread)} {'belong' if len(unread) > 1 else 'belongs'} to --route MxNxK: give both")
