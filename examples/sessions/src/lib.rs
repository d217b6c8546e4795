//! Sessions of users over click events, with state and timers: a session ends when its user has not clicked for a while.
//!
//! A window of sessions could do the same; here the DoFn decides, and could know more than times. Clicks are kept in the order of
//! their event times, however they arrive, and a timer asks for them when the watermark says that no more are to come: so the
//! result does not depend on how the input was cut into bundles.

use purlin::prelude::*;

/// Reads `(user, page)`, writes `user: clicks in seconds s, pages`. The configuration is the gap in seconds.
struct Sessions {
    gap_ms: i64,
}

#[derive(States)]
struct Visit {
    /// Pages of the open sessions, by event time in milliseconds.
    clicks: OrderedListState<String>,
    /// What the timer is set to, if it is set.
    next: ValueState<i64>,
    /// Fires when the first open session may be over.
    quiet: EventTimer,
}

/// Clicks with less than a gap between each other.
type Session = [(i64, String)];

impl StatefulDoFn for Sessions {
    const NAME: &'static str = "sessions";
    type Key<'a> = &'a str;
    type Value<'a> = &'a str;
    type Out = Output<String>;
    type State = Visit;

    fn setup(config: &[u8]) -> purlin::Result<Self> {
        let gap_seconds: i64 = std::str::from_utf8(config)?.parse()?;
        Ok(Sessions { gap_ms: gap_seconds * 1_000 })
    }

    fn process(
        &mut self,
        (_user, page): (&str, &str),
        cx: &Context<'_>,
        visit: &mut Visit,
        _out: &mut Self::Out,
    ) -> purlin::Result<()> {
        visit.clicks.add(cx.timestamp_ms(), page.to_owned());
        self.wake_at(cx.timestamp_ms() + self.gap_ms, visit);
        Ok(())
    }

    fn on_timer(&mut self, user: &str, timer: &FiredTimer<'_>, visit: &mut Visit, out: &mut Self::Out) -> purlin::Result<()> {
        visit.next.clear();
        let clicks = visit.clicks.read();
        for session in clicks.chunk_by(|one, next| next.0 - one.0 < self.gap_ms) {
            let end_ms = session[session.len() - 1].0;
            if end_ms + self.gap_ms > timer.fire_ms() {
                self.wake_at(end_ms + self.gap_ms, visit);
                break;
            }
            out.emit_at(summary(user, session), end_ms);
            visit.clicks.clear_range(session[0].0..end_ms + 1);
        }
        Ok(())
    }
}

impl Sessions {
    /// Sets the timer, unless it fires earlier anyway. The output watermark waits for the end of the session.
    fn wake_at(&self, at_ms: i64, visit: &mut Visit) {
        if visit.next.read().is_none_or(|next_ms| at_ms < next_ms) {
            visit.next.write(at_ms);
            visit.quiet.set_with_output_time(at_ms, at_ms - self.gap_ms);
        }
    }
}

fn summary(user: &str, session: &Session) -> String {
    let pages: Vec<&str> = session.iter().map(|(_, page)| page.as_str()).collect();
    let seconds = (session[session.len() - 1].0 - session[0].0) / 1_000;
    format!("{user}: {} clicks in {seconds} s, {}", pages.len(), pages.join(" "))
}

purlin::component!(Sessions);

#[cfg(test)]
mod tests {
    use purlin::testing::TestDoFn;

    use super::*;

    fn test() -> TestDoFn<Sessions> {
        TestDoFn::new(b"60").unwrap()
    }

    fn click(test: &mut TestDoFn<Sessions>, user: &str, page: &str, seconds: i64) {
        test.process((user, page), seconds * 1_000).unwrap();
    }

    #[test]
    fn a_session_ends_after_the_gap() {
        let mut test = test();
        click(&mut test, "ada", "/", 0);
        click(&mut test, "ada", "/help", 59);
        click(&mut test, "bob", "/", 30);
        test.advance_watermark_to(90_000).unwrap();
        assert_eq!(test.take_outputs(), ["bob: 1 clicks in 0 s, /"]);
        test.advance_watermark_to(119_000).unwrap();
        assert_eq!(test.take_outputs(), ["ada: 2 clicks in 59 s, / /help"]);
        assert!(test.timers("quiet").is_empty());
    }

    #[test]
    fn arrival_makes_no_difference() {
        let clicks = [("/a", 0), ("/b", 40), ("/c", 100), ("/d", 130), ("/e", 300)];
        let expected = ["eve: 2 clicks in 40 s, /a /b", "eve: 2 clicks in 30 s, /c /d", "eve: 1 clicks in 0 s, /e"];
        for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]] {
            let mut test = test();
            order.iter().for_each(|at| click(&mut test, "eve", clicks[*at as usize].0, clicks[*at as usize].1));
            test.advance_watermark_to(1_000_000).unwrap();
            assert_eq!(test.take_outputs(), expected, "{order:?}");
        }
    }

    #[test]
    fn a_click_between_two_sessions_joins_them() {
        let mut test = test();
        click(&mut test, "ada", "/a", 0);
        click(&mut test, "ada", "/c", 80);
        click(&mut test, "ada", "/b", 40);
        test.advance_watermark_to(139_000).unwrap();
        assert!(test.take_outputs().is_empty());
        test.advance_watermark_to(140_000).unwrap();
        assert_eq!(test.take_outputs(), ["ada: 3 clicks in 80 s, /a /b /c"]);
    }
}
