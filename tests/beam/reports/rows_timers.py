"""Rows of `README.md` about timers, windows and what a DoFn keeps."""
import apache_beam as beam
from apache_beam.coders import StrUtf8Coder
from apache_beam.testing.test_stream import TestStream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import window
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.typehints import Tuple
from apache_beam.utils.timestamp import Timestamp

STREAMING = '--streaming'


def _keyed(pipeline, elements):
  """Elements of one key with their times in seconds."""
  values = [window.TimestampedValue(('k', value), at) for value, at in elements]
  return (
      pipeline | beam.Create(values, reshuffle=False) | beam.Map(lambda element: element)
      | 'key' >> beam.Map(lambda element: element).with_output_types(Tuple[str, str]))


def _stream(pipeline, *steps):
  """A TestStream of elements of one key: `steps` are values with their times, or watermarks."""
  stream = TestStream(coder=StrUtf8Coder()).advance_watermark_to(0)
  for step in steps:
    if isinstance(step, int):
      stream = stream.advance_watermark_to(step)
    else:
      value, at = step
      stream = stream.add_elements([window.TimestampedValue(value, at)])
  stream = stream.advance_watermark_to_infinity()
  return pipeline | stream | 'key' >> beam.Map(lambda value: ('k', value)).with_output_types(Tuple[str, str])


class _KeepBuffer(beam.DoFn):
  """Keeps a bundle's elements to its end, with their times and windows."""

  def start_bundle(self):
    self._kept = []

  def process(self, element, at=beam.DoFn.TimestampParam, win=beam.DoFn.WindowParam):
    self._kept.append(beam.utils.windowed_value.WindowedValue(element, at, (win,)))
    return ()

  def finish_bundle(self):
    return self._kept


def row_13_what_a_bundle_keeps_is_not_late(runner):
  """The watermark passes the elements only when the bundle that keeps them has given them out."""
  with runner.pipeline(STREAMING) as p:
    counts = (
        _stream(p, ('a', 1), ('b', 2), 20, ('c', 21), 40) | beam.WindowInto(window.FixedWindows(10))
        | beam.ParDo(_KeepBuffer()).with_output_types(Tuple[str, str])
        | beam.GroupByKey() | beam.Map(lambda group: sorted(group[1])))
    assert_that(counts, equal_to([['a', 'b'], ['c']]))


class _Clear(beam.DoFn):
  """Sets two timers; a second element clears one of them."""
  CLEARED, KEPT = TimerSpec('cleared', TimeDomain.WATERMARK), TimerSpec('kept', TimeDomain.WATERMARK)

  def process(self, element, cleared=beam.DoFn.TimerParam(CLEARED), kept=beam.DoFn.TimerParam(KEPT)):
    if element[1] == 'set':
      cleared.set(10)
      kept.set(12)
    else:
      cleared.clear()

  @on_timer(CLEARED)
  def at_cleared(self):
    yield 'cleared'

  @on_timer(KEPT)
  def at_kept(self):
    yield 'kept'


def row_16_a_cleared_event_timer(runner):
  with runner.pipeline(STREAMING) as p:
    fired = _stream(p, ('set', 1), 2, ('clear', 3), 5, 20) | beam.ParDo(_Clear())
    assert_that(fired, equal_to(['kept']))


class _Bag(beam.DoFn):
  """What has come when the timer at 20 fires."""
  BAG, AT_20 = BagStateSpec('bag', StrUtf8Coder()), TimerSpec('at 20', TimeDomain.WATERMARK)

  def process(self, element, bag=beam.DoFn.StateParam(BAG), at_20=beam.DoFn.TimerParam(AT_20)):
    bag.add(element[1])
    if element[1] == 'a':
      at_20.set(20)

  @on_timer(AT_20)
  def fire(self, bag=beam.DoFn.StateParam(BAG)):
    yield sorted(bag.read())


def row_17_an_event_timer_is_not_early(runner):
  """It fires behind what came before the watermark passed it, and before what came later."""
  with runner.pipeline(STREAMING) as p:
    fired = _stream(p, ('a', 1), 15, ('b', 16), 19, ('c', 19), 25, ('d', 26)) | beam.ParDo(_Bag())
    assert_that(fired, equal_to([['a', 'b', 'c']]))


