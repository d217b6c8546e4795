//! Names of user state's cells.
//!
//! ```text
//!   place   stage key window state                  one state of one key and window
//!   list    place 'h' map-key                       head: the chunks that there are, and the tail
//!           place 'c' map-key number                a chunk
//!   ordered place 'n'                               the next sequence number
//!           place 'o' sort-key sequence             an entry
//! ```
//!
//! The stage comes first, in four bytes that sort as stages do. Key, window, state and, in front of a number, map key have
//! their length before them, so that none is the beginning of another whatever an SDK calls its keys. Numbers are 64 bits,
//! big-endian; sort keys too, with the sign turned round, so that they sort as signed numbers.

use bytes::Bytes;
use model::StageId;
use model::reader::put_length_prefixed;

/// The common beginning of all cells of one state of one key and window.
#[derive(Clone, Debug)]
pub(super) struct Place(Vec<u8>);

impl Place {
    pub(super) fn new(stage: StageId, key: &[u8], window: &[u8], state: &str) -> Self {
        let mut name = Vec::with_capacity(4 + key.len() + window.len() + state.len() + 8);
        name.extend_from_slice(&stage.0.to_be_bytes());
        put_length_prefixed(&mut name, key);
        put_length_prefixed(&mut name, window);
        put_length_prefixed(&mut name, state.as_bytes());
        Place(name)
    }

    fn kind(&self, kind: u8, capacity: usize) -> Vec<u8> {
        let mut name = Vec::with_capacity(self.0.len() + 1 + capacity);
        name.extend_from_slice(&self.0);
        name.push(kind);
        name
    }

    /// The head of a list; a bag's map key is empty.
    pub(super) fn head(&self, map_key: &[u8]) -> Bytes {
        let mut name = self.kind(b'h', map_key.len());
        name.extend_from_slice(map_key);
        name.into()
    }

    /// The heads of all lists with map keys from `from`, and the name behind the last.
    pub(super) fn heads(&self, from: &[u8]) -> (Bytes, Bytes) {
        (self.head(from), self.kind(b'h' + 1, 0).into())
    }

    /// The map key in a head's name.
    pub(super) fn map_key(&self, head: &Bytes) -> Bytes {
        head.slice(self.0.len() + 1..)
    }

    pub(super) fn chunk(&self, map_key: &[u8], number: u64) -> Bytes {
        let mut name = self.kind(b'c', map_key.len() + 10);
        put_length_prefixed(&mut name, map_key);
        name.extend_from_slice(&number.to_be_bytes());
        name.into()
    }

    pub(super) fn next_sequence(&self) -> Bytes {
        self.kind(b'n', 0).into()
    }

    /// The least name of an entry with a sort key.
    pub(super) fn entries(&self, sort_key: i64) -> Vec<u8> {
        let mut name = self.kind(b'o', 16);
        name.extend_from_slice(&((sort_key as u64) ^ (1 << 63)).to_be_bytes());
        name
    }

    pub(super) fn entry(&self, sort_key: i64, sequence: u64) -> Bytes {
        let mut name = self.entries(sort_key);
        name.extend_from_slice(&sequence.to_be_bytes());
        name.into()
    }

    /// What tells an entry from the others of its state.
    pub(super) fn entry_rest(&self, entry: &Bytes) -> Bytes {
        entry.slice(self.0.len() + 1..)
    }

    /// The entry that [`Place::entry_rest`] was taken from.
    pub(super) fn entry_of_rest(&self, rest: &[u8]) -> Vec<u8> {
        let mut name = self.kind(b'o', rest.len());
        name.extend_from_slice(rest);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_place_is_the_beginning_of_another() {
        let parts: [&[u8]; 6] = [b"", b"a", b"aa", b"\x00", b"\x01", b"\x01a"];
        let mut places = Vec::new();
        for stage in [0, 1, 256] {
            for key in parts {
                for window in parts {
                    for state in ["", "a", "aa", "\u{1}", "\u{1}a"] {
                        places.push(Place::new(StageId(stage), key, window, state).0);
                    }
                }
            }
        }
        places.sort();
        for pair in places.windows(2) {
            assert!(!pair[1].starts_with(&pair[0]), "{pair:?}");
        }
    }

    #[test]
    fn chunks_and_entries_sort_as_their_numbers() {
        let place = Place::new(StageId(1), b"k", b"w", "s");
        let keys = [i64::MIN, -300, -1, 0, 1, 255, 256, i64::MAX - 1, i64::MAX];
        let entries: Vec<Bytes> = keys.iter().flat_map(|key| [place.entry(*key, 0), place.entry(*key, 256)]).collect();
        assert!(entries.is_sorted());
        assert!(place.entries(0) < place.entry(0, 0).to_vec() && place.entry(0, u64::MAX) < place.entries(1));
        assert!(place.chunk(b"m", 255) < place.chunk(b"m", 256));
        assert_eq!(place.map_key(&place.head(b"m")), "m");
        assert_eq!(place.entry_of_rest(&place.entry_rest(&entries[3])), entries[3]);
    }
}
