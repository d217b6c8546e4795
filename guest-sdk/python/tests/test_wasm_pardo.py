"""Pipelines that mix Python and components, down to the message that a runner gets."""

import hashlib
import json
import pathlib
import tempfile
import typing
import unittest

import apache_beam as beam
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability import portable_runner
from apache_beam.transforms import window

from purlin import WasmParDo
from purlin.wasm_pardo import CAPABILITIES, DOFN_URN, ENVIRONMENT_URN
from tests.components import CORE_MODULE, coder, manifest, transform, wordcount


def optimized(pipeline: beam.Pipeline) -> beam_runner_api_pb2.Pipeline:
    """What the portable runner sends: its own phases run over the proto first."""
    proto = pipeline.to_runner_api(default_environment=portable_runner.PortableRunner._create_environment(pipeline.options))
    return portable_runner.PortableRunner._optimize_pipeline(proto, pipeline.options)


def wasm_transforms(proto: beam_runner_api_pb2.Pipeline) -> dict[str, beam_runner_api_pb2.PTransform]:
    found = {}
    for candidate in proto.components.transforms.values():
        if candidate.spec.urn == common_urns.primitives.PAR_DO.urn:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(candidate.spec.payload)
            if payload.do_fn.urn == DOFN_URN:
                found[candidate.unique_name] = candidate
    return found


def coder_text(proto: beam_runner_api_pb2.Pipeline, collection: str) -> str:
    def text(coder_id):
        coder = proto.components.coders[coder_id]
        name = coder.spec.urn.removeprefix("beam:coder:").removesuffix(":v1")
        parts = ", ".join(map(text, coder.component_coder_ids))
        return f"{name}<{parts}>" if parts else name

    return text(proto.components.pcollections[collection].coder_id)


class WordCount(unittest.TestCase):
    def setUp(self):
        self.pipeline = beam.Pipeline(options=beam.options.pipeline_options.PipelineOptions(["--environment_type=LOOPBACK"]))
        (
            self.pipeline
            | beam.Create(["to be or", "not to be"])
            | "Split" >> WasmParDo(wordcount(), "split")
            | beam.WindowInto(window.FixedWindows(60))
            | beam.combiners.Count.PerElement()
            | "Format" >> WasmParDo(wordcount(), "format", config={"b": 1, "a": "x"})
            | "Upper" >> beam.Map(str.upper)
        )
        self.proto = optimized(self.pipeline)
        self.wasm = wasm_transforms(self.proto)

    def test_the_dofns_are_named_with_their_configuration(self):
        self.assertEqual(sorted(self.wasm), ["Format", "Split"])
        payloads = {
            name: beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload).do_fn.payload
            for name, transform in self.wasm.items()
        }
        self.assertEqual(payloads["Split"], b"\x05split\x00")
        self.assertEqual(payloads["Format"], b'\x06format\x0f{"a":"x","b":1}')

    def test_the_environment_carries_the_component(self):
        component = wordcount().read_bytes()
        digest = hashlib.sha256(component).hexdigest()
        for transform in self.wasm.values():
            environment = self.proto.components.environments[transform.environment_id]
            self.assertEqual(environment.urn, ENVIRONMENT_URN)
            self.assertEqual(json.loads(environment.payload), {"sha256": digest, "world": "purlin:dofn/stateless@0.1.0"})
            self.assertEqual(tuple(environment.capabilities), CAPABILITIES)
            (dependency,) = environment.dependencies
            self.assertEqual(dependency.role_urn, common_urns.artifact_roles.STAGING_TO.urn)
            staged = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(dependency.role_payload).staged_name
            self.assertEqual(staged, f"{digest[:16]}-{wordcount().name}")
            file = beam_runner_api_pb2.ArtifactFilePayload.FromString(dependency.type_payload)
            self.assertEqual((pathlib.Path(file.path).read_bytes(), file.sha256), (component, digest))

    def test_collections_have_model_coders(self):
        split, format_ = self.wasm["Split"], self.wasm["Format"]
        self.assertEqual(coder_text(self.proto, *split.inputs.values()), "string_utf8")
        self.assertEqual(coder_text(self.proto, split.outputs["output"]), "string_utf8")
        self.assertEqual(coder_text(self.proto, *format_.inputs.values()), "kv<string_utf8, varint>")
        self.assertEqual(coder_text(self.proto, format_.outputs["output"]), "string_utf8")

    def test_python_reads_what_the_component_makes(self):
        readers = {
            transform.unique_name
            for transform in self.proto.components.transforms.values()
            if self.wasm["Format"].outputs["output"] in transform.inputs.values() and not transform.subtransforms
        }
        self.assertTrue(any(name.startswith("Upper") for name in readers), readers)

    def test_windows_go_on(self):
        strategy = self.proto.components.pcollections[self.wasm["Format"].outputs["output"]].windowing_strategy_id
        window_fn = self.proto.components.windowing_strategies[strategy].window_fn
        self.assertEqual(window_fn.urn, common_urns.fixed_windows.urn)

    def test_the_python_environment_is_still_there(self):
        (upper,) = (one for one in self.proto.components.transforms.values() if one.unique_name.startswith("Upper") and not one.subtransforms)
        self.assertNotEqual(self.proto.components.environments[upper.environment_id].urn, ENVIRONMENT_URN)


