"""What no table of pyproject.toml can say: the description that package indices show.

An index has no files of the checkout. Of README.md, the picture with its caption is left out there, and a link to a file becomes its name.
"""

import re
from pathlib import Path

from setuptools import setup


def described(text: str) -> str:
    """README.md without links that only a checkout has."""
    text = re.sub(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n\*[^\n]*\*\n\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\(([\w./-]+)(?:#[\w-]+)?\)", r"\1 (`\2`)", text)


if __name__ == "__main__":
    setup(
        long_description=described(Path(__file__).with_name("README.md").read_text(encoding="utf-8")),
        long_description_content_type="text/markdown",
    )
