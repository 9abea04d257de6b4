from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx.external_data_helper
import onnx.helper
import onnx.numpy_helper
import onnx.parser
import onnx_ir as ir
import pytest

from ostinato.errors import ModelError, OstinatoError, UnsupportedError
from ostinato.model.load import MissingModelError, load_model
from tests.golden import parse, run_reference

SIMPLE = "g (float[N] x) => (float[N] y) <float[1] w = {2}> { t = Mul(x, w)  y = Exp(t) }"


def test_every_form_of_one_model(tmp_path: Path):
    proto = parse(SIMPLE)
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    forms = [path, str(path), path.read_bytes(), bytearray(path.read_bytes()), proto]
    for form in [*forms, ir.from_proto(proto)]:
        model = load_model(form)
        assert [node.op_type for node in model.graph] == ["Mul", "Exp"]
        assert model.graph.outputs[0].name == "y"


def test_caller_keeps_its_objects():
    proto = parse("g (float[N] x) => (float[N] y) <float[1] w = {2}> { y = Mul(x, w) }")
    proto.graph.input.append(onnx.helper.make_tensor_value_info("w", 1, [1]))
    text = proto.SerializeToString()
    load_model(proto).graph.initializers["w"].name = "renamed"
    assert proto.SerializeToString() == text

    theirs = ir.from_proto(parse(SIMPLE))
    load_model(theirs).graph.initializers["w"].name = "renamed"
    assert theirs.graph.initializers["w"].const_value.name == "w"
    assert len(theirs.graph) == 2


def test_missing_file_is_two_kinds_of_error(tmp_path: Path):
    with pytest.raises(MissingModelError, match=r"nothing\.onnx: no such file") as caught:
        load_model(tmp_path / "nothing.onnx")
    assert isinstance(caught.value, ModelError) and isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "empty"),
        (b"# Read me\nThis is no model.\n" * 20, "not an ONNX"),
        (bytes(range(7, 256)) * 10, "not an ONNX"),
        (parse(SIMPLE).SerializeToString()[:-7], "not an ONNX"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "no graph"),
    ],
)
def test_files_that_hold_no_model(tmp_path: Path, contents: bytes, message: str):
    path = tmp_path / "bad.onnx"
    path.write_bytes(contents)
    with pytest.raises(ModelError, match=rf"bad\.onnx: .*{message}"):
        load_model(path)


def test_a_later_ir_version_says_what_to_do():
    model = parse(SIMPLE)
    model.ir_version = onnx.IR_VERSION + 1
    later = rf"IR version {onnx.IR_VERSION + 1}, .* 1 to {onnx.IR_VERSION}; upgrade onnx"
    with pytest.raises(ModelError, match=later):
        load_model(model)


def test_folder_pipe_and_foreign_object(tmp_path: Path):
    with pytest.raises(ModelError, match="cannot be read"):
        load_model(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="cannot be read: it is a pipe, not a file"):
        load_model(tmp_path / "pipe")
    with pytest.raises(ModelError, match="got int"):
        load_model(3)  # type: ignore[arg-type]


def test_null_character_in_a_path():
    with pytest.raises(ModelError, match="cannot be read"):
        load_model("a\0b.onnx")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{ y = Add(x, z) }", r"node 'y' \(Add\): input 'z' is not an input"),
        ("{ y = Add(x, t)  t = Relu(y) }", r"node 'y' \(Add\): input 't'.*cycle"),
        ("{ t = Relu(y)  u = Exp(t)  y = Add(x, t) }", r"node 't' \(Relu\): input 'y'.*cycle"),
        ("{ y = Relu(x)  y = Exp(x) }", r"node 'y' \(Exp\): output 'y' has the name"),
        ("{ x = Relu(x)  y = Exp(x) }", "output 'x' has the name"),
        ("{ t = Relu(x) }", "output 'y' is not produced"),
        ("{ y = Add(x) }", "input size 1"),
        ("{ y = Relu <alpha = 1.0> (x) }", "alpha"),
        ("{ y = Transpose <perm = 1> (x) }", "perm"),
        ("{ y = other.Foo(x) }", r"\(Foo\): no opset is imported for domain 'other'"),
        ("<float w = {1}, float w = {2}> { y = Mul(x, w) }", "two initializers are named 'w'"),
    ],
)
def test_broken_graphs(body: str, message: str):
    with pytest.raises(ModelError, match=message):
        load_model(parse(f"g (float[N] x) => (float[N] y) {body}"))


