"""Rows of `README.md` about sources: bundles that do not end by themselves, progress while sources run, parallel reads."""
import threading
import time

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import trigger, window
from apache_beam.transforms.userstate import CombiningValueStateSpec
from apache_beam.utils.timestamp import Duration

from gated import Busy, See, gated, see, seen


class _SeeFinish(beam.DoFn):
  """Notes its bundles' ends."""

  def __init__(self, name):
    self._name = name

  def process(self, element):
    yield element

  def finish_bundle(self):
    see(self._name)


def row_01_busy_bundles_are_cut(runner):
  """The source ends when its own elements have come through a shuffle, which they do only if its bundle is cut."""
  with runner.pipeline() as p:
    _ = (
        p | beam.Create(['row 1'], reshuffle=False) | beam.ParDo(Busy())
        | beam.Reshuffle() | beam.ParDo(See('row 1')))
  numbers = seen('row 1')
  assert sorted(numbers) == list(range(len(numbers))), 'numbers are missing or came twice'


class _Resumes(beam.DoFn):
  """Hands back what is left after every number."""

  class Provider(beam.RestrictionProvider):
    def initial_restriction(self, count):
      return OffsetRange(0, count)

    def create_tracker(self, restriction):
      return OffsetRestrictionTracker(restriction)

    def restriction_size(self, count, restriction):
      return restriction.size()

  @beam.DoFn.unbounded_per_element()
  def process(self, count, runner, tracker=beam.DoFn.RestrictionParam(Provider())):
    number = tracker.current_restriction().start
    if tracker.try_claim(number):
      if number % 500 == 250:
        see('row 2', runner.memory_kib())
      yield number
      tracker.defer_remainder(Duration(0))


def row_02_resumes_leave_nothing_behind(runner):
  """Thousands of resumes, while the server's memory stays what it is but for its write buffers."""
  resumes = 3000
  with runner.pipeline() as p:
    _ = (
        p | beam.Create([resumes], reshuffle=False) | beam.ParDo(_Resumes(), runner)
        | beam.Reshuffle() | beam.ParDo(See('row 2 numbers')))
  assert sorted(seen('row 2 numbers')) == list(range(resumes))
  memory = seen('row 2')
  assert len(memory) == 6
  assert memory[-1] - memory[1] < 16 * 1024, 'KiB after every 500 resumes: %s' % memory


def row_03_windows_close_while_the_source_runs(runner):
  """The source does not go on before the count of its first window is out."""
  steps = [('a', 1, None), ('a', 2, None), ('b', 21, None), ('c', 22, 'row 3')]
  with runner.pipeline() as p:
    _ = (
        gated(p, 'source', steps) | beam.WindowInto(window.FixedWindows(10))
        | beam.combiners.Count.PerElement() | beam.ParDo(See('row 3')))
  assert seen('row 3')[0] == ('a', 2)
  assert sorted(seen('row 3')) == [('a', 2), ('b', 1), ('c', 1)]


def row_14_bundles_are_finished_while_the_source_runs(runner):
  """The source ends when a `finish_bundle` of its own stage has been called."""
  with runner.pipeline() as p:
    _ = (
        p | beam.Create(['row 14'], reshuffle=False) | beam.ParDo(Busy())
        | beam.ParDo(_SeeFinish('row 14')))
  assert seen('row 14')


class _Counts(beam.DoFn):
  """Counts the values of a key."""

  SUM = CombiningValueStateSpec('sum', combine_fn=sum)

  def process(self, element, total=beam.DoFn.StateParam(SUM)):
    total.add(1)
    yield total.read()


def row_15_elements_reach_a_stateful_dofn_as_they_come(runner):
  """Each element but the first comes only when the one before it has been counted."""
  steps = [(('k', 1), 1, None), (('k', 2), 2, 'row 15')]
  with runner.pipeline() as p:
    _ = gated(p, 'source', steps) | beam.ParDo(_Counts()) | beam.ParDo(See('row 15'))
  assert seen('row 15') == [1, 2]


def row_22_an_early_pane_goes_on_at_once(runner):
  """The source goes on when the early pane has been seen behind a second shuffle."""
  steps = [(('k', 'early'), 1, None), (('k', 'on time'), 2, 'row 22')]
  early = trigger.AfterWatermark(early=trigger.AfterCount(1))
  with runner.pipeline() as p:
    _ = (
        gated(p, 'source', steps)
        | beam.WindowInto(
            window.FixedWindows(10), trigger=early, accumulation_mode=trigger.AccumulationMode.DISCARDING)
        | beam.GroupByKey() | beam.Reshuffle() | beam.Map(lambda element: sorted(element[1]))
        | beam.ParDo(See('row 22')))
  values = [value for pane in seen('row 22') for value in pane]
  assert seen('row 22')[0] == ['early'] and sorted(values) == ['early', 'on time'], seen('row 22')


def row_24_two_unbounded_inputs_of_a_flatten(runner):
  """The slow input does not go on before the first window of both has been counted."""
  fast = [('fast', at, None) for at in range(1, 40)]
  slow = [('slow', 1, None), ('slow', 15, None), ('slow', 35, 'row 24')]
  with runner.pipeline() as p:
    _ = (
        (gated(p, 'fast', fast), gated(p, 'slow', slow)) | beam.Flatten()
        | beam.WindowInto(window.FixedWindows(10)) | beam.combiners.Count.PerElement()
        | beam.ParDo(See('row 24')))
  fast_counts = [('fast', 9), ('fast', 10), ('fast', 10), ('fast', 10)]
  assert sorted(seen('row 24')) == fast_counts + [('slow', 1)] * 3


class _Together(beam.DoFn):
  """Waits until another element is being read too."""
  lock, now, most = threading.Lock(), 0, 0

  def process(self, element):
    with _Together.lock:
      _Together.now += 1
      _Together.most = max(_Together.most, _Together.now)
    until = time.monotonic() + 5
    while _Together.most < 2 and time.monotonic() < until:
      time.sleep(0.01)
    with _Together.lock:
      _Together.now -= 1
    yield element


def row_40_reads_run_side_by_side(runner, tmp_path):
  """Files are read in more than one place at a time, and each once."""
  for number in range(16):
    (tmp_path / ('%02d.txt' % number)).write_text('line %d\n' % number, encoding='utf-8')
  with runner.pipeline() as p:
    lines = p | beam.io.ReadFromText(str(tmp_path / '*.txt')) | beam.ParDo(_Together())
    assert_that(lines, equal_to(['line %d' % number for number in range(16)]))
  assert _Together.most >= 2, 'nothing was read side by side'
