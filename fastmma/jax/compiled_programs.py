"""Programs that XLA compiled for a GPU, in files of a caller: which of their products is a product of JAX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from fastmma.host.errors import OperandError
from fastmma.isa.targets import architecture
from fastmma.jax.compiled_products import CompiledProduct, find_compiled_products
from fastmma.products.gemm_plan import GemmPlan

_DUMPED = "*gpu_after_optimizations.txt"
_OF_A_GPU = ('"operation_queue_id"', "__triton", "__cublas")
_HOW = "on the GPU, write jax.jit(f).lower(...).compile().as_text() to the file, or set XLA_FLAGS=--xla_dump_to=FOLDER and name the folder"
_FORMATS = {"float32": "tf32", "bfloat16": "bf16", "float16": "f16"}
_SYNCHRONOUS = {
    "bf16": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "f16": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "tf32": "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
}


@dataclass(frozen=True)
class Followed:
    """A product of a program, and what XLA's text tells of it.

    Attributes
    ----------
    product : CompiledProduct, optional
        None where the text has none, or several that differ.
    guess : str
        What is not known; empty where the text tells all.
    """

    product: CompiledProduct | None = None
    guess: str = ""


def is_text(path: str | Path) -> bool:
    """Tell whether a caller's file is XLA's text, or a folder of such files, and no plan book."""
    return Path(path).is_dir() or (Path(path).is_file() and not is_zipfile(path))


def read_programs(path: str | Path) -> tuple[CompiledProduct, ...]:
    """Read the products of the programs in a file, or in a folder to which XLA wrote its programs.

    Raises
    ------
    OperandError
        If there are none, or none that are compiled for a GPU.
    """
    files = sorted(Path(path).glob(_DUMPED)) if Path(path).is_dir() else [Path(path)]
    if not files:
        raise OperandError(f"plans: the folder {path} has no file {_DUMPED}, as XLA writes them for a GPU: {_HOW}")
    found: list[CompiledProduct] = []
    for file in files:
        text = file.read_text(errors="replace")
        if "HloModule" not in text:
            raise OperandError(f"plans: {file} is no text of a program that XLA compiled, and no plan book: {_HOW}")
        if not (file.match(_DUMPED) or any(mark in text for mark in _OF_A_GPU)):
            raise OperandError(f"plans: {file} is no program that is compiled for a GPU: {_HOW}")
        found += find_compiled_products(text)
    if not found:
        raise OperandError(f"plans: {path} has no matrix product")
    return tuple(dict.fromkeys(found))


def follow(
    products: Sequence[CompiledProduct], target: str, operands: tuple[str, str], result: str, sizes: tuple[int, int, int, int], scope: str
) -> Followed:
    """Find a product of JAX among those of XLA's text.

    Parameters
    ----------
    products : sequence of CompiledProduct
    target : str
    operands : tuple of str
        The dtypes.
    result : str
        The dtype.
    sizes : tuple of int
        Of the batch, m, n, k.
    scope : str
        JAX's functions and transformations in which the product is; it decides among several that differ.
    """
    if not products:
        return Followed()
    same = [each for each in products if _is_same(each, operands, sizes)]
    if not same:
        return Followed(guess="XLA's text has no such product")
    if len(_orders(same)) > 1:
        same = [each for each in same if each.scope.endswith(scope)] or same
    if len(_orders(same)) > 1:
        return Followed(guess="XLA's text has such products of several orders")
    found = same[0]
    return Followed(found, found.unknown or _find_guess(found, target, operands, result))


def _orders(products: Sequence[CompiledProduct]) -> set[CompiledProduct]:
    """Return what decides the bits of products of the same sizes."""
    any_sizes, any_operands = (0, 0, 0, 0), (frozenset[str](), frozenset[str]())
    return {replace(each, sizes=any_sizes, operands=any_operands, scope="") for each in products}


def _is_same(product: CompiledProduct, operands: tuple[str, str], sizes: tuple[int, int, int, int]) -> bool:
    """Tell whether a product has these sizes and operands, in this order or the other, which XLA may take."""
    b, m, n, k = sizes
    both = {"float32"} if operands[0] != operands[1] else set()  # to which XLA may have converted the narrower before
    (first, second), (of_lhs, of_rhs) = ({each, *both} for each in operands), product.operands
    as_it_is = product.sizes == (b, m, n, k) and not first.isdisjoint(of_lhs) and not second.isdisjoint(of_rhs)
    return as_it_is or (product.sizes == (b, n, m, k) and not first.isdisjoint(of_rhs) and not second.isdisjoint(of_lhs))


def _find_guess(product: CompiledProduct, target: str, operands: tuple[str, str], result: str) -> str:
    if architecture(target) != "sm_90":
        return "XLA's kernels are known for Hopper only"
    if not set(operands) <= set(_FORMATS):
        return f"XLA's kernels are not known for {' and '.join(sorted(set(operands)))}"
    if result not in ("float32", product.result):
        return f"XLA uses the sums before they are rounded to {result}"
    return ""


def follow_plan(plan: GemmPlan, product: CompiledProduct | None) -> GemmPlan:
    """Return a plan with the instruction and the parts of k of XLA's text."""
    if product is None:
        return plan
    kind, length = plan.operation.instruction.atype, pad_to_neighbours(product)
    changed: dict[str, Any] = {"split_k": product.parts, "split_unit": length, "join": product.join} if product.parts > 1 else {}
    if not product.unknown and not product.is_warpgroup and kind in _SYNCHRONOUS and architecture(plan.target) == "sm_90":
        changed["instruction"] = _SYNCHRONOUS[kind]
    return replace(plan, **changed) if changed else plan


def pad_to_neighbours(product: CompiledProduct) -> int:
    """Return how many k a part has with the zeros that fill the last instructions."""
    unit = 8 * product.neighbours if product.neighbours > 1 else 1
    return -(-product.length // unit) * unit


def follow_options(product: CompiledProduct | None) -> tuple[tuple[str, Any], ...]:
    """Return the keyword arguments of `fastmma.jax.products.product` for a product of XLA's text whose k has an order of its own."""
    if product is None or product.neighbours == product.dealt == 1:
        return ()
    return ("neighbours", product.neighbours), ("lengths", (product.parts, product.length, pad_to_neighbours(product), product.dealt))


def describe_order(product: CompiledProduct | None) -> str:
    """Write what a plan does not: that threads hold neighbours of k, and who says so."""
    if product is None:
        return ""
    held = "; widened, two k a thread" if product.neighbours > 1 else ""
    dealt = f"; parts dealt to {product.dealt} groups of warps" if product.dealt > 1 else ""
    return f"{held}{dealt}; as XLA's text says"
