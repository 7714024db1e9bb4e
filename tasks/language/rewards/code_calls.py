"""Calls from the tests of a problem into a program that runs in another process, with plain data in between.

Whoever shares an interpreter with a policy's program can be lied to by it: by an `__eq__` that is always true, a
patched `assert`, an exit before the tests. So tests get stand-ins (Remote) for what the program defines; what comes
back is rebuilt here from JSON as numbers, texts, lists, tuples, sets and dicts, and is compared here. The program never
sees the value expected.
"""

import builtins
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

Message = dict[str, Any]


class Closed(Exception):
    """The other side has ended, or has sent what is no message."""


class Channel:
    """Messages both ways over a connected socket's file descriptor, a line of JSON each."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.reader: BinaryIO = open(descriptor, "rb", closefd=False)  # noqa: SIM115  # a descriptor, held to the end

    def send(self, message: Message) -> None:
        left = memoryview(json.dumps(message).encode() + b"\n")
        while left:
            left = left[os.write(self.descriptor, left) :]

    def receive(self) -> Message:
        """The next message; Closed where there is none."""
        try:
            message = json.loads(self.reader.readline())
        except (ValueError, RecursionError) as error:
            raise Closed from error
        if not isinstance(message, dict):
            raise Closed
        return message


def pack_value(value: object, handles: list[Any] | None) -> Any:
    """`value` as JSON can hold it.

    What is no plain data is entered into `handles` and goes by its number; TypeError without.
    """
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    for name, kinds in (("list", list), ("tuple", tuple), ("set", set), ("frozenset", frozenset)):
        if isinstance(value, kinds):
            return {name: [pack_value(item, handles) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[pack_value(key, handles), pack_value(item, handles)] for key, item in value.items()]}
    if isinstance(value, bytes | bytearray):
        return {"bytes": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, Remote):
        return {"handle": value._handle}
    if handles is None:
        raise TypeError(f"a test hands a {type(value).__name__} to the program; it has to be plain data")
    handles.append(value)
    return {"handle": len(handles) - 1}


def unpack_value(packed: Any, handle: Any) -> Any:
    """The value that `pack` was given; `handle(number)` is what a number stands for."""
    if not isinstance(packed, dict):
        return packed
    [(name, inner)] = packed.items()
    if name == "handle":
        return handle(int(inner))
    if name == "bytes":
        return bytes.fromhex(inner)
    if name in ("complex", "range"):
        return {"complex": complex, "range": range}[name](*inner)
    if name == "dict":
        return {unpack_value(key, handle): unpack_value(item, handle) for key, item in inner}
    items = [unpack_value(item, handle) for item in inner]
    return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[name](items)


class Remote:
    """Something in the program's process that is no plain data: a function, a class, an object.

    Equal to itself alone.
    """

    def __init__(self, program: "Program", handle: int) -> None:
        self._program = program
        self._handle = handle

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._program.call(self._handle, arguments, named)

    def __getattr__(self, name: str) -> Any:
        return self._program.ask({"do": "attribute", "of": self._handle, "name": name})

    def __iter__(self) -> Iterator[Any]:
        iterator = self._program.ask({"do": "iterate", "of": self._handle})
        while (reply := self._program.ask({"do": "next", "of": iterator._handle})) != ():
            yield reply[0]

    def __next__(self) -> Any:
        if (reply := self._program.ask({"do": "next", "of": self._handle})) == ():
            raise StopIteration
        return reply[0]


class Program:
    """The program as the tests' process sees it. A program that ends ends the tests' process too, as failed."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def ask(self, request: Message) -> Any:
        """What the program answers; raises the exception that it raised."""
        return self._answer(request)[0]

    def call(self, handle: int, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """A call's value; lists, dicts and sets among the arguments are changed as the program changed them."""
        packed = [[pack_value(argument, None) for argument in arguments], pack_value(dict(named), None)]
        value, left = self._answer({"do": "call", "of": handle, "with": packed})
        for argument, changed in zip(arguments, left, strict=False):
            if isinstance(argument, list) and isinstance(changed, list):
                argument[:] = changed
            elif isinstance(argument, dict | set) and isinstance(changed, type(argument)):
                argument.clear()
                argument.update(changed)
        return value

    def _answer(self, request: Message) -> tuple[Any, list[Any]]:
        """The value that is sent back, and the arguments behind the call."""
        try:
            self.channel.send(request)
            reply = self.channel.receive()
            if "raised" not in reply:
                values = [reply["value"], *reply.get("arguments", [])]
                value, *arguments = (unpack_value(packed, lambda handle: Remote(self, handle)) for packed in values)
                return value, arguments
            name, text = map(str, reply["raised"])
        except BaseException:  # no test may catch it and go on: the program has ended, or forges messages
            os._exit(1)
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception) and kind is not StopIteration:
            raise kind(text)
        raise RuntimeError(f"{name}: {text}")


def serve_requests(channel: Channel, namespace: Mapping[str, Any]) -> None:
    """Answer the tests' requests about what a program has defined in `namespace`, until they end."""
    handles: list[Any] = []
    while True:
        try:
            request = channel.receive()
        except Closed:
            return
        try:
            reply = _answer_request(request, namespace, handles)
        except BaseException as error:  # SystemExit too: it is the program's, and no end of the tests
            reply = {"raised": [type(error).__name__, str(error)[:1000]]}
        channel.send(reply)


def _answer_request(request: Message, namespace: Mapping[str, Any], handles: list[Any]) -> Message:
    if request["do"] == "name":
        return {"value": pack_value(namespace[request["name"]], handles)}
    what = handles[request["of"]]
    if request["do"] == "attribute":
        return {"value": pack_value(getattr(what, request["name"]), handles)}
    if request["do"] == "iterate":
        handles.append(iter(what))
        return {"value": {"handle": len(handles) - 1}}
    if request["do"] == "next":
        try:
            return {"value": pack_value((next(what),), handles)}
        except StopIteration:
            return {"value": {"tuple": []}}
    arguments, named = (
        unpack_value(packed, handles.__getitem__) for packed in ({"list": request["with"][0]}, request["with"][1])
    )
    value = what(*arguments, **named)
    return {"value": pack_value(value, handles), "arguments": [pack_value(argument, handles) for argument in arguments]}
