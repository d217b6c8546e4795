//! Bundles whose user code wants to hear that they are durable: those that may still be told of, and those whose user code has
//! been told and has not answered yet. For workers to keep.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::BundleId;

/// Bundles of one slot that may still be told of; the oldest is forgotten first.
pub const FINALIZABLE_MAX: usize = 1000;

/// Bundles that asked to hear of their commit, each with whom to tell.
#[derive(Debug)]
pub struct Finalizable<T>(VecDeque<(BundleId, T)>);

impl<T> Default for Finalizable<T> {
    fn default() -> Self {
        Finalizable(VecDeque::new())
    }
}

impl<T> Finalizable<T> {
    /// A bundle has asked.
    pub fn add(&mut self, bundle: BundleId, whom: T) {
        if self.0.len() == FINALIZABLE_MAX {
            self.0.pop_front();
        }
        self.0.push_back((bundle, whom));
    }

    /// Whom to tell of a bundle: once only, and nobody if it has not asked.
    pub fn take(&mut self, bundle: BundleId) -> Option<T> {
        let index = self.0.iter().position(|(id, _)| *id == bundle)?;
        self.0.remove(index).map(|(_, whom)| whom)
    }
}

/// What user code has been told and has not answered yet. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Unanswered(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Bundles by the name of who is to answer; none has zero. Held for a few instructions, never across anything that waits.
    bundles: Mutex<BTreeMap<String, usize>>,
    answered: Condvar,
}

/// One bundle that user code has been told of. Dropped when it has answered, or never will.
#[derive(Debug)]
pub struct Told {
    unanswered: Unanswered,
    name: String,
}

impl Unanswered {
    /// User code is told of a bundle; `name` is who is to answer.
    pub fn tell(&self, name: &str) -> Told {
        *self.lock().entry(name.to_owned()).or_default() += 1;
        Told { unanswered: self.clone(), name: name.to_owned() }
    }

    /// Blocks until everything is answered, but no longer than `patience`. Returns what is not: by name, how many bundles.
    pub fn wait(&self, patience: Duration) -> BTreeMap<String, usize> {
        let waited = self.0.answered.wait_timeout_while(self.lock(), patience, |bundles| !bundles.is_empty());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.bundles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let mut bundles = self.unanswered.lock();
        if let Some(count) = bundles.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                bundles.remove(&self.name);
            }
        }
        self.unanswered.0.answered.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_told_of_once_and_the_oldest_is_forgotten() {
        let mut finalizable = Finalizable::default();
        for id in 0..=FINALIZABLE_MAX as u64 {
            finalizable.add(BundleId(id), id);
        }
        let taken = [0, 1, 1, 7].map(|id| finalizable.take(BundleId(id)));
        assert_eq!(taken, [None, Some(1), None, Some(7)]);
    }

    #[test]
    fn waiting_ends_with_the_last_answer_or_with_patience() {
        let unanswered = Unanswered::default();
        assert!(unanswered.wait(Duration::MAX).is_empty(), "nobody was told");
        let (first, second, other) = (unanswered.tell("a"), unanswered.tell("a"), unanswered.tell("b"));
        let left = |counts: &[(&str, usize)]| counts.iter().map(|(name, count)| (name.to_string(), *count)).collect();
        assert_eq!(unanswered.wait(Duration::ZERO), left(&[("a", 2), ("b", 1)]));
        drop((first, other));
        assert_eq!(unanswered.wait(Duration::from_millis(1)), left(&[("a", 1)]));
        let answers = std::thread::spawn(move || drop(second));
        assert!(unanswered.wait(Duration::from_secs(120)).is_empty());
        answers.join().unwrap();
    }
}
