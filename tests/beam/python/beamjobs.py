"""pytest plugin: writes into the results how many pipelines of a test went to the
portable runner ("jobs") and how many to a runner in Python's own process
("others"). A pass says something about the runner under test only where there
was a job.
"""
import pytest

_RUNS = {'jobs': 0, 'others': 0}


def _count(cls, method, what):
  original = cls.__dict__[method]

  def counted(self, *args, **kwargs):
    _RUNS[what] += 1
    return original(self, *args, **kwargs)

  setattr(cls, method, counted)


def pytest_configure(config):
  from apache_beam.runners.direct import direct_runner
  from apache_beam.runners.portability import portable_runner
  from apache_beam.runners.portability.fn_api_runner import fn_runner
  _count(portable_runner.PortableRunner, 'run_portable_pipeline', 'jobs')
  _count(fn_runner.FnApiRunner, 'run_pipeline', 'others')
  _count(direct_runner.BundleBasedDirectRunner, 'run_pipeline', 'others')


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
  _RUNS.update(jobs=0, others=0)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
  if call.when == 'call':
    item.user_properties.extend(_RUNS.items())
  yield
