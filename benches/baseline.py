#!/usr/bin/env python3
"""Throughput of portable Beam runners, side by side on equal inputs. One JSON line a run.

  baseline.py --case gbk,combine --runner purlin=PATH --runner prism=PATH --runner fnapi
  baseline.py --table FILE.jsonl      medians of earlier runs, and ratios of the first runner to the others

A runner is NAME=BINARY (started anew for every run as `BINARY --job_port P --serve_http=false`), NAME@HOST:PORT (runs
already; --server_pid says what to measure) or `fnapi` (the Python SDK's own runner, in one process, nothing on a wire).
Runs of different runners alternate, so that noise hits all of them alike.

Fields: n (elements), wall_s (from run() to finished), eps (n / wall_s), runner_cpu_s and runner_rss_mb (the server and its
children: CPU used, peak of memory), sdk_cpu_s (the process that submits and, in LOOPBACK, works), load1 (of the machine).
"""
import argparse
import json
import os
import random
import shlex
import socket
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.join(os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'purlin', 'benches')

# Case: elements at scale 1 (of `wordcount`: bytes of text), distinct keys.
CASES = {
    'map5': (2_000_000, 0),
    'gbk': (1_000_000, 10_000),
    'reshuffle': (500_000, 0),
    'combine': (1_000_000, 10_000),
    'side_dict': (200_000, 10_000),
    'side_multimap': (200_000, 10_000),
    'wordcount': (50_000_000, 0),
    'large': (1_000_000, 10_000),
}
# What `--case all` means: `large` moves a gigabyte and is asked for by name.
USUAL = [case for case in CASES if case != 'large']


def make_text(path, size):
  """A text of about `size` bytes with words of Zipf's frequencies, always the same."""
  if os.path.exists(path):
    return
  dice = random.Random(7)
  letters = 'abcdefghijklmnopqrstuvwxyz'
  words = [''.join(dice.choice(letters) for _ in range(dice.randint(2, 9))) for _ in range(20_000)]
  weights = [1 / (rank + 10) for rank in range(len(words))]
  with open(path + '.part', 'w') as f:
    while f.tell() < size:
      f.write(' '.join(dice.choices(words, weights, k=12)) + '\n')
  os.rename(path + '.part', path)


# ---- what /proc knows of a process and its children ----
def tree(pid):
  pids = [pid]
  for parent in pids:
    try:
      for task in os.listdir('/proc/%d/task' % parent):
        with open('/proc/%d/task/%s/children' % (parent, task)) as f:
          pids += [int(child) for child in f.read().split()]
    except OSError:
      pass  # it has ended
  return pids


def memory_mb(pid, field):
  total = 0
  for p in tree(pid):
    try:
      with open('/proc/%d/status' % p) as f:
        total += sum(int(line.split()[1]) for line in f if line.startswith(field + ':'))
    except OSError:
      pass
  return total / 1024


def cpu_s(pid):
  ticks = 0
  for p in tree(pid):
    try:
      with open('/proc/%d/stat' % p) as f:
        fields = f.read().rsplit(')', 1)[1].split()
      ticks += sum(int(field) for field in fields[11:15])
    except OSError:
      pass
  return ticks / os.sysconf('SC_CLK_TCK')


# ---- one run ----
def start_server(binary, log):
  with socket.socket() as s:
    s.bind(('localhost', 0))
    port = s.getsockname()[1]
  server = subprocess.Popen([binary, '--job_port', str(port), '--serve_http=false'], stdout=log, stderr=subprocess.STDOUT)
  for _ in range(600):
    try:
      socket.create_connection(('localhost', port), 1).close()
      return server, 'localhost:%d' % port
    except OSError:
      if server.poll() is not None:
        raise RuntimeError('%s ended with %d' % (binary, server.returncode))
      time.sleep(0.05)
  server.kill()
  raise RuntimeError('%s accepts no connections' % binary)


def stop_server(server):
  server.terminate()
  try:
    server.wait(10)
  except subprocess.TimeoutExpired:
    server.kill()
    server.wait()


def command(a, case, n, keys, text, endpoint):
  if a.sdk == 'go':
    return [a.gobench, '--case', case, '--n', str(n), '--keys', str(keys), '--text', text, '--runner=universal',
            '--endpoint', endpoint, '--environment_type=' + a.environment] + shlex.split(a.options)
  call = 'import sys, pipelines; pipelines.run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])'
  return [sys.executable, '-c', call, case, str(n), str(keys), text, endpoint, a.environment, a.options]


