//! The DoFns of Beam's word count, as a component. Counting itself is the runner's business.

use purlin::prelude::*;

/// Splits a line into words as Beam's word count does: runs of letters, digits, underscores and apostrophes.
#[dofn]
fn split(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !is_word(c)).filter(|word| !word.is_empty())
}

/// One line of the result.
#[dofn]
fn format((word, count): (&str, i64)) -> String {
    format!("{word}: {count}")
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '\''
}

purlin::component!(split, format);

#[cfg(test)]
mod tests {
    #[test]
    fn words_are_those_of_beam() {
        let check = |line: &'static str, words: &[&str]| assert!(super::split(line).eq(words.iter().copied()), "{line:?}");
        check("", &[]);
        check("KING LEAR, (a king).", &["KING", "LEAR", "a", "king"]);
        check("we'll 'tis o' --well!", &["we'll", "'tis", "o'", "well"]);
        check("snake_case x2 é́", &["snake_case", "x2", "é"]);
    }

    #[test]
    fn counts_are_formatted() {
        assert_eq!(super::format(("king", 311)), "king: 311");
    }
}
