"""The versions of Triton whose interpreter, which is private code of Triton's, these modules were tested with."""

TESTED = ("3.9",)