class Stateful(unittest.TestCase):
    """State and timers of the manifest become those of the pipeline."""

    def setUp(self):
        pair = coder("kv", coder("string_utf8"), coder("varint"))
        states = [
            {"name": kind, "kind": kind, "coder": coder("varint")}
            for kind in ("value", "bag", "combining", "set", "ordered-list")
        ]
        states.append({"name": "map", "kind": "map", "key": coder("bytes"), "coder": coder("double")})
        timers = [
            {"name": "gap", "domain": "event-time"},
            {"name": "poll", "domain": "processing-time"},
            {"name": "end", "domain": "event-time"},
        ]
        keyed = {**transform("visits", pair, output=coder("varint")), "role": "keyed-pardo", "states": states}
        path = component_file(self, {**keyed, "timers": timers, "expiration": "end"})
        pipeline = beam.Pipeline()
        clicks = pipeline | beam.Create([("a", 1)]).with_output_types(tuple[str, int])
        clicks | beam.WindowInto(window.FixedWindows(60)) | "Visits" >> WasmParDo(path, "visits")
        self.proto = optimized(pipeline)
        self.visits = wasm_transforms(self.proto)["Visits"]
        self.payload = beam_runner_api_pb2.ParDoPayload.FromString(self.visits.spec.payload)

    def coder(self, coder_id):
        coder = self.proto.components.coders[coder_id]
        return coder.spec.urn.removeprefix("beam:coder:").removesuffix(":v1")

    def test_states_are_of_their_kind(self):
        specs = self.payload.state_specs
        kinds = {name: (spec.WhichOneof("spec"), spec.protocol.urn) for name, spec in specs.items()}
        bag, multimap = "beam:user_state:bag:v1", "beam:user_state:multimap:v1"
        self.assertEqual(
            kinds,
            {
                "value": ("read_modify_write_spec", bag),
                "bag": ("bag_spec", bag),
                "combining": ("combining_spec", bag),
                "map": ("map_spec", multimap),
                "set": ("set_spec", multimap),
                "ordered-list": ("ordered_list_spec", "beam:user_state:ordered_list:v1"),
            },
        )
        self.assertEqual(self.coder(specs["combining"].combining_spec.accumulator_coder_id), "varint")
        self.assertEqual(self.coder(specs["map"].map_spec.key_coder_id), "bytes")
        self.assertEqual(self.coder(specs["map"].map_spec.value_coder_id), "double")

    def test_timers_are_of_key_and_window(self):
        families = self.payload.timer_family_specs
        domains = {name: family.time_domain for name, family in families.items()}
        event, processing = beam_runner_api_pb2.TimeDomain.EVENT_TIME, beam_runner_api_pb2.TimeDomain.PROCESSING_TIME
        self.assertEqual(domains, {"gap": event, "poll": processing, "end": event})
        timer = self.proto.components.coders[families["gap"].timer_family_coder_id]
        self.assertEqual(timer.spec.urn, common_urns.coders.TIMER.urn)
        self.assertEqual([self.coder(part) for part in timer.component_coder_ids], ["string_utf8", "interval_window"])
        self.assertEqual(self.payload.on_window_expiration_timer_family_spec, "end")

    def test_the_runner_is_told_what_it_takes(self):
        self.assertLessEqual(
            {"beam:requirement:pardo:stateful:v1", "beam:requirement:pardo:on_window_expiration:v1"},
            set(self.proto.requirements),
        )
        environment = self.proto.components.environments[self.visits.environment_id]
        self.assertEqual(json.loads(environment.payload)["world"], "purlin:dofn/stateful@0.1.0")


