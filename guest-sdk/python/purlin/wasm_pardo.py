"""A ParDo whose DoFn is in a WebAssembly component.

Beam lets an external transform be expanded by any object with an ``Expand`` method. The one here needs no server: it turns the
placeholder into a ParDo in an environment of its own, whose artifact is the component. In the pipeline it looks as if an SDK
had made it, so fusion, staging and monitoring treat it like any other ParDo.
"""

import hashlib
import json
import os
from typing import Any, Optional, Union

import apache_beam as beam
from apache_beam import pvalue
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_expansion_api_pb2, beam_runner_api_pb2
from apache_beam.runners.portability import artifact_service

from purlin import state_specs
from purlin.manifest import Coder, Transform, read_manifest

URN = "purlin:transform:wasm_pardo:v1"
DOFN_URN = "purlin:dofn:wasm:v1"
ENVIRONMENT_URN = "purlin:env:wasm_component:v1"
STATELESS_WORLD = "purlin:dofn/stateless@0.1.0"
STATEFUL_WORLD = "purlin:dofn/stateful@0.1.0"

# Coders that a component takes elements, and the host windows, in. A runner wraps others before they reach the environment.
CAPABILITIES = tuple(
    f"beam:coder:{name}:v1"
    for name in (
        "bytes",
        "string_utf8",
        "bool",
        "varint",
        "double",
        "kv",
        "iterable",
        "nullable",
        "global_window",
        "interval_window",
        "windowed_value",
        "timer",
    )
)

_TYPE_HINTS = {"bytes": "bytes", "string_utf8": "str", "bool": "bool", "varint": "int", "double": "float"}

Config = Union[None, bytes, str, dict, list, int, float, bool]


class WasmParDo(beam.transforms.external.ExternalTransform):
    """Applies a transform of a component to every element.

    Args:
      path: the component, or the core module that cargo made.
      name: the transform's name in it.
      config: handed to the DoFn when it is made: bytes as they are, a string as UTF-8, anything else as JSON.

    Raises:
      ManifestError: the file is not a component, or has no such transform.
    """

    def __init__(self, path: Union[str, os.PathLike], name: str, config: Config = None):
        self._path = os.fspath(path)
        with open(self._path, "rb") as file:
            component = file.read()
        self._transform = read_manifest(component).transform(name)
        digest = hashlib.sha256(component).hexdigest()
        super().__init__(URN, b"", _Expansion(self._path, digest, self._transform, _config_bytes(config)))

    def default_label(self) -> str:
        return f"WasmParDo({self._transform.name})"

    def expand(self, pvalueish):
        if not isinstance(pvalueish, pvalue.PCollection):
            raise TypeError(f"WasmParDo({self._transform.name}) takes one collection, not {type(pvalueish).__name__}")
        producer = pvalueish.producer.full_label if pvalueish.producer else "the step before it"
        self._expansion_service.producer = producer
        result = super().expand(pvalueish)
        return result if self._outputs else None


def dofn_payload(name: str, config: bytes) -> bytes:
    """Payload of the DoFn: name and configuration, each with its length before it."""
    encoded = name.encode()
    return _varint(len(encoded)) + encoded + _varint(len(config)) + config


def environment_payload(sha256: str, world: str) -> bytes:
    """Payload of the environment: which component, by digest, and the least world that has what is used of it."""
    return json.dumps({"sha256": sha256, "world": world}, separators=(",", ":"), sort_keys=True).encode()


