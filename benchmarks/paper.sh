#!/bin/sh
# Every table of the paper on the rendered demo set and on real images, with the embedded teachers.
#
#     benchmarks/paper.sh DATA SCRATCH [demo|mvtec|tile]...
#
# DATA holds mvtec_256/ and magnetic_tile/. Finished cells stay in SCRATCH, so that a stopped run goes on; the tables go
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

for set in "${@:-demo mvtec tile}"; do
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
done