def test_broken_inside_a_branch():
    text = """
        g (bool c, float[N] x) => (float[N] y) {
            y = If (c) <
                then_branch = a () => (float[N] p) { p = Add(x, nowhere) },
                else_branch = b () => (float[N] q) { q = Relu(x) }>
        }
        """
    with pytest.raises(ModelError, match=r"node 'p' \(Add\): input 'nowhere'"):
        load_model(parse(text))


@pytest.mark.parametrize("name", ["inputs", "outputs"])
def test_repeated_interface_names(name: str):
    pair = "(float[N] x, float[N] x)", "(float[N] y)"
    if name == "outputs":
        pair = "(float[N] x)", "(float[N] y, float[N] y)"
    with pytest.raises(ModelError, match=f"two {name} are named"):
        load_model(parse(f"g {pair[0]} => {pair[1]} {{ y = Relu(x) }}"))


def test_unknown_operator_is_unsupported_by_name():
    with pytest.raises(UnsupportedError, match=r"node 'y' \(Foo\): ai.onnx version 17"):
        load_model(parse("g (float[N] x) => (float[N] y) { y = Foo(x) }"))
    header = '<ir_version: 8, opset_import: ["": 17, "com.maker": 1]>'
    with pytest.raises(UnsupportedError, match=r"node 'n' \(Foo\): com.maker version 1"):
        load_model(parse(header + "g (float[N] x) => (float[N] y) { [n] y = com.maker.Foo(x) }"))


@pytest.mark.parametrize("opset", [0, 9999])
def test_opset_that_onnx_does_not_know(opset: int):
    with pytest.raises(ModelError, match=f"opset {opset} of ai.onnx, the installed onnx"):
        load_model(parse(SIMPLE, opset))


def test_nodes_without_an_operator_are_refused() -> None:
    node = onnx.NodeProto(name="n", input=["x"], output=["y"])
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([node], "g", [value], [result])
    with pytest.raises(ModelError, match="node 'n': it names no operator"):
        load_model(onnx.helper.make_model(graph))


def test_no_opset_and_two_opsets():
    proto = parse(SIMPLE)
    second = proto.opset_import.add(domain="ai.onnx", version=16)
    with pytest.raises(ModelError, match="two versions"):
        load_model(proto)
    second.version = 17
    load_model(proto)
    del proto.opset_import[:]
    with pytest.raises(ModelError, match="no opset is imported"):
        load_model(proto)


def test_tensor_whose_data_does_not_fit():
    proto = parse(SIMPLE)
    proto.graph.initializer[0].dims[0] = 1 << 40
    with pytest.raises(ModelError, match="w"):
        load_model(proto)


def test_functions_are_checked():
    header = '<ir_version: 8, opset_import: ["": 17, "local": 1]>'
    call = "g (float[N] x) => (float[N] y) { y = local.f(x) }"
    function = '<domain: "local", opset_import: ["": 17, "local": 1]> f (v) => (w) '
    load_model(parse(f"{header} {call} {function} {{ w = Exp(v) }}"))
    for body in ("w = Exp(u)", "u = Exp(v)", "w = local.f(v)"):
        with pytest.raises(ModelError):
            load_model(parse(f"{header} {call} {function} {{ {body} }}"))
    with pytest.raises(UnsupportedError, match="Foo"):
        load_model(parse(f"{header} {call} {function} {{ w = Foo(v) }}"))


