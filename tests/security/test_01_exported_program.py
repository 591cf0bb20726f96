"""Finding 1: a ``.pt2`` ran code when it was opened, by a shape expression that a list of bad forms did not have.

PyTorch runs what stands in many other places of the same file, too; each has its attack here. TorchScript's code reads
and writes files.
"""

from __future__ import annotations

import ast
import copy
import io
import json
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.errors import UserError
from enginewright_builder.sources.exported_program import check_exported_program
from enginewright_builder.sources.formats import locate

HARMLESS = "Add(Mul(Integer(2), Symbol('s0', positive=True, integer=True)), Integer(-1))"
CODE = "__import__('pathlib').Path({mark!r}).touch()"
LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}


def tensor(name: str) -> dict[str, Any]:
    return {"as_tensor": {"name": name}}


def program(expression: str = HARMLESS, *, target: str = "torch.ops.aten.relu.default", name: str = "relu",
            spec: object = (1, LEAF)) -> dict[str, Any]:
    """What PyTorch writes of one node, as far as it is looked at."""
    meta = {"dtype": 7, "sizes": [{"as_expr": {"expr_str": expression, "hint": {"as_int": 3}}}]}
    node = {"target": target, "inputs": [{"name": "self", "arg": tensor("x"), "kind": 1}], "outputs": [tensor(name)],
            "metadata": {"stack_trace": 'File "net.py", line 1, in forward\n    return x.relu()'}, "name": name}
    signature = {"in_spec": json.dumps([1, LEAF]), "out_spec": json.dumps(spec), "forward_arg_names": ["x"]}
    return {"graph_module": {"graph": {"inputs": [tensor("x")], "outputs": [tensor(name)], "nodes": [node],
                                       "tensor_values": {"x": meta, name: meta}},
                             "module_call_graph": [{"fqn": "", "signature": signature}]},
            "range_constraints": {"s0": {"min_val": 2, "max_val": None}}, "torch_version": "2.15.0+cu132"}