class _Loop(beam.DoFn):
  """A timer every ten seconds, nine times."""
  TICK, COUNT = TimerSpec('tick', TimeDomain.WATERMARK), BagStateSpec('count', StrUtf8Coder())

  def process(self, element, tick=beam.DoFn.TimerParam(TICK)):
    tick.set(10)

  @on_timer(TICK)
  def at_tick(
      self,
      at=beam.DoFn.TimestampParam,
      tick=beam.DoFn.TimerParam(TICK),
      count=beam.DoFn.StateParam(COUNT)):
    count.add('.')
    if at < 90:
      tick.set(at + 10)
    yield int(at), len(list(count.read()))


def row_18_a_looping_timer(runner):
  with runner.pipeline() as p:
    fired = _keyed(p, [('a', 1)]) | beam.ParDo(_Loop())
    assert_that(fired, equal_to([(number * 10, number) for number in range(1, 10)]))


class _AfterTheEnd(beam.DoFn):
  """A timer of processing time that is due long after the window, and one of event time at the window's end."""
  CLOCK, END = TimerSpec('clock', TimeDomain.REAL_TIME), TimerSpec('end', TimeDomain.WATERMARK)
  BAG = BagStateSpec('bag', StrUtf8Coder())

  def process(
      self,
      element,
      win=beam.DoFn.WindowParam,
      clock=beam.DoFn.TimerParam(CLOCK),
      end=beam.DoFn.TimerParam(END),
      bag=beam.DoFn.StateParam(BAG)):
    bag.add(element[1])
    clock.set(Timestamp.now() + 1000)
    end.set(win.max_timestamp())

  @on_timer(CLOCK)
  def at_clock(self, bag=beam.DoFn.StateParam(BAG)):
    yield 'clock', list(bag.read())

  @on_timer(END)
  def at_end(self, bag=beam.DoFn.StateParam(BAG)):
    yield 'end', list(bag.read())


def row_19_a_timer_of_processing_time_goes_with_its_window(runner):
  with runner.pipeline(STREAMING) as p:
    stream = (
        TestStream(coder=StrUtf8Coder()).advance_watermark_to(0)
        .add_elements([window.TimestampedValue('a', 1)]).advance_watermark_to(50)
        .advance_processing_time(2000).advance_watermark_to_infinity())
    fired = (
        p | stream | beam.Map(lambda value: ('k', value)).with_output_types(Tuple[str, str])
        | beam.WindowInto(window.FixedWindows(10)) | beam.ParDo(_AfterTheEnd()))
    assert_that(fired, equal_to([('end', ['a'])]))


class _AtEnd(beam.DoFn):
  """What a window has, read in a callback at its end."""
  BAG, END = BagStateSpec('bag', StrUtf8Coder()), TimerSpec('end', TimeDomain.WATERMARK)

  def process(
      self,
      element,
      win=beam.DoFn.WindowParam,
      bag=beam.DoFn.StateParam(BAG),
      end=beam.DoFn.TimerParam(END)):
    bag.add(element[1])
    end.set(win.end)

  @on_timer(END)
  def at_end(self, key=beam.DoFn.KeyParam, bag=beam.DoFn.StateParam(BAG)):
    yield key, ''.join(sorted(bag.read()))


def row_20_state_in_the_callback_of_a_window(runner):
  """The callback at the very end of a window sees its state, and what it puts out is not late behind it."""
  with runner.pipeline() as p:
    ends = (
        _keyed(p, [('a', 1), ('b', 9), ('c', 11)]) | beam.WindowInto(window.FixedWindows(10))
        | beam.ParDo(_AtEnd()).with_output_types(Tuple[str, str])
        | beam.GroupByKey() | beam.Map(lambda group: list(group[1])))
    assert_that(ends, equal_to([['ab'], ['c']]))


def row_23_sliding_windows_with_gaps(runner):
  """Elements that lie in no window are dropped without a word."""
  with runner.pipeline() as p:
    counts = (
        _keyed(p, [(str(at), at) for at in range(20)]) | beam.WindowInto(window.SlidingWindows(5, 10))
        | beam.GroupByKey() | beam.Map(lambda group: sorted(group[1], key=int)))
    assert_that(counts, equal_to([list('01234'), ['10', '11', '12', '13', '14']]))
