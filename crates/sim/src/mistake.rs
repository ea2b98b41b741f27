//! Wrong explanations, on purpose: the check of explanations must find each of them.

use postroad_model::{Verdict, VerdictRow};

/// See the head of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Pauses are left out.
    NoPause,
    /// A message that an open transaction will settle is reported as just held.
    NoTransaction,
    /// A consumer whose selector does not match is said to have no credit.
    CreditForSelector,
    /// A consumer that does not get the message's group is said to have no credit.
    CreditForGroup,
    /// Consumers beside an exclusive one are said to take the message.
    NoExclusive,
    /// The holder of a message has no name.
    NoName,
    /// A message that waits for its redelivery is said to be ready.
    NoRest,
}

impl Mistake {
    /// All of them.
    pub const ALL: [Mistake; 7] = [
        Mistake::NoPause,
        Mistake::NoTransaction,
        Mistake::CreditForSelector,
        Mistake::CreditForGroup,
        Mistake::NoExclusive,
        Mistake::NoName,
        Mistake::NoRest,
    ];

    /// The explanation with the mistake in it.
    pub fn make(self, rows: &mut Vec<VerdictRow>) {
        rows.retain(|row| self != Mistake::NoPause || row.verdict != Verdict::Paused);
        rows.iter_mut().for_each(|row| self.change(&mut row.verdict));
    }

    fn change(self, verdict: &mut Verdict) {
        let credit = || Verdict::NoCredit { held: 0, in_transaction: false, for_ms: 0 };
        match (self, &mut *verdict) {
            (Mistake::NoTransaction, Verdict::Held { in_transaction, .. }) => *in_transaction = false,
            (Mistake::NoTransaction, Verdict::NoCredit { in_transaction, .. }) => *in_transaction = false,
            (Mistake::CreditForSelector, Verdict::Selector { .. })
            | (Mistake::CreditForGroup, Verdict::Group { .. }) => *verdict = credit(),
            (Mistake::NoExclusive, Verdict::NotExclusive { .. }) => *verdict = Verdict::Takes,
            (Mistake::NoName, Verdict::Held { by, .. }) => *by = "".into(),
            (Mistake::NoRest, Verdict::Resting { .. }) => *verdict = Verdict::Ready,
            _ => {}
        }
    }
}
