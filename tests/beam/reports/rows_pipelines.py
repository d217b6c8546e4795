"""Rows of `README.md` about the shapes of pipelines: Flatten and coders, side inputs, metrics, large elements."""
import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.typehints import Tuple

from gated import see, seen

MIB = 1 << 20


def row_25_coders_of_a_flatten_stay_with_it(runner):
  """Collections of unlike coders go into a Flatten and, as they are, into a shuffle of their own."""
  with runner.pipeline() as p:
    texts = p | 'texts' >> beam.Create([('a', 'x')]) | 't' >> beam.Map(lambda e: e).with_output_types(Tuple[str, str])
    numbers = p | 'numbers' >> beam.Create([('a', 1)]) | 'n' >> beam.Map(lambda e: e).with_output_types(Tuple[str, int])
    both = (texts, numbers) | beam.Flatten()
    values = lambda group: (group[0], sorted(group[1], key=str))
    assert_that(texts | 'gt' >> beam.GroupByKey() | 'vt' >> beam.Map(values), equal_to([('a', ['x'])]), label='texts')
    assert_that(numbers | 'gn' >> beam.GroupByKey() | 'vn' >> beam.Map(values), equal_to([('a', [1])]), label='numbers')
    assert_that(both | 'gb' >> beam.GroupByKey() | 'vb' >> beam.Map(values), equal_to([('a', [1, 'x'])]), label='both')


def row_27_a_flatten_of_unlike_coders(runner):
  """Bytes, texts, numbers and anything at all become one collection; behind a shuffle they are what they were."""
  with runner.pipeline() as p:
    collections = [
        p | 'bytes' >> beam.Create([b'\x00\x80']).with_output_types(bytes),
        p | 'text' >> beam.Create(['\u00e9']).with_output_types(str),
        p | 'number' >> beam.Create([-1]).with_output_types(int),
        p | 'fraction' >> beam.Create([0.5]).with_output_types(float),
        p | 'any' >> beam.Create([('t', None)]),
    ]
    assert_that(
        collections | beam.Flatten() | beam.Reshuffle() | beam.Map(repr),
        equal_to([repr(value) for value in (b'\x00\x80', '\u00e9', -1, 0.5, ('t', None))]))


def row_29_side_inputs_of_an_optimised_graph(runner):
  """Side inputs behind all that Python may do to a graph before it sends it, but cutting it into stages: that is refused."""
  with runner.pipeline('--experiments=pre_optimize=default') as p:
    assert_that(_with_side_inputs(p), equal_to([(1, 30, [10, 20]), (2, 30, [10, 20])]))
  said = runner.error(_with_side_inputs, '--experiments=pre_optimize=all')
  assert 'leave the experiment pre_optimize=all away' in said, said


def _with_side_inputs(p):
  main = p | 'main' >> beam.Create([1, 2])
  side = p | 'side' >> beam.Create([10, 20])
  total = beam.pvalue.AsSingleton(side | beam.CombineGlobally(sum))
  return main | beam.Map(lambda x, total, values: (x, total, sorted(values)), total, beam.pvalue.AsIter(side))


def row_30_side_inputs_never_fail_now_and_then(runner):
  """Stages that each read all before them, sixty times in one job instead of a thousand jobs, which take half an hour."""
  with runner.pipeline() as p:
    for number in range(20):
      before = [p | 'first %d' % number >> beam.Create([number], reshuffle=False)]
      for step in range(3):
        sides = [beam.pvalue.AsList(collection) for collection in before]
        before.append(
            before[0] | 'step %d %d' % (number, step) >> beam.Map(lambda x, *lists: sum(map(sum, lists)), *sides))
      assert_that(before[3], equal_to([4 * number]), label='last %d' % number)


def row_31_a_side_input_of_100_mib(runner):
  """It is read twice, and for all of that the server takes less memory than it would to hold it three times."""
  with runner.pipeline() as p:
    large = p | 'numbers' >> beam.Create(range(200)) | beam.Map(lambda number: bytes([number]) * (MIB // 2))
    read = p | 'main' >> beam.Create([0]) | 'read' >> beam.Map(_read_twice, runner, beam.pvalue.AsIter(large))
    assert_that(read, equal_to([(200, 100 * MIB)]))
  memory = seen('row 31')
  assert len(memory) == 3 and max(memory) - memory[0] < 200 * 1024, 'KiB before and after each reading: %s' % memory


def _read_twice(_, runner, values):
  see('row 31', runner.memory_kib())
  for _ in range(2):
    sizes = [len(value) for value in values]
    see('row 31', runner.memory_kib())
  return len(sizes), sum(sizes)


class _Counted(beam.DoFn):
  def __init__(self):
    self._count = Metrics.counter('row 35', 'elements')
    self._sizes = Metrics.distribution('row 35', 'sizes')

  def process(self, element):
    self._count.inc()
    self._sizes.update(element)
    yield element


def row_35_each_metric_once(runner):
  """What has been counted is there once, and committed as it was attempted."""
  p = runner.pipeline()
  _ = p | beam.Create([1, 2, 3]) | beam.Reshuffle() | 'counted' >> beam.ParDo(_Counted())
  result = p.run()
  result.wait_until_finish()
  found = result.metrics().query(MetricsFilter().with_namespace('row 35'))
  assert [(m.key.metric.name, m.attempted, m.committed) for m in found['counters']] == [('elements', 3, 3)]
  assert [(m.key.metric.name, m.committed.count, m.committed.sum) for m in found['distributions']] == [('sizes', 3, 6)]


def row_38_large_messages(runner):
  """A graph of five megabytes, and an element of ten that goes through a shuffle."""
  text = 'x' * (5 * MIB)
  with runner.pipeline() as p:
    sizes = (
        p | beam.Create([text], reshuffle=False) | beam.Map(lambda value: ('k', value + value))
        | beam.GroupByKey() | beam.MapTuple(lambda key, values: [len(value) for value in values]))
    assert_that(sizes, equal_to([[10 * MIB]]))
