//! States that are lists to the runner: a value, which has at most one element, and a bag.

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::rc::Rc;

use super::cells::{Call, Cell, ChangeKind, Changes};
use super::{Field, FieldKind, decoded};
use crate::{Decode, Element, Reader};

/// One value, or none.
pub struct ValueState<T> {
    call: Rc<Call>,
    state: u32,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> Field for ValueState<T> {
    const KIND: FieldKind = FieldKind::Value(T::CODER);

    fn attach(call: &Rc<Call>, number: u32) -> Self {
        ValueState { call: call.clone(), state: number, element: PhantomData }
    }
}

impl<T: Element + for<'a> Decode<'a>> ValueState<T> {
    /// The value, if there is one.
    ///
    /// # Panics
    /// When what is stored is not a `T`.
    #[inline]
    pub fn read(&self) -> Option<T> {
        with_value(&self.call, self.state, |value| {
            (!value.is_empty()).then(|| decoded(&mut Reader::new(value), "the value of a state"))
        })
    }

    /// Puts a value in place of what there is.
    #[inline]
    pub fn write(&mut self, value: T) {
        self.write_ref(&value);
    }

    /// As [`ValueState::write`], from a borrowed form: `&str` where the state holds `String`.
    #[inline]
    pub fn write_ref<B: Element + ?Sized>(&mut self, value: &B)
    where
        T: Borrow<B>,
    {
        write_value(&self.call, self.state, value);
    }

    /// Removes the value.
    pub fn clear(&mut self) {
        clear(&self.call, self.state);
    }
}

/// Any number of elements, in the order in which they were added.
pub struct BagState<T> {
    call: Rc<Call>,
    state: u32,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> Field for BagState<T> {
    const KIND: FieldKind = FieldKind::Bag(T::CODER);

    fn attach(call: &Rc<Call>, number: u32) -> Self {
        BagState { call: call.clone(), state: number, element: PhantomData }
    }
}

impl<T: Element + for<'a> Decode<'a>> BagState<T> {
    /// Adds an element, without reading the others.
    #[inline]
    pub fn add(&mut self, element: T) {
        self.add_ref(&element);
    }

    /// As [`BagState::add`], from a borrowed form.
    #[inline]
    pub fn add_ref<B: Element + ?Sized>(&mut self, element: &B)
    where
        T: Borrow<B>,
    {
        let mut cell = list(&self.call, self.state);
        let before = cell.appended.len();
        element.encode(&mut cell.appended);
        self.call.grew(cell.appended.len() - before);
    }

    /// The elements, page by page: a bag may be larger than the memory. Reading does not remember them.
    pub fn read(&self) -> impl Iterator<Item = T> + use<T> {
        let (replaced, appended) = {
            let cell = list(&self.call, self.state);
            (cell.replaced, cell.appended.clone())
        };
        let first = if replaced { Pages::Last(appended) } else { Pages::Stored { next: None, appended } };
        Elements { call: self.call.clone(), state: self.state, pages: first, page: Vec::new(), at: 0, element: PhantomData }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.read().next().is_none()
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        clear(&self.call, self.state);
    }
}

/// What is still to be read.
enum Pages {
    Stored { next: Option<Vec<u8>>, appended: Vec<u8> },
    Last(Vec<u8>),
    Over,
}

struct Elements<T> {
    call: Rc<Call>,
    state: u32,
    pages: Pages,
    page: Vec<u8>,
    at: usize,
    element: PhantomData<fn() -> T>,
}

impl<T> Elements<T> {
    /// False: there is no further page.
    fn turn(&mut self) -> bool {
        self.at = 0;
        match std::mem::replace(&mut self.pages, Pages::Over) {
            Pages::Over => return false,
            Pages::Last(appended) => self.page = appended,
            Pages::Stored { next, appended } => {
                let page = self.call.page(self.state, &[], next.as_deref());
                self.page = page.elements;
                self.pages = match page.next {
                    None => Pages::Last(appended),
                    next => Pages::Stored { next, appended },
                };
            }
        }
        true
    }
}

impl<T: for<'a> Decode<'a>> Iterator for Elements<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        while self.at == self.page.len() {
            if !self.turn() {
                return None;
            }
        }
        let mut reader = Reader::new(&self.page[self.at..]);
        let element = decoded(&mut reader, "an element of a bag");
        self.at = self.page.len() - reader.remaining();
        Some(element)
    }
}

/// What is known of a list in one call.
#[derive(Default)]
pub(super) struct List {
    /// All stored elements, when they were asked for.
    stored: Option<Vec<u8>>,
    /// Whether nothing is left of them.
    replaced: bool,
    appended: Vec<u8>,
}

impl List {
    pub(super) fn changes(self, place: (u32, u32), changes: &mut Changes) {
        match (self.replaced, self.appended.is_empty()) {
            (false, true) => {}
            (false, false) => changes.push(place, ChangeKind::Append, &[], &self.appended),
            (true, false) => changes.push(place, ChangeKind::Replace, &[], &self.appended),
            (true, true) => changes.push(place, ChangeKind::Clear, &[], &[]),
        }
    }
}

#[inline]
fn list(call: &Call, state: u32) -> std::cell::RefMut<'_, List> {
    std::cell::RefMut::map(call.cell(state, || Cell::List(List::default())), |cell| match cell {
        Cell::List(list) => list,
        _ => unreachable!("a state has one kind"),
    })
}

/// Reads the only element of a list; no bytes: there is none.
#[inline]
pub(super) fn with_value<R>(call: &Call, state: u32, read: impl FnOnce(&[u8]) -> R) -> R {
    let mut cell = list(call, state);
    if cell.replaced {
        return read(&cell.appended);
    }
    read(cell.stored.get_or_insert_with(|| call.all(state, &[])))
}

/// Makes this the only element of a list.
#[inline]
pub(super) fn write_value<B: Element + ?Sized>(call: &Call, state: u32, value: &B) {
    let mut cell = list(call, state);
    let before = cell.appended.len();
    cell.replaced = true;
    cell.appended.clear();
    value.encode(&mut cell.appended);
    call.grew(cell.appended.len().saturating_sub(before));
}

pub(super) fn clear(call: &Call, state: u32) {
    let mut cell = list(call, state);
    cell.replaced = true;
    cell.appended.clear();
}
