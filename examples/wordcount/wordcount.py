"""Beam's word count with splitting and formatting in a WebAssembly component; everything else stays Python.

    python wordcount.py --component wordcount.wasm --input 'book*.txt' --output counts \
        --runner=PortableRunner --job_endpoint=localhost:8073 --environment_type=LOOPBACK
"""
import argparse

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from purlin import WasmParDo


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--component', required=True, help='the built component')
  parser.add_argument('--input', required=True, help='files to read')
  parser.add_argument('--output', required=True, help='prefix of the files to write')
  known, pipeline_args = parser.parse_known_args()
  with beam.Pipeline(options=PipelineOptions(pipeline_args)) as p:
    (
        p
        | 'Read' >> beam.io.ReadFromText(known.input).with_output_types(str)
        | 'Split' >> WasmParDo(known.component, 'split')
        | 'Count' >> beam.combiners.Count.PerElement()
        | 'Format' >> WasmParDo(known.component, 'format')
        | 'Write' >> beam.io.WriteToText(known.output))


if __name__ == '__main__':
  main()
