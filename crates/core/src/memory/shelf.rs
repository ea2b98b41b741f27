//! A shelf: things that lie where they were put until they are taken away, those put one after the other mostly side by side.
//!
//! What is looked at in the order in which it came is thus found beside what was looked at before. Places are in boards of 32;
//! a board on which nothing lies is given back.

use std::collections::BTreeSet;

/// Places to a board: one that stays for the sake of a single thing is no great loss.
const BOARD: usize = 32;

/// Where something lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u32);

impl Place {
    /// Where nothing lies.
    pub const NONE: Place = Place(u32::MAX);
}

/// See the head of this file.
pub struct Shelf<T> {
    boards: Vec<Option<Box<Board<T>>>>,
    /// The board that is being filled.
    current: usize,
    /// Others with room.
    roomy: BTreeSet<usize>,
    /// Where there is no board.
    gaps: Vec<usize>,
}

struct Board<T> {
    /// A bit for each place where something lies.
    taken: u32,
    places: [Option<T>; BOARD],
}

impl<T> Default for Shelf<T> {
    fn default() -> Shelf<T> {
        Shelf { boards: Vec::new(), current: 0, roomy: BTreeSet::new(), gaps: Vec::new() }
    }
}

impl<T> Board<T> {
    fn is_full(&self) -> bool {
        self.taken == u32::MAX
    }
}

impl Place {
    fn parts(self) -> (usize, usize) {
        (self.0 as usize / BOARD, self.0 as usize % BOARD)
    }
}

impl<T> Shelf<T> {
    /// Puts it somewhere.
    pub fn put(&mut self, thing: T) -> Place {
        if self.boards.get(self.current).and_then(Option::as_ref).is_none_or(|board| board.is_full()) {
            self.current = self.next_board();
        }
        let board = self.boards[self.current]
            .get_or_insert_with(|| Box::new(Board { taken: 0, places: [const { None }; BOARD] }));
        let place = board.taken.trailing_ones() as usize;
        board.taken |= 1 << place;
        board.places[place] = Some(thing);
        Place((self.current * BOARD + place) as u32)
    }

    /// One with room, or a gap for a new one.
    fn next_board(&mut self) -> usize {
        let found = self.roomy.pop_first().or_else(|| self.gaps.pop());
        found.unwrap_or_else(|| {
            self.boards.push(None);
            self.boards.len() - 1
        })
    }

    /// What lies there.
    pub fn get(&self, place: Place) -> Option<&T> {
        let (board, place) = place.parts();
        self.boards.get(board)?.as_ref()?.places[place].as_ref()
    }

    /// What lies there, to be changed.
    pub fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        let (board, place) = place.parts();
        self.boards.get_mut(board)?.as_mut()?.places[place].as_mut()
    }

    /// Takes it away.
    pub fn take(&mut self, place: Place) -> Option<T> {
        let (number, place) = place.parts();
        let board = self.boards.get_mut(number)?.as_mut()?;
        let thing = board.places[place].take()?;
        let was_full = board.is_full();
        board.taken &= !(1 << place);
        let is_empty = board.taken == 0;
        if number == self.current {
            return Some(thing);
        }
        if is_empty {
            self.boards[number] = None;
            self.roomy.remove(&number);
            self.gaps.push(number);
        } else if was_full {
            self.roomy.insert(number);
        }
        Some(thing)
    }

    /// Everything, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.boards.iter().flatten().flat_map(|board| board.places.iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_there_until_it_is_taken_and_boards_go_with_what_lay_on_them() {
        let mut shelf = Shelf::default();
        let places: Vec<Place> = (0..100).map(|thing| shelf.put(thing)).collect();
        assert_eq!(places, (0..100).map(Place).collect::<Vec<_>>(), "side by side");
        assert_eq!(shelf.iter().copied().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        // Of the first board all but one go, and all of the second.
        for thing in (0..64).filter(|thing| *thing != 7) {
            assert_eq!(shelf.take(places[thing]), Some(thing));
            assert_eq!((shelf.take(places[thing]), shelf.get(places[thing])), (None, None));
        }
        assert_eq!(shelf.boards.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true, true]);
        *shelf.get_mut(places[7]).expect("left") = 700;
        let again: Vec<Place> = (200..300).map(|thing| shelf.put(thing)).collect();
        let numbers: Vec<u32> = again.iter().map(|place| place.0).collect();
        let want: Vec<u32> = (100..128).chain(0..7).chain(8..32).chain(32..64).chain(128..137).collect();
        assert_eq!(numbers, want, "the rest of the current board, room elsewhere, gaps, a new one");
        assert_eq!(shelf.get(places[7]), Some(&700));
        assert_eq!(shelf.iter().count(), 137);
    }

    #[test]
    fn a_board_that_was_full_has_room_once_something_of_it_is_gone() {
        let mut shelf = Shelf::default();
        let places: Vec<Place> = (0..64).map(|thing| shelf.put(thing)).collect();
        assert_eq!((shelf.take(places[3]), shelf.take(places[4])), (Some(3), Some(4)));
        assert_eq!([1000, 1001, 1002].map(|thing| shelf.put(thing)), [places[3], places[4], Place(64)]);
        // The one that is being filled stays.
        assert_eq!(shelf.take(Place(64)), Some(1002));
        assert_eq!(shelf.put(1003), Place(64));
    }
}
