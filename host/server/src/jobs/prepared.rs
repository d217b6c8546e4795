//! Prepared jobs, as many as are kept: those that wait to be run, and the last ones that were, since a client may run one again.
//!
//! What was run goes first: nearly every preparation is run once, and as messages its pipeline takes ten times its bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::preparation::Preparation;
use crate::config::Config;

/// Both kinds in the order in which they became that.
#[derive(Default)]
pub struct Prepared {
    waiting: VecDeque<Arc<Preparation>>,
    ran: VecDeque<Arc<Preparation>>,
    bytes: usize,
}

impl Prepared {
    /// Adds one that waits, and forgets what the bounds of `config` leave no room for.
    pub fn add(&mut self, preparation: Arc<Preparation>, config: &Config) {
        self.bytes += preparation.bytes;
        self.waiting.push_back(preparation);
        self.trim(config);
    }

    /// Notes that one was run.
    pub fn ran(&mut self, id: &str, config: &Config) {
        let place = self.waiting.iter().position(|preparation| preparation.id == id);
        self.ran.extend(place.and_then(|place| self.waiting.remove(place)));
        self.trim(config);
    }

    /// All that are kept.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Preparation>> {
        self.waiting.iter().chain(&self.ran)
    }

    fn trim(&mut self, config: &Config) {
        while self.ran.len() > config.preparations_run_max {
            let oldest = self.ran.pop_front();
            self.forget(oldest);
        }
        let many = |this: &Self| this.waiting.len() > config.preparations_max;
        let large = |this: &Self| this.bytes > config.preparations_bytes_max && this.waiting.len() + this.ran.len() > 1;
        while large(self) && !self.ran.is_empty() {
            let oldest = self.ran.pop_front();
            self.forget(oldest);
        }
        while many(self) || large(self) {
            let oldest = self.waiting.pop_front();
            self.forget(oldest);
        }
    }

    fn forget(&mut self, preparation: Option<Arc<Preparation>>) {
        self.bytes -= preparation.map_or(0, |preparation| preparation.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;

    /// Prepares (`a`: that many bytes as its place in the alphabet) and runs (`A`) jobs, then lists those that are kept.
    fn check(script: &str, expected: &str) {
        let config = Config { preparations_max: 3, preparations_run_max: 2, preparations_bytes_max: 40, ..Config::default() };
        let mut prepared = Prepared::default();
        for letter in script.chars() {
            let id = letter.to_ascii_lowercase().to_string();
            match letter.is_lowercase() {
                true => prepared.add(Arc::new(preparation(id, letter as usize - 'a' as usize + 1)), &config),
                false => prepared.ran(&id, &config),
            }
        }
        let kept: String = prepared.iter().map(|preparation| preparation.id.as_str()).collect();
        assert_eq!(kept, expected, "{script}");
        assert_eq!(prepared.bytes, prepared.iter().map(|preparation| preparation.bytes).sum::<usize>(), "{script}");
    }

    fn preparation(id: String, bytes: usize) -> Preparation {
        let pipeline = Arc::default();
        let (settings, step_names) = options::settings(&Default::default(), &Config::default()).unwrap();
        let plan = plan::Plan { stages: Vec::new(), environments: Vec::new(), scripts: Vec::new(), origins: Default::default() };
        let mut preparation =
            Preparation::new(id, String::new(), String::new(), pipeline, Default::default(), settings, step_names, plan);
        preparation.bytes = bytes;
        preparation
    }

    #[test]
    fn what_was_run_goes_first_and_the_latest_stays() {
        check("abc", "abc");
        check("abcd", "bcd");
        check("aAbcd", "bcda");
        check("aAbBcC", "bc");
        check("aAaA", "aa");
        check("nNmMz", "zm");
        check("nmz", "mz");
        check("z", "z");
        check("zyx", "x");
        check("zZ", "z");
    }
}
