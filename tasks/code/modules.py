"""A module as parts: each definition by its name, and what runs when the module is imported.

Of a module that a stage imports the stage has all that runs at the import, but of its functions, classes and constants
only those that it can reach. What is not plainly a definition runs at the import: a decorated function may be
registered somewhere, a call may have any effect.
"""

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from tasks.code.syntax import dump_statement, find_docstring, find_raised_failure


def _split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Decorators of functions and classes that do nothing but return what they are given, or the same made callable
# otherwise.
DECORATORS = _split_words(
    """abstractmethod cache cached_property classmethod contextmanager dataclass dataclasses.dataclass final
    functools.cache functools.lru_cache lru_cache once_differentiable overload override property runtime_checkable
    staticmethod torch.inference_mode torch.no_grad total_ordering"""
)
# Calls that a constant may be made of, functions and methods; any other may have an effect when its module is imported.
MAKERS = _split_words(
    """AfterValidator ContextVar Decimal Discriminator Field Fraction Lock MappingProxyType NewType ParamSpec Path
    PurePosixPath Strict StringConstraints Tag TypeAdapter TypeVar WrapValidator bytes dict dict.fromkeys enumerate
    field float frozenset int len list max min namedtuple object partial range re.compile re.escape set slice sorted
    str str.maketrans sum tuple zip"""
)
METHODS = _split_words(
    "encode format items join keys lower removeprefix removesuffix split strip values"
)  # of texts and dictionaries
# Names by which code reads docstrings, or its own text and lines. Each counts wherever it stands, whatever it means
# there, and in a text too, unless it is a word of its own.
DOCSTRINGS = _split_words(
    """__doc__ getdoc cleandoc get_docstring format_help print_help get_json_schema co_consts render_doc pydoc doctest
    docopt help"""
)
SOURCES = _split_words(
    """__file__ __loader__ __cached__ __code__ __traceback__ getsource getsourcelines getsourcefile findsource
    getcomments getframeinfo getblock getlines getline checkcache get_source get_data get_code run_path _getframe
    currentframe getouterframes getinnerframes f_lineno f_code f_back tb_lineno tb_frame tb_next co_firstlineno
    co_lines co_linetable co_positions co_code co_filename lineno colno stack_info findCaller format_exc print_exc
    format_exception print_exception format_tb print_tb format_stack print_stack extract_stack extract_tb walk_tb
    walk_stack TracebackException StackSummary settrace setprofile cache_from_source source_from_cache linecache
    tokenize traceback tracemalloc symtable cloudpickle dill marshal numba triton dis pdb jax"""
)
WORDS = _split_words("help lineno marshal triton dis traceback jax")
IN_TEXTS = re.compile("|".join(rf"\b{name}\b" for name in sorted((DOCSTRINGS | SOURCES) - WORDS)) + r"|\(lineno\)")
EXPRESSION = re.compile(r"[A-Za-z_][\w.]*(?:\s*[|,\[\]]\s*[\w.]*)*")  # a name, or an annotation written as a text

# how code names the files beside it
BESIDE = "Path(__file__).parent"
LISTED = _split_words("glob rglob iterdir")

Reference = tuple[str, ...]  # a name and the attributes asked of it: ("tables", "read")


@dataclass(frozen=True)
class CodePart:
    """One definition, or one statement that runs at the import. `modules` are those that it imports when it runs."""

    node: ast.stmt
    references: frozenset[Reference]
    texts: frozenset[Reference]  # the same in texts, which may be annotations or names that are looked up
    mentioned: frozenset[str]  # names that are used otherwise than by being called
    functions: frozenset[str]  # undecorated ones that are no methods
    modules: frozenset[str]
    reads: frozenset[str]  # of DOCSTRINGS and SOURCES
    files: frozenset[str]  # names beside the module, as in `Path(__file__).parent / "name"`; "." for all of them
    names: tuple[str, ...] = ()  # that it defines
    digests: dict[tuple[bool, bool], str] = field(default_factory=dict, compare=False)

    def digest(self, *, docstrings: bool, annotations: bool) -> str:
        """The hash of its syntax, with or without docstrings, and with or without the annotations of its
        `functions`.
        """
        if (docstrings, annotations) not in self.digests:
            plain = frozenset[str]() if annotations else self.functions
            text = dump_statement(self.node, docstrings=docstrings, plain=plain).encode()
            self.digests[docstrings, annotations] = hashlib.sha256(text).hexdigest()
        return self.digests[docstrings, annotations]


