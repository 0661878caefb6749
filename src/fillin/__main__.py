"""python -m fillin: the same as the command fillin."""

import sys

from fillin.cli import main

if __name__ == "__main__":
    sys.exit(main())
