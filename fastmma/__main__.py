"""The command `fastmma`, also as ``python -m fastmma``; Ctrl-C while its modules are imported ends it in one line."""

import sys


def main() -> int:
    """Run the command line and return its exit status."""
    try:
        import numpy  # noqa: F401 - if C code of ml_dtypes imported it, Ctrl-C would become an ImportError

        from fastmma import cli

        return cli.main()
    except KeyboardInterrupt:
        print("fastmma: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
