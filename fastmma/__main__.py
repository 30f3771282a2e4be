"""The command `fastmma`, also as ``python -m fastmma``; Ctrl-C while its modules are imported ends it in one line."""

import gc
import sys
from _signal import SIGINT, signal  # type: ignore[import-not-found]  # of C: what the module `signal` imports takes time before the hold


def main() -> int:
    """Run the command line and return its exit status."""
    interrupted = False
    gc.disable()  # until the command has imported what it needs: nothing of that is garbage

    def hold(*_: object) -> None:
        nonlocal interrupted
        interrupted = True

    # C code that imports modules, such as NumPy's, makes a KeyboardInterrupt an ImportError, or forgets it
    before = signal(SIGINT, hold)
    try:
        try:
            from importlib import import_module

            cli = import_module("fastmma.cli")
            import_module("fastmma.cli.app")
        finally:
            signal(SIGINT, before)
        if not (interrupted and callable(before)):
            return int(cli.main())
    except KeyboardInterrupt:  # between the one and the other
        pass
    finally:
        gc.freeze()  # the process ends: to look for garbage among all that was imported would take as long as a small command
    print("fastmma: interrupted", file=sys.stderr)
    return 130


if __name__ == "__main__":
    sys.exit(main())
