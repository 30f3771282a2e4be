"""The pictures of a study, with matplotlib, which is imported only when one is drawn: PNG at 300 dots an inch, SVG and PDF."""

from fastmma.study.pictures.saved import PICTURES, save

__all__ = ["PICTURES", "save"]
