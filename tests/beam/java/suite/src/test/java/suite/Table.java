package suite;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.experimental.categories.Category;
import org.junit.runner.Description;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Writes a line when a test starts and one when it has ended: class, method, verdict, seconds, categories, reason. The
 * file is complete at all times, so that a test that takes the whole process with it is the one that has only STARTED.
 */
public class Table extends RunListener {
  private static final int REASON_CHARS_MAX = 600;

  private final Path table = Path.of(System.getProperty("suite.table"));
  private final Map<Description, Long> startedMs = new ConcurrentHashMap<>();
  private final Map<Description, String[]> failures = new ConcurrentHashMap<>();

  @Override
  public void testStarted(Description test) {
    startedMs.put(test, System.currentTimeMillis());
    write(test, "STARTED", "");
  }

  @Override
  public void testFailure(Failure failure) {
    Throwable thrown = failure.getException();
    String verdict = thrown instanceof AssertionError ? "FAIL" : "ERROR";
    if (String.valueOf(thrown.getMessage()).startsWith("TIMEOUT")) {
      verdict = "TIMEOUT";
    }
    failures.put(failure.getDescription(), new String[] {verdict, reason(thrown)});
    if (failure.getDescription().getMethodName() == null) {
      write(failure.getDescription(), verdict, reason(thrown));
    }
  }

  @Override
  public void testAssumptionFailure(Failure failure) {
    failures.put(failure.getDescription(), new String[] {"SKIP", reason(failure.getException())});
  }

  @Override
  public void testIgnored(Description test) {
    write(test, "SKIP", "@Ignore");
  }

  @Override
  public void testFinished(Description test) {
    String[] verdict = failures.getOrDefault(test, new String[] {"PASS", ""});
    write(test, verdict[0], verdict[1]);
  }

  private static String reason(Throwable thrown) {
    StringBuilder text = new StringBuilder();
    for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
      text.append(text.length() == 0 ? "" : " <- ").append(cause);
    }
    String line = text.toString().replaceAll("[\\t\\r\\n]+", " | ");
    return line.substring(0, Math.min(line.length(), REASON_CHARS_MAX));
  }

  private static String categories(Description test) {
    TreeSet<String> names = new TreeSet<>();
    Category ofMethod = test.getAnnotation(Category.class);
    Category ofClass = test.getTestClass() == null ? null : test.getTestClass().getAnnotation(Category.class);
    for (Category category : new Category[] {ofMethod, ofClass}) {
      if (category != null) {
        for (Class<?> marker : category.value()) {
          names.add(marker.getName().replaceFirst(".*\\.", ""));
        }
      }
    }
    return String.join(",", names);
  }

  private synchronized void write(Description test, String verdict, String reason) {
    double secs = (System.currentTimeMillis() - startedMs.getOrDefault(test, System.currentTimeMillis())) / 1000.0;
    String line =
        String.join(
            "\t",
            String.valueOf(test.getClassName()).replaceFirst("^org\\.apache\\.beam\\.sdk\\.", ""),
            String.valueOf(test.getMethodName()),
            verdict,
            String.format("%.2f", secs),
            categories(test),
            reason);
    try {
      Files.write(
          table, (line + "\n").getBytes(StandardCharsets.UTF_8), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    } catch (IOException e) {
      throw new RuntimeException(e);
    }
  }
}
