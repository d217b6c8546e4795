//! What a pipeline says it requires of a runner. Whoever uses a feature is refused by name elsewhere; here only the list counts,
//! which is authoritative: what is on it and unknown could change results.

use crate::Problems;

/// The requirements that planning understands (`beam:requirement:pardo:...`).
const UNDERSTOOD: [&str; 6] = [
    "beam:requirement:pardo:stateful:v1",
    "beam:requirement:pardo:finalization:v1",
    "beam:requirement:pardo:stable_input:v1",
    "beam:requirement:pardo:time_sorted_input:v1",
    "beam:requirement:pardo:splittable_dofn:v1",
    "beam:requirement:pardo:on_window_expiration:v1",
];

pub(crate) fn check(requirements: &[String], problems: &mut Problems) {
    for requirement in requirements {
        if !UNDERSTOOD.contains(&requirement.as_str()) {
            problems.of_pipeline(format!("it requires {requirement}, which is unknown here"), "use a runner that supports it");
        }
    }
}
