"""The style of pictures: series that are told apart, labels that keep apart, files that are the same each time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastmma import OperandError
from fastmma.host.figures import panels, style


def test_series_are_told_apart() -> None:
    for count in (1, 8, 9, 40):
        found = style.looks([f"series {i}" for i in range(count)]).values()
        assert len({look.color for look in found}) == count
    assert len({look.marker for look in list(found)[:16]}) == 16


def test_labels_keep_apart_and_in_order() -> None:
    places = np.sort(np.random.default_rng(0).random(16) * 0.4)
    found = np.array(panels.spread(list(places), 0.05))
    assert (np.diff(found) >= 0.05 - 1e-9).all()
    assert abs(found.mean() - places.mean()) < 1e-6
    assert panels.spread([0.1, 0.5, 0.9], 0.05) == [0.1, 0.5, 0.9]


def test_a_title_is_never_cut() -> None:
    name = "x" * 300 + "/model.safetensors::encoder.layer.0.output.dense.weight and activations from N(0, 1)"
    assert "".join(panels.wrapped(name).split()) == "".join(name.split())
    assert panels.wrapped("") == ""
    assert panels.wrapped("drawn: N(0, 1), 256 rows", 1.0, 7.5).splitlines() == ["drawn: N(0, 1),", "256 rows"]


def test_long_panels_go_on_on_the_next_page() -> None:
    rows = [3, 200, 1, 1, 70]
    found = panels.pages(rows, 0.142, 1.0)
    assert all(sum(0.142 * (part.last - part.first) + 1.0 for part in page) <= style.HEIGHT for page in found)
    shown = [(part.panel, row) for page in found for part in page for row in range(part.first, part.last)]
    assert shown == [(panel, row) for panel, count in enumerate(rows) for row in range(count)]


@pytest.mark.parametrize("suffix", style.SUFFIXES)
def test_files_are_the_same_each_time(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    def drawn() -> bytes:
        with style.styled():
            figure, (panel,) = panels.panels([2.0])
            panel.plot([1, 2], [3, 4])
            panels.title(panel, "a $\\frac$ of it")
            panels.label_ends(panel, [(name, 2, 4, look) for name, look in style.looks(["first", "second"]).items()], 1.0)
        style.save(figure, tmp_path / f"picture{suffix}")
        return (tmp_path / f"picture{suffix}").read_bytes()

    assert drawn() == drawn()
    with pytest.raises(OperandError, match=r"a picture is \.png, \.svg, \.pdf, not x\.gif"):
        style.save(None, tmp_path / "x.gif")
