//! Terms, `name` or `name(term,term)`, in which the test language writes coders, triggers and windows.

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Term {
    pub(crate) name: String,
    pub(crate) parts: Vec<Term>,
}

impl Term {
    pub(crate) fn parse(text: &str) -> Term {
        let (term, rest) = Term::read(text);
        assert!(rest.is_empty(), "left over after a term: \"{rest}\" in \"{text}\"");
        term
    }

    fn read(text: &str) -> (Term, &str) {
        let end = text.find(['(', ')', ',']).unwrap_or(text.len());
        let (name, mut rest) = text.split_at(end);
        let mut parts = Vec::new();
        if let Some(inside) = rest.strip_prefix('(') {
            rest = inside;
            while !rest.starts_with(')') {
                let (part, after) = Term::read(rest);
                parts.push(part);
                rest = after.strip_prefix(',').unwrap_or(after);
                assert!(!rest.is_empty(), "no closing bracket in \"{text}\"");
            }
            rest = &rest[1..];
        }
        (Term { name: name.to_owned(), parts }, rest)
    }

    pub(crate) fn number(&self) -> i64 {
        self.name.parse().unwrap_or_else(|_| panic!("not a number: {}", self.name))
    }
}

/// Splits at separators that are outside of brackets.
pub(crate) fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ if character == separator && depth == 0 => {
                parts.push(&text[from..at]);
                from = at + separator.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}
