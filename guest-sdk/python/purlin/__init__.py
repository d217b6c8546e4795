"""WebAssembly DoFns in Beam pipelines, for the Purlin runner."""

from purlin.manifest import Coder, Manifest, ManifestError, Output, State, Timer, Transform, read_manifest
from purlin.wasm_pardo import WasmParDo

__all__ = ["Coder", "Manifest", "ManifestError", "Output", "State", "Timer", "Transform", "WasmParDo", "read_manifest"]
