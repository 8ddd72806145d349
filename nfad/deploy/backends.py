"""The two programs that run a graph, behind one call: pixels in, a promise of the outputs by name out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from nfad.errors import NfadError
from nfad.system.platform import cores, ready_for_openvino

Promise = Callable[[], dict[str, np.ndarray]]  # waits for the outputs; to be called once
Session = Callable[[np.ndarray], Promise]


def open_session(backend: str, graph: Path, threads: int | None = None) -> Session:
    """`backend` is "onnx" (onnxruntime) or "openvino"."""
    threads = threads or cores()
    return _onnxruntime(graph, threads) if backend == "onnx" else _openvino(graph, threads)


def _onnxruntime(graph: Path, threads: int) -> Session:
    try:
        import onnxruntime
    except ImportError:
        raise _missing("onnxruntime") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    # Run when asked for: it has no way to run beside us without a thread more than it was given.
    def begin(pixels: np.ndarray) -> Promise:
        return lambda: {
            name: np.asarray(value) for name, value in zip(names, session.run(names, {"pixels": pixels}), strict=True)
        }

    return begin


def _openvino(graph: Path, threads: int) -> Session:
    ready_for_openvino()
    try:
        import openvino
    except ImportError:
        raise _missing("openvino") from None
    # f32: the default on newer CPUs is bf16, whose three digits move scores across a threshold.
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
    compiled = openvino.Core().compile_model(graph, "CPU", settings)
    names = [output.get_any_name() for output in compiled.outputs]
    idle = [compiled.create_infer_request()]

    def begin(pixels: np.ndarray) -> Promise:
        """Requests run one after the other in OpenVINO's own thread, which needs no turn of Python's between them."""
        try:
            request = idle.pop()  # not asked before whether there is one: another thread may be quicker
        except IndexError:
            request = compiled.create_infer_request()
        request.start_async({"pixels": pixels}, share_inputs=True)

        def wait(_: np.ndarray = pixels) -> dict[str, np.ndarray]:  # shared, so kept until then
            request.wait()
            found = {name: np.array(request.get_output_tensor(index).data) for index, name in enumerate(names)}
            idle.append(request)
            return found

        return wait

    return begin


def _missing(module: str) -> NfadError:
    return NfadError(f"{module} is not installed, which runs this graph; run: pip install 'nfad[runtime]'")
