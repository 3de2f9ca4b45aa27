"""Tests of what people who work on cppcuda use: scripts/, tools/ and benchmarks/. scripts/test --all runs them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))  # support.py
