# To be sourced: `start COMMAND …` runs a command in the background as soon as fewer than two are running, and `finish`
# waits for all of them. A command that fails is named and does not stop the others.
# `own_overrides MODEL[:OVERRIDE]…` are the overrides that such an entry of a list of models brings, if any.
running=0
failed=0

start() {
    if [ "$running" -ge "${JOBS:-2}" ]; then
        wait -n || failed=$((failed + 1))
        running=$((running - 1))
    fi
    echo "$(date +%H:%M:%S) ${*:2}" >&2
    "$@" &
    running=$((running + 1))
}

finish() {
    while [ "$running" -gt 0 ]; do
        wait -n || failed=$((failed + 1))
        running=$((running - 1))
    done
    if [ "$failed" -gt 0 ]; then
        echo "$failed runs failed: see their logs" >&2
    fi
}

trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM

own_overrides() {
    case $1 in *:*) tr : ' ' <<<"${1#*:}" ;; esac
}