class TestExternalData:
    def save(self, folder: Path) -> Path:
        weights = np.arange(300, dtype=np.float32)
        proto = parse("g (float[N, 300] x) => (float[N, 300] y) { y = Mul(x, w) }")
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
        path = folder / "m.onnx"
        onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
        return path

    def test_is_read(self, tmp_path: Path):
        model = load_model(self.save(tmp_path))
        np.testing.assert_array_equal(
            model.graph.initializers["w"].const_value.numpy(), np.arange(300, dtype=np.float32)
        )

    def test_of_an_onnx_ir_model_is_read(self, tmp_path: Path):
        theirs = ir.load(self.save(tmp_path))
        loaded = load_model(theirs).graph.initializers["w"].const_value
        assert loaded.numpy()[7] == 7
        assert isinstance(theirs.graph.initializers["w"].const_value, ir.ExternalTensor)

    def test_missing_file(self, tmp_path: Path):
        path = self.save(tmp_path)
        (tmp_path / "w.bin").unlink()
        with pytest.raises(ModelError, match=r"m\.onnx: tensor 'w' has its data in .*'w\.bin'"):
            load_model(path)

    def test_short_file(self, tmp_path: Path):
        path = self.save(tmp_path)
        (tmp_path / "w.bin").write_bytes(b"short")
        with pytest.raises(ModelError, match="w"):
            load_model(path)

    @pytest.mark.parametrize("location", ["../w.bin", "/etc/hostname"])
    def test_outside_of_the_folder(self, tmp_path: Path, location: str):
        folder = tmp_path / "inner"
        folder.mkdir()
        path = self.save(folder)
        (tmp_path / "w.bin").write_bytes(bytes(1200))
        proto = onnx.load(path, load_external_data=False)
        proto.graph.initializer[0].external_data[0].value = location
        path.write_bytes(proto.SerializeToString())
        with pytest.raises(ModelError, match="tensor 'w'"):
            load_model(path)

    def test_without_a_path(self, tmp_path: Path):
        data = self.save(tmp_path).read_bytes()
        with pytest.raises(ModelError, match="load the model by its path"):
            load_model(data)


def test_two_branches_with_one_name_for_two_values():
    text = """
        g (bool c, float[N] x) => (float[N] y) {
            y = If (c) <
                then_branch = a () => (float[N] p) { t = Neg(x)  p = Exp(t) },
                else_branch = b () => (float[N] p) { t = Abs(x)  p = Exp(t) }>
        }
        """
    model = load_model(parse(text))
    names = [value.name for graph in model.graphs() for node in graph for value in node.outputs]
    assert len(set(names)) == len(names)
    for condition in (True, False):
        feeds = {"c": np.array(condition), "x": np.array([-1, 2], np.float32)}
        expected = run_reference(parse(text), feeds)
        np.testing.assert_array_equal(run_reference(ir.to_proto(model), feeds), expected)


def test_messages_of_every_error_name_the_file(tmp_path: Path):
    path = tmp_path / "m.onnx"
    onnx.save(parse("g (float[N] x) => (float[N] y) { y = Add(x, z) }"), path)
    with pytest.raises(OstinatoError, match=r"m\.onnx"):
        load_model(path)


@pytest.mark.parametrize(
    ("node", "domains", "said"),
    [
        ("Sigmod(x)", '"": 18', r"version 18 has no such operator; did you mean Sigmoid\?"),
        ("Gelu(x)", '"": 9', "it is one since 20"),
        ("my.company.Fancy(x)", '"": 18, "my.company": 1', "define it as a function"),
        ("com.microsoft.Tokenizer(x)", '"": 18, "com.microsoft": 1', r"ostinato\.onnxruntime"),
    ],
)
def test_an_unknown_operator_is_refused_with_what_to_do(node: str, domains: str, said: str) -> None:
    model = onnx.parser.parse_model(
        f"<ir_version: 9, opset_import: [{domains}]> "
        f"g (float[N] x) => (float[N] y) {{ y = {node} }}"
    )
    with pytest.raises(UnsupportedError, match=said):
        load_model(model)
