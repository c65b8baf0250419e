"""Configs come back equal, and reading one builds frozen dataclasses and nothing else."""

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, Optional, Protocol

import pytest
from conftest import table
from hypothesis import given, settings, strategies as st

from redraft.apps.cli.user_code import _load_function, load_module
from redraft.core import Vocab
from redraft.models import JSON, ConfigError, digest, from_json, to_json

HERE = __name__


class Shape(Protocol):
    def area(self) -> float: ...


@dataclass(frozen=True)
class Square:
    side: float = 1.0

    def area(self) -> float:
        return self.side * self.side


@dataclass(frozen=True)
class Disc:
    radius: float
    label: str | None = None

    def __post_init__(self) -> None:
        if self.radius < 0:
            raise ValueError(f"radius={self.radius} is negative; use one above 0")

    def area(self) -> float:
        return math.pi * self.radius * self.radius


@dataclass(frozen=True)
class Scene:
    """Every kind of annotation that a config may have."""

    count: int
    shape: Shape
    square: Square | None = None
    older: Optional[Disc] = None  # noqa: UP045
    sizes: tuple[int, ...] = ()
    pair: tuple[int, str] = (0, "")
    nested: tuple[tuple[float, float], ...] = ()
    shapes: tuple[Shape, ...] = ()
    names: list[str] = field(default_factory=list)
    table: dict[str, tuple[int, ...]] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    some: Sequence[int] = ()
    either: tuple[int, ...] | int | None = None
    mode: Literal["a", "b", 3] = "a"
    path: Path = Path("runs")
    flag: bool = False
    free: Any = None
    area: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "area", self.shape.area())


@dataclass(frozen=True)
class Strict:
    exact: int


@dataclass(frozen=True)
class Lost:
    value: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


@dataclass
class Soft:
    value: int = 0


class Bare:
    pass


class Named(NamedTuple):
    value: int = 0


def back(value: object) -> Any:
    """Through JSON text and back."""
    return from_json(json.loads(json.dumps(to_json(value), allow_nan=False)), trust=[HERE])


# Round trips


def test_the_written_form() -> None:
    scene = Scene(2, Disc(math.inf), sizes=(1, 2), path=Path("a/b"))
    data = to_json(scene)
    assert data["class"] == f"{HERE}.Scene"
    assert data["count"] == 2
    assert data["sizes"] == [1, 2]
    assert data["path"] == {"class": "pathlib.Path", "value": "a/b"}
    infinity = {"class": "float", "value": "inf"}
    assert data["shape"] == {"class": f"{HERE}.Disc", "radius": infinity, "label": None}
    assert "area" not in data  # it is computed
    assert data.keys() == {"class"} | {f.name for f in fields(Scene) if f.init}


def test_nested_dataclasses_come_back_equal() -> None:
    scene = Scene(
        1,
        Disc(0.1 + 0.2, "é\n"),
        square=Square(-0.0),
        older=Disc(1e-320),
        sizes=(3, 2**70),
        pair=(1, "x"),
        nested=((1.0, math.inf), (2.5, -math.inf)),
        shapes=(Square(), Disc(2.0)),
        names=["a"],
        table={"x": (1,), "y": ()},
        weights={"w": 0.5},
        some=(1, 2),
        either=(1,),
        mode=3,
        path=Path("runs/x"),
        flag=True,
        free={"deep": (Square(2.0), None)},
    )
    again = back(scene)
    assert again == scene
    assert isinstance(again.names, list)
    assert [type(v) for v in (again.sizes, again.table["x"], again.nested[0], again.free["deep"])] == [tuple] * 4
    assert math.copysign(1, again.square.side) == -1
    assert digest(again) == digest(scene)


def test_a_frozen_value_stays_hashable() -> None:
    assert hash(back((Square(), (Disc(1.0),)))) == hash((Square(), (Disc(1.0),)))


def test_nan_comes_back() -> None:
    assert math.isnan(back(Square(math.nan)).side)


def test_classes_of_the_package_need_no_trust() -> None:
    assert from_json({"class": "redraft.core.Vocab", "size": 4, "mask": 3}) == Vocab(4, mask=3)


def test_a_missing_field_takes_its_default() -> None:
    assert from_json({"class": f"{HERE}.Disc", "radius": 2.0}, trust=[HERE]) == Disc(2.0)


