"""The versions of Triton whose interpreter, private code of Triton's, these modules were tested with; older ones lack what they import."""

import triton

TESTED = ("3.9",)

if tuple(map(int, triton.__version__.split(".")[:2])) < tuple(map(int, TESTED[0].split("."))):
    raise ImportError(f'fastmma.triton needs Triton {TESTED[0]}, not {triton.__version__}: pip install "fastmma[triton]"', name=__name__)
