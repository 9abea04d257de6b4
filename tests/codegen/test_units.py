from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest

import ostinato
from ostinato.codegen import objects, units
from ostinato.codegen.llvm import emit_object, unkept
from ostinato.codegen.relocatable import NotRelocatable, join
from ostinato.codegen.target import Target, host_target
from tests import unoptimized
from tests.by_hand import emit
from tests.golden import parse

MODEL = """
    g (float[N, 8] x) => (float[N, 8] y, float[N, 8] z) {{
        a = Tanh(x)
        y = Softmax <axis = 1> (a)
        b = {last}(y)
        z = LogSoftmax <axis = 0> (b)
    }}
    """
X = np.linspace(-3, 3, 40, dtype=np.float32).reshape(5, 8)


@pytest.fixture(autouse=True)
def short_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "SHORTEST", 1000)


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collects the modules of all models that are compiled."""
    found: list[str] = []

    def collect(text: str, target: Target, *_: object) -> bytes:
        found.append(text)
        return emit_object(text, target)

    monkeypatch.setattr("ostinato.compiler.emit_object", collect)
    return found


def run(last: str, **options: object) -> list[np.ndarray]:
    return ostinato.InferenceSession(parse(MODEL.format(last=last)), **options).run(None, {"x": X})


def test_kernels_are_units_that_do_not_depend_on_the_model(texts: list[str]) -> None:
    run("Sigmoid", cache_dir=None)
    run("Sin", cache_dir=None)
    first, second = (units.divide(text) for text in texts)
    assert len(set(first.kernels) & set(second.kernels)) > 0
    assert set(first.kernels) != set(second.kernels)
    for one in (first, second):
        # What kernels call is compiled once.
        assert "define hidden i1 @safepoint(" in one.rest
        assert not any("define internal" in kernel for kernel in one.kernels)
        names = [re.search('@"(kernel[^"]*)"', kernel)[1] for kernel in one.kernels]
        assert len(set(names)) == len(names)
        for name in names:
            for use in ("declare hidden", "call"):
                assert re.search(f'{use} (void|i1) @"{name}"', one.rest)


def test_kernels_that_differ_in_their_names_alone_are_one_unit(texts: list[str]) -> None:
    run("Sigmoid", cache_dir=None)
    whole = units.divide(texts[0])
    unit, name = whole.names[0]
    (block,) = (b for b in texts[0].split("\n}\n") if re.search(f'define internal .*@"{name}"', b))
    block += "\n}\n"
    function = block[block.index("define internal") :]
    again = function.replace(f'@"{name}"', f'@"{name}.again"')
    divided = units.divide(texts[0].replace(block, block + again))
    assert divided.kernels == whole.kernels
    assert {(unit, name), (unit, f"{name}.again")} <= {*divided.names}
    assert emit_object(divided.rest, host_target())


def test_short_modules_are_whole(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "SHORTEST", 10**6)
    run("Sigmoid", cache_dir=None)
    assert units.divide(texts[0]) == units.Units(texts[0], ())
    assert len(units.divide(texts[0], 1000).kernels) > 1


def test_tests_compile_kernels_that_modules_share_once(
    texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unoptimized, "SHORTEST", 1000)
    run("Sigmoid", cache_dir=None)
    run("Sin", cache_dir=None)
    unoptimized._emitted.cache_clear()
    for text in texts:
        unoptimized.emit_object(text, host_target())
    first, second = (units.divide(text, 1000).kernels for text in texts)
    shared = set(first) & set(second)
    assert unoptimized._emitted.cache_info()[:2] == (len(shared), 2 + len({*first, *second}))


@pytest.mark.parametrize("threads", [1, 2])
def test_joined_units_compute_what_the_module_does(
    threads: int, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    divided = run("Sigmoid", threads=threads, cache_dir=tmp_path)
    monkeypatch.setattr(units, "SHORTEST", 10**6)
    whole = run("Sigmoid", threads=threads, cache_dir=None)
    for a, b in zip(divided, whole, strict=True):
        assert a.tobytes() == b.tobytes()


def test_a_changed_model_compiles_only_what_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    compiled: list[str] = []
    make = ostinato.codegen.llvm.make_object
    monkeypatch.setattr(
        "ostinato.codegen.llvm.make_object", lambda *one: compiled.append(one[0]) or make(*one)
    )
    monkeypatch.setattr("ostinato.compiler.kernel_store", KERNEL_STORE)
    run("Sigmoid", cache_dir=tmp_path)
    before, compiled[:] = set(compiled), []
    assert len(before) > 1
    run("Sin", cache_dir=tmp_path)
    assert compiled and not before & set(compiled)
    known, compiled[:] = len(compiled), []
    # A damaged entry is compiled anew.
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-7])
    run("Sin", cache_dir=tmp_path)
    assert len(compiled) > known


# That of users: a fixture gives tests one of their own.
KERNEL_STORE = ostinato.compiler.kernel_store


def test_only_objects_are_joined() -> None:
    with pytest.raises(NotRelocatable, match="no relocatable object"):
        join([b"\x7fELF\x02\x01\x01" + bytes(57)])
    code = emit("define i64 @entry() nounwind {\n  ret i64 3\n}\n")
    for damaged in (b"", code[:-1], code[:100]):
        with pytest.raises(NotRelocatable):
            join([code, damaged])


def test_symbols_are_shared_and_local_ones_are_not() -> None:
    from ostinato.codegen.objects import load

    helper = "define internal i64 @two() noinline nounwind {{\n  ret i64 {0}\n}}\n"
    calls = 'define hidden i64 @"{0}"() nounwind {{\n  %r = call i64 @two()\n  ret i64 %r\n}}\n'
    main = (
        "declare hidden i64 @a()\ndeclare hidden i64 @b()\ndefine i64 @f() nounwind {\n"
        "  %a = call i64 @a()\n  %b = call i64 @b()\n  %c = mul i64 %a, %b\n  ret i64 %c\n}\n"
    )
    objects = [main, helper.format(5) + calls.format("a"), helper.format(7) + calls.format("b")]
    loaded = load(join([emit_object(text, host_target()) for text in objects]), ["f"])
    import ctypes

    assert ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.address("f"))() == 35


PLAIN = """
target triple = "x86_64-unknown-linux-gnu"
%Pair = type {{ i64, i64 }}
@table = global i64 1
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
define internal i64 @"kernel.k1"(ptr noalias %pair) #0 {{
  %last = getelementptr %Pair, ptr %pair, i64 0, i32 1
  %found = load i64, ptr %last
  ret i64 %found
}}
define internal i64 @seldom(i64 %n) nounwind noinline optnone {{
  ; {filler}
  %most = call i64 @llvm.smin.i64(i64 %n, i64 7)
  ret i64 %most
}}
define i64 @of_variables() nounwind noinline optnone {{
  %n = load i64, ptr @table
  ret i64 %n
}}
define i64 @begin(ptr %pair) nounwind noinline optnone {{
  %n = call i64 @"kernel.k1"(ptr %pair)
  %most = call i64 @seldom(i64 %n)
  ret i64 %most
}}
define i64 @again(i64 %n) #0 {{
  %least = call i64 @llvm.smax.i64(i64 %n, i64 3)
  %most = call i64 @seldom(i64 %least)
  ret i64 %most
}}
attributes #0 = {{ noinline nounwind }}
"""


def heads(text: str) -> list[str]:
    """The first lines of functions."""
    return [line for line in text.split("\n") if line.startswith(("define", "declare"))]


def test_plain_functions_are_a_unit() -> None:
    divided = units.apart(PLAIN.format(filler="-" * units._SHORTEST_PLAIN))
    assert divided is not None
    rest, plain = divided
    assert heads(rest) == [
        "declare i64 @llvm.smax.i64(i64, i64)",
        "declare hidden i64 @seldom(i64 %n)",
        'define hidden i64 @"kernel.k1"(ptr noalias %pair) #0 {',
        "define i64 @of_variables() nounwind noinline optnone {",
        "define i64 @again(i64 %n) #0 {",
    ]
    assert heads(plain) == [
        "declare i64 @llvm.smin.i64(i64, i64)",
        'declare hidden i64 @"kernel.k1"(ptr noalias %pair)',
        "define hidden i64 @seldom(i64 %n) nounwind noinline optnone {",
        "define i64 @begin(ptr %pair) nounwind noinline optnone {",
    ]
    assert ("@table" in rest, "@table" in plain) == (True, False)
    # What is joined runs as one.
    text = PLAIN.format(filler="-" * units._SHORTEST_PLAIN)
    data = emit_object(text, host_target(), unkept)
    code = objects.load(data, ("begin", "again", "of_variables"), {})
    pair = np.array([4, 9])
    for name, given, expected in (("begin", pair.ctypes.data, 7), ("again", 1, 3)):
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address(name))
        assert function(given) == expected


@pytest.mark.parametrize("threads", [1, 2])
def test_entry_is_compiled_apart(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what threads need around it."""
    plain: list[str] = []

    def note(text: str) -> tuple[str, str] | None:
        found = units.apart(text)
        plain.append("" if found is None else found[1])
        return found

    monkeypatch.setattr("ostinato.codegen.llvm.apart", note)
    monkeypatch.setattr(units, "_SHORTEST_PLAIN", 0)
    model = parse(MODEL.format(last="Sigmoid"))
    results = []
    for longest in (0, 10**6):
        monkeypatch.setattr("ostinato.codegen.entry._LONG", longest)
        session = ostinato.InferenceSession(model, cache_dir=None, threads=threads)
        found = any(
            re.search("define .*@(entry|share)", line) for text in plain for line in heads(text)
        )
        assert found == (longest == 0)
        plain.clear()
        for rows in (X, np.tile(X, (400, 1))):
            results.append([array.tobytes() for array in session.run(None, {"x": rows})])
    assert results[:2] == results[2:]


def test_short_plain_functions_stay_with_the_rest() -> None:
    assert units.apart(PLAIN.format(filler="")) is None
