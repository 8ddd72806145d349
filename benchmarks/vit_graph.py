"""Whether an exported ViT gains by attention and GELU as one operator each.

    python benchmarks/vit_graph.py MODEL.nfad        # of the embedded preset; writes benchmarks/results/vit_graph.md

ONNX has Gelu from opset 20 and Attention from opset 23 on; before, torch's exporter writes both out in parts. The
graphs are run by onnxruntime with one thread, interleaved, and compared by processor time, which other work on the
machine disturbs less than the clock. What OpenVINO makes of the graph that ships is counted.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from nfad.deploy import onnx_graph, views
from nfad.deploy.openvino_graph import convert
from nfad.detector import Detector

RESULTS = Path(__file__).parent / "results" / "vit_graph.md"
OPSETS, ROUNDS = (views.OPSET, 20, 23), 40
FUSED = ("Gelu", "Attention", "Erf", "Softmax")


def built(detector: Detector, opset: int) -> onnx.ModelProto:
    """The graph as `nfad export` builds it, but for its opset."""
    before = views.OPSET
    onnx_graph.OPSET = views.OPSET = opset
    try:
        return onnx_graph.build(detector, frame=(256, 256))
    finally:
        onnx_graph.OPSET = views.OPSET = before


def session(graph: onnx.ModelProto, folder: Path) -> tuple[onnxruntime.InferenceSession, Counter[str]]:
    """The session, and the operators left after onnxruntime's own fusions."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    made = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return made, Counter(node.op_type for node in onnx.load(folder / "optimised.onnx").graph.node)


def main() -> None:
    detector = Detector.load(sys.argv[1], device="cpu")
    photo = np.random.default_rng(0).integers(0, 256, (1, 256, 256, 3)).astype(np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        graphs = {opset: built(detector, opset) for opset in OPSETS}
        sessions = {opset: session(graph, Path(folder)) for opset, graph in graphs.items()}
    times: dict[int, list[float]] = {opset: [] for opset in OPSETS}
    scores = {}
    for index in range(ROUNDS + 2):
        for opset in OPSETS if index % 2 else OPSETS[::-1]:
            start = time.process_time()
            scores[opset] = float(sessions[opset][0].run(["score"], {"pixels": photo})[0][0])
            times[opset].append(time.process_time() - start)
    told = [
        "# Attention and GELU as one operator each",
        "",
        f"`python benchmarks/vit_graph.py MODEL.nfad`: onnxruntime {onnxruntime.__version__}, one thread, processor",
        f"time, {ROUNDS} rounds. Other work ran on the machine.",
        "",
        f"| opset | {' | '.join(FUSED)} | all operators | opset {OPSETS[0]} / it, median (middle half) | score |",
        "| --- " * (len(FUSED) + 4) + "|",
    ]
    for opset in OPSETS:
        ratios = [a / b for a, b in zip(times[OPSETS[0]][2:], times[opset][2:], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        found = sessions[opset][1]
        counts = " | ".join(str(found[name]) for name in FUSED)
        told.append(
            f"| {opset} | {counts} | {found.total()} | {middle:.3f} ({low:.3f}–{high:.3f}) | {scores[opset]:.6f} |"
        )
    fused = Counter(node.get_type_name() for node in convert(graphs[OPSETS[0]]).get_ops())
    told += [
        "",
        f"OpenVINO, from opset {OPSETS[0]}: {fused['Gelu']} Gelu, {fused['ScaledDotProductAttention']} attentions.",
    ]
    RESULTS.write_text("\n".join(told) + "\n")
    print("\n".join(told))


if __name__ == "__main__":
    main()
