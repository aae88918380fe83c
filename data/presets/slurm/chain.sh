#!/bin/sh
# Extract, train and report, each when the one before has ended:
#
#     sh chain.sh                     # arrays of 4 tasks, cache in ./cache, runs in ./runs
#     TASKS=16 PRESET=agnews-llama2-13b sh chain.sh
#
# Each step looks for itself whether the one before it did its work: gaam train refuses a cache that
# is not complete, gaam report says which runs are not. So "afterany": a task that was killed, whose
# work others took over, stops nothing. Run it again to go on where something failed.
set -eu
here=$(dirname "$0")
last=$((${TASKS:-4} - 1))
cache=${CACHE:-cache}
runs=${RUNS:-runs}
preset=${PRESET:+--preset $PRESET}

# shellcheck disable=SC2086 # a preset is two words or none
extract=$(sbatch --parsable --array="0-$last" "$here/array.sbatch" \
    extract $preset --out "$cache")
# shellcheck disable=SC2086
train=$(sbatch --parsable --array="0-$last" --dependency="afterany:$extract" "$here/array.sbatch" \
    train $preset --cache "$cache" --runs "$runs" --attn gaam --attn mha --attn none --seeds 0-9)
report=$(sbatch --parsable --array=0 --gpus-per-task=0 --dependency="afterany:$train" \
    "$here/array.sbatch" report "$runs" --format html --out "$runs.html")
echo "extract $extract, train $train, report $report: squeue --me shows them"
