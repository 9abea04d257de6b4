from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import ostinato
from ostinato.model.load import load_model
from ostinato.passes.indices.gather_to_slice import gather_to_slice
from ostinato.passes.pipeline import run_passes
from tests.golden import canonical_text, check, parse, run_onnxruntime, run_reference

END, FRONT = 2**63 - 1, -(2**63)
NUMBERS = "int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 back = {-1}, int64 axis = {0}"
SIZE = "s = Shape(x)  n = Gather(s, axis) "


def rewritten(text: str, opset: int = 17) -> tuple[onnx.ModelProto, onnx.ModelProto, int]:
    """A model before and after the pass, and what the pass returned; once more changes nothing."""
    source = parse(text, opset)
    model = load_model(source)
    changed = gather_to_slice(model)
    result = ir.to_proto(model)
    onnx.checker.check_model(result, full_check=True)
    assert gather_to_slice(model) == 0
    assert canonical_text(ir.to_proto(model)) == canonical_text(result)
    return source, result, changed


def writing(model: onnx.ModelProto, output: str = "y") -> tuple[str, list[list[int] | str]]:
    """The operator that makes `output`, and its inputs but the first: numbers, or a name."""
    constants = {t.name: numpy_helper.to_array(t).tolist() for t in model.graph.initializer}
    (node,) = [node for node in model.graph.node if output in node.output]
    return node.op_type, [constants.get(name, name) for name in node.input[1:]]


