"""`python -m optkit`: the command line, where the command itself is not on PATH."""

import sys

from optkit.cli import main

sys.exit(main())
