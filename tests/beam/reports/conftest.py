"""Which runner the rows are asked of, and what they share.

  python -m pytest -c pytest.ini --job_endpoint HOST:PORT --server_id PID

The rows run over LOOPBACK, so that their DoFns run in this very process: a source may wait until something has been seen
further down (`gated.py`), which no job passes whose runner holds things back.
"""
import time

import pytest

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions


def pytest_addoption(parser):
  parser.addoption('--job_endpoint', required=True)
  parser.addoption('--server_id', required=True, type=int)


class Runner:
  """The server under test."""

  def __init__(self, endpoint, process):
    self._endpoint, self._process = endpoint, process

  def pipeline(self, *flags, environment='LOOPBACK'):
    """A pipeline that runs when its block ends; an error of the job is raised there."""
    return beam.Pipeline(options=PipelineOptions([
        '--runner=PortableRunner',
        '--job_endpoint=' + self._endpoint,
        '--environment_type=' + environment,
        *flags,
    ]))

  def error(self, build, *flags, environment='LOOPBACK', within_s=60):
    """What a job says that has to fail, within a time."""
    began = time.monotonic()
    with pytest.raises(Exception) as raised:
      with self.pipeline(*flags, environment=environment) as p:
        build(p)
    took_s = time.monotonic() - began
    assert took_s < within_s, 'it took %.0f s to fail' % took_s
    return str(raised.value)

  def memory_kib(self):
    """What the server has in memory now."""
    with open('/proc/%d/status' % self._process, encoding='utf-8') as status:
      return next(int(line.split()[1]) for line in status if line.startswith('VmRSS:'))


@pytest.fixture(scope='session')
def runner(pytestconfig):
  return Runner(pytestconfig.getoption('job_endpoint'), pytestconfig.getoption('server_id'))
