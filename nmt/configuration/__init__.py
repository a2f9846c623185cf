"""Configurations: composed from presets and overrides, checked, explained, and kept with each run.

The vocabulary is in `nmt.config`; nothing here imports PyTorch, so that a mistake is told at once.
"""

from __future__ import annotations

from nmt.configuration.checks import check, check_search
from nmt.configuration.composition import compose
from nmt.configuration.saved import changed_search, load_config, read_search, save_config

__all__ = ["changed_search", "check", "check_search", "compose", "load_config", "read_search", "save_config"]
