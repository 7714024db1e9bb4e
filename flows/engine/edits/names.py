"""The names by which code may read its own text, docstrings or annotations. Each counts wherever it stands, whatever it means there."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What leads to the text of code, to its line numbers or to its compiled form.
SOURCE = _words(
    """getsource getsourcelines getsourcefile findsource getcomments getframeinfo getblock getlines get_source get_data get_code
    run_path __file__ __loader__ __cached__ __code__ _getframe currentframe f_lineno f_code f_back tb_lineno tb_frame
    co_firstlineno co_lines lineno stack_info findCaller format_exc print_exc format_exception extract_stack extract_tb settrace
    setprofile save_to_disk"""
)
SOURCE_MODULES = _words(
    """linecache tokenize traceback dis symtable trace pdb dill cloudpickle marshal numba triton jax torch.jit torch.export
    torch.onnx torch.fx torch.package"""
)
HARMLESS_OF_INSPECT = _words(
    """signature Parameter isfunction isclass ismethod isbuiltin isabstract ismodule isawaitable isgenerator
    isgeneratorfunction iscoroutine iscoroutinefunction"""
)
DOCS = _words("__doc__ getdoc help format_help print_help get_json_schema")
DOCS_MODULES = _words("typer click fire plac pydoc doctest docopt")
HINTS = _words("get_type_hints typing.get_type_hints")  # harmless where it is of a parameter that is given by its name
ANNOTATIONS = _words(
    "__annotations__ __annotate__ get_annotations annotation return_annotation getfullargspec formatargspec"
)
ANNOTATIONS_MODULES = _words("typer fire plac beartype typeguard jaxtyping prefect fastapi")
IMPORTERS = _words("import_module __import__ find_spec")

# Classes from which others may be derived without anything looking at their docstrings and methods, and decorators of such.
PLAIN_BASES = _words(
    """object Protocol typing.Protocol Generic NamedTuple TypedDict ABC nn.Module torch.nn.Module Exception ValueError
    RuntimeError TypeError KeyError OSError LookupError"""
)
PLAIN_DECORATORS = _words("dataclass dataclasses.dataclass runtime_checkable typing.runtime_checkable final")
