//! What a native DoFn wants to do once its bundle is durable.

use super::Emitter;

/// Calls that wait for a commit.
#[derive(Default)]
pub(super) struct Calls(Vec<Box<dyn FnOnce() + Send>>);

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn append(&mut self, others: &mut Calls) {
        self.0.append(&mut others.0);
    }

    pub(super) fn make(self) {
        self.0.into_iter().for_each(|call| call());
    }
}

impl Emitter {
    /// Has something called once the bundle is durable; never, if it does not become so. Best effort.
    pub fn after_commit(&mut self, call: impl FnOnce() + Send + 'static) {
        self.calls.0.push(Box::new(call));
    }
}
