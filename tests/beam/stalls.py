"""Submits a pipeline that stands still, and waits until it is stopped: stalls.py ENDPOINT NAME."""
import sys
import threading

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import TimerSpec, on_timer
from apache_beam.utils.timestamp import Duration, Timestamp


def hang(element):
  threading.Event().wait()
  yield element


class Wait(beam.DoFn):
  """Sets a timer of processing time for the day after."""
  TOMORROW = TimerSpec('tomorrow', TimeDomain.REAL_TIME)

  def process(self, element, tomorrow=beam.DoFn.TimerParam(TOMORROW)):
    tomorrow.set(Timestamp.now() + Duration.of(86_400))

  @on_timer(TOMORROW)
  def fire(self):
    yield 'at last'


class Poll(beam.DoFn, beam.RestrictionProvider):
  """A source that never ends: it gives nothing and comes back in an hour."""

  def initial_restriction(self, element):
    return OffsetRange(0, 1 << 40)

  def create_tracker(self, restriction):
    return OffsetRestrictionTracker(restriction)

  def restriction_size(self, element, restriction):
    return 1

  @beam.DoFn.unbounded_per_element()
  def process(self, element, tracker=beam.DoFn.RestrictionParam()):
    tracker.defer_remainder(Duration.of(3600))
    yield from ()


def hanging_bundle(p):
  p | beam.Create(['a']) | 'Hang' >> beam.FlatMap(hang) | beam.Reshuffle() | 'Write' >> beam.Map(print)


def far_timer(p):
  rows = p | 'Orders' >> beam.Create([('key', 'value')]).with_output_types(tuple[str, str])
  rows = rows | beam.Map(lambda row: beam.window.TimestampedValue(row, 1_700_000_000)).with_output_types(tuple[str, str])
  rows | 'Wait' >> beam.ParDo(Wait()) | beam.Reshuffle() | 'Write' >> beam.Map(print)


def endless_side_input(p):
  names = p | 'Begin' >> beam.Impulse() | 'Poll' >> beam.ParDo(Poll())
  rows = p | beam.Create(['a', 'b'])
  rows | 'Join' >> beam.Map(lambda row, names: row, beam.pvalue.AsList(names)) | beam.Reshuffle() | 'Write' >> beam.Map(print)


def main():
  endpoint, name = sys.argv[1:]
  stalls = [hanging_bundle, far_timer, endless_side_input]
  pipeline = {stall.__name__: stall for stall in stalls}[name]
  options = PipelineOptions(
      ['--streaming'], runner='PortableRunner', job_endpoint=endpoint,
      environment_type='LOOPBACK', job_name=name.replace('_', '-'))
  with beam.Pipeline(options=options) as p:
    pipeline(p)


if __name__ == '__main__':
  main()
