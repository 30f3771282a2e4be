"""``python -m fastmma``: the same as the command ``fastmma``."""

import sys

from fastmma.cli import main

sys.exit(main())
