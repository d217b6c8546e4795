"""Sessions of users over click events, with a stateful DoFn in a WebAssembly component; everything else stays Python.

    python sessions.py --component sessions.wasm --output sessions \
        --runner=PortableRunner --job_endpoint=localhost:8073 --environment_type=LOOPBACK
"""
import argparse

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import TimestampedValue

from purlin import WasmParDo

GAP_SECONDS = 600

# User, page, and the second of the click. They need not be in order.
CLICKS = [
    ('ada', '/', 0),
    ('bob', '/', 30),
    ('ada', '/checkout', 420),
    ('ada', '/cart', 90),
    ('cleo', '/help', 2000),
    ('bob', '/jobs', 700),
    ('ada', '/', 5000),
    ('bob', '/about', 100),
    ('cleo', '/', 1500),
]


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--component', required=True, help='the built component')
  parser.add_argument('--output', required=True, help='prefix of the files to write')
  known, pipeline_args = parser.parse_known_args()
  with beam.Pipeline(options=PipelineOptions(pipeline_args)) as p:
    (
        p
        | 'Clicks' >> beam.Create(CLICKS)
        | 'AtTheirTimes' >> beam.Map(
            lambda click: TimestampedValue((click[0], click[1]), click[2])).with_output_types(tuple[str, str])
        | 'Sessions' >> WasmParDo(known.component, 'sessions', config=str(GAP_SECONDS))
        | 'Write' >> beam.io.WriteToText(known.output))


if __name__ == '__main__':
  main()