def component_file(test, *transforms):
    file = tempfile.NamedTemporaryFile(suffix=".wasm")
    test.addCleanup(file.close)
    file.write(CORE_MODULE + manifest(list(transforms)))
    file.flush()
    return file.name


class ByHand(unittest.TestCase):
    def component(self, *transforms):
        return component_file(self, *transforms)

    def test_several_outputs_are_a_dictionary_with_types(self):
        numbers = coder("kv", coder("bytes"), coder("iterable", coder("double")))
        path = self.component(transform("route", coder("varint"), output=numbers, garbage=coder("nullable", coder("bool"))))
        pipeline = beam.Pipeline()
        outputs = pipeline | beam.Create([1, 2]) | WasmParDo(path, "route")
        self.assertEqual(sorted(outputs), ["garbage", "output"])
        outputs["output"] | beam.Map(lambda pair: pair)
        outputs["garbage"] | "Also" >> beam.Map(lambda one: one)
        proto = optimized(pipeline)
        (route,) = wasm_transforms(proto).values()
        self.assertEqual(coder_text(proto, route.outputs["output"]), "kv<bytes, iterable<double>>")
        self.assertEqual(coder_text(proto, route.outputs["garbage"]), "nullable<bool>")

    def test_a_sink_has_no_output(self):
        path = self.component(transform("sink", coder("string_utf8")))
        pipeline = beam.Pipeline()
        self.assertIsNone(pipeline | beam.Create(["a"]) | WasmParDo(path, "sink"))
        (sink,) = wasm_transforms(optimized(pipeline)).values()
        self.assertFalse(sink.outputs)

    def test_groups_are_iterables(self):
        path = self.component(
            transform("sum", coder("kv", coder("string_utf8"), coder("iterable", coder("varint"))), output=coder("varint"))
        )
        pipeline = beam.Pipeline()
        pipeline | beam.Create([("a", 1)]) | beam.GroupByKey() | WasmParDo(path, "sum")
        self.assertEqual(len(wasm_transforms(optimized(pipeline))), 1)

    def test_a_step_without_a_type_hint_is_named(self):
        path = self.component(transform("upper", coder("kv", coder("string_utf8"), coder("varint")), output=coder("string_utf8")))
        pipeline = beam.Pipeline()
        untyped = pipeline | beam.Create(["a"]) | "Guess" >> beam.Map(lambda text: eval(text))
        with self.assertRaises(RuntimeError) as raised:
            untyped | "Shout" >> WasmParDo(path, "upper")
        message = str(raised.exception)
        self.assertIn("Shout: 'upper' reads elements with coder kv<string_utf8, varint>, but the output of 'Guess", message)
        self.assertIn(".with_output_types(tuple[str, int])", message)

    def test_the_hint_that_the_message_gives_helps(self):
        path = self.component(transform("upper", coder("kv", coder("string_utf8"), coder("varint")), output=coder("string_utf8")))
        pipeline = beam.Pipeline()
        typed = pipeline | beam.Create(["a"]) | beam.Map(lambda text: eval(text)).with_output_types(tuple[str, int])
        typed | WasmParDo(path, "upper")
        self.assertEqual(len(wasm_transforms(optimized(pipeline))), 1)

    def test_output_types_cannot_be_overridden(self):
        path = self.component(transform("upper", coder("string_utf8"), output=coder("string_utf8")))
        pipeline = beam.Pipeline()
        with self.assertRaisesRegex(RuntimeError, "the component decides about its outputs"):
            pipeline | beam.Create(["a"]) | WasmParDo(path, "upper").with_output_types(typing.Any)

    def test_only_one_collection_goes_in(self):
        path = self.component(transform("upper", coder("string_utf8"), output=coder("string_utf8")))
        with self.assertRaisesRegex(TypeError, "takes one collection"):
            beam.Pipeline() | WasmParDo(path, "upper")


if __name__ == "__main__":
    unittest.main()
