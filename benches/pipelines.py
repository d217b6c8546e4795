"""The pipelines that baseline.py measures, written with Beam's Python SDK. Each checks its own result.

Not here: the same cases in Go (go/main.go), and how anything is measured. All functions of a pipeline are closures over
numbers, so that they pickle small.
"""
import json
import os
import shlex
import sys
import time

# Every case but `wordcount` begins with this many elements and multiplies them in its first transform.
SEEDS = 1000
# Bytes of a value of the case `large`.
LARGE_BYTES = 1000


def build(p, case, n, keys, text):
  """Adds the pipeline of a case to p: n elements (or bytes of text), keys distinct keys."""
  import apache_beam as beam

  per = max(1, n // SEEDS)
  total = per * SEEDS
  triangle = total * (total - 1) // 2

  def numbers(seed):
    return range(seed * per, (seed + 1) * per)

  def pairs(seed):
    for i in numbers(seed):
      yield (i * 7919 % keys, i)

  def large_pairs(seed):
    for i in numbers(seed):
      yield (i * 7919 % keys, (b'%020d' % i) * (LARGE_BYTES // 20))

  def check(want):
    def compare(got):
      if got != want:
        raise ValueError('wrong result: got %r, want %r' % (got, want))
    return compare

  def checked_sum(collection, want):
    return collection | beam.CombineGlobally(sum) | 'Check' >> beam.Map(check(want))

  if case == 'wordcount':
    with open(text) as f:
      words = sum(len(line.split()) for line in f)
    counts = (p | beam.io.ReadFromText(text)
              | 'Split' >> beam.FlatMap(str.split).with_output_types(str)
              | 'One' >> beam.Map(lambda word: (word, 1)).with_output_types(tuple[str, int])
              | beam.CombinePerKey(sum) | beam.Values())
    return checked_sum(counts, words)

  seeds = p | beam.Create(list(range(SEEDS)))
  if case == 'map5':
    x = seeds | 'Generate' >> beam.FlatMap(numbers).with_output_types(int)
    for k in range(5):
      x = x | 'Map%d' % k >> beam.Map(lambda v: v + 1).with_output_types(int)
    return checked_sum(x, triangle + 5 * total)
  if case == 'reshuffle':
    x = seeds | 'Generate' >> beam.FlatMap(numbers).with_output_types(int)
    return checked_sum(x | beam.Reshuffle(), triangle)
  if case == 'large':
    kv = seeds | 'Generate' >> beam.FlatMap(large_pairs).with_output_types(tuple[int, bytes])
    lengths = kv | beam.GroupByKey() | beam.MapTuple(lambda k, vs: sum(map(len, vs))).with_output_types(int)
    return checked_sum(lengths, total * LARGE_BYTES)

  kv = seeds | 'Generate' >> beam.FlatMap(pairs).with_output_types(tuple[int, int])
  if case == 'gbk':
    sums = kv | beam.GroupByKey() | beam.MapTuple(lambda k, vs: sum(vs)).with_output_types(int)
    return checked_sum(sums, triangle)
  if case == 'combine':
    return checked_sum(kv | beam.CombinePerKey(sum) | beam.Values(), triangle)
  if case in ('side_dict', 'side_multimap'):
    side = p | 'Side' >> beam.Create([(k, k * 2) for k in range(keys)])
    if case == 'side_dict':
      found = kv | beam.Map(lambda kv, d: d[kv[0]], beam.pvalue.AsDict(side))
    else:
      found = kv | beam.Map(lambda kv, d: next(iter(d[kv[0]])), beam.pvalue.AsMultiMap(side))
    return checked_sum(found, sum((i * 7919 % keys) * 2 for i in range(total)))
  raise ValueError(case)


def run(case, n, keys, text, endpoint, environment, options):
  """Runs one pipeline in this process and prints what it took as one line `RESULT {json}`."""
  import apache_beam as beam
  from apache_beam.options.pipeline_options import PipelineOptions
  options = shlex.split(options)
  if endpoint:
    options += ['--runner=PortableRunner', '--job_endpoint=' + endpoint, '--environment_type=' + environment,
                '--job_server_timeout=86400',
                # No `pip freeze` between run() and the submission: it is slow and says nothing of a runner.
                '--experiments=disable_logging_submission_environment']
    if environment == 'PROCESS':
      worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../examples/boot/python.sh')
      options.append('--environment_options=process_command=' + worker)
      options.append('--environment_options=process_variables=VIRTUAL_ENV=' + sys.prefix)
    p = beam.Pipeline(options=PipelineOptions(options))
  else:
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    p = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(options))
  build(p, case, n, keys, text)
  wall, cpu = time.time(), time.process_time()
  result = p.run()
  state = result.wait_until_finish()
  print('RESULT ' + json.dumps({
      'wall_s': time.time() - wall, 'sdk_cpu_s': time.process_time() - cpu, 'state': str(state or result.state)}), flush=True)
  # Beam's worker threads do not end by themselves in time.
  os._exit(0)