@dataclass
class Module:
    """The parts of one module. Several definitions of one name all count."""

    definitions: dict[str, list[CodePart]] = field(default_factory=dict)
    running: list[CodePart] = field(default_factory=list)  # at the import, in their order
    imports: dict[str, set[Reference]] = field(default_factory=dict)  # name here -> a module's name, and a name in it
    imported: set[str] = field(default_factory=set)  # when this module is
    program: list[CodePart] = field(default_factory=list)  # what runs with `python -m` alone
    bound: set[str] = field(default_factory=set)  # names that `running` binds

    @cached_property
    def unnamed_imports(self) -> list[str]:
        """What is imported and never named: for what its import does, or for others to import from here."""
        named = {reference[0] for part in (*self.parts, *self.program) for reference in part.references | part.texts}
        targets = (target for name in self.imports.keys() - named for target in self.imports[name])
        return sorted(".".join(target) for target in targets if target[0] != "typing")  # for the type checker alone

    @cached_property
    def parts(self) -> list[CodePart]:
        """All but what runs with `python -m` alone."""
        return [*self.running, *(part for parts in self.definitions.values() for part in parts)]


def parse_module(source: bytes, name: str, *, package: bool) -> Module:
    """The module of this name; SyntaxError or ValueError where the source is none."""
    tree = ast.parse(source)
    module = Module()
    above = name if package else name.rpartition(".")[0]
    for statement in _iterate_runtime_statements(tree.body):
        if statement is find_docstring(tree):
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom):
            module.imported |= _record_import(statement, above, module.imports)
            if (
                any(alias.asname for alias in statement.names)
                and (part := _build_code_part(statement, above, {})).reads
            ):
                module.running.append(part)  # a reader that goes by another name here
        elif _is_main_guard(statement):
            module.program.append(_build_code_part(statement, above, module.imports))
        else:
            part = replace(
                _build_code_part(statement, above, module.imports), names=(*sorted(_list_defined_names(statement)),)
            )
            for definition in part.names:
                module.definitions.setdefault(definition, []).append(part)
            if not part.names:
                module.running.append(part)
                module.bound |= _collect_bound_names(statement)
    return module


def _collect_bound_names(statement: ast.stmt) -> set[str]:
    """The names that a statement binds."""
    nodes = [*ast.walk(statement)]
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}


def _iterate_runtime_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module without those that are for a type checker alone."""
    for statement in body:
        checked = isinstance(statement, ast.If) and format_dotted_name(statement.test) in (
            "TYPE_CHECKING",
            "typing.TYPE_CHECKING",
        )
        if isinstance(statement, ast.If) and checked:
            yield from _iterate_runtime_statements(statement.orelse)
        else:
            yield statement


def _is_main_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == "__name__ == '__main__'"


def _list_defined_names(statement: ast.stmt) -> list[str]:
    """The names that a statement defines without any other effect; none where it may have one."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        decorators = (
            decorator.func if isinstance(decorator, ast.Call) else decorator for decorator in statement.decorator_list
        )
        return [statement.name] if all(format_dotted_name(decorator) in DECORATORS for decorator in decorators) else []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        return []
    parts = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    calls = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
    return names if len(names) == len(parts) and all(map(_is_pure_call, calls)) else []


def _is_pure_call(function: ast.expr) -> bool:
    """Whether a call of this has no effect but what it returns."""
    return format_dotted_name(function) in MAKERS or (isinstance(function, ast.Attribute) and function.attr in METHODS)


def _record_import(statement: ast.Import | ast.ImportFrom, above: str, names: dict[str, set[Reference]]) -> set[str]:
    """Note what each name is; return the modules that are imported: of `from a import b` both `a` and, if it is a
    module, `a.b`.
    """
    modules: set[str] = set()
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            modules.add(alias.name)
            whole = alias.name if alias.asname else alias.name.partition(".")[0]
            names.setdefault(alias.asname or whole, set()).add((whole,))
        return modules
    base = ".".join(above.split(".")[: len(above.split(".")) - statement.level + 1]) if statement.level else ""
    module = ".".join(part for part in (base, statement.module) if part)
    for alias in statement.names:
        modules |= {module, f"{module}.{alias.name}"}
        names.setdefault(alias.asname or alias.name, set()).add(
            (module,) if alias.name == "*" else (module, alias.name)
        )
    return modules


