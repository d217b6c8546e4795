//! Groupings: those that fire once and those that fire as any trigger says, on windows that the engine or a worker merges.

use model::batch::Row;
use model::pane::{self, PaneInfo};
use model::{Coder, Reader};
use plan::{Head, Routing};

use super::compile::{Compiler, collection, decode, decode_window, encode};
use super::firing::Firing;
use super::panes::Pane;
use super::pipeline::fold;
use super::windows::{Grouping, LOOSE, Windowing};
use crate::dofns::Context;
use crate::merging::merge_windows;
use crate::plans::kv;

/// Times of elements that are grouped with any trigger are below this: value and time become one number.
pub(crate) const TIMES_END: i64 = 1_000_000;

impl Compiler<'_> {
    /// Groups by key and folds the values.
    pub(super) fn group(&mut self, index: usize, input: usize, grouping: Grouping, one_stage: bool) {
        let (output, windows) = (collection(index), self.coder(index));
        let head = Head::Grouping(Box::new(grouping.strategy()));
        let source = self.groups(index, &collection(input), head, one_stage);
        let stage = self.plans.maker(&source);
        self.transform(stage, &format!("t{index}"), &source, &output, kv(), windows, |row, context| {
            let (key, values) = decode_group(row.value);
            assert!(!values.is_empty());
            context.emit(Row { value: &encode(key, fold(&values)), pane: pane::NO_FIRING, ..row });
            Ok(())
        });
        self.ask_for_merging(index, grouping.windowing);
    }

    /// Groups by key and counts each pane under a name that tells everything about it.
    pub(super) fn panes(&mut self, index: usize, input: usize, firing: &Firing, one_stage: bool) {
        let (timed, windows) = (format!("c{index} timed"), self.coder(index));
        let (stage, source) = self.place(index, input, true);
        self.transform(stage, &format!("t{index} time"), &source, &timed, kv(), windows, |row, context| {
            let (key, value) = decode(row.value);
            let value = value * TIMES_END as u64 + row.timestamp.millis() as u64;
            context.emit(Row { value: &encode(key, value), ..row });
            Ok(())
        });
        let head = Head::Grouping(Box::new(firing.strategy.clone()));
        let source = self.groups(index, &timed, head, one_stage);
        let (stage, name) = (self.plans.maker(&source), format!("t{index}"));
        self.plans.transform(stage, &name, &source, None);
        self.dofn(&name, move |row, context| {
            let (key, values) = decode_group(row.value);
            let member = |value: u64| (value / TIMES_END as u64, (value % TIMES_END as u64) as i64);
            let found = windows.windows_of(row.windows).unwrap();
            assert_eq!(found.len(), 1, "a pane is in one window");
            let mut members: Vec<_> = values.into_iter().map(member).collect();
            members.sort_unstable();
            let pane = Pane {
                key,
                window: decode_window(windows, found[0]),
                time: row.timestamp.millis(),
                info: PaneInfo::decode(&mut Reader::new(row.pane)).unwrap(),
                members,
            };
            context.count(&pane.to_text(), 1);
            Ok(())
        });
        self.ask_for_merging(index, firing.windowing);
    }

    /// The collection of groups, at the head of a stage that can have transforms: the grouping one or another.
    fn groups(&mut self, index: usize, input: &str, head: Head, one_stage: bool) -> String {
        let groups = format!("c{index} groups");
        self.plans.stage(&format!("group {index}"), head, &[(input, Routing::ByKey)], &groups);
        if one_stage {
            return groups;
        }
        let source = format!("c{index} after");
        self.plans.stage(&format!("after {index}"), Head::Plain, &[(&groups, Routing::Local)], &source);
        source
    }

    fn ask_for_merging(&mut self, index: usize, windowing: Windowing) {
        if let Windowing::Custom { .. } = windowing {
            let name = format!("t{index} merge");
            self.plans.merging(self.plans.maker(&format!("c{index} groups")), &name, Coder::IntervalWindow);
            self.dofn(&name, |row: Row<'_>, context: &mut Context<'_>| {
                merge_windows(row, LOOSE, context);
                Ok(())
            });
        }
    }
}

fn decode_group(bytes: &[u8]) -> (u8, Vec<u64>) {
    let mut reader = Reader::new(bytes);
    let key = reader.length_prefixed().unwrap()[0];
    let values = (0..reader.be_i32().unwrap()).map(|_| reader.varint().unwrap()).collect();
    assert!(reader.is_empty());
    (key, values)
}
