//! Replies: the actions of a session after the core's answers.

use rustc_hash::FxHashMap;

use crate::{Refusal, Ticket};

/// Questions of one conversation that may wait for the core. No more input is taken then until
/// answers have come; sends alone are held back earlier.
const WAITING_MAX: usize = 16_384;

/// The pending requests of one connection, each with its continuation: a `T` of its protocol.
#[derive(Debug)]
pub struct Replies<T> {
    last: u64,
    waiting: FxHashMap<Ticket, Waiting<T>>,
}

#[derive(Debug)]
struct Waiting<T> {
    /// Answers that are outstanding.
    missing: u32,
    refusal: Option<Refusal>,
    then: T,
}

impl<T> Default for Replies<T> {
    fn default() -> Replies<T> {
        Replies { last: 0, waiting: FxHashMap::default() }
    }
}

impl<T> Replies<T> {
    /// A ticket for `answers` questions that belong together.
    pub fn wait(&mut self, answers: u32, then: T) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        self.waiting.insert(ticket, Waiting { missing: answers, refusal: None, then });
        ticket
    }

    /// Says how many answers there will be; `false`, and forgotten, if none.
    pub fn expect(&mut self, ticket: Ticket, answers: u32) -> bool {
        if answers == 0 {
            self.waiting.remove(&ticket);
        } else if let Some(waiting) = self.waiting.get_mut(&ticket) {
            waiting.missing = answers;
        }
        answers > 0
    }

    /// The continuation of a pending request.
    pub fn then(&mut self, ticket: Ticket) -> Option<&mut T> {
        self.waiting.get_mut(&ticket).map(|waiting| &mut waiting.then)
    }

    /// Whether no question waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether another question may wait.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    /// One answer has come; after the last one, the continuation, with the first refusal among the
    /// answers.
    pub fn count(&mut self, ticket: Ticket, result: Result<(), Refusal>) -> Option<(T, Option<Refusal>)> {
        let waiting = self.waiting.get_mut(&ticket)?;
        if let Err(refusal) = result {
            waiting.refusal.get_or_insert(refusal);
        }
        waiting.missing = waiting.missing.saturating_sub(1);
        if waiting.missing > 0 {
            return None;
        }
        self.waiting.remove(&ticket).map(|waiting| (waiting.then, waiting.refusal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_comes_with_the_last_answer_and_the_first_refusal() {
        let mut replies = Replies::default();
        let ticket = replies.wait(3, "done");
        assert_eq!(replies.count(ticket, Err(Refusal::NoSuchBranch)), None);
        assert_eq!(replies.count(ticket, Err(Refusal::BranchClosed)), None);
        assert_eq!(replies.count(ticket, Ok(())), Some(("done", Some(Refusal::NoSuchBranch))));
        assert_eq!(replies.count(ticket, Ok(())), None, "it is forgotten");
    }

    #[test]
    fn a_question_without_answers_is_forgotten_and_room_has_a_bound() {
        let mut replies = Replies::default();
        let ticket = replies.wait(0, ());
        assert!(!replies.expect(ticket, 0));
        assert_eq!(replies.then(ticket), None);
        for _ in 0..WAITING_MAX {
            assert!(replies.has_room());
            replies.wait(1, ());
        }
        assert!(!replies.has_room());
    }
}
