"""The pictures of what formats and kernels lose: an image in narrow formats, and the eight numbers that cuBLAS leaves out."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import fastmma
from fastmma import scaling
from fastmma.isa.codes import encode, from_codes

Image = NDArray[np.float64]
SIDE, _GAP, _LEVELS = 128, 6, 255


def drawn() -> Image:
    """Draw an image of SIDE x SIDE from 0 to 1: a ramp, a disc with a soft edge, stripes and a small bright spot."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    disc = np.clip((0.26 - np.hypot(x - 0.34, y - 0.4)) * 14, 0, 1) * (0.95 - 0.7 * y)
    stripes = np.where((x > 0.68) & (np.sin(y * 90) > 0), 0.25 + 0.6 * y, 0.0)
    spot = np.exp(-(((x - 0.75) ** 2 + (y - 0.2) ** 2) * 900))
    return np.clip(0.04 + 0.22 * x * (1 - y) + disc + stripes + spot, 0, 1)


def narrowed(image: Image) -> dict[str, Image]:
    """Return an image as formats hold it: e4m3 alone, and in blocks with scales."""
    found = {"float64": image, "e4m3": from_codes(encode(image, "e4m3"), "e4m3").astype(np.float64)}
    for title, scheme in (("MXFP8", "mxfp8_e4m3"), ("MXFP4", "mxfp4"), ("NVFP4", "nvfp4")):
        found[title] = np.asarray(scaling.quantize(image.astype(np.float32), scheme, axis=1).dequantize(), np.float64)
    return found


def after_layer(image: Image) -> Image:
    """Multiply an image with a sharpening of its columns, as an H100 does in f16."""
    places = np.arange(SIDE)
    weights = 2 * np.eye(SIDE) - np.exp(-((places[:, None] - places) ** 2) / 8) / np.sqrt(8 * np.pi)
    return np.clip(fastmma.gemm(image.astype(np.float16), weights.astype(np.float16), target="H100").astype(np.float64), 0, 1)


def side_by_side(rows: list[list[Image]]) -> Image:
    """Put images into rows."""
    whole = np.ones((len(rows) * (SIDE + _GAP) - _GAP, len(rows[0]) * (SIDE + _GAP) - _GAP))
    for i, row in enumerate(rows):
        for j, image in enumerate(row):
            whole[i * (SIDE + _GAP) :, j * (SIDE + _GAP) :][:SIDE, :SIDE] = image
    return whole


def png(image: Image) -> bytes:
    """Write a grey image as a PNG file, which needs no library."""
    grey = np.round(np.clip(image, 0, 1) * _LEVELS).astype(np.uint8)
    lines = b"".join(b"\0" + row.tobytes() for row in grey)

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")


def formats() -> Image:
    """Return the image in all formats above, and after a layer of each below."""
    held = list(narrowed(drawn()).values())
    return side_by_side([held, [after_layer(each) for each in held]])


def forgotten() -> str:
    """Draw the nine parts of K = 11,528, and the eight k after them, as SVG."""
    k, parts, width = 11528, 9, 720
    length = -(-(k // parts) // 64) * 64
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 60} 96" font-family="monospace" font-size="11">']
    for part in range(parts):
        x = part * width / parts
        lines.append(f'<rect x="{x:.1f}" y="24" width="{width / parts - 2:.1f}" height="26" fill="#56b4e9"/>')
        lines.append(f'<text x="{x + 4:.1f}" y="66" fill="#777">{part * length}</text>')
    lines.append(f'<rect x="{width}" y="24" width="14" height="26" fill="#d62728"/>')
    lines.append(f'<text x="{width - 64}" y="84" fill="#d62728">{parts * length} to {k - 1}: in no part</text>')
    lines.append(f'<text x="0" y="16" fill="#777">K = {k:,} in {parts} parts of {length}</text></svg>')
    return "\n".join(lines) + "\n"


def draw(folder: Path) -> None:
    """Draw all pictures into a folder."""
    (folder / "image_in_formats.png").write_bytes(png(formats()))
    (folder / "forgotten.svg").write_text(forgotten(), encoding="utf-8")


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "docs" / "pictures")