def test_trust_covers_submodules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trusted_package").mkdir()
    (tmp_path / "trusted_package" / "inner.py").write_text(f"{HEAD}class A:\n    x: int\n")
    monkeypatch.syspath_prepend(tmp_path)
    value = from_json({"class": "trusted_package.inner.A", "x": 4}, trust=["trusted_package"])
    assert value.x == 4


floats = st.floats(allow_nan=False)
shapes = st.one_of(
    st.builds(Square, floats), st.builds(Disc, st.floats(min_value=0, allow_nan=False), st.none() | st.text())
)
scenes = st.builds(
    Scene,
    count=st.integers(),
    shape=shapes,
    square=st.none() | st.builds(Square, floats),
    older=st.none() | st.builds(Disc, st.floats(0, 9)),
    sizes=st.lists(st.integers()).map(tuple),
    pair=st.tuples(st.integers(), st.text()),
    nested=st.lists(st.tuples(floats, floats)).map(tuple),
    shapes=st.lists(shapes, max_size=4).map(tuple),
    names=st.lists(st.text()),
    table=st.dictionaries(st.text().filter("class".__ne__), st.lists(st.integers()).map(tuple)),
    weights=st.dictionaries(st.text().filter("class".__ne__), floats),
    some=st.lists(st.integers()).map(tuple),
    either=st.none() | st.integers() | st.lists(st.integers()).map(tuple),
    mode=st.sampled_from(["a", "b", 3]),
    path=st.text("ab/.", min_size=1).map(Path),
    flag=st.booleans(),
    free=st.recursive(
        st.none() | st.booleans() | st.integers() | floats | st.text() | shapes,
        lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.sampled_from("xyz"), inner),
        max_leaves=6,
    ),
)


@settings(max_examples=60, deadline=None)
@given(scenes)
def test_any_scene_comes_back_equal(scene: Scene) -> None:
    again = back(scene)
    assert again == scene
    assert repr(again) == repr(scene)  # types and signs too, which equality does not see
    assert digest(again) == digest(scene)


@settings(max_examples=60, deadline=None)
@given(scenes, st.integers())
def test_digests_tell_values_apart(scene: Scene, count: int) -> None:
    other = replace(scene, count=count)
    assert (digest(scene) == digest(other)) == (scene == other)


def test_digest_is_stable_short_and_blind_to_order() -> None:
    assert digest({"b": 1, "a": [1.0, 2.5]}) == digest({"a": [1, 2.5], "b": 1.0})
    assert digest({"b": 1, "a": [1.0, 2.5]}) == "12dd02522b41"
    assert digest(Disc(1)) == digest(Disc(1.0)) != digest(Disc(1.5))
    assert len(digest(None)) == 12


