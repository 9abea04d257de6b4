"""RNN, GRU and LSTM as the operator documents define them: NumPy, float64, plain loops.

https://onnx.ai/onnx/operators/onnx__RNN.html, onnx__GRU.html, onnx__LSTM.html. Slow on purpose,
one row and one step at a time, so that every line can be held against a line of the document.
Where the documents are silent: a row of length 0 keeps its initial state, padded elements of Y
are 0, and `clip` bounds the input of every activation, `h(C)` included. Absent outputs of the
operator are still returned here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Array = np.ndarray
Function = Callable[[Array], Array]


def _sigmoid(x: Array) -> Array:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), 1 - 1 / (1 + np.exp(-np.abs(x))))


# name -> (function of x, alpha, beta; default of alpha; default of beta), None: takes none
_FUNCTIONS = {
    "relu": (lambda x, a, b: np.where(np.isnan(x), x, np.maximum(0, x)), None, None),
    "tanh": (lambda x, a, b: np.tanh(x), None, None),
    "sigmoid": (lambda x, a, b: _sigmoid(x), None, None),
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: np.where(x >= 0, x, a * x), 0.01, None),
    "thresholdedrelu": (lambda x, a, b: np.where(x >= a, x, 0), 1.0, None),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), np.nan, np.nan),
    "hardsigmoid": (lambda x, a, b: np.minimum(np.maximum(a * x + b, 0), 1), 0.2, 0.5),
    "elu": (lambda x, a, b: np.where(x >= 0, x, a * (np.exp(np.minimum(x, 0)) - 1)), 1.0, None),
    "softsign": (lambda x, a, b: x / (1 + np.abs(x)), None, None),
    "softplus": (lambda x, a, b: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0), None, None),
}


def activation_functions(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float], clip: float | None
) -> list[Function]:
    """One function for each name; alphas and betas are taken in order by those that need one."""
    alphas, betas = list(alphas), list(betas)
    functions = []
    for name in names:
        formula, alpha, beta = _FUNCTIONS[name.lower()]
        if alpha is not None and alphas:
            alpha = alphas.pop(0)
        if beta is not None and betas:
            beta = betas.pop(0)
        # Attributes are float32 in a model file.
        functions.append(
            _Clipped(
                formula,
                None if alpha is None else float(np.float32(alpha)),
                None if beta is None else float(np.float32(beta)),
                None if clip is None else float(np.float32(clip)),
            )
        )
    return functions


class _Clipped:
    def __init__(self, formula, alpha, beta, clip):
        self.formula, self.alpha, self.beta, self.clip = formula, alpha, beta, clip

    def __call__(self, x: Array) -> Array:
        if self.clip is not None:
            x = np.clip(x, -self.clip, self.clip)
        return self.formula(x, self.alpha, self.beta)


def _f64(x: Array | None) -> Array | None:
    return None if x is None else np.asarray(x).astype(np.float64)


def _time_major(X: Array, layout: int) -> Array:
    return np.swapaxes(X, 0, 1) if layout else X


def _reverses(direction: str) -> list[bool]:
    return {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]


def _steps(length: int, reverse: bool) -> list[int]:
    return list(range(length))[::-1] if reverse else list(range(length))


def _start(initial: Array | None, layout: int, d: int, row: int, size: int) -> Array:
    if initial is None:
        return np.zeros(size)
    return (initial[row, d] if layout else initial[d, row]).copy()


def _results(Y: Array, states: list[Array], layout: int) -> tuple[Array, ...]:
    """From Y [S, D, B, H] and states [D, B, H] to what `layout` asks for."""
    if layout:
        return (np.transpose(Y, (2, 0, 1, 3)), *(np.swapaxes(state, 0, 1) for state in states))
    return (Y, *states)


def rnn(
    X, W, R, B=None, sequence_lens=None, initial_h=None, *, direction="forward", layout=0,
    activations=None, activation_alpha=(), activation_beta=(), clip=None,
):  # fmt: skip
    """Returns `Y, Y_h`."""
    X, W, R, B, initial_h = map(_f64, (X, W, R, B, initial_h))
    X = _time_major(X, layout)
    reverses = _reverses(direction)
    D, S, N, H = len(reverses), X.shape[0], X.shape[1], R.shape[2]
    names = activations or ["Tanh"] * D
    functions = activation_functions(names, activation_alpha, activation_beta, clip)
    Y, Y_h = np.zeros((S, D, N, H)), np.zeros((D, N, H))
    for d in range(D):
        f = functions[d]
        Wb, Rb = (np.zeros(H), np.zeros(H)) if B is None else (B[d, :H], B[d, H:])
        for n in range(N):
            length = S if sequence_lens is None else sequence_lens[n]
            h = _start(initial_h, layout, d, n, H)
            for t in _steps(length, reverses[d]):
                h = f(X[t, n] @ W[d].T + h @ R[d].T + Wb + Rb)
                Y[t, d, n] = h
            Y_h[d, n] = h
    return _results(Y, [Y_h], layout)


def gru(
    X, W, R, B=None, sequence_lens=None, initial_h=None, *, direction="forward", layout=0,
    activations=None, activation_alpha=(), activation_beta=(), clip=None, linear_before_reset=0,
):  # fmt: skip
    """Returns `Y, Y_h`."""
    X, W, R, B, initial_h = map(_f64, (X, W, R, B, initial_h))
    X = _time_major(X, layout)
    reverses = _reverses(direction)
    D, S, N, H = len(reverses), X.shape[0], X.shape[1], R.shape[2]
    names = activations or ["Sigmoid", "Tanh"] * D
    functions = activation_functions(names, activation_alpha, activation_beta, clip)
    Y, Y_h = np.zeros((S, D, N, H)), np.zeros((D, N, H))
    for d in range(D):
        f, g = functions[2 * d : 2 * d + 2]
        Wz, Wr, Wh = W[d, :H], W[d, H : 2 * H], W[d, 2 * H :]
        Rz, Rr, Rh = R[d, :H], R[d, H : 2 * H], R[d, 2 * H :]
        biases = np.zeros(6 * H) if B is None else B[d]
        Wbz, Wbr, Wbh, Rbz, Rbr, Rbh = np.split(biases, 6)
        for n in range(N):
            length = S if sequence_lens is None else sequence_lens[n]
            h = _start(initial_h, layout, d, n, H)
            for t in _steps(length, reverses[d]):
                x = X[t, n]
                z = f(x @ Wz.T + h @ Rz.T + Wbz + Rbz)
                r = f(x @ Wr.T + h @ Rr.T + Wbr + Rbr)
                if linear_before_reset:
                    candidate = g(x @ Wh.T + r * (h @ Rh.T + Rbh) + Wbh)
                else:
                    candidate = g(x @ Wh.T + (r * h) @ Rh.T + Rbh + Wbh)
                h = (1 - z) * candidate + z * h
                Y[t, d, n] = h
            Y_h[d, n] = h
    return _results(Y, [Y_h], layout)


def lstm(
    X, W, R, B=None, sequence_lens=None, initial_h=None, initial_c=None, P=None, *,
    direction="forward", layout=0, activations=None, activation_alpha=(), activation_beta=(),
    clip=None, input_forget=0,
):  # fmt: skip
    """Returns `Y, Y_h, Y_c`."""
    X, W, R, B, initial_h, initial_c, P = map(_f64, (X, W, R, B, initial_h, initial_c, P))
    X = _time_major(X, layout)
    reverses = _reverses(direction)
    D, S, N, H = len(reverses), X.shape[0], X.shape[1], R.shape[2]
    names = activations or ["Sigmoid", "Tanh", "Tanh"] * D
    functions = activation_functions(names, activation_alpha, activation_beta, clip)
    Y, Y_h, Y_c = np.zeros((S, D, N, H)), np.zeros((D, N, H)), np.zeros((D, N, H))
    for d in range(D):
        f, g, h_of = functions[3 * d : 3 * d + 3]
        Wi, Wo, Wf, Wc = np.split(W[d], 4)
        Ri, Ro, Rf, Rc = np.split(R[d], 4)
        biases = np.zeros(8 * H) if B is None else B[d]
        Wbi, Wbo, Wbf, Wbc, Rbi, Rbo, Rbf, Rbc = np.split(biases, 8)
        Pi, Po, Pf = np.split(np.zeros(3 * H) if P is None else P[d], 3)
        for n in range(N):
            length = S if sequence_lens is None else sequence_lens[n]
            h = _start(initial_h, layout, d, n, H)
            c = _start(initial_c, layout, d, n, H)
            for t in _steps(length, reverses[d]):
                x = X[t, n]
                i = f(x @ Wi.T + h @ Ri.T + Pi * c + Wbi + Rbi)
                forget = f(x @ Wf.T + h @ Rf.T + Pf * c + Wbf + Rbf)
                if input_forget:
                    forget = 1 - i
                candidate = g(x @ Wc.T + h @ Rc.T + Wbc + Rbc)
                c = forget * c + i * candidate
                o = f(x @ Wo.T + h @ Ro.T + Po * c + Wbo + Rbo)
                h = o * h_of(c)
                Y[t, d, n] = h
            Y_h[d, n], Y_c[d, n] = h, c
    return _results(Y, [Y_h, Y_c], layout)
