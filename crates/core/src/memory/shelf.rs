//! A shelf: things that lie where they were put until they are taken away, those put one after the
//! other mostly side by side.
//!
//! Messages read in the order of arrival are thus near each other. Places are in boards of 32; a
//! board on which nothing lies is given back. Short-lived messages have boards of their own: they
//! would be scattered over the free places of others, and leave those free again.

use std::collections::BTreeSet;

/// Places to a board: one that stays for the sake of a single thing is no great loss.
const BOARD: usize = 32;

/// This fraction of places may be free on boards before long-lived messages are put there rather
/// than on new ones.
const FREE_SHARE: usize = 4;

/// Where something lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u32);

impl Place {
    /// Where nothing lies.
    pub const NONE: Place = Place(u32::MAX);
}

/// How long something will lie where it is put.
#[derive(Clone, Copy)]
pub enum Stay {
    /// Unknown.
    Open,
    /// It is taken away soon, with its neighbours.
    Brief,
}

/// See the head of this file.
pub struct Shelf<T> {
    boards: Vec<Option<Box<Board<T>>>>,
    /// The boards that are being filled, for each [`Stay`].
    current: [Option<usize>; 2],
    /// Others with room.
    roomy: BTreeSet<usize>,
    /// Where there is no board.
    gaps: Vec<usize>,
    /// Free places on all boards.
    free: usize,
}

struct Board<T> {
    /// A bit for each place where something lies.
    taken: u32,
    places: [Option<T>; BOARD],
}

impl<T> Default for Shelf<T> {
    fn default() -> Shelf<T> {
        Shelf { boards: Vec::new(), current: [None; 2], roomy: BTreeSet::new(), gaps: Vec::new(), free: 0 }
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
    pub fn put(&mut self, thing: T, stay: Stay) -> Place {
        let has_room = |number: &usize| self.boards[*number].as_ref().is_some_and(|board| !board.is_full());
        let number = self.current[stay as usize].filter(has_room).unwrap_or_else(|| self.next_board(stay));
        self.current[stay as usize] = Some(number);
        let free = &mut self.free;
        let board = self.boards[number].get_or_insert_with(|| {
            *free += BOARD;
            Box::new(Board { taken: 0, places: [const { None }; BOARD] })
        });
        let place = board.taken.trailing_ones() as usize;
        board.taken |= 1 << place;
        board.places[place] = Some(thing);
        self.free -= 1;
        Place((number * BOARD + place) as u32)
    }

    /// One with room, or a gap for a new one.
    fn next_board(&mut self, stay: Stay) -> usize {
        let places = (self.boards.len() - self.gaps.len()) * BOARD;
        let found = match stay {
            Stay::Open if places < self.free * FREE_SHARE => self.roomy.pop_first(),
            Stay::Open | Stay::Brief => None,
        };
        found.or_else(|| self.gaps.pop()).unwrap_or_else(|| {
            self.boards.push(None);
            self.boards.len() - 1
        })
    }

    /// The item there.
    pub fn get(&self, place: Place) -> Option<&T> {
        let (board, place) = place.parts();
        self.boards.get(board)?.as_ref()?.places[place].as_ref()
    }

    /// The item there, to be changed.
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
        self.free += 1;
        if self.current.contains(&Some(number)) {
            return Some(thing);
        }
        if is_empty {
            self.boards[number] = None;
            self.free -= BOARD;
            self.roomy.remove(&number);
            self.gaps.push(number);
        } else if was_full {
            self.roomy.insert(number);
        }
        Some(thing)
    }

    /// The size of the free places.
    pub fn free_bytes(&self) -> u64 {
        (self.free * size_of::<Option<T>>()) as u64
    }

    /// Where something may lie, the last place first.
    pub fn places_from_last(&self) -> impl Iterator<Item = Place> + use<T> {
        (0..(self.boards.len() * BOARD) as u32).rev().map(Place)
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
        let places: Vec<Place> = (0..100).map(|thing| shelf.put(thing, Stay::Open)).collect();
        assert_eq!(places, (0..100).map(Place).collect::<Vec<_>>(), "side by side");
        assert_eq!(shelf.iter().copied().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        // Of the first board all but one go, and all of the second.
        for thing in (0..64).filter(|thing| *thing != 7) {
            assert_eq!(shelf.take(places[thing]), Some(thing));
            assert_eq!((shelf.take(places[thing]), shelf.get(places[thing])), (None, None));
        }
        assert_eq!(shelf.boards.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true, true]);
        *shelf.get_mut(places[7]).expect("left") = 700;
        let again: Vec<Place> = (200..300).map(|thing| shelf.put(thing, Stay::Open)).collect();
        let numbers: Vec<u32> = again.iter().map(|place| place.0).collect();
        let want: Vec<u32> = (100..128).chain(0..7).chain(8..32).chain(32..64).chain(128..137).collect();
        assert_eq!(numbers, want, "the rest of the current board, room elsewhere, gaps, a new one");
        assert_eq!(shelf.get(places[7]), Some(&700));
        assert_eq!(shelf.iter().count(), 137);
    }

    #[test]
    fn a_board_that_was_full_has_room_once_something_of_it_is_gone() {
        let mut shelf = Shelf::default();
        let places: Vec<Place> = (0..64).map(|thing| shelf.put(thing, Stay::Open)).collect();
        assert_eq!((shelf.take(places[3]), shelf.take(places[4])), (Some(3), Some(4)));
        assert_eq!(shelf.put(999, Stay::Open), Place(64), "a few free places do not matter");
        for thing in 70..104 {
            shelf.put(thing, Stay::Open);
        }
        (8..40).for_each(|thing| assert_eq!(shelf.take(places[thing]), Some(thing)));
        (70..99).for_each(|thing| assert_eq!(shelf.put(thing, Stay::Open), Place(thing as u32 - 3 + 32)));
        assert_eq!([1000, 1001].map(|thing| shelf.put(thing, Stay::Open)), [places[3], places[4]]);
    }

    #[test]
    fn what_stays_briefly_lies_apart() {
        let mut shelf = Shelf::default();
        let places: Vec<Place> = (0..96).map(|thing| shelf.put(thing, Stay::Open)).collect();
        (0..64).filter(|thing| thing % 2 == 0).for_each(|thing| assert!(shelf.take(places[thing]).is_some()));
        let brief: Vec<Place> = (0..70).map(|thing| shelf.put(thing, Stay::Brief)).collect();
        assert_eq!(
            brief,
            (96..166).map(Place).collect::<Vec<_>>(),
            "side by side, whatever is free elsewhere"
        );
        assert_eq!(shelf.put(500, Stay::Open), places[0], "what stays is put where others left room");
        assert_eq!(shelf.free, 31 + 26);
        brief.iter().for_each(|place| assert!(shelf.take(*place).is_some()));
        let there: Vec<bool> = shelf.boards.iter().map(Option::is_some).collect();
        assert_eq!(
            there,
            [true, true, true, false, false, true],
            "only the board that is being filled stays"
        );
        assert_eq!(shelf.free, 31 + 32);
        assert_eq!(shelf.put(600, Stay::Brief), Place(160));
    }
}
