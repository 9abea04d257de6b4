from __future__ import annotations

import socket
import threading
from pathlib import Path

import numpy as np
import onnx

from ostinato.serve.lanes import Job, Served
from ostinato.serve.wire import READY, Close, Inbox, encoded, packed, unpacked_step
from ostinato.serve.worker import serve

MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 2] x, float[N, 2] s)
    => (float[N, 2] y, float[N, 2] t) { y = Add(x, s)  t = Add(x, s) }"""


def test_a_worker_answers_until_the_other_end_closes(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), str(tmp_path / "m.onnx"))
    served = Served("m", str(tmp_path / "m.onnx"), {"s": "t"})
    ours, theirs = socket.socketpair()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            serve(theirs, [served])
        except BaseException as error:
            failures.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    inbox, found = Inbox(), []
    x = np.ones((1, 2), np.float32)
    jobs = Job(1, "m", {"x": x}, 5, start=True), Job(2, "m", {"x": x}, 5)
    ours.sendall(encoded(packed(jobs)))
    ours.sendall(encoded(packed([Close("m", 5), Close("m", 99)])))
    answers: dict[int, float] = {}
    while len(answers) < 2:
        found += inbox.received(ours.recv_into(inbox.space()))
        steps = map(unpacked_step, found[1:])
        answers = {n: float(o["y"][0, 0]) for step in steps for n, o in step.outcomes.items()}
    ours.close()
    worker.join(timeout=30)
    assert found[0] == READY
    assert answers == {1: 1.0, 2: 2.0}
    assert not failures
