"""Docstrings as the site's reference reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
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


class SpelledKeywords(griffe.Extension):
    """A function that `spell_keywords` decorates has these keywords in its signature, with their types and defaults."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for function in _functions(pkg):
            for decorator in function.decorators:
                if decorator.callable_path.endswith(".spell_keywords"):
                    kinds, defaults = (pkg.modules_collection[each.canonical_path] for each in decorator.value.arguments)
                    _spell(function, kinds, defaults)


def _functions(module: griffe.Module) -> Iterator[griffe.Function]:
    for member in module.members.values():
        if not member.is_alias and member.is_module:
            yield from _functions(member)
        elif not member.is_alias and member.is_function:
            yield member


def _spell(function: griffe.Function, kinds: griffe.Class, defaults: griffe.Class) -> None:
    kind = griffe.ParameterKind.keyword_only
    keywords = [
        griffe.Parameter(name, annotation=each.annotation, kind=kind, default=defaults.members[name].value)
        for name, each in kinds.attributes.items()
    ]
    named = [each for each in function.parameters if each.kind is not griffe.ParameterKind.var_keyword]
    places = [each for each in named if each.kind is not kind]
    function.parameters = griffe.Parameters(*places, *keywords, *named[len(places) :])