def outcome(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray | None:
    """The result as onnx.reference computes it, None for an error."""
    try:
        return np.asarray(run_reference(model, feeds)[0])
    except Exception:  # whatever NumPy raises for an index out of range
        return None


def compiled(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray | None:
    """The result of the compiler without fallback, None for an error."""
    try:
        session = ostinato.InferenceSession(model, cache_dir=None, fallback=False)
        return session.run(None, feeds)[0]
    except ostinato.OstinatoError:
        return None


def assert_same(got: np.ndarray | None, expected: np.ndarray | None) -> None:
    assert (got is None) == (expected is None)
    if got is not None:
        np.testing.assert_array_equal(got, expected, strict=True)


def rows(count: int) -> np.ndarray:
    return np.arange(3 * count, dtype=np.float32).reshape(count, 3)


# Range(start, limit, delta) on 5 rows, the rows that Gather picks (None: an index is out of range)
# and the bounds of the Slice that is equal. The first six are those for which Unsqueeze of start
# and limit as bounds of a Slice, without a look at their values, gives other rows or no error.
RANGES = [
    ((-3, 0, 1), [2, 3, 4], [[2], [5], [0]]),
    ((-2, 2, 1), [3, 4, 0, 1], None),
    ((3, -1, -1), [3, 2, 1, 0], [[3], [FRONT], [0], [-1]]),
    ((0, -1, 1), [], [[0], [0], [0]]),
    ((2, 9, 1), None, None),
    ((-9, 2, 1), None, None),
    ((0, 5, 1), [0, 1, 2, 3, 4], []),
    ((-5, 0, 1), [0, 1, 2, 3, 4], []),
    ((1, 4, 1), [1, 2, 3], [[1], [4], [0]]),
    ((0, 5, 2), [0, 2, 4], [[0], [5], [0], [2]]),
    ((0, 4, 2), [0, 2], [[0], [3], [0], [2]]),
    ((4, -1, -2), [4, 2, 0], [[4], [FRONT], [0], [-2]]),
    ((4, 0, -1), [4, 3, 2, 1], [[4], [0], [0], [-1]]),
    ((-1, -6, -1), [4, 3, 2, 1, 0], [[4], [FRONT], [0], [-1]]),
    ((-1, -4, -1), [4, 3, 2], [[4], [1], [0], [-1]]),
    ((-2, -6, -3), [3, 0], [[3], [FRONT], [0], [-3]]),
    ((7, 7, 1), [], [[0], [0], [0]]),
    ((2, 3, 1), [2], None),
    ((0, 6, 1), None, None),
    ((5, 3, -1), None, None),
    ((1, -7, -1), None, None),
]


@pytest.mark.parametrize(("numbers", "picked", "bounds"), RANGES)
def test_ranges_on_five_rows(
    numbers: tuple[int, int, int], picked: list[int] | None, bounds: list[list[int]] | None
) -> None:
    constants = ", ".join(f"int64 {n} = {{{v}}}" for n, v in zip("abc", numbers, strict=True))
    before, after, changed = rewritten(f"""
        g (float[5, 3] x) => (float[A, B] y) <{constants}> {{
            i = Range(a, b, c)
            y = Gather(x, i)
        }}
        """)
    assert changed == (bounds is not None)
    operator = "Gather" if bounds is None else "Slice" if bounds else "Identity"
    assert writing(after) == (operator, ["i"] if bounds is None else bounds)
    feeds = {"x": rows(5)}
    expected = None if picked is None else rows(5)[picked]
    for model in (before, after, ostinato.optimize(before)):
        assert_same(outcome(model, feeds), expected)
    assert_same(compiled(before, feeds), expected)


@pytest.mark.parametrize(
    ("nodes", "operator", "bounds"),
    [
        ("i = Range(zero, n, one)", "Identity", []),
        ("k = Range(zero, n, one)  i = Cast <to = 6> (k)", "Identity", []),
        ("m = Cast <to = 6> (n)  o = Cast <to = 6> (one)  u = Sub(o, o)  i = Range(u, m, o)",
         "Identity", []),
        ("m = Neg(n)  i = Range(m, zero, one)", "Identity", []),
        ("m = Mul(n, two)  k = Range(n, m, one)  i = Sub(k, n)", "Identity", []),
        ("m = Sub(n, one)  k = Range(zero, n, one)  i = Sub(m, k)",
         "Slice", [[-1], [FRONT], [0], [-1]]),
        ("m = Sub(n, one)  i = Range(m, back, back)", "Slice", [[-1], [FRONT], [0], [-1]]),
        ("m = Neg(n)  k = Sub(m, one)  i = Range(back, k, back)",
         "Slice", [[-1], [FRONT], [0], [-1]]),
        ("m = Neg(n)  i = Range(back, m, back)", "Slice", [[-1], [0], [0], [-1]]),
        ("m = Sub(n, one)  i = Range(m, two, back)", "Slice", [[-1], [2], [0], [-1]]),
        ("i = Range(two, n, one)", "Slice", [[2], [END], [0]]),
        ("i = Range(zero, n, two)", "Slice", [[0], [END], [0], [2]]),
        ("m = Sub(n, two)  i = Range(zero, m, one)", "Slice", [[0], [-2], [0]]),
        ("m = Sub(n, two)  i = Range(one, m, two)", "Slice", [[1], [-2], [0], [2]]),
        ("m = Sub(n, two)  k = Range(zero, m, one)  i = Add(two, k)", "Slice", [[2], [END], [0]]),
        ("v = Unsqueeze(n, axes)  w = Squeeze(v)  i = Range(zero, w, one)", "Identity", []),
        ("v = Slice(s, axes, ends)  w = Squeeze(v, axes)  i = Range(zero, w, one)",
         "Identity", []),
        ("k = Range(zero, n, one)  j = Unsqueeze(k, axes)  i = Reshape(j, all)", "Identity", []),
        ("k = Range(zero, n, one)  j = Unsqueeze(k, axes)  i = Squeeze(j, axes)",
         "Identity", []),
        # A bound that only a run tells: what is known of it is that it is a size.
        ("r = Shape(z)  m = Gather(r, axis)  i = Range(m, n, one)",
         "Slice", ["y/start", [END], [0]]),
        # No position at all, whatever the size.
        ("i = Range(zero, n, back)", "Slice", [[0], [0], [0]]),
        # Positions that need not exist, or bounds that a Slice would read in another way.
        ("i = Range(one, two, n)", "Gather", None),
        ("m = Sub(n, two)  i = Range(m, n, one)", "Gather", None),
        ("m = Sub(n, two)  i = Range(m, back, back)", "Gather", None),
        ("m = Add(n, one)  i = Range(zero, m, one)", "Gather", None),
        ("i = Range(back, n, one)", "Gather", None),
        ("i = Range(zero, two, one)", "Gather", None),
        ("r = Shape(z)  m = Gather(r, axis)  i = Range(zero, m, one)", "Gather", None),
        ("k = Range(zero, n, one)  i = Mul(k, k)", "Gather", None),
        ("k = Range(zero, n, one)  i = Mul(k, zero)", "Gather", None),
        ("k = Range(zero, n, one)  i = Add(k, k)", "Gather", None),
    ],
)  # fmt: skip
def test_ranges_of_sizes(nodes: str, operator: str, bounds: list[list[int] | str] | None) -> None:
    constants = f"{NUMBERS}, int64[1] axes = {{0}}, int64[1] ends = {{1}}, int64[1] all = {{-1}}"
    before, after, changed = rewritten(f"""
        g (float[N, 3] x, float[M, 2] z) => (float[A, B] y) <{constants}> {{
            {SIZE} {nodes}
            y = Gather(x, i)
        }}
        """)
    assert changed == (operator != "Gather")
    if bounds is not None:
        assert writing(after) == (operator, bounds)
    for count in range(5):
        for other in (0, 1, 3):
            feeds = {"x": rows(count), "z": np.zeros((other, 2), np.float32)}
            expected = outcome(before, feeds)
            assert_same(outcome(after, feeds), expected)
            if changed:
                assert expected is not None
                assert_same(run_onnxruntime(after, feeds)[0], expected)


@pytest.mark.parametrize("span", [("n", "zero", "back"), ("zero", "n", "two"), ("two", "n", "one")])
def test_what_is_compiled_gives_the_same(span: tuple[str, str, str]) -> None:
    model = parse(f"""
        g (float[N, 3] x) => (float[A, B] y) <{NUMBERS}> {{
            {SIZE}
            i = Range({", ".join(span)})
            y = Gather(x, i)
        }}
        """)
    sessions = [
        ostinato.InferenceSession(model, cache_dir=None, fallback=False, disable=disable)
        for disable in ((), ("gather_to_slice",))
    ]
    for count in range(5):
        expected = outcome(model, {"x": rows(count)})
        for session in sessions:
            try:
                got = session.run(None, {"x": rows(count)})[0]
            except ostinato.OstinatoError:
                got = None
            assert_same(got, expected)


@settings(max_examples=150, deadline=None)
@given(
    st.tuples(st.integers(-7, 7), st.integers(-7, 7), st.integers(-3, 3).filter(bool)),
    st.integers(0, 6),
    st.booleans(),
    st.booleans(),
)
def test_any_range_on_any_size(
    numbers: tuple[int, int, int], count: int, from_size: bool, is_named: bool
) -> None:
    """start, limit, delta, each bound perhaps moved by the size: an error stays one."""
    constants = ", ".join(f"int64 {n} = {{{v}}}" for n, v in zip("abc", numbers, strict=True))
    bound = "q = Add(a, n)" if from_size else "q = Identity(a)"
    before, after, changed = rewritten(f"""
        g (float[{"N" if is_named else count}, 3] x) => (float[A, B] y) <{constants}, {NUMBERS}> {{
            {SIZE} {bound}
            p = Add(b, n)
            i = Range(q, p, c)
            y = Gather(x, i)
        }}
        """)
    feeds = {"x": rows(count)}
    expected = outcome(before, feeds)
    assert_same(outcome(after, feeds), expected)
    if not is_named and expected is not None and len(expected) > 1:
        q, p = numbers[0] + from_size * count, numbers[1] + count
        indices = range(q, p, numbers[2])
        assert changed == (min(indices) >= 0 or max(indices) < 0)


@pytest.mark.parametrize(
    ("constant", "bounds"),
    [
        ("int64[3] i = {1, 2, 3}", [[1], [4], [1]]),
        ("int32[3] i = {-1, -3, -5}", [[4], [FRONT], [1], [-2]]),
        ("int64[5] i = {0, 1, 2, 3, 4}", []),
        ("int64[0] i = {}", [[0], [0], [1]]),
        ("int64[1] i = {2}", None),
        ("int64[1, 1] i = {2}", None),
        ("int64 i = {2}", None),
        ("int64[3] i = {1, 2, 4}", None),
        ("int64[2] i = {1, 1}", None),
        ("int64[2] i = {4, 5}", None),
        ("int64[2] i = {-1, 0}", None),
        ("int64[2, 2] i = {0, 1, 2, 3}", None),
        ("int64[2] i = {4611686018427387904, 4611686018427387905}", None),
    ],
)
@pytest.mark.parametrize(("axis", "opset"), [(1, 17), (-1, 17), (1, 10), (-1, 12)])
def test_constant_indices(
    constant: str, bounds: list[list[int]] | None, axis: int, opset: int
) -> None:
    declaration = constant.split("=")[0]
    rank = 1 + ("[" in declaration) + declaration.count(",")
    sizes = ", ".join("ABC"[:rank])
    before, after, changed = rewritten(
        f"g (float[2, 5] x) => (float[{sizes}] y) <{constant}> {{"
        f" y = Gather <axis = {axis}> (x, i) }}",
        opset,
    )
    operator, operands = writing(after)
    assert changed == (bounds is not None)
    if bounds is None:
        assert operator == "Gather"
    else:
        assert (operator, operands) == ("Slice" if bounds else "Identity", bounds)
    feeds = {"x": np.arange(10, dtype=np.float32).reshape(2, 5)}
    assert_same(outcome(after, feeds), outcome(before, feeds))


def test_opsets_whose_slice_has_no_steps() -> None:
    text = "g (float[5] x) => (float[3] y) <int64[3] i = {0, 1, 2}> { y = Gather(x, i) }"
    assert rewritten(text, 9)[2] == 0


@pytest.mark.parametrize("opset", [11, 13, 17, 24])
def test_indices_of_more_axes(opset: int) -> None:
    """The other axes of the indices, of one element, are put back."""
    axes = '"y/constant_3"' if opset >= 13 else ""
    attributes, operand = ("", f", {axes}") if axes else ("<axes = [0, 2]>", "")
    extra = ', int64[2] "y/constant_3" = {0, 2}' if axes else ""
    check(
        gather_to_slice,
        """
        g (float[5] x) => (float[1, 3, 1] y) <int64[1, 3, 1] i = {1, 2, 3}> { y = Gather(x, i) }
        """,
        f"""
        g (float[5] x) => (float[1, 3, 1] y) <int64[1, 3, 1] i = {{1, 2, 3}},
            int64[1] "y/constant" = {{1}}, int64[1] "y/constant_1" = {{4}},
            int64[1] "y/constant_2" = {{0}}{extra}> {{
            "y/picked" = Slice(x, "y/constant", "y/constant_1", "y/constant_2")
            y = Unsqueeze {attributes} ("y/picked"{operand})
        }}
        """,
        opset=opset,
        count=1,
    )


@pytest.mark.parametrize(
    ("constants", "nodes"),
    [
        ("int64[3] axes = {0, 2, 3}", "i = Unsqueeze(k, axes)"),
        ("int64[3] axes = {0, -1, 2}", "i = Unsqueeze(k, axes)"),
        ("int64[4] to = {1, -1, 1, 1}", "i = Reshape(k, to)"),
        ("int64[4] to = {1, 3, 1, 1}", "i = Reshape(k, to)"),
        ("int64[1, 1, 1] c = {0}, int64[4] to = {1, -1, 1, 1}",
         "j = Reshape(k, to)  i = Add(c, j)"),
        ("int64[1, 1, 1, 1] c = {0}, int64[1] axes = {-1}", "j = Unsqueeze(k, axes)  m = Sub(j, c)"
         "  w = Squeeze(m, axes)  v = Unsqueeze(w, axes)  l = Squeeze(v, axes)"
         "  t = Squeeze(l, first)  u = Squeeze(t, first)  i = Reshape(u, to)"),
    ],
)  # fmt: skip
def test_shapes_of_indices(constants: str, nodes: str) -> None:
    constants += "" if "to =" in constants else ", int64[4] to = {1, -1, 1, 1}"
    before, after, changed = rewritten(f"""
        g (float[2, 5] x) => (float[2, 1, 3, 1, 1] y)
            <{NUMBERS}, int64[1] first = {{0}}, int64 four = {{4}}, {constants}> {{
            k = Range(one, four, one)
            {nodes}
            y = Gather <axis = 1> (x, i)
        }}
        """)
    assert changed == 1 and "Slice" in {node.op_type for node in after.graph.node}
    feeds = {"x": np.arange(10, dtype=np.float32).reshape(2, 5)}
    assert_same(outcome(after, feeds), outcome(before, feeds))


@pytest.mark.parametrize(
    ("constants", "nodes"),
    [
        ("int64[2] to = {1, 4}", "i = Reshape(k, to)"),
        ("int64[2] to = {0, 1}", "i = Reshape(k, to)"),
        ("int64[2] to = {1, 1}", "i = Reshape(k, to)"),
        ("int64[2] to = {1, -1}, int64[1] axes = {1}", "j = Reshape(k, to)  i = Squeeze(j, axes)"),
        ("int64[1] w = {0}", "i = Gather(k, w)"),
    ],
)
def test_reshaping_that_could_fail_stays(constants: str, nodes: str) -> None:
    text = f"""
        g (float[N, 5] x) => (float[A, B] y) <{NUMBERS}, {constants}> {{
            {SIZE}
            k = Range(zero, n, one)
            {nodes}
            v = Gather(x, i)
            y = Flatten(v)
        }}
        """
    assert rewritten(text)[2] == 0


def test_a_range_with_other_readers_stays() -> None:
    check(
        gather_to_slice,
        f"""
        g (float[N, 3] x, float[3, N] w) => (float[A, B] y, float[C, D] z, int64[N] i)
            <{NUMBERS}> {{
            {SIZE}
            i = Range(zero, n, one)
            y = Gather(x, i)
            z = Gather <axis = -1> (w, i)
        }}
        """,
        f"""
        g (float[N, 3] x, float[3, N] w) => (float[A, 3] y, float[3, D] z, int64[N] i)
            <{NUMBERS}> {{
            {SIZE}
            i = Range(zero, n, one)
            y = Identity(x)
            z = Identity(w)
        }}
        """,
        count=2,
    )


@pytest.mark.parametrize("kind", ["scan", "loop", "if"])
def test_bodies(kind: str) -> None:
    nodes = "s = Shape(x)  n = Gather(s, axis)  i = Range(two, n, one)  w = Gather(x, i)"
    texts = {
        "scan": f"y = Scan <num_scan_inputs = 1, body = b (float[3] e) => (float[A, 3] f)"
        f" {{ {nodes}  f = Add(w, e) }}> (x)",
        "loop": f"y = Loop <body = b (int64 t, bool p) => (bool p, float[A, 3] f)"
        f" {{ {nodes}  f = Neg(w) }}> (two, c)",
        "if": f"y = If (c) <then_branch = b () => (float[A, 3] f) {{ {nodes} f = Neg(w) }},"
        f" else_branch = d () => (float[D, 3] g) {{ g = Identity(x) }}>",
    }
    rank = "A, B" if kind == "if" else "A, B, C"
    before, after, changed = rewritten(
        f"g (float[N, 3] x) => (float[{rank}] y) <{NUMBERS}, bool c = {{1}}> {{ {texts[kind]} }}"
    )
    assert changed == 1
    for count in (1, 2, 4):
        x = rows(count)
        kept = x[2:] if count > 2 else x[:0]
        expected = {
            "scan": np.stack([kept + row for row in x]),
            "loop": np.stack([-kept, -kept]),
            "if": -kept,
        }[kind]
        for model in (before, after):
            assert_same(compiled(model, {"x": x}), expected)
        if kind != "loop":  # onnx.reference joins what a Loop collects along an existing axis
            assert_same(outcome(after, {"x": x}), expected)


@pytest.mark.parametrize(
    "indices",
    [
        "k = Range(one, four, one)  i = Expand(k, to)",
        "k = Range(one, four, one)  l = Unsqueeze(k, first)  i = Expand(l, to)",
        "i = Expand(few, to)",
    ],
)
def test_gather_elements(indices: str) -> None:
    before, after, changed = rewritten(f"""
        g (float[2, 5] x) => (float[2, 3] y) <{NUMBERS}, int64 four = {{4}}, int64[2] to = {{2, 3}},
            int64[1] first = {{0}}, int64[1, 3] few = {{1, 2, 3}}> {{
            {indices}
            y = GatherElements <axis = 1> (x, i)
        }}
        """)
    assert changed == 1 and writing(after) == ("Slice", [[1], [4], [1]])
    feeds = {"x": np.arange(10, dtype=np.float32).reshape(2, 5)}
    assert_same(outcome(after, feeds), outcome(before, feeds))


def test_gather_elements_at_constants() -> None:
    _, after, changed = rewritten("""
        g (float[2, 5] x) => (float[2, 2] y) <int64[2, 2] i = {-2, -4, -2, -4}> {
            y = GatherElements <axis = -1> (x, i)
        }
        """)
    assert changed == 1 and writing(after) == ("Slice", [[3], [0], [1], [-2]])
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    assert_same(outcome(after, {"x": x}), x[:, [3, 1]])


@pytest.mark.parametrize(
    "constant",
    [
        "int64[1, 3] i = {1, 2, 3}",  # one of two rows
        "int64[2, 3] i = {1, 2, 3, 0, 1, 2}",
        "int64[2, 3] i = {3, 4, 5, 3, 4, 5}",
        "int64[2, 2] i = {0, 0, 1, 1}",
    ],
)
def test_gather_elements_that_stay(constant: str) -> None:
    assert (
        rewritten(f"""
        g (float[2, 5] x) => (float[A, B] y) <{constant}> {{
            y = GatherElements <axis = 1> (x, i)
        }}
        """)[2]
        == 0
    )


def test_gather_nd() -> None:
    text = """
        g (float[5, 2] x) => (float[3, 2] y) <int64[3, 1] i = {2, 3, 4}> {
            y = GatherND <batch_dims = 0> (x, i)
        }
        """
    before, after, changed = rewritten(text)
    assert changed == 1 and writing(after) == ("Slice", [[2], [5], [0]])
    feeds = {"x": np.arange(10, dtype=np.float32).reshape(5, 2)}
    assert_same(outcome(after, feeds), outcome(before, feeds))
    batched = text.replace("batch_dims = 0", "batch_dims = 1").replace("[3, 2] y", "[5] y")
    assert rewritten(batched.replace("int64[3, 1] i = {2, 3, 4}",
                                     "int64[5, 1] i = {0, 1, 2, 3, 4}"))[2] == 0  # fmt: skip
    columns = text.replace("int64[3, 1] i = {2, 3, 4}", "int64[1, 2] i = {0, 1}")
    assert rewritten(columns.replace("[3, 2] y", "[1] y"))[2] == 0


ZEROS = "int64[2] to = {5, 2}, int64[3, 1] i = {1, 2, 3}, int64[3, 2] e = {1, 1, 2, 2, 3, 3}"


@pytest.mark.parametrize("node", ["ScatterND(z, i, u)", "ScatterElements <axis = 0> (z, e, u)"])
@pytest.mark.parametrize("opset", [13, 16, 18])
def test_scatter_into_zeros(node: str, opset: int) -> None:
    before, after, changed = rewritten(
        f"""
        g (float[3, 2] u) => (float[5, 2] y) <{ZEROS}> {{
            z = ConstantOfShape(to)
            y = {node}
        }}
        """,
        opset,
    )
    assert changed == 1 and writing(after) == ("Pad", [[1, 0, 1, 0]])
    feeds = {"u": np.array([[-0.0, 1], [2, 3], [np.nan, 5]], np.float32)}
    expected, got = outcome(before, feeds), outcome(after, feeds)
    assert expected is not None and got is not None and got.tobytes() == expected.tobytes()
    assert run_onnxruntime(after, feeds)[0].tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "change",
    [
        ("(to)", "<value = float[1] {1}> (to)"),
        ("(to)", "<value = float[1] {-0.0}> (to)"),
        ("ScatterND", 'ScatterND <reduction = "add">'),
        ("{1, 2, 3}", "{1, 3, 5}"),
        ("{1, 2, 3}", "{3, 2, 1}"),
        ("{1, 2, 3}", "{3, 4, 5}"),
        ("float[3, 2] u", "float[M, 2] u"),
    ],
)
def test_scatters_that_stay(change: tuple[str, str]) -> None:
    text = f"""
        g (float[3, 2] u) => (float[5, 2] y) <{ZEROS}> {{
            z = ConstantOfShape(to)
            y = ScatterND(z, i, u)
        }}
        """
    assert rewritten(text)[2] == 1
    assert change[0] in text
    assert rewritten(text.replace(*change))[2] == 0


def test_a_range_whose_bounds_are_not_scalars_stays() -> None:
    """Where it is an error, the error stays; shape inference refuses it where it can see it."""
    text = f"""
        g (float[N, 3] x) => (float[A, B] y) <{NUMBERS}, int64[1] at = {{0}}> {{
            s = Shape(x)
            n = Gather(s, at)
            i = Range(zero, n, one)
            y = Gather(x, i)
        }}
        """
    assert rewritten(text)[2] == 0


def test_the_relative_shift_of_xlnet() -> None:
    """As PyTorch exports it: what moves no elements but once."""
    text = """
        g (float[2, 4, 8] x) => (float[2, 4, 4] y) <int64[3] turned = {2, 8, 4},
            int64[3] shifted = {2, 4, 7}, int64[1] first = {1}, int64[1] end = {9},
            int64 zero = {0}, int64 one = {1}, int64 four = {4}> {
            a = Reshape(x, turned)
            b = Slice(a, first, end, first)
            c = Reshape(b, shifted)
            i = Range(zero, four, one)
            y = Gather <axis = 2> (c, i)
        }
        """
    optimized = ostinato.optimize(parse(text))
    assert [n.op_type for n in optimized.graph.node] == ["Reshape", "Slice", "Reshape", "Slice"]
    x = np.arange(64, dtype=np.float32).reshape(2, 4, 8)
    # Row i of the result is row i of x from column 4 - i on.
    expected = np.stack([[rows[i, 4 - i : 8 - i] for i in range(4)] for rows in x])
    assert_same(outcome(optimized, {"x": x}), expected)
    assert_same(compiled(parse(text), {"x": x}), expected)


def test_the_passes_end() -> None:
    """Slices of one element in a loop become Gather, gathers of a range Slice: no circle."""
    model = load_model(
        parse(f"""
        g (float[5, 3] x, int64[2] i) => (float[A, B, C] y, float[D, E] z, float[F, G] w)
            <{NUMBERS}, int64[1] ones = {{1}}, int64[1] axes = {{0}}, bool c = {{1}},
             int64 five = {{5}}> {{
            y = Loop <body = b (int64 t, bool p) => (bool p, float[A, 3] f) {{
                k = Unsqueeze(t, axes)
                l = Add(k, ones)
                e = Slice(x, k, l, axes)
                m = Range(two, five, one)
                o = Gather(x, m)
                f = Add(e, o)
            }}> (five, c)
            z = Gather(x, i)
            s = Shape(z)
            n = Gather(s, axis)
            r = Range(zero, n, one)
            w = Gather(z, r)
        }}
        """)
    )
    counts = run_passes(model)
    assert counts["gather_to_slice"] == 2 and counts["slice_to_gather"] == 1
    assert not any(run_passes(model).values())


def test_reference_evaluator_reports_an_index_out_of_range() -> None:
    """What `outcome` relies on."""
    model = parse("g (float[5] x, int64[1] i) => (float[1] y) { y = Gather(x, i) }")
    with pytest.raises(IndexError):
        ReferenceEvaluator(model).run(None, {"x": np.zeros(5, np.float32), "i": np.array([5])})


def test_a_sum_of_a_value_and_itself_is_read_once() -> None:
    doublings = "  ".join(f"i{k + 1} = Add(i{k}, i{k})" for k in range(35))
    types = ", ".join(f"int64[K] i{k + 1}" for k in range(35))
    text = f"""g (float[N, 3] x) => (float[M, 3] y)
    <int64 zero = {{0}}, int64 one = {{1}}, {types}> {{
        s = Shape(x)  n = Gather(s, zero)  i0 = Range(zero, n, one)
        {doublings}
        y = Gather<axis = 0>(x, i35)
    }}"""
    _, _, changed = rewritten(text)
    assert changed == 0
