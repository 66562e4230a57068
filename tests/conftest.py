"""How Hypothesis works here: a failure is reported as it was found, and shrunk only on demand.

Shrinking a failure of a long history takes minutes, which a test does not have. What was found is kept, so that
``pytest --hypothesis-profile=shrink --timeout=0 -k <test>`` begins where the failing run ended.
"""

from __future__ import annotations

import os

from hypothesis import Phase, settings

# Cores that tests start as processes serve HTTP only where they are told to: many run at once.
os.environ["KORNEL_REST_ADDRESS"] = "off"

settings.register_profile("brief", phases=(Phase.explicit, Phase.reuse, Phase.generate))
settings.register_profile("shrink", phases=tuple(Phase))
settings.load_profile("brief")
