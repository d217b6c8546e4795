//! What happened to one job, in order: messages and states, kept within a bound and read by any number of readers.
//!
//! Readers pull: each has a position and asks for what lies behind it, so a slow client costs nothing. What is dropped for the
//! bound are old messages; states stay, and so do the first and the last ERROR, because Beam's clients show one of these as the
//! cause of a failure (Java the first, Python the last) and may open the stream only after the job ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::job::{JobMessage, job_message::MessageImportance, job_state};
use tokio::sync::watch;

use crate::clock;

/// A job's state in the Job API.
pub type JobState = job_state::Enum;

/// Most messages that are kept of one job.
pub const MESSAGES_MAX: usize = 10_000;
/// Most bytes of message text that are kept of one job.
pub const MESSAGES_BYTES_MAX: usize = 16 << 20;
/// Most bytes of one message; the middle of a longer one is left out.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Whether nothing can follow a state.
pub fn is_terminal(state: JobState) -> bool {
    matches!(state, JobState::Done | JobState::Failed | JobState::Cancelled | JobState::Drained | JobState::Updated)
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Something was said.
    Message(JobMessage),
    /// A state was entered.
    State {
        /// Which.
        state: JobState,
        /// When, in microseconds since the epoch.
        at_us: i64,
    },
}

/// The events of one job.
#[derive(Debug)]
pub struct EventLog {
    /// Held for short, never across an await.
    events: Mutex<Events>,
    /// Number of events ever appended; moves when there is something to read.
    appended: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Events {
    /// Events that outlived the ring, in order, all older than those in the ring: states, the first and the last ERROR.
    kept: Vec<(u64, Arc<Event>)>,
    /// The latest events, in order.
    ring: VecDeque<(u64, Arc<Event>)>,
    /// Messages in the ring and their bytes.
    messages: usize,
    bytes: usize,
    /// Numbers of the first and last ERROR.
    first_error: Option<u64>,
    last_error: Option<u64>,
    /// Number of the next event.
    next: u64,
    /// Whether a terminal state was appended.
    ended: bool,
}

impl Default for EventLog {
    fn default() -> Self {
        EventLog { events: Mutex::default(), appended: watch::Sender::new(0) }
    }
}

impl EventLog {
    /// Appends a message. Ignored after the end: nobody would see it.
    pub fn message(&self, importance: MessageImportance, text: &str) {
        let mut events = self.lock();
        let message = JobMessage {
            message_id: events.next.to_string(),
            time: clock::rfc3339(clock::now_us()),
            importance: importance as i32,
            message_text: without_middle(text, MESSAGE_BYTES_MAX),
        };
        events.append(Event::Message(message), MESSAGES_MAX, MESSAGES_BYTES_MAX);
        self.appended.send_replace(events.next);
    }

    /// Appends a state. A terminal one ends the log.
    pub fn state(&self, state: JobState) {
        let mut events = self.lock();
        events.append(Event::State { state, at_us: clock::now_us() }, MESSAGES_MAX, MESSAGES_BYTES_MAX);
        self.appended.send_replace(events.next);
    }

    /// The current state and when it was entered; none before the first.
    pub fn current(&self) -> Option<(JobState, i64)> {
        let events = self.lock();
        let newest_first = events.ring.iter().rev().chain(events.kept.iter().rev());
        newest_first
            .filter_map(|(_, event)| match **event {
                Event::State { state, at_us } => Some((state, at_us)),
                Event::Message(_) => None,
            })
            .next()
    }

    /// All retained events, oldest first.
    pub fn retained(&self) -> Vec<Arc<Event>> {
        self.lock().behind(0).map(|(_, event)| event.clone()).collect()
    }

    /// Bytes of the texts of all retained messages, not counting the few that outlived the ring.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// A reader that gets every retained event and then every new one.
    pub fn reader(self: &Arc<Self>) -> Reader {
        Reader { log: self.clone(), position: 0, appended: self.appended.subscribe() }
    }

    fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One reader's place in a log.
#[derive(Debug)]
pub struct Reader {
    log: Arc<EventLog>,
    /// Number of the first event that was not read yet.
    position: u64,
    appended: watch::Receiver<u64>,
}

impl Reader {
    /// The next event, or none after the last. Cancelling it loses nothing.
    pub async fn next(&mut self) -> Option<Arc<Event>> {
        loop {
            self.appended.borrow_and_update();
            {
                let events = self.log.lock();
                let next = events.behind(self.position).next().cloned();
                if let Some((number, event)) = next {
                    self.position = number + 1;
                    return Some(event);
                }
                if events.ended {
                    return None;
                }
            }
            // The sender lives in the log, which this reader holds.
            self.appended.changed().await.ok()?;
        }
    }
}

impl Events {
    fn append(&mut self, event: Event, messages_max: usize, bytes_max: usize) {
        if self.ended {
            return;
        }
        let number = self.next;
        self.next += 1;
        match &event {
            Event::State { state, .. } => self.ended = is_terminal(*state),
            Event::Message(message) => {
                self.messages += 1;
                self.bytes += message.message_text.len();
                if message.importance == MessageImportance::JobMessageError as i32 {
                    self.first_error.get_or_insert(number);
                    self.last_error = Some(number);
                    let first = self.first_error;
                    // What outlived the ring as the last ERROR is not the last any more.
                    self.kept.retain(|(kept, event)| Some(*kept) == first || matches!(**event, Event::State { .. }));
                }
            }
        }
        self.ring.push_back((number, Arc::new(event)));
        while self.messages > messages_max || (self.bytes > bytes_max && self.messages > 1) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some((number, event)) = self.ring.pop_front() else { return };
        let keep = match &*event {
            Event::State { .. } => true,
            Event::Message(message) => {
                self.messages -= 1;
                self.bytes -= message.message_text.len();
                self.first_error == Some(number) || self.last_error == Some(number)
            }
        };
        if keep {
            self.kept.push((number, event));
        }
    }

    /// Events from a number on, oldest first.
    fn behind(&self, position: u64) -> impl Iterator<Item = &(u64, Arc<Event>)> {
        let kept = self.kept.partition_point(|(number, _)| *number < position);
        let ring = self.ring.partition_point(|(number, _)| *number < position);
        self.kept[kept..].iter().chain(self.ring.range(ring..))
    }
}

/// A text, or its beginning and end if it is longer than `bytes_max`.
fn without_middle(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_string();
    }
    let half = bytes_max / 2;
    let head = text.floor_char_boundary(half);
    let tail = text.ceil_char_boundary(text.len() - half);
    format!("{}\n... {} bytes left out ...\n{}", &text[..head], tail - head, &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One letter per event: lower case a message, upper case an ERROR, a digit a state.
    fn check(script: &str, messages_max: usize, retained: &str) {
        let mut events = Events::default();
        for letter in script.chars() {
            let event = match letter.to_digit(10) {
                Some(state) => Event::State { state: JobState::try_from(state as i32).unwrap(), at_us: 0 },
                None => Event::Message(JobMessage {
                    importance: if letter.is_uppercase() { 5 } else { 3 },
                    message_text: letter.to_string(),
                    ..Default::default()
                }),
            };
            events.append(event, messages_max, usize::MAX);
        }
        let found: String = events
            .behind(0)
            .map(|(_, event)| match &**event {
                Event::State { state, .. } => (*state as i32).to_string(),
                Event::Message(message) => message.message_text.clone(),
            })
            .collect();
        assert_eq!(found, retained, "{script} with at most {messages_max}");
    }

    #[test]
    fn old_messages_go_and_states_and_outer_errors_stay() {
        check("1a9b2c3", 10, "1a9b2c3");
        check("1abcdef", 2, "1ef");
        check("1aAbBcCdef", 2, "1ACef");
        check("1Aabc", 1, "1Ac");
        check("AaBbCc", 1, "ACc");
        check("AaBb2CDEf", 2, "A2Ef");
    }

    #[test]
    fn nothing_follows_the_end() {
        check("12a4b1", 10, "12a4");
    }

    #[test]
    fn long_texts_lose_their_middle_at_character_boundaries() {
        assert_eq!(without_middle("short", 5), "short");
        assert_eq!(without_middle("ééééé", 5), "é\n... 6 bytes left out ...\né");
    }
}
