//! The level of a cluster: the formats and decisions that all of its nodes have in common.
//!
//! Each program speaks a range of levels. A group begins at the lowest one, and its leader raises
//! the level by one, as a change of members, once each node speaks the next. So nodes get a new
//! version one after the other, while clients are served. A format of a level appears in no message
//! and in no entry before the level is in force; a decision that replicas take in another way than
//! before begins with a level, too.
//!
//! | level | brings |
//! |---|---|
//! | 1 | all that is not said below |
//! | 2 | zones of nodes in the list of members |
//! | 3 | the stores that a node has, in the list of members |

/// A level. There is none below 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(u8);

impl Level {
    /// The lowest that this program speaks, with which groups begin.
    pub const OLDEST: Level = Level(1);
    /// The highest that this program speaks.
    pub const NEWEST: Level = Level(3);
    /// From this one on the list of members has the zones of nodes.
    pub const ZONES: Level = Level(2);
    /// From this one on the list of members says which stores a node has.
    pub const CHOSEN_STORES: Level = Level(3);

    /// The level of this number, if it is one: this program need not speak it.
    pub const fn new(number: u8) -> Option<Level> {
        if number == 0 { None } else { Some(Level(number)) }
    }

    /// Its number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The one after it.
    pub const fn next(self) -> Level {
        Level(self.0.saturating_add(1))
    }

    /// Whether this program speaks it.
    pub fn is_known(self) -> bool {
        (Level::OLDEST..=Level::NEWEST).contains(&self)
    }
}

impl Default for Level {
    fn default() -> Level {
        Level::OLDEST
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}

/// The levels that a node speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// The lowest.
    pub oldest: Level,
    /// The highest.
    pub newest: Level,
}

impl Levels {
    /// Those of this program, up to one that an operator allows.
    pub fn up_to(newest: Level) -> Levels {
        Levels { oldest: Level::OLDEST, newest: newest.clamp(Level::OLDEST, Level::NEWEST) }
    }

    /// Whether a node that speaks these can be in a cluster of this level.
    pub fn contain(&self, level: Level) -> bool {
        (self.oldest..=self.newest).contains(&level)
    }
}

impl Default for Levels {
    fn default() -> Levels {
        Levels::up_to(Level::NEWEST)
    }
}

impl std::fmt::Display for Levels {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} to {}", self.oldest, self.newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_in_a_cluster_whose_level_it_speaks() {
        let level = |number| Level::new(number).unwrap();
        for (newest, of_cluster, want) in [
            (1, 1, true),
            (1, 2, false),
            (2, 1, true),
            (2, 2, true),
            (2, 3, false),
            (3, 3, true),
            (200, 3, true),
            (200, 4, false),
        ] {
            let levels = Levels::up_to(level(newest));
            assert_eq!(levels.contain(level(of_cluster)), want, "{newest} in a cluster of {of_cluster}");
        }
        assert_eq!((Level::new(0), level(255).next()), (None, level(255)));
        assert!(level(3).is_known() && !level(4).is_known());
    }
}
