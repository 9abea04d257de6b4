"""No damage to a file may crash, hang or end in an error that is not ours."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter

import onnx

from ostinato.errors import OstinatoError
from ostinato.optimization import optimize
from tests.golden import parse

CASES = 1500
SLOWEST_SECONDS = 2.0

MODELS = (
    """
    g (float[N, 4] x, bool c) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> {
        t = Mul(x, w)
        y = If (c) <
            then_branch = a () => (float[N, 4] p) { p = Exp(t) },
            else_branch = b () => (float[N, 4] q) <float[1] z = {1}> { q = Add(t, z) }>
    }
    """,
    """
    g (float[1, 2] x, float[2] h) => (float[2] hn, float[1, 2] y) {
        hn, y = Scan <num_scan_inputs = 1, scan_input_axes = [0],
            body = b (float[2] s, float[2] e) => (float[2] sn, float[2] o) {
                sn = Add(s, e)
                o = Neg(sn)
            }> (h, x)
    }
    """,
    """
    g (float[N] x) => (float[N] y) <int64 m = {3}, bool c = {1}> {
        y = Loop(m, c, x) <body = b (int64 i, bool d, float[N] s) => (bool e, float[N] sn) {
            e = Identity(d)
            sn = Exp(s)
        }>
    }
    """,
    """
    <ir_version: 8, opset_import: ["": 17, "local": 1]>
    g (float[N, 4] x) => (float[M] y) <int64[1] s = {-1}, int64[2] t = {4, 4}, int64 n = {9}> {
        a = local.f <k = 1.5> (x)
        q = ConstantOfShape <value = int64[1] {1}> (t)
        r = Reshape(q, s)
        u = Range(n, n, n)
        v = Gather(r, u)
        y = Reshape(a, s)
    }
    <domain: "local", opset_import: ["": 17]>
    f <k> (v) => (w) { w = LeakyRelu <alpha: float = @k> (v) }
    """,
    """
    g (float[5, 1, 2] x) => (float[5, 1, 1, 1] y)
    <float[1, 3, 2] w = {1, 2, 3, 4, 5, 6}, float[1, 3, 1] r = {1, 2, 3}> {
        y = GRU <hidden_size = 1, activations = ["Sigmoid", "Tanh"]> (x, w, r)
    }
    """,
)


def damage(data: bytes, chance: random.Random) -> bytes:
    """`data` cut short, or with a few bytes flipped, replaced, removed or put in."""
    if chance.random() < 0.2:
        return data[: chance.randrange(len(data))]
    damaged = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        at = chance.randrange(len(damaged))
        kind = chance.random()
        if kind < 0.5:
            damaged[at] ^= 1 << chance.randrange(8)
        elif kind < 0.8:
            damaged[at] = chance.randrange(256)
        elif kind < 0.9:
            del damaged[at]
        else:
            damaged.insert(at, chance.choice((0, 1, 127, 128, 255)))
    return bytes(damaged)


def is_valid(data: bytes) -> bool:
    """Whether ONNX allows the file; more are read, such as one whose output has no shape."""
    try:
        onnx.checker.check_model(data)
    except Exception:
        return False
    return True


def main(seed: int) -> None:
    """Optimise damaged models; ends with an exception on the first that is not refused well."""
    chance = random.Random(seed)
    models = [parse(text).SerializeToString() for text in MODELS]
    outcomes: Counter[str] = Counter()
    for _ in range(CASES):
        data = damage(chance.choice(models), chance)
        start = time.perf_counter()
        try:
            optimized = optimize(data)
            if is_valid(data):
                onnx.checker.check_model(optimized)
            outcomes["accepted"] += 1
        except OstinatoError as error:
            outcomes[type(error).__name__] += 1
        except BaseException:
            print("damaged file:", data.hex())
            raise
        if time.perf_counter() - start > SLOWEST_SECONDS:
            raise TimeoutError(data.hex())
    print(outcomes["accepted"], outcomes["ModelError"])


def test_damaged_models_are_refused():
    command = [sys.executable, "-m", "tests.model.test_damaged_files", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    accepted, refused = map(int, done.stdout.split())
    assert accepted > 20 and refused > CASES / 2


if __name__ == "__main__":
    main(int(sys.argv[1]))
