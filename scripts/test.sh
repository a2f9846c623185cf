#!/usr/bin/env bash
# Everything that must hold before a change goes in: style, types, tests. Makes .venv where it is missing.
#   scripts/test.sh [ARGUMENTS OF PYTEST]      e.g. scripts/test.sh -m slow, scripts/test.sh tests/unit
# PYTHON=python3.12 chooses the interpreter that .venv is made with.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/environment.sh

.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
exec .venv/bin/python -m pytest -n 2 "$@"