# What cannot be written


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1, 2}, "config is a set"),
        (object(), "config is a object"),
        (len, "config is a builtin_function_or_method"),
        (Square, "config is a type"),
        (Bare(), "config is a Bare"),
        (Soft(), "Soft is not a frozen dataclass"),
        (Named(), "config is a Named"),
        ({1: 2}, "has the key 1"),
        ({"class": "x"}, "has the key 'class'"),
        (Scene(1, Square(), free=[{"deep": b"x"}]), r"config\.free\[0\]\.deep is a bytes"),
    ],
)
def test_other_values_are_not_written(value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        to_json(value)


def test_a_local_class_is_not_written() -> None:
    @dataclass(frozen=True)
    class Local:
        pass

    with pytest.raises(ConfigError, match="cannot be found by name"):
        to_json(Local())


# What must not be read


def scene(**changes: JSON) -> JSON:
    return {"class": f"{HERE}.Scene", "count": 1, "shape": {"class": f"{HERE}.Square"}, **changes}


REFUSED: dict[str, tuple[JSON, str]] = {
    "function of the system": ({"class": "os.system", "command": "touch {flag}"}, "os.system is outside the package"),
    "subprocess": ({"class": "subprocess.Popen", "args": ["touch", "{flag}"]}, "outside the package"),
    "builtin": ({"class": "builtins.eval", "source": "open('{flag}', 'w')"}, "outside the package"),
    "no module": ({"class": "Linear"}, "outside the package"),
    "empty name": ({"class": ""}, "must be a dotted name"),
    "name is a number": ({"class": 5}, "must be a dotted name"),
    "name is an expression": ({"class": "redraft.open('{flag}','w')"}, "must be a dotted name"),
    "relative name": ({"class": "..redraft.training.X"}, "must be a dotted name"),
    "name like the package": ({"class": "redraftx.evil.X"}, "outside the package"),
    "module like a trusted one": ({"class": f"{HERE}x.Square"}, "outside the package"),
    "walk out of the package": (
        {"class": "redraft.os.system", "command": "touch {flag}"},
        "cannot be part of a config",
    ),
    "walk out of a module": ({"class": "redraft.training.data.sys.exit"}, "cannot be part of a config"),
    "imported class": ({"class": "redraft.training.Path", "value": "x"}, "defines no class Path"),
    "imported module": ({"class": "redraft.training.json"}, "defines no class json"),
    "dunder": ({"class": "redraft.training.__builtins__"}, "defines no class __builtins__"),
    "function of the package": ({"class": "redraft.training.load_rows", "path": "{evil}"}, "defines no class"),
    "plain class of the package": ({"class": "redraft.training.DataError"}, "not a frozen dataclass"),
    "absent class": ({"class": "redraft.training.Absent"}, "defines no class Absent"),
    "absent module": ({"class": "redraft.training.absent.X"}, "cannot be part of a config"),
    "program": ({"class": "redraft.__main__.X"}, "cannot be part of a config"),
    "untrusted module on the path": ({"class": "untrusted_evil.Thing"}, "outside the package"),
    "plain class": ({"class": f"{HERE}.Bare"}, "not a frozen dataclass"),
    "mutable dataclass": ({"class": f"{HERE}.Soft"}, "not a frozen dataclass"),
    "nested in a trusted class": ({"class": f"{HERE}.Square.area"}, "there is no class"),
    "untrusted inside a trusted one": (
        scene(free=[{"class": "os.system"}]),
        r"config\.free\[0\]: os.system is outside",
    ),
    "unknown field": (scene(color=1), "Scene has no field 'color'"),
    "computed field": (scene(area=1.0), "Scene has no field 'area'"),
    "dunder field": (scene(__class__="x"), "has no field '__class__'"),
    "missing field": ({"class": f"{HERE}.Disc"}, "Disc needs the field 'radius'"),
    "text for a number": (scene(count="1"), "config.count is '1'; it must be int"),
    "float for an integer": ({"class": f"{HERE}.Strict", "exact": 1.5}, "config.exact is 1.5"),
    "true for an integer": ({"class": f"{HERE}.Strict", "exact": True}, "config.exact is True"),
    "null for a number": ({"class": f"{HERE}.Disc", "radius": None}, "config.radius is None"),
    "number for text": ({"class": f"{HERE}.Disc", "radius": 1, "label": 5}, "config.label is 5"),
    "object for a number": (
        {"class": f"{HERE}.Strict", "exact": {"class": f"{HERE}.Square"}},
        "config.exact is Square",
    ),
    "other class": (scene(square={"class": f"{HERE}.Disc", "radius": 1}), "config.square is Disc"),
    "dictionary for a class": (scene(square={"side": 1}), "config.square is {'side': 1}"),
    "tuple too long": (scene(pair=[1, "x", 2]), "config.pair has 3 items; it must have 2"),
    "wrong item": (scene(sizes=[1, "x"]), r"config\.sizes\[1\] is 'x'"),
    "wrong item deep down": (scene(nested=[[1, 2], [3, None]]), r"config\.nested\[1\]\[1\] is None"),
    "wrong value of a dictionary": (scene(table={"x": [1, "y"]}), r"config\.table\.x\[1\] is 'y'"),
    "other choice": (scene(mode="c"), "config.mode is 'c'"),
    "text for a path": (scene(path="runs"), "config.path is 'runs'"),
    "path with more": (scene(path={"class": "pathlib.Path", "value": "x", "more": 1}), "outside the package"),
    "path of a number": (scene(path={"class": "pathlib.Path", "value": 5}), "outside the package"),
    "float of code": ({"class": "float", "value": "__import__('os')"}, "outside the package"),
    "float with more": ({"class": "float", "value": "inf", "more": 1}, "outside the package"),
    "wrong value of a mapping": (scene(weights={"w": "x"}), r"config\.weights\.w is 'x'"),
    "wrong item of a sequence": (scene(some=[1, "x"]), r"config\.some\[1\] is 'x'"),
    "choice of another type": (scene(mode=3.0), "config.mode is 3.0"),
    "refused by the class": ({"class": f"{HERE}.Disc", "radius": -1}, "Disc: radius=-1 is negative"),
    "annotation of nothing": ({"class": f"{HERE}.Lost", "value": 1}, "Lost: name 'Nowhere' is not defined"),
}


@table("kind", REFUSED)
def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    flag, evil = tmp_path / "flag", tmp_path / "untrusted_evil.py"
    evil.write_text(f"open({str(flag)!r}, 'w')\n{HEAD}class Thing: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    loaded = set(sys.modules)
    data, message = REFUSED[kind]
    data = json.loads(json.dumps(data).replace("{flag}", str(flag)).replace("{evil}", str(evil)))
    with pytest.raises(ConfigError, match=message):
        from_json(data, trust=[HERE])
    assert not flag.exists()
    assert "untrusted_evil" not in sys.modules
    assert not {name for name in set(sys.modules) - loaded if not name.startswith("redraft")}


def test_nothing_of_this_file_is_trusted_by_itself() -> None:
    with pytest.raises(ConfigError, match="pass trust="):
        from_json(to_json(Square()))


def test_a_config_too_deep_is_refused() -> None:
    data: JSON = 0
    for _ in range(100_000):
        data = [data]
    with pytest.raises(ConfigError, match="too deeply"):
        from_json(data)


def test_trust_is_a_list() -> None:
    with pytest.raises(ConfigError, match="one string"):
        from_json({}, trust="os")


# User code by path


HEAD = "from dataclasses import dataclass\n\n@dataclass(frozen=True)\n"


def write(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_function_of_a_file(tmp_path: Path) -> None:
    path = write(
        tmp_path, "user_keyboard.py", f"{HEAD}class Typo:\n    rate: float = 0.5\n\ndef run():\n    return Typo(0.25)\n"
    )
    value = _load_function(f"{path}:run")()
    assert value.rate == 0.25
    assert load_module(path) is sys.modules["user_keyboard"] is load_module(str(path))
    data = to_json(value)
    assert data == {"class": "user_keyboard.Typo", "rate": 0.25}
    with pytest.raises(ConfigError, match="outside the package"):
        from_json(data)
    assert from_json(data, trust=[load_module(path).__name__]) == value


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "user_relative.py", "def run(): return 5\n")
    monkeypatch.chdir(tmp_path)
    assert _load_function("user_relative.py:run")() == 5


@pytest.mark.parametrize(
    ("name", "text", "function", "message"),
    [
        ("user_a.py", "def run(): pass\ndef walk(): pass\n", "rum", "has no function 'rum'; it has: run, walk"),
        ("user_b.py", "run = 5\n", "run", "has no function 'run'; it has: none"),
        ("user_c.py", "x = 1\ny = x / 0\n", "run", r"user_c.py, line 2: ZeroDivisionError: division by zero"),
        ("user_d.py", "x = 1\n\ndef run(:\n", "run", r"user_d.py, line 3: SyntaxError"),
        ("user_e.py", "\n\n\nimport absent_module_x\n", "run", r"user_e.py, line 4: ModuleNotFoundError"),
        (
            "user_f.py",
            "import json\ndef f():\n    json.loads('{')\nf()\n",
            "run",
            r"user_f.py, line 3: JSONDecodeError",
        ),
        ("user-g.py", "def run(): pass\n", "run", "rename the file"),
        ("json.py", "def run(): pass\n", "run", "cannot be imported as module 'json'"),
        ("antigravity.py", "def run(): pass\n", "run", "cannot be imported as module 'antigravity'"),
        ("user_h.txt", "def run(): pass\n", "run", "is not a Python file"),
    ],
)
def test_user_files_that_fail(tmp_path: Path, name: str, text: str, function: str, message: str) -> None:
    path = write(tmp_path, name, text)
    with pytest.raises(ValueError, match=message):
        _load_function(f"{path}:{function}")
    assert getattr(sys.modules.get(path.stem), "__file__", None) != str(path) or "has no function" in message


@pytest.mark.parametrize("spec", ["", "file.py", ":run", "file.py:"])
def test_specs_that_name_no_function(spec: str) -> None:
    with pytest.raises(ValueError, match=r"write file\.py:function"):
        _load_function(spec)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent\.py is not a Python file; give the path of an existing"):
        _load_function(f"{tmp_path / 'absent.py'}:run")


def test_two_files_of_one_name(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        os.mkdir(tmp_path / folder)
        write(tmp_path / folder, "user_twin.py", "def run(): pass\n")
    load_module(tmp_path / "one" / "user_twin.py")
    with pytest.raises(ValueError, match="rename the file"):
        load_module(tmp_path / "two" / "user_twin.py")


def test_a_module_without_a_file_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "user_made", ModuleType("user_made"))
    with pytest.raises(ValueError, match="rename the file"):
        load_module(write(tmp_path, "user_made.py", ""))
