"""Rows of `README.md` about workers: those that cannot start, fail at once, end in the middle or think for long."""
import os
import socket
import sys
import time

import apache_beam as beam
from apache_beam.testing.util import assert_that, equal_to


def _some(pipeline):
  return pipeline | beam.Create([1, 2])


def row_32_an_environment_that_cannot_start_is_named(runner):
  """A process that is not there: what it should have been is in the message, and nothing else is tried instead."""
  said = runner.error(
      _some, '--environment_options=process_command=/nowhere/boot', environment='PROCESS')
  assert '/nowhere/boot' in said and 'docker' not in said.lower(), said


class _FailsToStart(beam.DoFn):
  def start_bundle(self):
    raise ValueError('row 33 cannot start')

  def process(self, element):
    yield element


def row_33_an_error_in_start_bundle(runner):
  said = runner.error(lambda p: _some(p) | beam.ParDo(_FailsToStart()))
  assert 'row 33 cannot start' in said, said


def row_34_a_bad_endpoint_is_named(runner):
  """A worker pool where nobody listens."""
  with socket.socket() as free:
    free.bind(('localhost', 0))
    nobody = 'localhost:%d' % free.getsockname()[1]
  said = runner.error(
      _some, '--environment_config=' + nobody, environment='EXTERNAL')
  assert nobody in said, said


class _EndsItsProcess(beam.DoFn):
  """The process ends in the middle of a bundle, the first time."""

  def __init__(self, marker):
    self._marker = marker

  def process(self, element):
    if element == 50 and not os.path.exists(self._marker):
      open(self._marker, 'w', encoding='utf-8').close()
      os._exit(7)
    yield element


def row_36_a_worker_ends_in_the_middle(runner, tmp_path):
  """Another takes its place, and every element comes out once."""
  here = os.path.dirname(os.path.abspath(__file__))
  boot = os.path.join(here, '../../../examples/boot/python.sh')
  marker = tmp_path / 'ended'
  with runner.pipeline('--environment_options=process_command=%s' % boot,
                       '--environment_options=process_variables=PYTHONPATH=%s,VIRTUAL_ENV=%s' % (here, sys.prefix),
                       environment='PROCESS') as p:
    numbers = p | beam.Create(range(100)) | beam.Reshuffle() | beam.ParDo(_EndsItsProcess(str(marker)))
    assert_that(numbers, equal_to(list(range(100))))
  assert marker.exists()


def _think(element):
  time.sleep(20)
  return element


def row_39_a_bundle_that_thinks_for_long(runner):
  """Nothing comes from a bundle for twenty seconds: twice what a strict keep-alive takes. Minutes would be too long here."""
  with runner.pipeline() as p:
    assert_that(p | beam.Create([1], reshuffle=False) | beam.Map(_think), equal_to([1]))
