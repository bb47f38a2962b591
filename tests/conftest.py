"""What every test shares: the hypothesis profiles.

HYPOTHESIS_PROFILE=ci is the thorough, repeatable one.
"""

import os

from hypothesis import settings

settings.register_profile("dev", max_examples=20, deadline=None)
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
