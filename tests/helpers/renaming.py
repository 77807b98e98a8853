"""Renames what a target's modules call their own: locals, parameters, private names, public ones used by them alone.

Kept are the names of libraries (attributes, keywords of their functions), class fields, methods, the autograd
Functions (autograd names its nodes after them), and what code outside the modules imports. A parameter is kept where a
call that can't be told from a library's passes it by keyword.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

import libcst as cst
from libcst.metadata import ClassScope, GlobalScope, MetadataWrapper, ScopeProvider
from libcst.metadata.scope_provider import Assignment, ComprehensionScope, FunctionScope, Scope

from fastlora_verify.mutations.base import KernelRoles
from fastlora_verify.mutations.interpret import absolute_module, all_params
from fastlora_verify.mutations.source import Edit, ParsedModule, SourceFile
from fastlora_verify.mutations.tree import children

WORDS = ("otter", "heron", "badger", "magpie", "newt", "lynx", "stoat", "wren", "perch", "finch", "mole", "swift")


def other(name: str, salt: str = "") -> str:
    """Another name, always the same for one name and salt; capitals and a leading underscore stay."""
    mark = hashlib.sha256(f"{salt}:{name}".encode()).hexdigest()
    word = WORDS[int(mark[:6], 16) % len(WORDS)] + "_" + mark[6:10]
    word = word.upper() if name.isupper() and len(name) > 1 else word
    return "_" + word if name.startswith("_") else word


@dataclass(frozen=True)
class Renamed:
    """The modules with other names, and the roles that find them there."""

    sources: dict[str, SourceFile]
    kernels: tuple[KernelRoles, ...]
    names: dict[tuple[str, str], str]  # (module, top-level name): its new name


class Renamer:
    """All modules of one target; `outside` is the text of every other file that may use them."""

    def __init__(self, sources: Mapping[str, SourceFile], kernels: Iterable[KernelRoles], outside: Iterable[str] = ()):
        self.modules = {name: ParsedModule(file) for name, file in sources.items()}
        self.scopes = {
            name: MetadataWrapper(module.tree, unsafe_skip_copy=True).resolve(ScopeProvider)
            for name, module in self.modules.items()
        }
        self.kernels = tuple(kernels)
        self.used_outside = set().union(*(imported_names(text) for text in outside))
        self.functions = {tuple(k.function.split(":")) for k in self.kernels}

    @cached_property
    def top(self) -> dict[tuple[str, str], str]:
        """New names of what stands at the top of the modules."""
        found = {}
        for name, module in self.modules.items():
            for defined in top_names(module.tree):
                kept = (name, defined) in self.functions or (name, defined) in self.used_outside
                if not kept and not re.fullmatch(r"__\w+__", defined):
                    found[name, defined] = other(defined)
        return found

    @cached_property
    def methods(self) -> dict[str, str]:
        """New names of private methods."""
        found = {}
        for module in self.modules.values():
            for scope, node in module.scopes.items():
                outer = module.scopes.get(scope.rpartition(".")[0])
                name = node.name.value
                if isinstance(outer, cst.ClassDef) and re.match(r"_[^_]", name):
                    found[name] = other(name)
        return found

    @cached_property
    def foreign(self) -> set[str]:
        """Keywords of calls that may be of the target's own functions or of anybody's."""
        found = set()
        for name, module in self.modules.items():
            for call in calls(module.tree):
                named = {a.keyword.value for a in call.args if a.keyword is not None}
                if named and self.callee(name, call) is None and not self.is_known_call(name, call):
                    found |= named
        return found

    @cached_property
    def keywords(self) -> dict[cst.Name, str]:
        """New names of keywords at calls of the target's own functions."""
        renamed: dict[cst.Name, str] = {}
        for name, module in self.modules.items():
            for call in calls(module.tree):
                named = [a.keyword for a in call.args if a.keyword is not None]
                owner, function = self.callee(name, call) or ("", None)
                params = all_params(function.params) if named and function is not None else []
                moved = {p.name.value for p in params if not self.is_kept(owner, p)}
                renamed |= {k: other(k.value, owner) for k in named if k.value in moved}
        return renamed

    def callee(self, name: str, call: cst.Call) -> tuple[str, cst.FunctionDef] | None:
        """(module, function) of a call by a bare name; a class stands for its `__init__`."""
        if not isinstance(call.func, cst.Name):
            return None
        found = self.origin(name, call.func.value)
        for scope in (found[1], f"{found[1]}.__init__") if found is not None else ():
            node = self.modules[found[0]].scopes.get(scope)
            if isinstance(node, cst.FunctionDef):
                return found[0], node
        return None

    def is_known_call(self, name: str, call: cst.Call) -> bool:
        """Whether a call surely is none of a function of the target's: a library's, or a class that has fields."""
        root = call.func
        while isinstance(root, cst.Attribute):
            root = root.value
        if not isinstance(root, cst.Name):
            return False
        return root.value in {bound for _, _, bound in imports(self.modules[name])} | top_names(self.modules[name].tree)

    def origin(self, name: str, word: str) -> tuple[str, str] | None:
        """Where a module's global name is defined."""
        module = self.modules[name]
        if word in top_names(module.tree):
            return name, word
        for package, imported, bound in imports(module):
            if bound == word and package in self.modules:
                return package, imported
        return None

    # -- edits --------------------------------------------------------------------------------------------

    def run(self) -> Renamed:
        sources = {}
        for name, module in self.modules.items():
            edits = [Edit(*module.word(node), new) for node, new in self.edits(name, module)]
            text, _ = module.apply(edits)
            sources[name] = replace(module.file, text=text)
        return Renamed(sources, tuple(map(self.roles, self.kernels)), self.top)

    def edits(self, name: str, module: ParsedModule) -> Iterator[tuple[cst.Name, str]]:
        for node in names(module.tree):
            new = self.new_name(name, module, node)
            if new is not None and new != node.value:
                yield node, new

    def new_name(self, name: str, module: ParsedModule, node: cst.Name) -> str | None:
        parent = module.parent(node)
        if isinstance(parent, cst.Attribute) and parent.attr is node:
            return self.methods.get(node.value) or self.of_module(name, parent)
        if isinstance(parent, cst.Arg) and parent.keyword is node:
            return self.keywords.get(node)
        if isinstance(parent, cst.ImportAlias):
            return self.imported(name, module, node, parent)
        if isinstance(parent, cst.FunctionDef | cst.ClassDef) and parent.name is node:
            return self.definition(name, module, parent)
        if isinstance(parent, cst.MatchKeywordElement) and parent.key is node:
            return None
        scope = self.scopes[name].get(node) or self.scopes[name].get(parent)
        return self.in_scope(name, node.value, scope, node)

    def in_scope(self, name: str, word: str, scope: Scope | None, node: cst.CSTNode) -> str | None:
        found = next(iter(scope[word]), None) if scope is not None and word in scope else None
        if found is not None and isinstance(found.scope, GlobalScope):
            origin = self.origin(name, word)
            return self.top.get(origin) if origin is not None else None
        if not isinstance(found, Assignment) or not isinstance(found.scope, FunctionScope | ComprehensionScope):
            return None
        if isinstance(found.node, cst.Import | cst.ImportFrom):
            return None
        return None if self.is_kept(name, found.node) or word in {"self", "cls"} else other(word, name)

    def is_kept(self, name: str, node: cst.CSTNode) -> bool:
        """A parameter that somebody passes by keyword, and we can't tell who is called."""
        if not isinstance(node, cst.Param):
            return False
        function, word = self.modules[name].enclosing(node), node.name.value
        called = function.rpartition(".")[2]
        by_name = (f"{called}()", word) in self.used_outside  # a method, or a function by the name it has
        is_offered = (name, function) not in self.top and function in top_names(self.modules[name].tree)
        return word in self.foreign or by_name or (is_offered and ("()", word) in self.used_outside)

    def definition(self, name: str, module: ParsedModule, node: cst.FunctionDef | cst.ClassDef) -> str | None:
        scope = self.scopes[name].get(node)
        if isinstance(scope, GlobalScope):
            return self.top.get((name, node.name.value))
        return self.methods.get(node.name.value) if isinstance(scope, ClassScope) else other(node.name.value, name)

    def imported(self, name: str, module: ParsedModule, node: cst.Name, alias: cst.ImportAlias) -> str | None:
        statement = module.parent(alias)
        if not isinstance(statement, cst.ImportFrom) or alias.name is not node:
            return None
        return self.top.get((absolute_module(statement, module), node.value))

    def of_module(self, name: str, node: cst.Attribute) -> str | None:
        """`module.function`, where the module is one of the target's."""
        if not isinstance(node.value, cst.Name):
            return None
        for package, imported, bound in imports(self.modules[name]):
            if bound == node.value.value:
                return self.top.get((f"{package}.{imported}" if imported else package, node.attr.value))
        return None

    # -- roles --------------------------------------------------------------------------------------------

    def scope(self, role: str) -> str:
        """`module:outer.inner` under its new names."""
        name, _, inner = role.partition(":")
        module, new, path = self.modules[name], [], ""
        for part in inner.split(".") if inner else []:
            path = f"{path}.{part}" if path else part
            new.append(self.definition(name, module, module.scopes[path]) or part)
        return f"{name}:{'.'.join(new)}" if inner else role

    def roles(self, kernel: KernelRoles) -> KernelRoles:
        return replace(
            kernel,
            entries=tuple(map(self.scope, kernel.entries)),
            guards=tuple(map(self.scope, kernel.guards)),
            helpers=tuple(map(self.scope, kernel.helpers)),
            function=self.scope(kernel.function),
            patcher=self.scope(kernel.patcher) if kernel.patcher else "",
            unpatcher=self.scope(kernel.unpatcher) if kernel.unpatcher else "",
        )


