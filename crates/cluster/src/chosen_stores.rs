//! Which stores of a cluster a node has: all, or the first one with others that were chosen.

use std::fmt;

/// Stores of a cluster: each has a journal and threads of its own.
pub const STORES_MAX: u16 = u16::BITS as u16;

/// A bit for each store, from the lowest for store 1; none stands for all stores.
///
/// Invariant: some stores include the first one, which has the documents of all tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChosenStores(u16);

impl ChosenStores {
    /// All that there are.
    pub const ALL: ChosenStores = ChosenStores(0);
    const FIRST: u16 = 1;

    /// The first store and those of these numbers; `None` if one of them cannot be that of a store.
    pub fn of(numbers: impl IntoIterator<Item = u16>) -> Option<ChosenStores> {
        let mut numbers = numbers.into_iter();
        numbers.try_fold(ChosenStores::FIRST, |bits, number| Some(bits | bit(number)?)).map(ChosenStores)
    }

    /// From the list of members; `None` if the first store is missing.
    pub fn of_bits(bits: u16) -> Option<ChosenStores> {
        (bits == 0 || bits & ChosenStores::FIRST != 0).then_some(ChosenStores(bits))
    }

    /// For the list of members.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Whether these are all stores of any cluster.
    pub fn are_all(self) -> bool {
        self == ChosenStores::ALL
    }

    /// Whether a store is one of them.
    pub fn have(self, number: u16) -> bool {
        self.are_all() || bit(number).is_some_and(|bit| self.0 & bit != 0)
    }

    /// Those of a cluster with a number of stores.
    pub fn among(self, count: u16) -> Vec<u16> {
        (1..=count).filter(|number| self.have(*number)).collect()
    }
}

/// The bit of a store.
fn bit(number: u16) -> Option<u16> {
    let place = number.checked_sub(1).filter(|place| *place < STORES_MAX)?;
    Some(1 << place)
}

/// The numbers, as operators read and write them.
impl fmt::Display for ChosenStores {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.are_all() {
            return out.write_str("all");
        }
        let numbers: Vec<String> = self.among(STORES_MAX).iter().map(u16::to_string).collect();
        out.write_str(&numbers.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_store_is_always_one_of_them() {
        for (numbers, want, shown) in [
            (vec![], Some(vec![1]), "1"),
            (vec![2, 3], Some(vec![1, 2, 3]), "1,2,3"),
            (vec![1, 16], Some(vec![1, 16]), "1,16"),
            (vec![0], None, ""),
            (vec![2, 17], None, ""),
        ] {
            let chosen = ChosenStores::of(numbers.iter().copied());
            assert_eq!(chosen.map(|chosen| chosen.among(STORES_MAX)), want, "{numbers:?}");
            let Some(chosen) = chosen else { continue };
            assert_eq!(ChosenStores::of_bits(chosen.bits()), Some(chosen), "{numbers:?}");
            assert_eq!(chosen.to_string(), shown);
        }
        assert_eq!(ChosenStores::of_bits(0), Some(ChosenStores::ALL));
        assert_eq!(ChosenStores::of_bits(2), None, "without the first");
        assert_eq!(ChosenStores::ALL.among(2), [1, 2]);
        assert!(ChosenStores::ALL.have(9) && !ChosenStores::of([2]).unwrap().have(9));
    }
}
