#!/usr/bin/env bash
# Everything that needs a GPU, in under six minutes: the tests marked gpu, then training and decoding of three models,
# all in one JSON.
#   scripts/bench_gpu.sh [FILE]             default: bench_gpu.json
#   MODELS="transformer_big luong"          presets, the first ones first where time runs out
#   DATA="data=multi30k data.dir=DIR …"     overrides; default: the grammar corpus, which is written here
#   NMT_PYTHON=python3                      an interpreter that has everything installed, in place of .venv
# A stage that fails or is out of time is named, in the JSON as well, and keeps no other from running; the exit status is
# then 1. What is decoded with has been trained for seconds: its translations are too long, so tokens a second say more
# than sentences.
set -euo pipefail
case ${1:-} in -*) sed -n '2,10s/^# \{0,1\}//p' "$0" && exit 0 ;; esac
output=$(realpath -m "${1:-bench_gpu.json}")
cd "$(dirname "$0")/.."

if [ -n "${NMT_PYTHON:-}" ]; then
    python=$NMT_PYTHON
    export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
else
    source scripts/environment.sh
    python=.venv/bin/python
fi
if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    version=$("$python" -c 'import torch; print(torch.__version__)')
    echo "bench_gpu.sh: no GPU: PyTorch $version sees none here; nothing was measured or written" >&2
    exit 1
fi

models=${MODELS:-transformer_big transformer_tiny luong}
read -r -a data <<<"${DATA:-data=grammar data.valid_pairs=50 data.test_pairs=90}"
common=("${data[@]}" tokenizer.vocab_size=8000 optimizer.lr=5e-4 trainer.device=cuda)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
began=$SECONDS
whole=345
failed=()

stage() { # NAME SECONDS COMMAND …: what it prints goes to stderr
    local name=$1 limit=$2 left=$((whole - SECONDS + began))
    shift 2
    echo "bench_gpu.sh: $name ($((SECONDS - began)) s)" >&2
    if [ "$left" -lt 5 ] || ! timeout -k 5 "$((limit < left ? limit : left))" "$@" >&2; then
        failed+=("$name")
        echo "bench_gpu.sh: $name failed or was out of time" >&2
    fi
}

stage tests 120 "$python" -m pytest -q -m gpu -p no:cacheprovider --junit-xml "$work/tests.xml" tests/gpu
for model in $models; do
    stage "train $model" 60 "$python" scripts/bench_train.py "model=$model" "${common[@]}" batch.tokens=16000 \
        --steps 5 --rounds 3 --json "$work/train.$model.json"
done
for model in $models; do
    stage "run $model" 50 "$python" -m nmt train "model=$model" "${common[@]}" batch.tokens=8000 \
        trainer.max_minutes=0.2 validation.every=100000 validation.samples=0 "run.dir=$work/$model"
    stage "decode $model" 40 "$python" scripts/bench_decode.py "$work/$model" --sentences 90 --latency-sentences 10 \
        --batch-tokens 8192,32768 --rounds 3 --json "$work/decode.$model.json"
done

"$python" - "$work" "$output" "$((SECONDS - began))" "${failed[@]}" <<'END'
import json, sys
from pathlib import Path
from xml.etree import ElementTree

import torch

work, output, seconds, *failed = sys.argv[1:]
record = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "seconds": int(seconds), "failed": failed}
tests = Path(work, "tests.xml")
if tests.exists():
    counts = ElementTree.parse(tests).getroot().find("testsuite").attrib
    record["tests"] = {name: int(counts[name]) for name in ("tests", "failures", "errors", "skipped")}
for kind in ("train", "decode"):
    found = sorted(Path(work).glob(f"{kind}.*.json"))
    record[kind] = {path.name.split(".")[1]: json.loads(path.read_text("utf-8")) for path in found}
Path(output).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
END
echo "bench_gpu.sh: $output is written, ${#failed[@]} stages failed, $((SECONDS - began)) s" >&2
[ ${#failed[@]} -eq 0 ]
