"""``python -m symgrad``."""

from __future__ import annotations

import sys

from symgrad.demo.cli import main

if __name__ == "__main__":
    sys.exit(main())
