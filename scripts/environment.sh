# To be sourced at the repository's root: makes .venv and installs what pyproject.toml and constraints.txt say, unless
# that has been done already and neither of them has changed since.

# The first interpreter that is of a version we support and can make an environment.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
            2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "needs Python 3.11, 3.12 or 3.13 with its venv module (on Debian: python3-venv); found none" \
        "${PYTHON:+as PYTHON=$PYTHON}" >&2
    return 1
}

prepare_environment() {
    local python wanted
    local stamp=.venv/installed
    if [ ! -x .venv/bin/python ]; then
        python=$(find_python) || return 1
        "$python" -m venv .venv
    fi
    wanted=$(cat pyproject.toml constraints.txt | cksum)
    if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
        echo "installing nmt and what it needs into .venv (minutes, the first time)" >&2
        .venv/bin/python -m pip install --quiet --disable-pip-version-check \
            --constraint constraints.txt --editable '.[dev]'
        echo "$wanted" >"$stamp"
    fi
}

prepare_environment || exit 1
