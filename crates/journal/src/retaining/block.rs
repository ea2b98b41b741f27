//! Which of 4,096 records that follow on each other are live, in little memory: those that are in
//! the minority are listed, as long as they are few; a queue of a hundred that is consumed leaves a
//! gap at each hundredth record.

/// Positions to a block.
pub(crate) const BLOCK: u64 = 4096;
pub(crate) const WORD: u64 = u64::BITS as u64;

/// With more in the minority a bit for each record takes hardly more memory than a list.
const LISTED_MAX: usize = 128;

/// A bit for each record.
pub(crate) type Bits = [u64; (BLOCK / WORD) as usize];

/// All of them live.
pub(crate) const SOLID: Bits = [u64::MAX; (BLOCK / WORD) as usize];

/// See the head of this file. Each set has one form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// Those that are live, in order, and no others.
    Live(Box<[u16]>),
    /// All but these.
    Dead(Box<[u16]>),
    /// Many of both.
    Mixed(Box<Bits>),
}

impl Block {
    /// None of them.
    pub(crate) fn empty() -> Block {
        Block::Live(Box::default())
    }

    /// All of them.
    pub(crate) fn solid() -> Block {
        Block::Dead(Box::default())
    }

    pub(crate) fn of(bits: &Bits) -> Block {
        let live = count(bits);
        if live <= LISTED_MAX {
            Block::Live(listed(bits, 0))
        } else if BLOCK as usize - live <= LISTED_MAX {
            Block::Dead(listed(bits, u64::MAX))
        } else {
            Block::Mixed(Box::new(*bits))
        }
    }

    pub(crate) fn bits(&self) -> Bits {
        let (listed, mut bits) = match self {
            Block::Live(places) => (places, [0; _]),
            Block::Dead(places) => (places, SOLID),
            Block::Mixed(bits) => return **bits,
        };
        for place in listed {
            bits[usize::from(*place) / WORD as usize] ^= 1 << (u64::from(*place) % WORD);
        }
        bits
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Block::Live(places) if places.is_empty())
    }

    pub(crate) fn is_solid(&self) -> bool {
        matches!(self, Block::Dead(places) if places.is_empty())
    }

    /// How many are live.
    pub(crate) fn records(&self) -> u64 {
        match self {
            Block::Live(places) => places.len() as u64,
            Block::Dead(places) => BLOCK - places.len() as u64,
            Block::Mixed(bits) => count(bits) as u64,
        }
    }

    pub(crate) fn contains(&self, place: u16) -> bool {
        match self {
            Block::Live(places) => places.binary_search(&place).is_ok(),
            Block::Dead(places) => places.binary_search(&place).is_err(),
            Block::Mixed(bits) => {
                bits[usize::from(place) / WORD as usize] >> (u64::from(place) % WORD) & 1 == 1
            }
        }
    }

    /// Makes one live, or not live. False: it was already.
    pub(crate) fn set(&mut self, place: u16, live: bool) -> bool {
        let (places, lists_live) = match self {
            Block::Live(places) => (places, true),
            Block::Dead(places) => (places, false),
            Block::Mixed(bits) => {
                let (word, bit) =
                    (&mut bits[usize::from(place) / WORD as usize], 1 << (u64::from(place) % WORD));
                let changes = (*word & bit != 0) != live;
                *word ^= if changes { bit } else { 0 };
                let records = count(bits);
                if changes && records.min(BLOCK as usize - records) <= LISTED_MAX {
                    *self = Block::of(bits);
                }
                return changes;
            }
        };
        match places.binary_search(&place) {
            Err(index) if lists_live == live => {
                *places = [&places[..index], &[place], &places[index..]].concat().into();
            }
            Ok(index) if lists_live != live => {
                *places = [&places[..index], &places[index + 1..]].concat().into();
            }
            _ => return false,
        }
        if LISTED_MAX < places.len() {
            *self = Block::Mixed(Box::new(self.bits()));
        }
        true
    }
}

fn count(bits: &Bits) -> usize {
    bits.iter().map(|word| word.count_ones() as usize).sum()
}

/// The places of bits that differ from those of `others`.
fn listed(bits: &Bits, others: u64) -> Box<[u16]> {
    let words = bits.iter().enumerate().filter(|(_, word)| **word != others);
    words
        .flat_map(|(index, word)| {
            let differ = word ^ others;
            (0..WORD)
                .filter(move |bit| differ >> bit & 1 == 1)
                .map(move |bit| (index as u64 * WORD + bit) as u16)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::simulation::Random;

    /// After any operation a block agrees with a bit for each record, in the form that belongs to
    /// that.
    #[test]
    fn every_form_says_what_bits_say() {
        for seed in 0..40 {
            let mut random = Random(seed);
            let (mut block, mut bits) = match seed % 2 {
                0 => (Block::empty(), [0; _]),
                _ => (Block::solid(), SOLID),
            };
            let mut forms = [false; 3];
            // First most that happen go one way, then the other.
            for step in 0..12_000 {
                let place = random.below(BLOCK) as u16;
                let live = (random.below(10) == 0) != (step / 6_000 == seed % 2);
                let bit = 1 << (u64::from(place) % WORD);
                let word: &mut u64 = &mut bits[usize::from(place) / WORD as usize];
                let was_live = *word & bit != 0;
                *word = if live { *word | bit } else { *word & !bit };
                assert_eq!(block.contains(place), was_live);
                assert_eq!(block.set(place, live), was_live != live, "seed {seed}, step {step}");
                forms[match block {
                    Block::Live(_) => 0,
                    Block::Dead(_) => 1,
                    Block::Mixed(_) => 2,
                }] = true;
                if step % 97 == 0 {
                    assert!(block.bits() == bits && block == Block::of(&bits), "seed {seed}, step {step}");
                    assert_eq!(block.records(), count(&bits) as u64);
                }
            }
            assert!(forms[2] && forms[usize::from(seed % 2 == 1)], "seed {seed}: {forms:?}");
        }
    }

    #[test]
    fn gaps_at_each_hundredth_record_take_a_fraction_of_a_bit_for_each() {
        let mut block = Block::solid();
        (0..BLOCK as u16).step_by(100).for_each(|place| assert!(block.set(place, false)));
        assert!(matches!(&block, Block::Dead(places) if places.len() == 41), "{block:?}");
        (0..BLOCK as u16).step_by(100).for_each(|place| assert!(block.set(place, true)));
        assert!(block.is_solid() && !block.is_empty());
    }
}
