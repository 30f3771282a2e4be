"""Sums over two devices, and products of which XLA cuts k or rows between them, have the bits of two H200."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

from fastmma.jax.arrangements import sort_contracted
from fastmma.jax.sums import add_devices


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What `two_devices` finds, in a process of its own with two devices of the CPU."""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.integrations.jax.two_devices"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_results_have_the_bits_of_two_h200(found) -> None:
    assert found["other"] == []


def test_sums_and_products_of_xlas_text_are_emulated(found) -> None:
    assert found["statuses"] == {"psum emulated": 6, "dot_general emulated": 30}


def test_add_devices_keeps_subnormal_numbers_and_returns_the_nan_of_a_gpu() -> None:
    tiny = np.array([2.0**-149, -(2.0**-140)], np.float32)
    assert add_devices(tiny, tiny).tolist() == [2.0**-148, -(2.0**-139)]
    assert add_devices(np.array([np.inf], np.float16), np.array([-np.inf], np.float16)).view(np.uint16).tolist() == [0x7FFF]
    assert add_devices(np.array([2**31 - 1], np.int32), np.array([1], np.int32)).tolist() == [-(2**31)]


def test_xla_sorts_contracted_dimensions_that_lie_side_by_side() -> None:
    assert sort_contracted((2, 0), (1, 0)) == ((0, 2), (0, 1))
    assert sort_contracted((2, 0), (2, 0)) == ((2, 0), (2, 0))
    assert sort_contracted((1, 0), (1, 0)) == ((0, 1), (0, 1))
    assert sort_contracted((1, 0), (0, 1)) == ((1, 0), (0, 1))
