//! Grouping by key and window: from rows to panes. (Being written.)