def measure(a, case, spec, run):
  """Runs a case once on a runner and prints its line."""
  n, keys = int(CASES[case][0] * a.scale), CASES[case][1]
  text = os.path.join(CACHE, 'words-%d.txt' % n) if case == 'wordcount' else ''
  if text:
    make_text(text, n)
  name, server, endpoint, pid = spec.split('=')[0].split('@')[0], None, '', a.server_pid
  line = {'case': case, 'runner': name, 'sdk': a.sdk, 'environment': a.environment, 'n': n, 'run': run,
          'load1': os.getloadavg()[0]}
  over = threading.Event()

  def guard():  # a server that runs away must not take the machine along
    while not over.wait(0.5):
      if memory_mb(server.pid, 'VmRSS') > a.max_rss_mb:
        line['error'] = 'the server passed %d MB and was killed' % a.max_rss_mb
        server.kill()
        return

  with open(os.path.join(CACHE, 'server-%s.log' % name), 'ab') as log, open(os.path.join(CACHE, 'sdk.log'), 'ab') as errors:
    if '=' in spec:
      server, endpoint = start_server(spec.split('=', 1)[1], log)
      pid = server.pid
      threading.Thread(target=guard, daemon=True).start()
    elif '@' in spec:
      endpoint = spec.split('@', 1)[1]
    before = cpu_s(pid) if pid else 0
    try:
      output = subprocess.run(command(a, case, n, keys, text, endpoint), stdout=subprocess.PIPE, stderr=errors, cwd=HERE,
                              timeout=a.timeout).stdout.decode()
    except subprocess.TimeoutExpired:
      output = ''
      line.setdefault('error', 'not done after %d s' % a.timeout)
    over.set()
  results = [l for l in output.splitlines() if l.startswith('RESULT ')]
  if results:
    line.update(json.loads(results[-1][len('RESULT '):]))
    line['eps'] = n / line['wall_s']
  else:
    line.setdefault('error', 'failed: see sdk.log and server-%s.log in %s' % (name, CACHE))
  if pid:
    line['runner_cpu_s'] = cpu_s(pid) - before
    line['runner_rss_mb'] = memory_mb(pid, 'VmHWM')
  if server:
    stop_server(server)
  print(json.dumps({k: round(v, 2) if isinstance(v, float) else v for k, v in line.items()}), flush=True)


# ---- the table ----
def table(path):
  rows = {}
  with open(path) as f:
    for line in map(json.loads, f):
      rows.setdefault((line['sdk'], line['case']), {}).setdefault(line['runner'], []).append(line)
  print('%-7s %-14s %-8s %9s %9s %7s %9s %9s %7s  %s' % (
      'sdk', 'case', 'runner', 'n', 'n/s', 'wall s', 'runner s', 'sdk s', 'MB', 'runs'))
  for (sdk, case), runners in rows.items():
    speeds = {}
    for name, runs in runners.items():
      done = [r for r in runs if 'eps' in r]
      middle = lambda field: statistics.median(r.get(field, 0) for r in done) if done else 0
      speeds[name] = middle('eps')
      print('%-7s %-14s %-8s %9d %9.0f %7.2f %9.2f %9.2f %7.0f  %d/%d' % (
          sdk, case, name, runs[0]['n'], middle('eps'), middle('wall_s'), middle('runner_cpu_s'), middle('sdk_cpu_s'),
          middle('runner_rss_mb'), len(done), len(runs)))
    first, *others = speeds
    ratios = ['%s / %s = %.2f' % (first, other, speeds[first] / speeds[other]) for other in others if speeds[other]]
    print('%-7s %-14s %s' % ('', '', ', '.join(ratios)))


def main():
  p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  p.add_argument('--case', default='all', help='names, separated by commas: ' + ', '.join(CASES))
  p.add_argument('--runner', action='append', default=[])
  p.add_argument('--sdk', default='python', choices=['python', 'go'])
  p.add_argument('--environment', default='LOOPBACK')
  p.add_argument('--repeat', type=int, default=3)
  p.add_argument('--scale', type=float, default=1.0, help='0.1: a tenth of the elements')
  p.add_argument('--server_pid', type=int, default=0)
  p.add_argument('--options', default='', help='more pipeline options, as one string')
  p.add_argument('--timeout', type=int, default=900, help='seconds a run')
  p.add_argument('--max_rss_mb', type=int, default=9000)
  p.add_argument('--gobench', default=os.path.join(CACHE, 'gobench'))
  p.add_argument('--table', metavar='FILE')
  a = p.parse_args()
  if a.table:
    return table(a.table)
  os.makedirs(CACHE, exist_ok=True)
  for case in USUAL if a.case == 'all' else a.case.split(','):
    for run in range(a.repeat):
      for spec in a.runner:
        if not (spec == 'fnapi' and a.sdk == 'go'):
          measure(a, case, spec, run)


if __name__ == '__main__':
  main()