class _Expansion:
    """Expands one WasmParDo, in this process. Also gives out its artifact."""

    def __init__(self, path: str, digest: str, transform: Transform, config: bytes):
        self._path = path
        self._digest = digest
        self._transform = transform
        self._config = config
        self.producer = "the step before it"

    def Expand(self, request: beam_expansion_api_pb2.ExpansionRequest) -> beam_expansion_api_pb2.ExpansionResponse:
        response = beam_expansion_api_pb2.ExpansionResponse(components=request.components)
        components = response.components
        placeholder = request.transform
        (input_id,) = placeholder.inputs.values()
        input_collection = components.pcollections[input_id]
        problem = self._input_problem(components, input_collection.coder_id, placeholder.unique_name)
        if problem:
            response.error = problem
            return response
        if request.output_coder_requests:
            response.error = f"{placeholder.unique_name}: with_output_types is of no use, the component decides about its outputs"
            return response

        environment_id = f"{request.namespace}_environment"
        components.environments[environment_id].CopyFrom(self._environment())
        coders = _CoderWriter(components, request.namespace)
        outputs = {}
        for index, output in enumerate(self._transform.outputs):
            outputs[output.tag] = f"{request.namespace}_output_{index}"
            components.pcollections[outputs[output.tag]].CopyFrom(
                beam_runner_api_pb2.PCollection(
                    unique_name=outputs[output.tag],
                    coder_id=coders.write(output.coder),
                    is_bounded=input_collection.is_bounded,
                    windowing_strategy_id=input_collection.windowing_strategy_id,
                )
            )
        payload = beam_runner_api_pb2.ParDoPayload(
            do_fn=beam_runner_api_pb2.FunctionSpec(urn=DOFN_URN, payload=dofn_payload(self._transform.name, self._config))
        )
        if self._transform.is_stateful:
            strategy = components.windowing_strategies[input_collection.windowing_strategy_id]
            state_specs.add_to(payload, self._transform, coders, strategy.window_coder_id)
            response.requirements.extend(state_specs.requirements(self._transform))
        response.transform.CopyFrom(
            beam_runner_api_pb2.PTransform(
                unique_name=placeholder.unique_name,
                spec=beam_runner_api_pb2.FunctionSpec(
                    urn=common_urns.primitives.PAR_DO.urn, payload=payload.SerializeToString()
                ),
                inputs=placeholder.inputs,
                outputs=outputs,
                environment_id=environment_id,
            )
        )
        return response

    def artifact_service(self):
        """Where the artifacts of the expansion are fetched from: the file itself."""
        return artifact_service.ArtifactRetrievalService(lambda path: open(path, "rb"))

    def _environment(self) -> beam_runner_api_pb2.Environment:
        staged_name = f"{self._digest[:16]}-{os.path.basename(self._path)}"
        return beam_runner_api_pb2.Environment(
            urn=ENVIRONMENT_URN,
            payload=environment_payload(self._digest, STATEFUL_WORLD if self._transform.is_stateful else STATELESS_WORLD),
            capabilities=CAPABILITIES,
            dependencies=[
                beam_runner_api_pb2.ArtifactInformation(
                    type_urn=common_urns.artifact_types.FILE.urn,
                    type_payload=beam_runner_api_pb2.ArtifactFilePayload(
                        path=self._path, sha256=self._digest
                    ).SerializeToString(),
                    role_urn=common_urns.artifact_roles.STAGING_TO.urn,
                    role_payload=beam_runner_api_pb2.ArtifactStagingToRolePayload(
                        staged_name=staged_name
                    ).SerializeToString(),
                )
            ],
        )

    def _input_problem(self, components, coder_id: str, step: str) -> Optional[str]:
        given = _read_coder(components, coder_id)
        wanted = self._transform.input
        if given == wanted:
            return None
        hint = _type_hint(wanted)
        return (
            f"{step}: {self._transform.name!r} reads elements with coder {wanted}, but the output of {self.producer!r} has"
            f" {given}. Give {self.producer!r} a type hint: .with_output_types({hint})"
        )


class _CoderWriter:
    """Adds coders to the components of a pipeline, under ids of one namespace."""

    def __init__(self, components: beam_runner_api_pb2.Components, namespace: str):
        self._components = components
        self._namespace = namespace
        self._ids: dict[Coder, str] = {}

    def write(self, coder: Coder) -> str:
        if coder not in self._ids:
            parts = [self.write(part) for part in coder.parts]
            coder_id = f"{self._namespace}_coder_{len(self._ids)}"
            self._components.coders[coder_id].CopyFrom(
                beam_runner_api_pb2.Coder(spec=beam_runner_api_pb2.FunctionSpec(urn=coder.urn), component_coder_ids=parts)
            )
            self._ids[coder] = coder_id
        return self._ids[coder]

    def write_timer(self, key: Coder, window_coder_id: str) -> str:
        """The coder of timers of keys with this coder, in windows whose coder is in the pipeline already."""
        coder_id = f"{self._namespace}_timer_coder"
        self._components.coders[coder_id].CopyFrom(
            beam_runner_api_pb2.Coder(
                spec=beam_runner_api_pb2.FunctionSpec(urn=common_urns.coders.TIMER.urn),
                component_coder_ids=[self.write(key), window_coder_id],
            )
        )
        return coder_id


def _read_coder(components: beam_runner_api_pb2.Components, coder_id: str) -> Coder:
    coder = components.coders[coder_id]
    return Coder(coder.spec.urn, tuple(_read_coder(components, part) for part in coder.component_coder_ids))


def _type_hint(coder: Coder) -> str:
    name = str(Coder(coder.urn))
    parts = [_type_hint(part) for part in coder.parts]
    if name == "kv":
        return f"tuple[{', '.join(parts)}]"
    if name == "iterable":
        return f"typing.Iterable[{parts[0]}]"
    if name == "nullable":
        return f"typing.Optional[{parts[0]}]"
    return _TYPE_HINTS.get(name, name)


def _config_bytes(config: Any) -> bytes:
    if config is None:
        return b""
    if isinstance(config, bytes):
        return config
    if isinstance(config, str):
        return config.encode()
    return json.dumps(config, separators=(",", ":"), sort_keys=True).encode()


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
