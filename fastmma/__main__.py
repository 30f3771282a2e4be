"""The command `fastmma`, also as ``python -m fastmma``; Ctrl-C while its modules are imported ends it in one line."""

import signal
import sys
from importlib import import_module


def main() -> int:
    """Run the command line and return its exit status."""
    interrupted = False

    def hold(*_: object) -> None:
        nonlocal interrupted
        interrupted = True

    # C code that imports modules, such as NumPy's, makes a KeyboardInterrupt an ImportError, or forgets it
    before = signal.signal(signal.SIGINT, hold)
    try:
        cli = import_module("fastmma.cli")
        import_module("fastmma.cli.app")
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupted and callable(before):
        print("fastmma: interrupted", file=sys.stderr)
        return 130
    return int(cli.main())


if __name__ == "__main__":
    sys.exit(main())
