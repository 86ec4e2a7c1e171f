"""What a function reaches: the code that it is, and all that this and what it holds name within the project, as one digest.

Names of modules and lines do not count, nor what no name leads to. An import of an installed package counts as it is named.
"""

import enum
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from lakechime_dagster.lake.code_modules import Imported, Module, Names, Written, digest, module_at, module_of_project

DYNAMIC = frozenset({"__import__", "importlib", "eval", "exec", "globals", "runpy"})
"""By these code may reach what no name in it says: all of its module counts."""

PLAIN = (type(None), bool, int, float, complex, str, bytes)
Target = tuple[Module, str]


def reached_by(function: Callable[..., Any]) -> str:
    """A digest of a function and of what it reaches."""
    reach = _Reach(str(getattr(inspect.unwrap(function), "__module__", None) or type(function).__module__))
    said = [reach.value(function)]
    while reach.waiting:
        said.append(reach.said(*reach.waiting.pop(0)))
    return digest(*said)


@dataclass
class _Reach:
    """Pieces of code by the order in which they are met: equal code meets them in an equal one."""

    own: str
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    waiting: list[tuple[Module, Written]] = field(default_factory=list)
    within: set[int] = field(default_factory=set)  # the values that are being said: one may hold itself

    def said(self, module: Module, written: Written) -> str:
        """A piece with the numbers of those that it names."""
        refers = [*((names, f"{'.'.join(names)}=") for names in sorted(written.refers))]
        said = [text + self._referred(_targets(module, names)) for names, text in refers]
        said += [f"import={self._referred(_imported(module, one, ()))}" for one in sorted(written.imports, key=str)]
        is_dynamic = any(names[0] in DYNAMIC for names in written.refers) or any(one.module in DYNAMIC for one in written.imports)
        return digest(written.digest, *said, self._number(module, "") if is_dynamic else "")

    def _referred(self, targets: Iterator[Target | str]) -> str:
        return ",".join(one if isinstance(one, str) else self._number(*one) for one in targets)

    def _number(self, module: Module, name: str, written: Written | None = None) -> str:
        key = module.name, name
        if key not in self.numbers:
            self.numbers[key] = len(self.numbers)
            self.waiting.append((module, written or module.written(name)))
        return str(self.numbers[key])

    def value(self, value: Any) -> str:
        """What a function holds, in words that are the same in each process."""
        if isinstance(value, PLAIN):
            return repr(value)
        if id(value) in self.within:
            return "itself"
        self.within.add(id(value))
        try:
            return self._held(value)
        finally:
            self.within.discard(id(value))

    def _held(self, value: Any) -> str:
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, MethodType):
            return f"{self.value(value.__func__)} of {self.value(value.__self__)}"
        if isinstance(value, functools.partial):
            return f"partial {self.value(value.func)} {self.value(value.args)} {self.value(value.keywords)}"
        if isinstance(value, tuple | list):
            return f"[{','.join([self.value(one) for one in value])}]"
        if isinstance(value, set | frozenset):
            return f"{{{','.join(sorted(self.value(one) for one in value))}}}"
        if isinstance(value, Mapping):
            return f"{{{','.join([f'{self.value(key)}:{self.value(one)}' for key, one in value.items()])}}}"
        return self._named(value)

    def _named(self, value: Any) -> str:
        if isinstance(value, enum.Enum):
            return f"{type(value).__qualname__}.{value.name}"
        if isinstance(value, ModuleType):
            return self._referred(_in_module(self.own, value.__name__, ()))
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, BuiltinFunctionType):
            return str(value.__qualname__)
        return self._object(value)

    def _class(self, value: type) -> str:
        module, name = module_of_project(value.__module__, self.own), value.__qualname__.partition(".")[0]
        if module is None:
            return f"{value.__module__}.{value.__qualname__}"
        return self._number(module, name if name in module.statements else "")

    def _object(self, value: Any) -> str:
        """An object by its class and, of a class of the project, by what it has; what calls another function, by that."""
        parts = [self._class(type(value))]
        if module_of_project(type(value).__module__, self.own) is not None:
            parts.append(self.value(dict(getattr(value, "__dict__", {}))))
        parts += [self.value(held) for name in ("func", "__wrapped__") if callable(held := getattr(value, name, None))]
        own = module_of_project(self.own, self.own)
        return " ".join([*parts, self._number(own, "") if own is not None else ""])

    def _function(self, function: FunctionType) -> str:
        """A function by its text, and by the values around it: its defaults, and what it keeps of the function that made it."""
        code, cells = function.__code__, function.__closure__ or ()
        around = dict(zip(code.co_freevars, (_content(cell) for cell in cells), strict=True))
        held = [self.value(one) for one in (around, function.__defaults__, function.__kwdefaults__, function.__dict__.get("__wrapped__"))]
        return " ".join([self._text(function), *held])

    def _text(self, function: FunctionType) -> str:
        code, name = function.__code__, function.__qualname__.partition(".")[0]
        listed, path = module_of_project(function.__module__, self.own), code.co_filename
        if listed is None and function.__module__ != self.own and Path(path).exists():
            return f"{function.__module__}.{function.__qualname__}"
        module = module_at(function.__module__, path) or listed
        if module is None:  # such as typed in a shell
            return _compiled(code)
        if "<locals>" not in function.__qualname__ and name in module.statements:
            return self._number(module, name)
        found = module.functions_at(code.co_firstlineno)
        if not found:
            return self._number(module, "")
        written = module.piece(found)
        refers = frozenset(names for names in written.refers if names[0] not in code.co_freevars)
        return self._number(module, f"line {code.co_firstlineno}", replace(written, refers=refers))


def _targets(module: Module, names: Names, met: frozenset[tuple[str, Names]] = frozenset()) -> Iterator[Target | str]:
    """The pieces of the project that a name in a module leads to; one that an installed package has, as a text."""
    root, *rest = names
    if (module.name, names) in met:
        return
    met |= {(module.name, names)}
    if root in module.statements:
        yield module, root
    if root in module.imported:
        yield from _imported(module, module.imported[root], tuple(rest), met)
    elif root not in module.statements:
        for one in module.stars:
            if (star := module_of_project(one, module.name)) is not None:
                yield from _targets(star, names, met)


def _imported(
    module: Module, imported: Imported, rest: Names, met: frozenset[tuple[str, Names]] = frozenset()
) -> Iterator[Target | str]:  # fmt: skip
    where = (imported.name, *rest) if imported.name is not None else rest
    yield from _in_module(module.name, imported.module, where, met)


def _in_module(of: str, name: str, names: Names, met: frozenset[tuple[str, Names]] = frozenset()) -> Iterator[Target | str]:
    """What a module has by these names, which may lead into modules within it; the whole where it does not say so."""
    module = module_of_project(name, of)
    if names and module is not None and (names[0] in module.statements or names[0] in module.imported):
        yield from _targets(module, names, met)
    elif names and module_of_project(f"{name}.{names[0]}", of) is not None:
        yield from _in_module(of, f"{name}.{names[0]}", names[1:], met)
    elif module is not None:
        found = list(_targets(module, names, met)) if names else []
        yield from found or [(module, "")]
    else:
        yield f"{name}.{names[0]}" if names else name


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # not bound yet


def _compiled(code: CodeType) -> str:
    constants = [_compiled(one) if isinstance(one, CodeType) else _said(one) for one in code.co_consts]
    return digest(code.co_code.hex(), *code.co_names, *constants)


def _said(constant: Any) -> str:
    return repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)
