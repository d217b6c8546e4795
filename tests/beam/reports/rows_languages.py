"""Rows of `README.md` about pipelines in several languages."""
import os
import socket
import subprocess
import time

import apache_beam as beam
from apache_beam.io.external.generate_sequence import GenerateSequence
from apache_beam.testing.util import assert_that, equal_to

HERE = os.path.dirname(os.path.abspath(__file__))
JAVA = ('--defaultEnvironmentType=PROCESS',
        '--defaultEnvironmentConfig={"command": "%s"}' % os.path.join(HERE, '../../../examples/boot/java.sh'))


class _ExpansionService:
  """Beam's Java expansion service, whose transforms run in processes."""

  def __enter__(self):
    with socket.socket() as free:
      free.bind(('localhost', 0))
      port = free.getsockname()[1]
    self._process = subprocess.Popen([os.path.join(HERE, '../java/run-expansion.sh'), str(port), *JAVA],
                                     stdin=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while True:
      try:
        socket.create_connection(('localhost', port)).close()
        return 'localhost:%d' % port
      except OSError:
        assert self._process.poll() is None and time.monotonic() < deadline, 'no expansion service'
        time.sleep(.1)

  def __exit__(self, *_):
    self._process.stdin.close()
    self._process.wait()


class _CountsByKey(beam.DoFn):
  SEEN = beam.transforms.userstate.CombiningValueStateSpec('seen', sum)

  def process(self, element, total, seen=beam.DoFn.StateParam(SEEN)):
    seen.add(1)
    yield element[0], seen.read(), total


def row_05_stages_of_two_languages_in_one_job(runner):
  """What Java generates is keyed, kept in state and joined with a side input in Python, each in harnesses of its own."""
  with _ExpansionService() as service, runner.pipeline() as p:
    numbers = p | GenerateSequence(start=0, stop=1000, expansion_service=service)
    total = beam.pvalue.AsSingleton(numbers | beam.CombineGlobally(sum))
    counts = numbers | beam.Map(lambda n: (n % 3, n)) | beam.ParDo(_CountsByKey(), total)
    last = counts | beam.MapTuple(lambda key, seen, total: (key, (seen, total))) | beam.CombinePerKey(max)
    assert_that(last, equal_to([(0, (334, 499500)), (1, (333, 499500)), (2, (333, 499500))]))
