//! Counts of words: read from a pipeline's output, and made independently by coreutils.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::server::output;

/// How often each word occurs.
pub(crate) type Counts = BTreeMap<String, u64>;

/// Counts words (runs of characters of `class`) without any of our code.
pub(crate) fn by_coreutils(files: &Path, class: &str) -> Counts {
    let script = r#"LC_ALL=C grep -ohE "[$2]+" "$1" | LC_ALL=C sort | uniq -c"#;
    let text = output(Command::new("sh").args(["-c", script, "sh"]).arg(files).arg(class));
    let pair = |line: &str| line.trim().split_once(' ').map(|(count, word)| (word.to_string(), count.parse().unwrap()));
    text.lines().filter_map(pair).collect()
}

/// Lines `word: count` of all files in a folder whose names begin with `prefix`; a word that occurs twice is an error.
pub(crate) fn in_folder(folder: &Path, prefix: &str) -> Counts {
    let mut counts = Counts::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_file() || !path.file_name().unwrap().to_string_lossy().starts_with(prefix) {
            continue;
        }
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let (word, count) = line.rsplit_once(": ").unwrap_or_else(|| panic!("not a count: {line}"));
            let earlier = counts.insert(word.to_string(), count.parse().unwrap());
            assert!(earlier.is_none(), "{word} was counted twice");
        }
    }
    counts
}

/// Compares, and names a few differences.
pub(crate) fn assert_equal(counted: &Counts, expected: &Counts) {
    let words = expected.keys().chain(counted.keys().filter(|word| !expected.contains_key(*word)));
    let different: Vec<String> = words
        .filter(|word| counted.get(*word) != expected.get(*word))
        .map(|word| format!("{word}: {:?} instead of {:?}", counted.get(word), expected.get(word)))
        .collect();
    assert!(different.is_empty(), "{} words differ: {}", different.len(), different[..different.len().min(10)].join("; "));
}
