#!/bin/sh
# Every table of the paper on the rendered demo set and on real images, with the embedded teachers.
#
#     benchmarks/paper.sh DATA SCRATCH [demo|mvtec|tile|plugins]...
#
# DATA holds mvtec_256/, magnetic_tile/ and screw_block/. plugins is the sweep of all hosts with three seeds on the screw
# block (cut into its places and sorted by lamp, see verdict.py) and the demo set, at a stated rate of 5 %, into
# benchmarks/results/plugins. Finished cells stay in SCRATCH, so that a stopped run goes on; the tables go
# to benchmarks/results/paper. On two cores all of it takes hours, most of them for the corruptions.
set -eu
data=$1 scratch=$2
shift 2
results=$(dirname "$0")/results/paper
mkdir -p "$results"

table() { # table, then data set and options
    name=$1
    shift
    nfad benchmark "$name" "$@" --out "$scratch" >/dev/null
    cp "$scratch/$name"-*.csv "$scratch/$name"-*.md "$scratch/$name"-*.png "$results"
}

for set in "${@:-demo mvtec tile plugins}"; do
    case $set in
    *demo*) for name in aebad standard detection-ablation localization-ablation basis incidence rank mechanism entanglement seeds visa-c; do
        table $name demo --foreground
    done
    table foundations demo --foreground --teachers embedded-vit,embedded-cnn
    table plugins demo ;;
    esac
    case $set in
    *mvtec*) for name in standard detection-ablation localization-ablation; do
        table $name "mvtec-ad=$data/mvtec_256"
    done
    for name in entanglement visa-c; do # of the two categories the quicker one
        table $name "mvtec-ad=$data/mvtec_256" --category bottle
    done ;;
    esac
    case $set in
    *tile*) for name in aebad detection-ablation localization-ablation basis incidence rank mechanism; do
        table $name "magnetic-tile=$data/magnetic_tile" --category exposure1
    done
    table seeds "magnetic-tile=$data/magnetic_tile" --category exposure1 --seeds 54,1,42
    table foundations "magnetic-tile=$data/magnetic_tile" --category exposure1 --teachers embedded-vit,embedded-cnn
    table plugins "magnetic-tile=$data/magnetic_tile" --category exposure1 ;;
    esac
    case $set in
    *plugins*) (
        results=$(dirname "$0")/results/plugins scratch=$scratch/plugins
        mkdir -p "$results"
        python "$(dirname "$0")/verdict.py" "$scratch" --data "$data" --cut
        hosts=patchcore,nfad,anomalydino,uniad,rd4ad,recontrast,glass,rad,subspacead,mmr,dinomaly
        for place in "folder=$scratch/block" demo; do
            table plugins "$place" --hosts $hosts --ranks 16,64 --seeds 54,1,42 --set false_alarm_rate=0.05
        done
        for suffix in csv md png; do mv "$results/plugins-folder.$suffix" "$results/plugins-block.$suffix"; done
    ) ;;
    esac
done
