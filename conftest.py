"""What holds for all tests, those in docstrings included."""

from __future__ import annotations

from hypothesis import settings

# Once as a package, before pytest takes its files one by one for their doctests: importlib mode
# would load the first of them a second time, with classes of its own.
import symgrad  # noqa: F401

# A kernel takes the time that its compilation takes.
settings.register_profile("symgrad", deadline=None, print_blob=True)
settings.load_profile("symgrad")