def archive(path: Path, graph: Any, **members: bytes) -> Path:
    """``members`` are named with __ for /, and stand beside what an archive has at least."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("m/archive_format", b"pt2")
        file.writestr("m/models/model.json", json.dumps(graph))
        for name, content in members.items():
            file.writestr(f"m/{name.replace('__', '/')}", content)
    return path


def refused(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        check_exported_program(path)
    assert caught.value.reason in ("PickleRefused", "SourceCorrupt")
    assert caught.value.remedy
    return caught.value.message


def passes(path: Path) -> bool:
    try:
        check_exported_program(path)
    except UserError:
        return False
    return True


def test_what_pytorch_writes_is_let_through(tmp_path: Path) -> None:
    assert passes(archive(tmp_path / "m.pt2", program(), data__weights__weight_0=b"1234"))


@pytest.mark.parametrize("expression", [
    "(exec)((chr)(112)+(chr)(114))",  # the finding's
    "exec", "(lambda: 1)", "[exec][0]", "s0 if exec else s1", "s0.free_symbols", "s0[0]", "f's0'", "'s0'",
    "Symbol('s0', **{})", "Symbol(*s0)", "Symbol('s0').func", "Add(s0, evaluate=exec)", "Symbol('exec(1)')",
    "ｅｘｅｃ(s0)", "S0:=1", "s0 @ s1", "Add", "9**9**9**9", "Pow(9, Pow(9, 99))", "Pow(9, Integer(10**9))",
    "Pow(9, Add(Mul(0, s0), 999999999))", "LShift(1, 99999999999)", "RoundDecimal(7, -99999999999)",
    "Float('1e99999999')", "Float('1', precision=999999999)", "9" * 5000, "s0+" * 9000 + "s0", "(" * 300 + "s0"
    + ")" * 300, "-" * 3000 + "s0", "s0\x00", "s0#", "s0\\\n", "",
])
def test_expressions_of_other_forms_are_refused(expression: str, tmp_path: Path) -> None:
    refused(archive(tmp_path / "m.pt2", program(expression)))


def test_names_become_no_code(tmp_path: Path) -> None:
    """PyTorch writes the names of nodes into a program and runs it."""
    refused(archive(tmp_path / "m.pt2", program(name=f"relu = {CODE.format(mark='x')}; relu")))
    graph = program()
    graph["graph_module"]["signature"] = {"input_specs": [{"parameter": {"parameter_name": 'w"); print("'}}]}
    refused(archive(tmp_path / "m.pt2", graph))
    graph = program()
    graph["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"] = ["x=print(1)"]
    refused(archive(tmp_path / "m.pt2", graph))


@pytest.mark.parametrize("target", [
    "torch.ops.load_library", "torch.ops.load_library.__globals__.get", "torch.ops.aten.from_file.default",
    "torch.ops.aten.from_file.out", "torch.ops.aten.save.default", "torch.ops.aten.__class__", "_operator.attrgetter",
    "_operator.methodcaller", "_operator.call", "operator.attrgetter", "torch._higher_order_ops.wrap.torch.os.system",
    "torch.os.system", "torch.ops.higher_order.triton_kernel_wrapper_functional", "torch.ops.debugprims.load_tensor",
    "torch.ops.aten.add.__init__", "math.__loader__", "#extension:op", "torch.hub.load",
])
def test_only_operators_on_tensors_and_sizes_are_called(target: str, tmp_path: Path) -> None:
    refused(archive(tmp_path / "m.pt2", program(target=target)))
    graph = program()
    graph["graph_module"]["graph"]["nodes"][0]["inputs"].append({"name": "f", "arg": {"as_operator": target}})
    refused(archive(tmp_path / "m.pt2", graph))


@pytest.mark.parametrize("spec", [
    [1, {"type": "collections.defaultdict", "children_spec": [], "context": json.dumps(
        {"default_factory_module": "antigravity", "default_factory_name": "fly", "dict_context": []})}],
    [1, {"type": "builtins.dict", "children_spec": [], "context": json.dumps(
        [{"__enum__": True, "fqn": "antigravity:Fly", "name": "x"}])}],
    [2, LEAF], [1], "[", {"type": None}, [1, {**LEAF, "children_spec": [{"type": "x.Y", "context": "null"}]}],
])
def test_structures_import_nothing(spec: object, tmp_path: Path) -> None:
    refused(archive(tmp_path / "m.pt2", program(spec=spec)))


@pytest.mark.parametrize("member", [
    "models__a__b.json", "models__other.json", "models__model.txt", "data__constants__OPAQUE_OBJ_0",
    "data__constants__opaque_obj_0", "data__constants__custom_obj_0", "data__aotinductor__model__m.so",
    "data__weights__weight_0.so", "MODELS__MODEL.JSON", "data__weights__..__..__x",
])
def test_members_that_pytorch_does_not_write_are_refused(member: str, tmp_path: Path) -> None:
    """It opens all that is below ``models/``, and finds members without regard to case."""
    refused(archive(tmp_path / "m.pt2", program(), **{member: pickle.dumps(print)}))


@pytest.mark.parametrize(("path_name", "sizes"), [
    ("opaque_obj_0", []), ("custom_obj_0", []), ("../constants/tensor_0", []), ("tensor_9", []),
    ("tensor_0", [1 << 60]),
])
def test_a_configuration_names_tensors_that_are_there(path_name: str, sizes: list[int], tmp_path: Path) -> None:
    """An empty member was made a tensor of zeros, of any size."""
    meta = {"sizes": [{"as_int": size} for size in sizes]}
    config = {"config": {"c": {"path_name": path_name, "use_pickle": False, "tensor_meta": meta}}}
    refused(archive(tmp_path / "m.pt2", program(), **{
        "data__constants__tensor_0": b"",
        "data__constants__model_constants_config.json": json.dumps(config).encode()}))


@pytest.mark.parametrize("symbol", ["u99999999999", "exec(1)", "s0 "])
def test_ranges_are_of_symbols(symbol: str, tmp_path: Path) -> None:
    """PyTorch counts up to a symbol's number, one by one."""
    graph = program()
    graph["range_constraints"] = {symbol: {"min_val": 0, "max_val": 1}}
    refused(archive(tmp_path / "m.pt2", graph))


def test_metadata_is_free_at_its_own_keys_alone(tmp_path: Path) -> None:
    """A tensor may be called ``metadata``, and an argument at that name be anything."""
    graph = program()
    graph["graph_module"]["graph"]["nodes"][0]["inputs"].append(
        {"name": "f", "arg": {"as_string_to_argument": {"metadata": {"as_operator": "torch.os.system"}}}})
    refused(archive(tmp_path / "m.pt2", graph))


def test_graphs_that_are_nested_without_end_are_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("m/archive_format", b"pt2")
        file.writestr("m/models/model.json", "[" * 200_000)
    assert "nested" in refused(path)


