"""Speed, as ratios to NumPy's sgemm on one core in the same process.

``python -m bench`` measures everything and prints the tables of docs/speed.md; ``python -m pytest bench`` shows the same cases in groups.
"""

import os
import sys

# OpenBLAS reads this once, when NumPy loads it; its idle workers would otherwise spin on the cores that are being measured
if "numpy" in sys.modules and os.environ.get("OPENBLAS_NUM_THREADS") != "1":
    raise RuntimeError("bench must be imported before numpy, or OPENBLAS_NUM_THREADS=1 be set")
os.environ["OPENBLAS_NUM_THREADS"] = "1"
