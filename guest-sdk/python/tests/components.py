"""Components made by hand, and the built example."""

import json
import os
import pathlib

CORE_MODULE = b"\0asm\x01\0\0\0"
COMPONENT = b"\0asm\x0d\0\x01\0"


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(encoded) + bytes([value])


def section(number: int, content: bytes) -> bytes:
    return bytes([number]) + varint(len(content)) + content


def custom(name: str, content: bytes) -> bytes:
    return section(0, varint(len(name)) + name.encode() + content)


def manifest(transforms: list) -> bytes:
    return custom("purlin:manifest", json.dumps({"purlin": "0.1.0", "transforms": transforms}).encode())


def coder(name: str, *parts: dict) -> dict:
    return {"urn": f"beam:coder:{name}:v1", **({"parts": list(parts)} if parts else {})}


def transform(name: str, reads: dict, **outputs: dict) -> dict:
    outputs = [{"tag": tag, "coder": coder} for tag, coder in outputs.items()]
    return {"name": name, "role": "pardo", "input": reads, "outputs": outputs, "reads": []}


def wordcount() -> pathlib.Path:
    """The example as cargo built it. The tests cannot do without."""
    path = os.environ.get("PURLIN_TEST_COMPONENT")
    if not path or not os.path.exists(path):
        raise AssertionError(f"PURLIN_TEST_COMPONENT must name the built word count component, not {path!r}")
    return pathlib.Path(path)
