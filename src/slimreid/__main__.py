"""`python -m slimreid` is the same as the command `slimreid`."""

import sys

from slimreid.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
