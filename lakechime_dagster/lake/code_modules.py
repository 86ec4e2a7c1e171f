"""Modules of a project as they are written, read without importing them: what each names at its top, and what that refers to.

Modules of the standard library, of this product and of installed packages are no project, unless a table is in the same package.
"""

import ast
import dis
import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType

PRODUCT, DEMO = __name__.partition(".")[0], f"{__name__.partition('.')[0]}.demo"
INSTALLED = frozenset({"site-packages", "dist-packages"})
Names = tuple[str, ...]  # as `helpers.double`, in parts


@dataclass(frozen=True, eq=False)
class Written:
    """A piece of code: a digest of what it says, and the names that it looks up outside itself."""

    digest: str
    refers: frozenset[Names]
    imports: frozenset["Imported"]


@dataclass(frozen=True)
class Imported:
    """What an import names: a module, and what of it, where it is not the module itself."""

    module: str
    name: str | None = None


@dataclass(frozen=True, eq=False)
class Module:
    """What is written in one file."""

    name: str
    tree: ast.Module
    is_package: bool = False
    kept: dict[str, Written] = field(default_factory=dict)  # of its names, and of the whole as that of none

    @cached_property
    def statements(self) -> dict[str, list[ast.stmt]]:
        """By name the statements at the top that say what it is: those that bind it, and those that may change it later."""
        found: dict[str, list[ast.stmt]] = {}
        for one in self.tree.body:
            for name in sorted(_bound(one)):
                found.setdefault(name, []).append(one)
        return found

    @cached_property
    def imported(self) -> dict[str, Imported]:
        """By name what an import at the top binds to it."""
        top = [one for one in self.tree.body if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
        return {name: one for statement in top for name, one in self.imports_in(statement) if name != "*"}

    @cached_property
    def stars(self) -> list[str]:
        """The modules all whose names it has."""
        return [one.module for statement in self.tree.body for name, one in self.imports_in(statement) if name == "*"]

    def written(self, name: str) -> Written:
        """What is written of one of its names, or of all."""
        if name not in self.kept:
            self.kept[name] = self.piece(self.statements[name] if name else self.tree.body)
        return self.kept[name]

    def piece(self, statements: list[ast.stmt]) -> Written:
        """Some statements as a piece; what a table is declared with counts as it is written, not what that refers to."""
        looked_up = ast.Module([_undecorated(self, one) for one in statements], [])
        imports = frozenset(one for statement in statements for _, one in self.imports_in(statement))
        refers = frozenset(_refers(compile(looked_up, self.name, "exec", dont_inherit=True, optimize=0)))
        return Written(digest("\n".join(ast.dump(one) for one in statements)), refers, imports)

    def functions_at(self, line: int) -> list[ast.stmt]:
        """The functions that begin in a line, lambdas too, as statements."""
        found: list[ast.stmt] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Lambda) and node.lineno == line:
                found.append(ast.copy_location(ast.Expr(node), node))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found += [node] if min([node.lineno, *(one.lineno for one in node.decorator_list)]) == line else []
        return found

    def imports_in(self, statement: ast.AST) -> Iterator[tuple[str, Imported]]:
        """Each name that is bound by an import anywhere in a statement, with what it names."""
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                for one in node.names:
                    yield one.asname or one.name.partition(".")[0], Imported(one.name if one.asname else one.name.partition(".")[0])
                    if not one.asname and "." in one.name:
                        yield one.name, Imported(one.name)
            elif isinstance(node, ast.ImportFrom):
                module = self._from(node)
                for one in node.names:
                    yield one.asname or one.name, Imported(module, None if one.name == "*" else one.name)

    def _from(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        base = parts[: len(parts) - node.level + (1 if self.is_package else 0)]
        return ".".join([*base, *([node.module] if node.module else [])])


def module_of_project(name: str, of: str) -> Module | None:
    """A module of the project that another one is in; None of one that is not."""
    top, own = name.partition(".")[0], of.partition(".")[0]
    if top in sys.stdlib_module_names or (top == PRODUCT and not f"{name}.".startswith(f"{DEMO}.")):
        return None
    path = _path_of(name)
    if path is None or not path.endswith(".py") or (top != own and _is_installed(path)):
        return None
    return module_at(name, path)


def module_at(name: str, path: str) -> Module | None:
    """What is written in a file, which is read again where it was written again; None where it cannot be read."""
    try:
        stat = os.stat(path)  # noqa: PTH116 - asked for each name that leads here, where a path object costs five times as much
        return _read(name, path, stat.st_mtime_ns, stat.st_size)
    except (OSError, SyntaxError, ValueError):
        return None


@lru_cache(maxsize=4096)
def _read(name: str, path: str, changed_ns: int, size: int) -> Module:
    file = Path(path)
    return Module(name, _without_docstrings(ast.parse(file.read_bytes())), file.name == "__init__.py")


@lru_cache(maxsize=4096)
def _is_installed(path: str) -> bool:
    return not INSTALLED.isdisjoint(Path(path).parts)


def _path_of(name: str) -> str | None:
    """The file of a module, which is not imported for it."""
    return getattr(sys.modules.get(name), "__file__", None) or _found(name, tuple(sys.path))


@lru_cache(maxsize=4096)
def _found(name: str, path: Names) -> str | None:
    parts, where = name.split("."), list(path)
    for count in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:count]), where)
        if spec is None:
            return None
        if count == len(parts):
            return spec.origin if spec.has_location else None
        where = list(spec.submodule_search_locations or ())
    return None


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement at the top of a module says something of."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return set()
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Expr):  # a call may change what it is given
        return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    found: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            found.add(node.id)
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            found |= {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
        elif isinstance(node, ast.Expr):
            found |= _bound(node)
    return found


def _undecorated(module: Module, statement: ast.stmt) -> ast.stmt:
    """A function without those decorators that declare it as a table."""
    if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return statement
    kept = [one for one in statement.decorator_list if not _is_of_product(module, one)]
    fields = {name: value for name, value in ast.iter_fields(statement) if name != "decorator_list"}
    return ast.copy_location(type(statement)(**fields, decorator_list=kept), statement)


def _is_of_product(module: Module, decorator: ast.expr) -> bool:
    while isinstance(decorator, ast.Call | ast.Attribute):
        decorator = decorator.func if isinstance(decorator, ast.Call) else decorator.value
    imported = module.imported.get(decorator.id) if isinstance(decorator, ast.Name) else None
    return imported is not None and imported.module.partition(".")[0] == PRODUCT


def _refers(code: CodeType) -> Iterator[Names]:
    """The names that code looks up neither in itself nor around, with the attributes that it takes of each."""
    chain: list[str] = []
    for one in dis.get_instructions(code):
        if one.opname in ("LOAD_ATTR", "LOAD_METHOD") and chain:
            chain.append(one.argval)
            continue
        if chain:
            yield tuple(chain)
        chain = [one.argval] if one.opname in ("LOAD_GLOBAL", "LOAD_NAME") else []
    if chain:
        yield tuple(chain)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _refers(inner)


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) and node.body and _is_text(node.body[0]):
            node.body = node.body[1:] or [ast.copy_location(ast.Pass(), node.body[0])]
    return tree


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)


def digest(*parts: str) -> str:
    """A digest of texts in their order."""
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()