# Python's own grammar, one expression of each form that is no arithmetic, with places for others.
_SIGNS = st.sampled_from([ast.Add(), ast.Sub(), ast.Mult(), ast.FloorDiv(), ast.Mod()])
_ARITHMETIC = st.recursive(
    st.one_of(st.integers(0, 99).map(ast.Constant), st.sampled_from(["s0", "u12"]).map(ast.Name)),
    lambda inner: st.one_of(
        st.builds(ast.BinOp, inner, _SIGNS, inner),
        st.builds(ast.UnaryOp, st.just(ast.USub()), inner),
        st.builds(lambda left, right: ast.Compare(left, [ast.GtE()], [right]), inner, inner),
        st.builds(lambda name, one, two: ast.Call(ast.Name(name), [one, two], []),
                  st.sampled_from(["Max", "Min", "FloorDiv", "Mod", "Add"]), inner, inner)), max_leaves=8)


def _foreign(inner: st.SearchStrategy[ast.expr]) -> st.SearchStrategy[ast.expr]:
    names = st.sampled_from(["real", "__class__", "func"])
    arguments = ast.arguments([], [ast.arg("x")], None, [], [], None, [])
    return st.one_of(
        st.builds(ast.Attribute, inner, names), st.builds(ast.Subscript, inner, inner),
        st.builds(lambda body: ast.Lambda(arguments, body), inner), st.builds(ast.IfExp, inner, inner, inner),
        st.builds(lambda one: ast.Call(one, [], []), inner), st.builds(lambda one: ast.Starred(one), inner).map(
            lambda one: ast.Call(ast.Name("Add"), [one], [])),
        st.builds(lambda one: ast.List([one], ast.Load()), inner), st.builds(lambda one: ast.Tuple([one, one]), inner),
        st.builds(lambda one: ast.Set([one]), inner), st.builds(lambda one: ast.Dict([one], [one]), inner),
        st.builds(lambda one: ast.ListComp(one, [ast.comprehension(ast.Name("s0"), one, [], 0)]), inner),
        st.builds(lambda one: ast.GeneratorExp(one, [ast.comprehension(ast.Name("s0"), one, [], 0)]), inner),
        st.builds(lambda one: ast.NamedExpr(ast.Name("s0"), one), inner), st.builds(ast.Await, inner),
        st.builds(ast.Yield, inner), st.builds(lambda one: ast.JoinedStr([ast.FormattedValue(one, -1)]), inner),
        st.builds(lambda one: ast.Call(ast.Name("Add"), [one], [ast.keyword("evaluate", one)]), inner),
        st.builds(lambda one: ast.BinOp(one, ast.MatMult(), one), inner),
        st.builds(lambda one: ast.Compare(one, [ast.In()], [one]), inner),
        st.builds(lambda name, one: ast.Call(ast.Name(name), [one], []),
                  st.sampled_from(["exec", "eval", "open", "print", "getattr", "sympify", "Function"]), inner),
        st.sampled_from([ast.Constant("s0"), ast.Constant(b"s0"), ast.Constant(None), ast.Constant(...),
                         ast.Name("exec"), ast.Name("Add"), ast.Constant(1j)]))


def _within(strange: st.SearchStrategy[ast.expr]) -> st.SearchStrategy[ast.expr]:
    """Something strange as part of something plain."""
    return st.one_of(
        strange, st.builds(lambda one, two: ast.BinOp(one, ast.Add(), two), strange, _ARITHMETIC),
        st.builds(lambda one, two: ast.Call(ast.Name("Max"), [two, one], []), strange, _ARITHMETIC),
        st.builds(lambda one: ast.UnaryOp(ast.USub(), one), strange))


def _text(node: ast.expr) -> str:
    return ast.unparse(ast.fix_missing_locations(ast.Expression(copy.deepcopy(node))))


@given(_ARITHMETIC.map(_text))
def test_arithmetic_over_symbols_is_let_through(expression: str) -> None:
    assert _checked(expression)


@given(_within(_foreign(_ARITHMETIC)).map(_text))
def test_every_other_expression_of_python_is_refused(expression: str) -> None:
    assert not _checked(expression)


