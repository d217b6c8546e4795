//! Tables of text: columns as wide as their widest cell, numbers to the right.

/// Which side of its column a cell leans to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Texts.
    Left,
    /// Numbers.
    Right,
}

/// Lines of a table, the heading first. Rows are as long as the heading.
pub fn table(columns: &[(&str, Side)], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([columns[column].0.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let heading: Vec<String> = columns.iter().map(|(name, _)| name.to_string()).collect();
    let mut text = String::new();
    for row in [&heading].into_iter().chain(rows) {
        let mut line = String::new();
        for ((cell, (_, side)), width) in row.iter().zip(columns).zip(&widths) {
            let padding = " ".repeat(width - cell.chars().count());
            line += match side {
                Side::Left => format!(" {cell}{padding} "),
                Side::Right => format!(" {padding}{cell} "),
            }
            .as_str();
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["a".into(), "1,000".into()], vec!["longer".into(), "2".into()]];
        assert_eq!(table(&[("ID", Side::Left), ("N", Side::Right)], &rows), " ID          N\n a       1,000\n longer      2\n");
    }
}
