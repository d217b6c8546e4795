"""Writes what a Beam release's Python wheel says of Beam's messages, enums and services as plain text.

Run with the Python of an environment that has apache-beam installed:

    python proto/tools/dump_descriptors.py > proto/tests/beam-<version>.txt

The tests compare this text with Purlin's own .proto files and need no Python. Format: a line `message NAME`,
`enum NAME` or `service NAME` starts a block; indented lines are its fields, values or methods in order of number
(methods: of name). A field is `NUMBER NAME LABEL TYPE` and, inside a oneof, the oneof's name. Labels are `single`,
`optional` (proto3 with presence), `repeated` and `map`.
"""

import importlib
import pkgutil

from google.protobuf import descriptor_pb2
import apache_beam.portability.api as api

FieldProto = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    number: name[len("TYPE_"):].lower() for name, number in FieldProto.Type.items()
}


def beam_files():
    """All descriptors under the package that holds Beam's generated modules."""
    files = {}
    for module in pkgutil.walk_packages(api.__path__, api.__name__ + "."):
        if module.name.endswith("_pb2"):
            descriptor = importlib.import_module(module.name).DESCRIPTOR
            file = descriptor_pb2.FileDescriptorProto()
            descriptor.CopyToProto(file)
            files[file.name] = file
    return files.values()


def type_name(field):
    return field.type_name.lstrip(".") or SCALARS[field.type]


def field_line(field, message, scope):
    entries = {f".{scope}.{nested.name}": nested for nested in message.nested_type if nested.options.map_entry}
    entry = entries.get(field.type_name)
    if entry is not None:
        label, kind = "map", ",".join(type_name(part) for part in entry.field)
    else:
        label = (
            "repeated" if field.label == FieldProto.LABEL_REPEATED
            else "optional" if field.proto3_optional
            else "single")
        kind = type_name(field)
    line = f"  {field.number} {field.name} {label} {kind}"
    if field.HasField("oneof_index") and not field.proto3_optional:
        line += " " + message.oneof_decl[field.oneof_index].name
    return line


def dump_enum(enum, scope, blocks):
    name = f"{scope}.{enum.name}"
    values = sorted(enum.value, key=lambda value: value.number)
    blocks[name] = [f"enum {name}"] + [f"  {value.number} {value.name}" for value in values]


def dump_message(message, scope, blocks):
    name = f"{scope}.{message.name}"
    fields = sorted(message.field, key=lambda field: field.number)
    blocks[name] = [f"message {name}"] + [field_line(field, message, name) for field in fields]
    for nested in message.nested_type:
        if not nested.options.map_entry:
            dump_message(nested, name, blocks)
    for enum in message.enum_type:
        dump_enum(enum, name, blocks)


def dump_service(service, scope, blocks):
    name = f"{scope}.{service.name}"
    lines = []
    for method in sorted(service.method, key=lambda method: method.name):
        request = ("stream " if method.client_streaming else "") + method.input_type.lstrip(".")
        response = ("stream " if method.server_streaming else "") + method.output_type.lstrip(".")
        lines.append(f"  {method.name} {request} -> {response}")
    blocks[name] = [f"service {name}"] + lines


def main():
    blocks = {}
    for file in beam_files():
        for message in file.message_type:
            dump_message(message, file.package, blocks)
        for enum in file.enum_type:
            dump_enum(enum, file.package, blocks)
        for service in file.service:
            dump_service(service, file.package, blocks)
    for name in sorted(blocks):
        print("\n".join(blocks[name]))


if __name__ == "__main__":
    main()
