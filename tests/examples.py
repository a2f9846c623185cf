"""How many examples a property is tried with: few by default, NMT_EXAMPLES for a hunt after new faults.

NMT_EXAMPLES=2000 .venv/bin/python -m pytest tests/invariants/test_properties_*.py
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

HUNT = os.environ.get("NMT_EXAMPLES")


def examples(few: int) -> settings:
    """The decorator of a property that has `few` examples, always the same ones, in an ordinary test run."""
    # The fixtures of these properties hold nothing that one example could leave to the next.
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    if HUNT is None:
        return settings(max_examples=few, suppress_health_check=checks)
    return settings(max_examples=int(HUNT), suppress_health_check=checks, derandomize=False, print_blob=True)