def _checked(expression: str) -> bool:
    """Through the archive, as a source has it: without the disk."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("m/archive_format", b"pt2")
        file.writestr("m/models/model.json", json.dumps(program(expression)))
    return passes(_InMemory(buffer))  # type: ignore[arg-type]


class _InMemory:
    """As much of a path as the check needs."""

    name = "m.pt2"

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer
        self.read, self.seek, self.tell, self.seekable = buffer.read, buffer.seek, buffer.tell, buffer.seekable

    def stat(self) -> Any:
        return type("Size", (), {"st_size": len(self._buffer.getvalue())})


# With PyTorch itself.

@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            y = self.linear(x)
            return {"a.b": torch.cat([y, y])[: x.shape[0] * 2 - 1][: x.shape[0]].relu()}

    path = tmp_path_factory.mktemp("written") / "m.pt2"
    program = torch.export.export(Net(), (torch.randn(3, 4),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    torch.export.save(program, path)
    return path


def rewritten(source: Path, target: Path, change: Callable[[str], str], **members: bytes) -> Path:
    with zipfile.ZipFile(source) as before, zipfile.ZipFile(target, "w") as after:
        for name in before.namelist():
            content = before.read(name)
            after.writestr(name, change(content.decode()) if name.endswith("models/model.json") else content)
        for name, content in members.items():
            after.writestr(f"m/{name.replace('__', '/')}", content)
    return target


def attacks(mark: Path) -> Iterator[tuple[str, Callable[[str], str]]]:
    code = CODE.format(mark=str(mark))
    letters = "+".join(f"(chr)({ord(letter)})" for letter in code)
    yield "expression", lambda text: text.replace("Symbol('s", f"(exec)({letters}) or Symbol('s", 1)
    yield "name", lambda text: text.replace('"x"', json.dumps(f"x={code}"))


@pytest.mark.torch
def test_nothing_of_a_program_runs_when_it_is_loaded(written: Path, tmp_path: Path) -> None:
    from enginewright_builder.models.exported_program import load_exported_program

    for name, change in attacks(tmp_path / "ran"):
        path = rewritten(written, tmp_path / f"{name}.pt2", change)
        with pytest.raises(UserError) as caught:
            load_exported_program(path, None)
        assert not (tmp_path / "ran").exists(), name
        assert caught.value.reason == "PickleRefused"
    assert load_exported_program(written, None).interface.inputs[0].name == "x"


@pytest.mark.torch
def test_the_reader_of_an_older_pytorch_gives_the_same_members(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from enginewright_builder.models.torch_records import check_as_torch_reads
    from enginewright_builder.sources.exported_program import check_program
    from enginewright_builder.sources.torch_archive import TorchArchive

    seen: list[dict[str, int]] = []

    def check(archive: TorchArchive) -> None:
        check_program(archive)
        seen.append({name: archive.size(name) for name in archive.names})

    check_as_torch_reads(written, check)
    real = torch._C.PyTorchFileReader

    def without_sizes(path: str) -> SimpleNamespace:
        """A fake of the reader of PyTorch 2.11, which the images for GPUs have: one environment has one PyTorch."""
        reader = real(path)
        return SimpleNamespace(get_all_records=reader.get_all_records, get_record=reader.get_record)

    monkeypatch.setattr(torch._C, "PyTorchFileReader", without_sizes)
    check_as_torch_reads(written, check)
    assert seen[0] == seen[1]
    assert len(seen) == 2


@pytest.mark.torch
def test_what_pytorch_alone_sees_is_checked_as_well(written: Path, tmp_path: Path) -> None:
    """One file, two archives: Python's reader takes the directory that ends the file, PyTorch's the one at the offset
    that is stated. Neither may have what the other has not."""
    import torch

    from enginewright_builder.models.exported_program import load_exported_program

    name = dict(attacks(tmp_path / "ran"))["name"]
    evil = rewritten(written, tmp_path / "evil.pt2", name)
    # Of the same length, so that the offsets in it are those of the other.
    harmless = rewritten(written, tmp_path / "harmless.pt2", lambda text: text.ljust(len(name(text))))
    path = tmp_path / "both.pt2"
    path.write_bytes(evil.read_bytes() + harmless.read_bytes())
    check_exported_program(path)  # Python sees the harmless one
    assert b"touch" in torch._C.PyTorchFileReader(str(path)).get_record("models/model.json")
    with pytest.raises(UserError) as caught:
        load_exported_program(path, None)
    assert not (tmp_path / "ran").exists()
    assert caught.value.reason == "PickleRefused"


@pytest.mark.torch
@given(st.data())
def test_every_expression_that_pytorch_writes_is_let_through(data: st.DataObject) -> None:
    import sympy  # type: ignore[import-untyped]
    from torch.utils._sympy import functions

    symbols = [sympy.Symbol(f"s{index}", positive=True, integer=True) for index in (0, 37)]
    symbols.append(sympy.Symbol("u3", integer=True))
    leaves = st.one_of(st.sampled_from(symbols), st.integers(-64, 64).map(sympy.Integer))
    made = data.draw(st.recursive(leaves, lambda inner: st.one_of(
        st.builds(lambda one, two: one + two, inner, inner), st.builds(lambda one, two: one * two, inner, inner),
        st.builds(functions.Max, inner, inner), st.builds(functions.Min, inner, inner),
        st.builds(lambda one, two: functions.FloorDiv(one, two), inner, st.integers(1, 9).map(sympy.Integer)),
        st.builds(lambda one, two: functions.PythonMod(one, two), inner, st.integers(1, 9).map(sympy.Integer)),
        st.builds(lambda one: functions.TruncToInt(functions.IntTrueDiv(one, sympy.Integer(3))), inner)), max_leaves=6))
    for expression in (made, sympy.Ge(made, 2), sympy.Ne(made, symbols[0]), sympy.And(sympy.Ge(made, 2), made < 9)):
        text = sympy.printing.repr.srepr(expression)
        assert _checked(text), text


@pytest.mark.torch
def test_no_operator_that_is_let_through_takes_the_name_of_a_file() -> None:
    """All that PyTorch has registered, by what its arguments are called: new ones are looked at here first."""
    import torch

    from enginewright_builder.sources.exported_program import _TARGET

    words = {"assert_msg", "api_name", "approximate", "activation", "device_type", "driver", "equation", "indexing",
             "interpolation", "key", "message", "mode", "msg", "norm", "ord", "pad_mode", "padding", "padding_side",
             "reduce", "rounding_mode", "separator", "side", "UPLO", "algorithm", "type", "p",
             # of texts themselves
             "a", "b", "chars", "cls", "el", "fillchar", "idx", "ind", "input", "inputs", "item", "l", "new",
             "old", "s", "self",
             "string", "substr", "t", "to_add", "values"}
    for schema in torch._C._jit_get_all_schemas():
        target = f"torch.ops.{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"
        texts = {argument.name for argument in schema.arguments if "str" in str(argument.type)}
        if texts and _TARGET.fullmatch(target):
            assert texts <= words, str(schema)


def script(path: Path, code: str, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("m/constants.pkl", b"\x80\x02).")
        file.writestr("m/data.pkl", b"\x80\x02).")
        file.writestr("m/code/__torch__.py", code)
        for name, content in members.items():
            file.writestr(f"m/{name.replace('__', '/')}", content)
    return path


@pytest.mark.parametrize("line", [
    'return torch.from_file("/etc/passwd", False, 9)', 'torch.save(x, "/engines/x")', "t = torch\n    t.save(x, y)",
    "return (torch.\n# comment\nfrom_file)(y)", "return ops.aten.from_file(y)", "return ops.rpc.rpc_sync(x)",
    "return ops . profiler._record_function_enter(y)", "o = ops", 'return getattr(torch, "from_" "file")(y)',
    'return getattr(torch, "from\\x5ffile")(y)', "w : __torch__.torch.classes.dist_rpc.WorkerInfo",
    "w : __torch__.torch .\n classes.c10d.Store",
])
def test_torchscript_that_reaches_further_than_tensors_is_refused(line: str, tmp_path: Path) -> None:
    """Two of its operators read and write files, as who opened it."""
    path = script(tmp_path / "m.pt", f"class M(Module):\n  def forward(self, x: Tensor, y: str):\n    {line}\n")
    with pytest.raises(UserError) as caught:
        locate(path)
    assert caught.value.reason == "PickleRefused"


def test_torchscript_in_places_of_another_case_is_looked_at(tmp_path: Path) -> None:
    path = script(tmp_path / "m.pt", "class M(Module):\n  pass\n", CODE____torch____N_py=b"")
    assert locate(path).format == "torchscript"
    for name in ("CODE__other.py", "code__other.PY"):
        with pytest.raises(UserError):
            locate(script(tmp_path / "m.pt", "class M(Module):\n  pass\n", **{name: b"torch.save(x, y)"}))


def test_plain_torchscript_is_let_through(tmp_path: Path) -> None:
    code = ('class M(Module):\n  def forward(self, x: Tensor):\n    _1 = getattr(getattr(self, "3"), "0")\n'
            '    return torch.relu(ops.aten.add(x, (_1).forward(x, ), 1))\n')
    assert locate(script(tmp_path / "m.pt", code)).format == "torchscript"
