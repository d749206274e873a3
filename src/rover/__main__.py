"""``python -m rover``: the command line."""

import sys

from rover.cli import main

sys.exit(main())