def rename(sources: Mapping[str, SourceFile], kernels: Iterable[KernelRoles], outside: Iterable[str] = ()) -> Renamed:
    """The target under other names."""
    return Renamer(sources, kernels, outside).run()


# -- trees ------------------------------------------------------------------------------------------------


def nodes(tree: cst.CSTNode) -> Iterator[cst.CSTNode]:
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(children(node))


def names(tree: cst.CSTNode) -> Iterator[cst.Name]:
    return (node for node in nodes(tree) if isinstance(node, cst.Name))


def calls(tree: cst.CSTNode) -> Iterator[cst.Call]:
    return (node for node in nodes(tree) if isinstance(node, cst.Call))


@cache
def top_names(tree: cst.Module) -> set[str]:
    """Functions, classes and assigned names at the top of a module."""
    found = set()
    for statement in tree.body:
        if isinstance(statement, cst.FunctionDef | cst.ClassDef):
            found.add(statement.name.value)
        for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
            targets = [t.target for t in small.targets] if isinstance(small, cst.Assign) else []
            targets += [small.target] if isinstance(small, cst.AnnAssign) else []
            found |= {t.value for t in targets if isinstance(t, cst.Name)}
    return found


@cache
def imports(module: ParsedModule) -> list[tuple[str, str, str]]:
    """(package, imported name, bound name) of a module's imports; no imported name for `import package`."""
    found = []
    for node in nodes(module.tree):
        if isinstance(node, cst.ImportFrom) and not isinstance(node.names, cst.ImportStar):
            package = absolute_module(node, module)
            found += [(package, str(a.evaluated_name), a.evaluated_alias or str(a.evaluated_name)) for a in node.names]
        elif isinstance(node, cst.Import):
            found += [(str(a.evaluated_name), "", a.evaluated_alias or str(a.evaluated_name)) for a in node.names]
    return found


def imported_names(text: str) -> set[tuple[str, str]]:
    """(module, name) of all that a file takes from other modules, and (callee + "()", keyword) of its calls.

    The callee is "" where the call may be of anything: `info.patch(model, allow_dropout=True)`.
    """
    tree = list(ast.walk(ast.parse(text)))
    found: set[tuple[str, str]] = set()
    aliases: dict[str, str] = {}
    taken = [a for n in tree if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names]
    bound = {(a.asname or a.name).split(".")[0] for a in taken}
    for node in tree:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {(node.module, alias.name) for alias in node.names}
            aliases |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            aliases |= {alias.asname: alias.name for alias in node.names if alias.asname}
    for node in tree:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            found.add((aliases[node.value.id], node.attr))
        elif isinstance(node, ast.Call):
            root = node.func
            while isinstance(root, ast.Attribute):
                root = root.value
            known = isinstance(root, ast.Name) and root.id in bound
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            names_ = {called} if known else {called, ""}
            found |= {(f"{name}()", k.arg) for k in node.keywords if k.arg for name in names_}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            package, _, name = node.value.rpartition(".")  # monkeypatch.setattr("package.name", …)
            found.add((package, name))
    return found
