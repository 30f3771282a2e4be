"""The adder of the pages against the reference, in Node.js or a browser: elements of all rows of the tables, and of own arithmetics.

``python tests/reference/adder.py [COUNT [SEED]]`` computes so many elements by both, and prints how many differ.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fastmma
from fastmma.explanation.explorer.rules import formats, rule_of
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.isa.table import multiplications
from fastmma.isa.targets import TARGETS
from fastmma.numerics.reference import columns_of_stored, tile
from fastmma.numerics.reference_steps import watching
from fastmma.verification.inputs import INTEGER_PAIRS, PAIRS, codes

NODE = shutil.which("node")
SIDE = 2  # rows and columns of a tile
_DRIVER = """
const results = cases.map(({ rule, elements }) => {
  const adder = new Adder(rule, formats), read = (codes) => codes.map((code) => BigInt(code));
  return elements.map(([a, b, c, ks, scales]) =>
    adder.element(read(a), read(b), BigInt(c), ks, scales && scales.map(read)).toString(16));
});
"""


class Case(NamedTuple):
    """An instruction, its arithmetic, and elements with the codes of the reference's results."""

    ins: Instruction
    arithmetic: fastmma.Arithmetic
    elements: list[Any]
    results: list[int]
    steps: int


def rows() -> list[tuple[Instruction, fastmma.Arithmetic]]:
    """One instruction for each row and kind of operands."""
    found: dict[Any, tuple[Instruction, fastmma.Arithmetic]] = {}
    for target in TARGETS:
        for ins in multiplications(target):
            try:
                arithmetic = fastmma.arithmetic(ins, target, strict=False)
            except fastmma.TargetError:  # nothing is known of it
                continue
            operands = ins.stored_k, ins.atype, ins.btype, ins.ctype, ins.dtype, ins.sparse, ins.stype, ins.scale_vec_size
            found.setdefault((arithmetic.numbers, operands, ins.bit_op, ins.satfinite, ins.rounding), (ins, arithmetic))
    return list(found.values())


def _own(arithmetic: fastmma.Arithmetic, ins: Instruction, rng: np.random.Generator) -> fastmma.Arithmetic:
    """Vary a fused arithmetic, sometimes."""
    if arithmetic.method != "fused" or rng.random() < 0.6 or ins.sparse:
        return arithmetic
    changes: list[dict[str, Any]] = [
        {"rounding": str(rng.choice(["rz", "rn", "ro", "rm"]))},
        {"align_rounding": str(rng.choice(["rz", "rn", "ro", "rm", "exact"]))},
        {"align_bits": int(rng.integers(0, 40)), "keep_bits": int(rng.integers(2, ins.formats.sums.mantissa_bits + 1))},
        {"c_joins": "sum", "join_bits": int(rng.integers(20, 40))},
        {"flush_inputs": True, "flush_results": True},
    ]
    return replace(arithmetic, **changes[rng.integers(len(changes))])


def drawn(count: int, seed: int) -> Iterator[Case]:
    """Draw tiles of all rows in turn, until there are so many elements."""
    rng, table = np.random.default_rng(seed), rows()
    turns = itertools.chain.from_iterable(rng.permutation(len(table)).tolist() for _ in itertools.count())
    for number in itertools.islice(turns, -(-count // SIDE**2)):
        ins, arithmetic = table[number]
        yield _computed(ins, _own(arithmetic, ins, rng), rng)


def _computed(ins: Instruction, arithmetic: fastmma.Arithmetic, rng: np.random.Generator) -> Case:
    """Draw a tile of an instruction, and compute it by the reference."""
    pairs = PAIRS if ins.formats.a.kind == "float" else INTEGER_PAIRS
    first, second = pairs[rng.integers(len(pairs))]

    def draw(fmt: Any, kind: str, *shape: int) -> NDArray[Any]:
        return codes(fmt, kind, int(np.prod(shape)), rng).reshape(shape)

    afmt, bfmt, cfmt, *_ = ins.formats
    a, b, c = draw(afmt, first, SIDE, ins.stored_k), draw(bfmt, first, ins.k, SIDE), draw(cfmt, second, SIDE, SIDE)
    more: dict[str, Any] = {}
    if ins.sparse:
        rule = pattern_of(ins)
        words = np.array([word for word, _ in rule.words[: rule.ordered]], np.uint8)
        more["metadata"] = rng.choice(words, (SIDE, ins.k // rule.chunk))
    if ins.scale_vec_size:
        scale = fastmma.FORMATS[ins.stype]
        kind, count = str(rng.choice(["mid", "bits"])), ins.scale_vec_size
        more |= {"scale_a": draw(scale, kind, SIDE, count), "scale_b": draw(scale, kind, count, SIDE)}
    with watching() as steps:
        d = tile(ins, arithmetic, a, b, c, **more)
    places = columns_of_stored(ins, more.get("metadata"))
    elements: list[Any] = []
    for i, j in np.ndindex(SIDE, SIDE):
        ks = places[min(i, len(places) - 1)]
        scales = [more["scale_a"][i], more["scale_b"][:, j]] if "scale_a" in more else None
        texts = [list(map(str, line.tolist())) for line in (a[i], b[ks, j], *(scales or ()))]
        elements.append([*texts[:2], str(c[i, j]), ks, texts[2:] or None])
    return Case(ins, arithmetic, elements, [int(code) for code in d.flat], len(steps))


def script(cases: list[Case]) -> str:
    """Write the program that computes cases as the pages do."""
    given = [{"rule": rule_of(each.ins, each.arithmetic), "elements": each.elements} for each in cases]
    adder = files("fastmma.explanation.explorer").joinpath("web", "adder.js").read_text(encoding="utf-8")
    return f"{adder}\nconst formats = {json.dumps(formats())}, cases = {json.dumps(given)};\n{_DRIVER}"


def differing(cases: list[Case], results: list[list[str]]) -> list[Case]:
    """Return the cases of which a result is not the reference's."""
    return [case for case, found in zip(cases, results, strict=True) if [int(code, 16) for code in found] != case.results]


def run_in_node(cases: list[Case]) -> list[list[str]]:
    """Compute cases in Node.js."""
    assert NODE is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.js"
        path.write_text(f'"use strict";\n{script(cases)}\nconsole.log(JSON.stringify(results));', encoding="utf-8")
        done = subprocess.run([NODE, str(path)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def main(count: int = 100_000, seed: int = 0) -> None:
    """Compare, some thousand elements at a time, and print what came of it."""
    elements = steps = wrong = 0
    waiting: list[Case] = []
    seen = set()
    cases = drawn(count, seed)
    while waiting := [case for _, case in zip(range(1000), cases, strict=False)]:
        for case in differing(waiting, run_in_node(waiting)):
            wrong += 1
            print(f"differs: {case.ins}, {case.arithmetic.family}")
        elements += sum(len(case.elements) for case in waiting)
        steps += sum(case.steps for case in waiting)
        seen |= {case.ins.opcode for case in waiting}
    print(f"{elements:,} elements, {steps:,} steps, of {len(seen)} instructions: {wrong} tiles differ")


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
