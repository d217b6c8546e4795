package suite;

import java.util.List;
import org.apache.beam.runners.portability.PortableRunner;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.PipelineResult;
import org.apache.beam.sdk.PipelineResult.State;
import org.apache.beam.sdk.PipelineRunner;
import org.apache.beam.sdk.options.Default;
import org.apache.beam.sdk.options.PipelineOptions;
import org.apache.beam.sdk.options.PipelineOptionsRegistrar;
import org.apache.beam.sdk.options.PortablePipelineOptions;
import org.apache.beam.sdk.runners.PipelineRunnerRegistrar;
import org.joda.time.Duration;

/** The stock portable runner, waited for: a pipeline that does not end in time is cancelled and has failed. */
public class ImpatientRunner extends PipelineRunner<PipelineResult> {

  /** How often the state is asked for. The stock runner does so every three seconds. */
  private static final long POLL_MS = 20;

  /** Options of this runner. */
  public interface Options extends PortablePipelineOptions {
    /** How long one pipeline may run, in seconds. */
    @Default.Integer(60)
    Integer getPipelineTimeoutSecs();

    void setPipelineTimeoutSecs(Integer secs);
  }

  private final PipelineOptions options;

  private ImpatientRunner(PipelineOptions options) {
    this.options = options;
  }

  /** Called by the SDK. */
  public static ImpatientRunner fromOptions(PipelineOptions options) {
    return new ImpatientRunner(options);
  }

  @Override
  public PipelineResult run(Pipeline pipeline) {
    int secs = options.as(Options.class).getPipelineTimeoutSecs();
    options.setRunner(PortableRunner.class);
    PipelineResult result = PortableRunner.fromOptions(options).run(pipeline);
    if (!hasEnded(result, secs)) {
      cancel(result);
      throw new AssertionError("TIMEOUT: the pipeline has not ended within " + secs + " s");
    }
    // Throws what the job has to say if it failed.
    State state = result.waitUntilFinish(Duration.standardSeconds(10));
    if (state != State.DONE) {
      throw new AssertionError("the pipeline ended as " + state);
    }
    return result;
  }

  private static boolean hasEnded(PipelineResult result, int secs) {
    long end = System.nanoTime() + secs * 1_000_000_000L;
    try {
      while (System.nanoTime() < end) {
        State state = result.getState();
        if (state != null && state.isTerminal()) {
          return true;
        }
        Thread.sleep(POLL_MS);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    return false;
  }

  private static void cancel(PipelineResult result) {
    try {
      result.cancel();
    } catch (Exception e) {
      System.err.println("cancel: " + e);
    }
  }

  /** Makes the runner known by its name. */
  public static class Runners implements PipelineRunnerRegistrar {
    @Override
    public Iterable<Class<? extends PipelineRunner<?>>> getPipelineRunners() {
      return List.of(ImpatientRunner.class);
    }
  }

  /** Makes the options known. */
  public static class KnownOptions implements PipelineOptionsRegistrar {
    @Override
    public Iterable<Class<? extends PipelineOptions>> getPipelineOptions() {
      return List.of(Options.class);
    }
  }
}
