"""Unbounded sources that go on, or end, only when something further down has been seen. They end, so their jobs do."""
import threading
import time

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.transforms import window
from apache_beam.utils.timestamp import Duration, Timestamp

_SEEN, _LOCK = {}, threading.Lock()


def see(name, what=None):
  """Notes that something was seen under a name."""
  with _LOCK:
    _SEEN.setdefault(name, []).append(what)


def seen(name):
  """What was seen under a name, in order."""
  with _LOCK:
    return list(_SEEN.get(name, ()))


class See(beam.DoFn):
  """Notes all elements and passes them on."""

  def __init__(self, name):
    self._name = name

  def process(self, element):
    see(self._name, element)
    yield element


class _Steps(beam.RestrictionProvider):
  def initial_restriction(self, steps):
    return OffsetRange(0, len(steps))

  def create_tracker(self, restriction):
    return OffsetRestrictionTracker(restriction)

  def restriction_size(self, steps, restriction):
    return restriction.size()

  def truncate(self, steps, restriction):
    return None


class Gated(beam.DoFn):
  """Puts out the values of its steps, and advances its watermark to each step's time behind it.

  A step is a value, its time in seconds, and a name: it waits until something has been seen under that name, or for
  nothing without one. Waiting, it hands back what is left.
  """

  @beam.DoFn.unbounded_per_element()
  def process(
      self,
      steps,
      tracker=beam.DoFn.RestrictionParam(_Steps()),
      watermark=beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider())):
    for position in range(tracker.current_restriction().start, len(steps)):
      value, at, name = steps[position]
      if name and not seen(name):
        tracker.defer_remainder(Duration(0.05))
        return
      if not tracker.try_claim(position):
        return
      yield window.TimestampedValue(value, Timestamp(at))
      watermark.set_watermark(Timestamp(at))


class _Endless(beam.RestrictionProvider):
  def initial_restriction(self, element):
    return OffsetRange(0, 1 << 40)

  def create_tracker(self, restriction):
    return OffsetRestrictionTracker(restriction)

  def restriction_size(self, element, restriction):
    return restriction.size()


class Busy(beam.DoFn):
  """Puts out numbers and never hands back anything by itself, until something has been seen under a name."""

  @beam.DoFn.unbounded_per_element()
  def process(self, name, tracker=beam.DoFn.RestrictionParam(_Endless())):
    restriction = tracker.current_restriction()
    position = restriction.start
    while not seen(name):
      if not tracker.try_claim(position):
        return
      yield position
      position += 1
      time.sleep(0.005)
    tracker.try_claim(restriction.stop)


def gated(pipeline, label, steps):
  """The values of `steps`, see `Gated`."""
  steps = tuple(steps)
  return (
      pipeline
      | label + ' steps' >> beam.Create([steps], reshuffle=False)
      | label >> beam.ParDo(Gated()))

