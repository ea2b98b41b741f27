//! The experiments: which points each of them measures.

use serde::Serialize;

/// Subscribers whose filters have many terms: enough of them that the terms show in the cost.
const COMPLEX_FILTERS: u32 = 100;

/// One series of measurements in which one thing varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Experiment {
    /// 1 to 160 publishers, one subscriber.
    Publishers,
    /// 1 to 320 subscribers without filters: the replication grade.
    Subscribers,
    /// 0 to 1,000 filters that do not match, then 10,000 and 100,000, beside one subscriber that
    /// gets everything.
    Filters,
    /// Filters that are an OR of 1 to 64 terms.
    Or,
    /// Filters that are an AND of 1 to 64 terms, of which the first does not match.
    AndFirst,
    /// As before; the middle one does not match.
    AndMiddle,
    /// As before; the last one does not match.
    AndLast,
    /// Replication grade by number of filters.
    Grid,
}

/// The form of the filters of subscribers that must not get the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Filter {
    /// `id = 'other-7'`.
    Equality,
    /// `id = 'other-7-0' OR id = 'other-7-1' OR …`.
    Or {
        /// How many terms.
        terms: u32,
    },
    /// `p0 = '0' AND p1 = '0' AND …`, one of which is another value.
    And {
        /// How many terms.
        terms: u32,
        /// Which one does not match.
        wrong: u32,
    },
}

/// One load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// The experiment.
    pub experiment: Experiment,
    /// Its variable.
    pub x: u32,
    /// Publishers, each with a connection of its own.
    pub publishers: u32,
    /// Subscribers that get every message.
    pub subscribers: u32,
    /// Subscribers that get none.
    pub filters: u32,
    /// The selection of those.
    pub filter: Filter,
}

impl Experiment {
    /// All of them, in the order of the paper.
    pub const ALL: [Experiment; 8] = [
        Experiment::Publishers,
        Experiment::Subscribers,
        Experiment::Filters,
        Experiment::Or,
        Experiment::AndFirst,
        Experiment::AndMiddle,
        Experiment::AndLast,
        Experiment::Grid,
    ];

    /// The name on the command line and of the files.
    pub fn name(self) -> &'static str {
        match self {
            Experiment::Publishers => "publishers",
            Experiment::Subscribers => "subscribers",
            Experiment::Filters => "filters",
            Experiment::Or => "or",
            Experiment::AndFirst => "and-first",
            Experiment::AndMiddle => "and-middle",
            Experiment::AndLast => "and-last",
            Experiment::Grid => "grid",
        }
    }

    /// The meaning of `x`.
    pub fn axis(self) -> &'static str {
        match self {
            Experiment::Publishers => "publishers",
            Experiment::Subscribers => "subscribers",
            Experiment::Filters | Experiment::Grid => "filters that do not match",
            Experiment::Or | Experiment::AndFirst | Experiment::AndMiddle | Experiment::AndLast => {
                "terms in each of 100 filters"
            }
        }
    }

    /// Its loads; no point has more than `filters_max` filters.
    pub fn points(self, filters_max: u32) -> Vec<Point> {
        let plain = Point {
            experiment: self,
            x: 0,
            publishers: 5,
            subscribers: 1,
            filters: 0,
            filter: Filter::Equality,
        };
        let complex = |x, filter| Point { x, filters: COMPLEX_FILTERS, filter, ..plain };
        let and = |wrong: fn(u32) -> u32| {
            let point = |terms| complex(terms, Filter::And { terms, wrong: wrong(terms) });
            TERMS.map(point).to_vec()
        };
        let points = match self {
            Experiment::Publishers => [1, 2, 5, 10, 20, 40, 80, 160]
                .map(|publishers| Point { x: publishers, publishers, ..plain })
                .to_vec(),
            Experiment::Subscribers => [1, 2, 5, 10, 20, 40, 80, 160, 320]
                .map(|subscribers| Point { x: subscribers, subscribers, ..plain })
                .to_vec(),
            Experiment::Filters => [0, 1, 10, 50, 100, 200, 500, 1_000, 10_000, 100_000]
                .map(|filters| Point { x: filters, filters, ..plain })
                .to_vec(),
            Experiment::Or => TERMS.map(|terms| complex(terms, Filter::Or { terms })).to_vec(),
            Experiment::AndFirst => and(|_| 0),
            Experiment::AndMiddle => and(|terms| terms / 2),
            Experiment::AndLast => and(|terms| terms - 1),
            Experiment::Grid => {
                let row = |subscribers| {
                    [0, 10, 100, 1_000].map(|filters| Point { x: filters, filters, subscribers, ..plain })
                };
                [1, 2, 5, 10].into_iter().flat_map(row).collect()
            }
        };
        points.into_iter().filter(|point| point.filters <= filters_max).collect()
    }
}

const TERMS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

impl Filter {
    /// The selector of the `number`th subscriber; no two are alike.
    pub fn selector(self, number: u32) -> String {
        let terms = |terms: u32, word: &str, each: &dyn Fn(u32) -> String| {
            (0..terms).map(each).collect::<Vec<_>>().join(word)
        };
        match self {
            Filter::Equality => format!("id = 'other-{number}'"),
            Filter::Or { terms: count } => {
                terms(count, " OR ", &|term| format!("id = 'other-{number}-{term}'"))
            }
            Filter::And { terms: count, wrong } => terms(count, " AND ", &|term| match term == wrong {
                true => format!("p{term} = 'other-{number}'"),
                false => format!("p{term} = '0'"),
            }),
        }
    }

    /// The properties that a message needs so that nothing but the wrong term keeps it out.
    pub fn properties(self) -> Vec<String> {
        match self {
            Filter::Equality | Filter::Or { .. } => vec!["id".to_owned()],
            Filter::And { terms, .. } => (0..terms).map(|term| format!("p{term}")).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_differ_and_have_their_terms() {
        for (case, filter, want) in [
            ("equality", Filter::Equality, "id = 'other-7'"),
            ("or", Filter::Or { terms: 2 }, "id = 'other-7-0' OR id = 'other-7-1'"),
            ("and, first", Filter::And { terms: 2, wrong: 0 }, "p0 = 'other-7' AND p1 = '0'"),
            ("and, last", Filter::And { terms: 2, wrong: 1 }, "p0 = '0' AND p1 = 'other-7'"),
        ] {
            assert_eq!(filter.selector(7), want, "case: {case}");
        }
    }

    #[test]
    fn the_limit_leaves_points_out() {
        let xs = |max| Experiment::Filters.points(max).iter().map(|point| point.x).collect::<Vec<_>>();
        assert_eq!(xs(50), [0, 1, 10, 50]);
        assert_eq!(xs(100_000).len(), 10);
        assert_eq!(Experiment::Grid.points(u32::MAX).len(), 16);
    }
}
