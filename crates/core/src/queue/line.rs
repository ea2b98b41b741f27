//! Consumers in an order: to come, to go and to be found take a time that hardly grows with their
//! number.
//!
//! Most queues have no consumer, and most others one: the line is small then.

use std::collections::BTreeMap;
use std::ops::Bound;

use postroad_model::ConsumerKey;

/// See the head of this file.
pub struct Line<P> {
    /// `None` before the first one has come.
    places: Option<Box<Places<P>>>,
}

struct Places<P> {
    first: Option<(P, ConsumerKey)>,
    /// Those after the first; empty without one.
    rest: BTreeMap<P, ConsumerKey>,
}

impl<P> Default for Line<P> {
    fn default() -> Line<P> {
        Line { places: None }
    }
}

impl<P> Default for Places<P> {
    fn default() -> Places<P> {
        Places { first: None, rest: BTreeMap::new() }
    }
}

impl<P: Copy + Ord> Line<P> {
    /// Puts a consumer at this place, which is free.
    pub fn insert(&mut self, place: P, key: ConsumerKey) {
        let Places { first, rest } = &mut **self.places.get_or_insert_default();
        match first {
            None => *first = Some((place, key)),
            Some(front) if place < front.0 => {
                let (after, of) = std::mem::replace(front, (place, key));
                rest.insert(after, of);
            }
            Some(_) => drop(rest.insert(place, key)),
        }
    }

    /// Takes the consumer at this place out.
    pub fn remove(&mut self, place: P) -> Option<ConsumerKey> {
        let Places { first, rest } = &mut **self.places.as_mut()?;
        match *first {
            Some((front, key)) if front == place => {
                *first = rest.pop_first();
                Some(key)
            }
            _ => rest.remove(&place),
        }
    }

    /// The first one, with its place.
    pub fn first(&self) -> Option<(P, ConsumerKey)> {
        self.places.as_ref()?.first
    }

    /// The one after this place.
    pub fn after(&self, place: P) -> Option<(P, ConsumerKey)> {
        let Places { first, rest } = &**self.places.as_ref()?;
        let behind = || rest.range((Bound::Excluded(place), Bound::Unbounded)).next();
        let first = first.filter(|(first, _)| place < *first);
        first.or_else(|| behind().map(|(place, key)| (*place, *key)))
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &ConsumerKey> {
        let places = self.places.iter();
        places.flat_map(|places| places.first.iter().map(|(_, key)| key).chain(places.rest.values()))
    }

    /// From this place on, in order.
    pub fn from(&self, place: P) -> impl Iterator<Item = (P, ConsumerKey)> {
        let places = self.places.iter();
        places.flat_map(move |places| {
            let first = places.first.filter(|(first, _)| place <= *first);
            first.into_iter().chain(places.rest.range(place..).map(|(place, key)| (*place, *key)))
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        let rest = self.places.as_ref().map_or(0, |places| places.rest.len());
        usize::from(!self.is_empty()) + rest
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// The last place in use.
    pub fn last_place(&self) -> Option<P> {
        let Places { first, rest } = &**self.places.as_ref()?;
        rest.last_key_value().map(|(place, _)| *place).or(first.map(|(place, _)| place))
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::ConnectionId;

    use super::*;

    fn key(number: u32) -> ConsumerKey {
        ConsumerKey::new(ConnectionId::new(0, 1), number)
    }

    fn places(line: &Line<u32>) -> Vec<u32> {
        let mut place = line.first();
        let next = || {
            let found = place?;
            place = line.after(found.0);
            Some(found.0)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_line_is_in_order_whoever_comes_and_goes() {
        let mut line = Line::default();
        // Each place once, in an order that is neither theirs nor the reverse.
        let order = || (0..100_u32).map(|number| number * 37 % 100);
        for place in order() {
            line.insert(place, key(place));
            assert_eq!(line.last_place(), places(&line).last().copied());
        }
        let mut left: Vec<u32> = (0..100).collect();
        for place in order().map(|place| 99 - place) {
            assert_eq!((places(&line), line.len()), (left.clone(), left.len()));
            assert_eq!(
                line.iter().copied().collect::<Vec<_>>(),
                left.iter().copied().map(key).collect::<Vec<_>>()
            );
            assert_eq!((line.remove(place), line.remove(place)), (Some(key(place)), None));
            left.retain(|other| *other != place);
            assert!(line.from(50).map(|found| found.0).eq(left.iter().copied().filter(|other| 50 <= *other)));
            // A place that is free is as good to go on from as one in use.
            assert_eq!(
                line.after(place).map(|found| found.0),
                left.iter().copied().find(|other| place < *other)
            );
        }
        assert!(line.is_empty() && line.first().is_none() && line.last_place().is_none());
    }
}
