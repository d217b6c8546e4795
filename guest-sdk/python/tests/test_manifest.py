"""Reading manifests from files of every shape."""

import unittest

from purlin import Coder, ManifestError, read_manifest
from tests.components import COMPONENT, CORE_MODULE, coder, custom, manifest, section, transform, wordcount


class ReadManifest(unittest.TestCase):
    def test_it_is_found_wherever_it_is(self):
        core = CORE_MODULE + section(1, b"types") + manifest([transform("inner", coder("bytes"))]) + custom("name", b"")
        wrapped = COMPONENT + section(1, CORE_MODULE) + section(1, core)
        for file, name in [
            (core, "inner"),
            (wrapped, "inner"),
            (COMPONENT + section(4, wrapped), "inner"),
            (wrapped + manifest([transform("outer", coder("bytes"))]), "outer"),
        ]:
            self.assertEqual([transform.name for transform in read_manifest(file).transforms], [name])

    def test_the_example_can_be_read(self):
        read = read_manifest(wordcount().read_bytes())
        self.assertEqual([transform.name for transform in read.transforms], ["split", "format"])
        self.assertEqual(str(read.transform("format").input), "kv<string_utf8, varint>")
        self.assertEqual(read.transform("split").outputs[0].coder, Coder("beam:coder:string_utf8:v1"))

    def test_other_files_are_refused(self):
        deep = CORE_MODULE + manifest([])
        for _ in range(20):
            deep = COMPONENT + section(4, deep)
        other_version = custom("purlin:manifest", b'{"purlin":"9.0.0","transforms":[]}')
        for file, expected in [
            (b"", "not a WebAssembly file: it begins with nothing"),
            (b"PK\x03\x04", "not a WebAssembly file: it begins with 504b0304"),
            (CORE_MODULE, "no section purlin:manifest"),
            (deep, "no section purlin:manifest"),
            (CORE_MODULE + b"\0\x50", "the file ends inside a section"),
            (CORE_MODULE + b"\0\xff\xff\xff\xff\xff\xff", "malformed length"),
            (CORE_MODULE + custom("purlin:manifest", b"{"), "cannot be read"),
            (CORE_MODULE + custom("purlin:manifest", b"{}"), "cannot be read"),
            (CORE_MODULE + other_version, "purlin:dofn 9.0.0 is not supported"),
        ]:
            with self.assertRaisesRegex(ManifestError, expected):
                read_manifest(file)

    def test_unknown_transforms_are_named(self):
        with self.assertRaisesRegex(ManifestError, "no transform 'spilt', only split, format"):
            read_manifest(wordcount().read_bytes()).transform("spilt")
