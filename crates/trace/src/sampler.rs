//! Which messages are traced: those that their senders trace, and a share of the others, up to a
//! rate.

use crate::context::TraceContext;
use crate::point::TraceTime;

/// How many messages are traced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The share of messages without a trace context, from 0 to 1.
    pub ratio: f64,
    /// Messages in a second at most, whatever asks for their traces.
    pub per_second: u32,
}

/// Whether a message is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Traced,
    /// Neither its sender nor the share asks for it.
    NotAsked,
    /// More messages are to be traced than the rate allows.
    OverRate,
}

/// See the head of this file. Random numbers come from a seed, so that a run can be repeated.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: u64,
    /// The second that is counted, and the messages in it.
    second: u64,
    in_second: u32,
}

impl Sampler {
    /// A sampler whose random numbers come from this seed.
    pub fn new(sampling: Sampling, seed: u64) -> Sampler {
        Sampler { sampling, random: seed, second: 0, in_second: 0 }
    }

    /// Whether a message with this context, or without one, is traced.
    pub fn judge(&mut self, context: Option<&TraceContext>, at: TraceTime) -> Verdict {
        let is_asked = match context {
            Some(context) => context.sampled,
            None => self.draws(),
        };
        match is_asked {
            false => Verdict::NotAsked,
            true if self.admits(at) => Verdict::Traced,
            true => Verdict::OverRate,
        }
    }

    /// A random number that is not zero: the id of a trace or a span.
    pub fn id(&mut self) -> u64 {
        loop {
            let id = self.next();
            if id != 0 {
                return id;
            }
        }
    }

    fn draws(&mut self) -> bool {
        // 53 bits: as many as a double has.
        let drawn = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        drawn < self.sampling.ratio
    }

    fn admits(&mut self, at: TraceTime) -> bool {
        let second = at.0 / 1_000_000;
        if second != self.second {
            (self.second, self.in_second) = (second, 0);
        }
        let admits = self.in_second < self.sampling.per_second;
        self.in_second += u32::from(admits);
        admits
    }

    /// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(sampled: bool) -> TraceContext {
        TraceContext { trace_id: 1, parent_id: 2, sampled, state: None }
    }

    #[test]
    fn senders_decide_for_their_messages_and_the_share_for_others() {
        for (name, ratio, of, want) in [
            ("sampled by its sender", 0.0, Some(context(true)), 1000),
            ("not sampled by its sender", 1.0, Some(context(false)), 0),
            ("none without context", 0.0, None, 0),
            ("all without context", 1.0, None, 1000),
        ] {
            let mut sampler = Sampler::new(Sampling { ratio, per_second: 1000 }, 7);
            let traced = |_: &u32| sampler.judge(of.as_ref(), TraceTime(0)) == Verdict::Traced;
            assert_eq!((0..1000).filter(traced).count(), want, "case: {name}");
        }
    }

    #[test]
    fn the_share_is_kept_within_chance() {
        let mut sampler = Sampler::new(Sampling { ratio: 0.1, per_second: u32::MAX }, 7);
        let traced = |_: &u32| sampler.judge(None, TraceTime(0)) == Verdict::Traced;
        let count = (0..100_000).filter(traced).count();
        // Four standard deviations, of 95 each.
        assert!((9620..=10_380).contains(&count), "{count}");
    }

    #[test]
    fn no_more_are_traced_in_a_second_than_the_rate_allows() {
        let mut sampler = Sampler::new(Sampling { ratio: 0.0, per_second: 2 }, 7);
        let mut judge = |ms: u64| sampler.judge(Some(&context(true)), TraceTime(ms * 1000));
        for (ms, want) in [
            (1000, Verdict::Traced),
            (1500, Verdict::Traced),
            (1999, Verdict::OverRate),
            (2000, Verdict::Traced),
            (2001, Verdict::Traced),
            (2002, Verdict::OverRate),
        ] {
            assert_eq!(judge(ms), want, "at {ms} ms");
        }
    }
}