def format_dotted_name(node: ast.expr) -> str:
    """`a.b.c` of a name with attributes; an empty text of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    above = format_dotted_name(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{above}.{node.attr}" if isinstance(node, ast.Attribute) and above else ""


def _build_code_part(statement: ast.stmt, above: str, names: dict[str, set[Reference]]) -> CodePart:
    visitor = _Names(above, names)
    visitor.visit(statement)
    return CodePart(
        statement,
        frozenset(visitor.references),
        frozenset(visitor.texts),
        frozenset(visitor.mentioned),
        frozenset(visitor.functions),
        frozenset(visitor.modules),
        frozenset(visitor.reads),
        frozenset(visitor.files),
    )


class _Names(ast.NodeVisitor):
    def __init__(self, above: str, names: dict[str, set[Reference]]) -> None:
        self.above = above
        self.names = names
        self.references = set[Reference]()
        self.texts = set[Reference]()
        self.mentioned = set[str]()
        self.functions = set[str]()
        self.modules = set[str]()
        self.reads = set[str]()
        self.files = set[str]()
        self._local: list[set[str]] = []  # of the functions around the node
        self._in_class = False

    def generic_visit(self, node: ast.AST) -> None:
        words = find_docstring(node)
        for child in ast.iter_child_nodes(node):
            if child is not words:
                self.visit(child)

    def visit_Import(self, node: ast.Import) -> None:
        self.modules |= _record_import(node, self.above, self.names)
        self._record_reader_names(*(part for alias in node.names for part in alias.name.split(".")))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.modules |= _record_import(node, self.above, self.names)
        self._record_reader_names(*(alias.name for alias in node.names), *(node.module or "").split("."))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outside = self._in_class
        self._in_class = True
        self.generic_visit(node)
        self._in_class = outside

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if not node.decorator_list and not self._in_class:
            self.functions.add(node.name)
        for outside in (*node.decorator_list, node.args, *([node.returns] if node.returns else [])):
            self.visit(outside)
        self._local.append(_collect_local_names(node))
        for statement in node.body:
            if statement is not find_docstring(node):
                self.visit(statement)
        self._local.pop()

    def visit_Raise(self, node: ast.Raise) -> None:
        """What a failure says is in no out, and so is nothing that it is made of."""
        failure = find_raised_failure(node)
        if failure is not None:
            self.visit_Name(failure)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Store):  # what is bound here is another thing, as a field of a class
            self._record_reference((node.id,))
        self._record_mention(node.id)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._record_reference((node.target.id,))
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr != "__file__":  # of another module, which is a reference to all of it
            self._record_mention(node.attr)
        self._record_attribute_chain(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        beside = isinstance(node.op, ast.Div) and ast.unparse(node.left) == BESIDE
        if beside and isinstance(node.right, ast.Constant) and not str(node.right.value).endswith(".py"):
            self.files.add(str(node.right.value))
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """What is called is not mentioned; what a parser of flags shows as its description is shown to people alone."""
        function = format_dotted_name(node.func)
        if isinstance(node.func, ast.Name):
            self._record_reference((node.func.id,))
            self._record_reader_names(node.func.id)
        elif isinstance(node.func, ast.Attribute):
            self._record_reader_names(node.func.attr)
            if node.func.attr in LISTED and ast.unparse(node.func.value) == BESIDE:
                self.files.add(".")
            else:
                self._record_attribute_chain(node.func)
        else:
            self.visit(node.func)
        for argument in [*node.args, *node.keywords]:
            described = isinstance(argument, ast.keyword) and argument.arg in ("description", "epilog")
            if not (described and function.endswith("ArgumentParser")):
                self.visit(argument)

    def visit_Constant(self, node: ast.Constant) -> None:
        """A text may be an annotation, or a name that is looked up; one such as "{0.__doc__}" is asked for by it."""
        if isinstance(node.value, str):
            self.reads.update(word.strip("()") for word in IN_TEXTS.findall(node.value))
        if isinstance(node.value, str) and EXPRESSION.fullmatch(node.value):
            for name in re.findall(r"[A-Za-z_][\w.]*", node.value):
                self.texts.add((*name.split("."),))
                self._record_mention(name.rpartition(".")[2])

    def _record_attribute_chain(self, node: ast.Attribute) -> None:
        name = format_dotted_name(node)
        if name:
            self._record_reference((*name.split("."),))
            for inner in name.split(".")[:-1]:
                self._record_mention(inner)
        else:
            self.visit(node.value)

    def _record_reference(self, reference: Reference) -> None:
        if not any(reference[0] in names for names in self._local):
            self.references.add(reference)

    def _record_mention(self, name: str) -> None:
        self.mentioned.add(name)
        self._record_reader_names(name)

    def _record_reader_names(self, *names: str) -> None:
        self.reads.update({*names} & (DOCSTRINGS | SOURCES))


def _collect_local_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The names that are a function's own, as Python sees it; without those of its comprehensions, which end with
    them.
    """
    parameters = function.args
    names = {
        parameter.arg
        for parameter in (
            *parameters.posonlyargs,
            *parameters.args,
            *parameters.kwonlyargs,
            parameters.vararg,
            parameters.kwarg,
        )
        if parameter
    }
    shared = set[str]()
    waiting = list[ast.AST](function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            shared.update(node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.comprehension):
            waiting += [node.iter, *node.ifs]
        elif not isinstance(node, ast.Lambda | ast.Import | ast.ImportFrom):
            waiting += ast.iter_child_nodes(node)
    return names - shared
