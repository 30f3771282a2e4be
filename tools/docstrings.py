"""Docstrings as the site's reference reads them."""

from __future__ import annotations

import re
from typing import Any

import griffe

_SECTION = re.compile(r"^Examples\n-+$", re.MULTILINE)
_BARE = re.compile(r"^(?=>>> )", re.MULTILINE)


class BareExamples(griffe.Extension):
    """Examples without a heading, as in docstrings of a sentence, become the section that NumPy's style has for them."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        docstring = obj.docstring
        if docstring and not _SECTION.search(docstring.value):
            docstring.value = _BARE.sub("Examples\n--------\n", docstring.value, count=1)
