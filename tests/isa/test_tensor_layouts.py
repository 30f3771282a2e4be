"""A second, independent referee of the layouts: the atoms of the package tensor-layouts, which follow CuTe's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.cases import cases

import fastmma
from fastmma import FastmmaError, Instruction, Layout

atoms_nv = pytest.importorskip("tensor_layouts.atoms_nv", reason="tensor-layouts is not installed")


WGMMA = {(ins.m, ins.n, ins.k): ins for ins in fastmma.instructions(op="wgmma")}


def dense(name: str, atom: Any) -> Instruction | None:
    """The instruction of an atom; complex, sparse and tcgen05 atoms have none here."""
    if name.endswith("SPARSE"):
        return None
    if atom.ptx.startswith("wgmma"):  # types do not matter to D
        return WGMMA.get(atom.shape_mnk)
    try:
        ins = fastmma.instruction(atom.ptx)
    except FastmmaError:
        return None
    return ins if (ins.m, ins.n, ins.k) == atom.shape_mnk else None


ATOMS = {name: atom for name, atom in vars(atoms_nv).items() if isinstance(atom, atoms_nv.MMAAtom)}
PAIRS = {name: (atom, ins) for name, atom in ATOMS.items() if (ins := dense(name, atom)) is not None}
# the package, like CuTe, has some elements of this B twice and others not at all
NO_BIJECTION = {("SM80_16x8x32_S32S4S4S32_TN", "b")}


def offsets(layout: Any, threads: int, values: int) -> NDArray[np.intp]:
    """CuTe's index of each (thread, value): column-major in (M, K), (N, K) or (M, N); a layout adds what its modes say."""
    return np.add.outer([layout(thread, 0) for thread in range(threads)], [layout(0, value) for value in range(values)])


def ours(layout: Layout, lanes: NDArray[np.intp], *, transposed: bool) -> NDArray[np.intp]:
    rows, cols = layout.rows[lanes], layout.cols[lanes]
    if transposed:
        rows, cols = cols, rows
    return rows + cols * layout.shape[int(transposed)]


def test_the_package_has_most_instructions() -> None:
    assert len(PAIRS) > 70
    assert {ins.op for _, ins in PAIRS.values()} == {"mma", "wgmma"}


@cases("name", PAIRS)
def test_fragments_are_cutes(name: str) -> None:
    atom, ins = PAIRS[name]
    operands = ins.operands
    lanes = np.arange(ins.lanes)
    if atom.thr_id is not None:  # eight threads make one of four computations
        lanes = np.array([atom.thr_id(thread) for thread in range(8)])
    layouts = {"c": atom.c_layout} if ins.op == "wgmma" else {"a": atom.a_layout, "b": atom.b_layout, "c": atom.c_layout}
    for operand, theirs in layouts.items():
        layout = operands[operand].layout
        expected = offsets(theirs, len(lanes), layout.elements)
        if len(np.unique(expected)) < expected.size:
            assert (name, operand) in NO_BIJECTION
            continue
        for quad in range(layout.tiles):
            np.testing.assert_array_equal(ours(layout, lanes + 4 * quad, transposed=operand == "b"), expected)
            assert (layout.tile[lanes + 4 * quad] == quad).all()
