"""A plain server of onnxruntime over gRPC: states by sequence in a dict, a request after another.

What one writes in an afternoon, with the transport and the messages of `ostinato serve`. Prints its
port. DTLN runs as its authors run it: two sessions, NumPy's transforms between them.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import onnxruntime

from benchmarks import dtln
from benchmarks.serve_models import STATE, denoiser
from ostinato.serve.messages import MESSAGES, SERVICE

Step = Callable[[np.ndarray, Any], tuple[np.ndarray, Any]]


def _session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    # One request on each core, which is the best for many streams.
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def dtln_step(given: Path) -> Step:
    """Blocks `[frames, 1, 512]` and the states of both models."""
    first, second = (_session(path) for path in dtln.paths(given))

    def step(blocks: np.ndarray, states: Any) -> tuple[np.ndarray, Any]:
        a, b = states or (np.zeros((1, *STATE), np.float32),) * 2
        cleaned = np.empty_like(blocks)
        for i, block in enumerate(blocks[:, 0]):
            spectrum = np.fft.rfft(block)
            magnitude = np.abs(spectrum).astype(np.float32).reshape(1, 1, -1)
            mask, a = first.run(None, {"input_2": magnitude, "input_3": a})
            estimate = np.fft.irfft(spectrum * mask[0, 0]).astype(np.float32).reshape(1, 1, -1)
            cleaned[i], b = (x[0] if x.ndim == 3 else x for x in second.run(
                None, {"input_4": estimate, "input_5": b}))  # fmt: skip
        return cleaned, (a, b)

    return step


def denoiser_step() -> Step:
    """Magnitudes `[frames, 1, 161]` and the state of the demo's denoiser."""
    model = denoiser()
    session = _session(model.path)
    shape = session.get_inputs()[1].shape
    zeros = np.zeros([size if isinstance(size, int) else 1 for size in shape], np.float32)

    def step(x: np.ndarray, state: Any) -> tuple[np.ndarray, Any]:
        feeds = {model.input: x, "state": zeros if state is None else state}
        mask, after = session.run([model.output, "state_out"], feeds)
        return mask, after

    return step


class _Calls:
    """The two calls that the load needs."""

    def __init__(self, step: Step, threads: int) -> None:
        self._step, self._states = step, dict[str, Any]()
        self._executor = ThreadPoolExecutor(threads)

    async def infer(self, message: Any, context: Any) -> Any:
        key = message.parameters["sequence_id"].string_param
        (item,), (data,) = message.inputs, message.raw_input_contents
        x = np.frombuffer(data, np.float32).reshape(tuple(item.shape))
        states = self._states.get(key)
        if message.parameters["sequence_start"].bool_param:
            states = None
        loop = asyncio.get_running_loop()
        y, self._states[key] = await loop.run_in_executor(self._executor, self._step, x, states)
        response = MESSAGES["ModelInferResponse"](model_name=message.model_name)
        response.outputs.add(name="y", datatype="FP32", shape=y.shape)
        response.raw_output_contents.append(y.tobytes())
        return response

    async def infer_streamed(self, messages: AsyncIterator[Any], context: Any) -> Any:
        async for message in messages:
            answer = await self.infer(message, context)
            yield MESSAGES["ModelStreamInferResponse"](infer_response=answer)


async def _serve(step: Step, threads: int) -> None:
    server = grpc.aio.server()
    calls, parse = _Calls(step, threads), MESSAGES["ModelInferRequest"].FromString
    handlers = {
        "ModelInfer": grpc.unary_unary_rpc_method_handler(
            calls.infer, parse, MESSAGES["ModelInferResponse"].SerializeToString
        ),
        "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(
            calls.infer_streamed, parse, MESSAGES["ModelStreamInferResponse"].SerializeToString
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtln", type=Path, help="folder of the DTLN models; else the denoiser")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    step = dtln_step(given.dtln) if given.dtln else denoiser_step()
    asyncio.run(_serve(step, given.threads))


if __name__ == "__main__":
    main()
