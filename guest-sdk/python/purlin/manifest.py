"""The manifest of a component, read from its file without running anything.

A WebAssembly file, core module or component, is eight bytes of header and then sections: an id, a length and content. Id 0 is a
custom section, which begins with its name. In a component, id 1 holds a core module and id 4 another component; the manifest is
at the end of the component, or still in the module that it was made of.
"""

import dataclasses
import json
from typing import Any, Iterator, Optional

SECTION = "purlin:manifest"
PACKAGE_VERSION = "0.1.0"
ROLES = ("pardo", "keyed-pardo")
STATE_KINDS = ("value", "bag", "combining", "map", "set", "ordered-list")
TIME_DOMAINS = ("event-time", "processing-time")

_CORE_MODULE = b"\0asm\x01\0\0\0"
_COMPONENT = b"\0asm\x0d\0\x01\0"
_DEPTH_MAX = 8


class ManifestError(ValueError):
    """The file is not a component of DoFns."""


@dataclasses.dataclass(frozen=True)
class Coder:
    """A model coder with the coders of its parts."""

    urn: str
    parts: tuple["Coder", ...] = ()

    def __str__(self) -> str:
        name = self.urn.removeprefix("beam:coder:").removesuffix(":v1")
        return f"{name}<{', '.join(map(str, self.parts))}>" if self.parts else name


@dataclasses.dataclass(frozen=True)
class Output:
    """An output of a transform: its tag and its elements' coder."""

    tag: str
    coder: Coder


@dataclasses.dataclass(frozen=True)
class State:
    """A state of a transform: value, bag, combining, map, set or ordered-list."""

    name: str
    kind: str
    coder: Coder
    key: Optional[Coder] = None


@dataclasses.dataclass(frozen=True)
class Timer:
    """A family of timers of a transform: event-time or processing-time."""

    name: str
    domain: str


@dataclasses.dataclass(frozen=True)
class Transform:
    """A DoFn of the component."""

    name: str
    input: Coder
    outputs: tuple[Output, ...]
    states: tuple[State, ...] = ()
    timers: tuple[Timer, ...] = ()
    expiration: Optional[str] = None

    @property
    def is_stateful(self) -> bool:
        """Whether it has state or timers, and therefore pairs as input."""
        return bool(self.states or self.timers)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a component holds."""

    transforms: tuple[Transform, ...]

    def transform(self, name: str) -> Transform:
        """The transform with a name; ManifestError says which there are."""
        for transform in self.transforms:
            if transform.name == name:
                return transform
        names = ", ".join(transform.name for transform in self.transforms)
        raise ManifestError(f"the component has no transform {name!r}, only {names}")


def read_manifest(component: bytes) -> Manifest:
    """The manifest of a core module or component. Raises ManifestError where there is none that can be read."""
    if component[:8] not in (_CORE_MODULE, _COMPONENT):
        raise ManifestError(f"not a WebAssembly file: it begins with {component[:8].hex() or 'nothing'}")
    text = _find(memoryview(component), _DEPTH_MAX)
    if text is None:
        raise ManifestError(f"no section {SECTION}: was it built with purlin::component!?")
    try:
        return _parse(json.loads(text))
    except (ValueError, TypeError, KeyError) as error:
        raise ManifestError(f"section {SECTION} cannot be read: {error!r}") from error


def _find(module: memoryview, depth: int) -> Optional[bytes]:
    if depth == 0:
        return None
    inner = None
    for section, content in _sections(module):
        if section == 0:
            length, start = _varint(content, 0)
            if bytes(content[start : start + length]) == SECTION.encode():
                return bytes(content[start + length :])
        elif bytes(module[:8]) == _COMPONENT and section in (1, 4) and inner is None:
            inner = _find(content, depth - 1)
    return inner


def _sections(module: memoryview) -> Iterator[tuple[int, memoryview]]:
    at = 8
    while at < len(module):
        section = module[at]
        length, start = _varint(module, at + 1)
        at = start + length
        if at > len(module):
            raise ManifestError("the file ends inside a section")
        yield section, module[start:at]


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 28:
            raise ManifestError("a section has a malformed length")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _parse(manifest: dict[str, Any]) -> Manifest:
    version = manifest["purlin"]
    if version != PACKAGE_VERSION:
        raise ManifestError(f"purlin:dofn {version} is not supported, only {PACKAGE_VERSION}")
    return Manifest(tuple(_transform(transform) for transform in manifest["transforms"]))


def _transform(transform: dict[str, Any]) -> Transform:
    if transform["role"] not in ROLES:
        names = " and ".join(ROLES)
        raise ManifestError(f"role {transform['role']} of transform {transform['name']} is not supported, only {names}")
    outputs = tuple(Output(output["tag"], _coder(output["coder"])) for output in transform["outputs"])
    states = tuple(_state(state) for state in transform.get("states", []))
    timers = tuple(_timer(timer) for timer in transform.get("timers", []))
    return Transform(transform["name"], _coder(transform["input"]), outputs, states, timers, transform.get("expiration"))


def _state(state: dict[str, Any]) -> State:
    if state["kind"] not in STATE_KINDS:
        raise ManifestError(f"state {state['name']} is a {state['kind']}, which is not supported")
    key = state.get("key")
    return State(state["name"], state["kind"], _coder(state["coder"]), _coder(key) if key else None)


def _timer(timer: dict[str, Any]) -> Timer:
    if timer["domain"] not in TIME_DOMAINS:
        raise ManifestError(f"timer {timer['name']} is of {timer['domain']}, which is not supported")
    return Timer(timer["name"], timer["domain"])


def _coder(coder: dict[str, Any]) -> Coder:
    return Coder(coder["urn"], tuple(_coder(part) for part in coder.get("parts", [])))
