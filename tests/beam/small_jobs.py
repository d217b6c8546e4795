"""Runs many small pipelines one after another: small_jobs.py ENDPOINT COUNT."""
import sys

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to

endpoint, count = sys.argv[1], int(sys.argv[2])
options = PipelineOptions(
    runner='PortableRunner', job_endpoint=endpoint, environment_type='LOOPBACK')
for number in range(count):
  with beam.Pipeline(options=options) as p:
    sums = (
        p | beam.Create([('a', number), ('b', 1), ('a', 2)])
        | beam.CombinePerKey(sum))
    assert_that(sums, equal_to([('a', number + 2), ('b', 1)]))
