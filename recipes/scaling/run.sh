#!/bin/sh
# Train a size for some minutes, judge it on every held-out kind, and pack what is worth keeping.
#
#   recipes/scaling/run.sh MIX SIZE MINUTES OUT [FLAGS of elmo train...]
#
# MIX is the folder that recipes/mix/make_mix.py made (corpus, heldout-KIND), SIZE the name of a TOML
# file beside this script, OUT the folder for the results: SIZE-results.tar with every figure, and the
# model (float16) in parts of 15 MiB, four of them at most; the others stay in WORK/parts to be fetched
# afterwards. `cat SIZE-model.tar.* | tar x` joins them, SHA256SUMS checks them.
# Environment: ELMO, the command to run (elmo); WORK, the folder to work in (a temporary one);
# MODEL=no leaves the model out.
set -eu

if [ $# -lt 4 ]; then
    echo "usage: $0 MIX SIZE MINUTES OUT [FLAGS of elmo train...]" >&2
    exit 2
fi
mix=$1 size=$2 minutes=$3 out=$4
shift 4
here=$(cd "$(dirname "$0")" && pwd)
elmo=${ELMO:-elmo}
work=${WORK:-$(mktemp -d)}
run=$work/$size
results=$work/$size-results
parts=$work/parts

mkdir -p "$out" "$results" "$parts"
$elmo train --config "$here/$size.toml" --data "$mix/corpus" --out "$run" --minutes "$minutes" "$@"
for folder in "$mix"/heldout-*; do
    kind=${folder##*/heldout-}
    $elmo perplexity "$run/best" "$folder" --json --quiet >"$results/perplexity-$kind.json"
    echo "$size $kind $(tr -d '\n' <"$results/perplexity-$kind.json")"
done
cp "$run/metrics.jsonl" "$run/run.json" "$results"
tar -C "$results" -cf "$out/$size-results.tar" .
if [ "${MODEL:-yes}" != no ]; then
    $elmo convert "$run/best" "$work/$size-model" --dtype float16
    tar -C "$work" -cf - "$size-model" | split -b 15728640 -d - "$parts/$size-model.tar."
    (cd "$parts" && sha256sum "$size"-model.tar.* >"$out/$size.SHA256SUMS")
    cp "$parts/$size"-model.tar.0[0-3] "$out" 2>/dev/null || cp "$parts/$size"-model.tar.* "$out"
fi
ls -l "$parts" "$out"
