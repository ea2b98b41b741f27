//! Rules of branches: prepared, they wait for a decision, and for nothing else.

use postroad_model::{BranchId, Decision, Event, Refusal};

use super::{AT_ONCE, Ask, Checked, Fate, Number, Operation, Oracle};

/// How a branch may end. Asked to prepare it may be undone, prepared it may not, until a client
/// asks for an end.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub commit: bool,
    pub undo: bool,
    /// It was asked to prepare, and nothing is known of that.
    pub unprepared: bool,
    /// It is prepared.
    pub promised: bool,
    /// An operator has decided so, and that was confirmed.
    overruled: Option<bool>,
    /// A client has said to forget that.
    forgotten: bool,
}

impl Oracle {
    pub(super) fn asked_about_branch(&mut self, event: &Event) {
        match event {
            Event::EndBranch { branch, transaction, ticket, .. } => {
                let number = self.transaction(*transaction);
                self.branches.insert(branch.clone(), number);
                self.ask(transaction.connection, *ticket, Ask::Other);
            }
            Event::PrepareBranch { branch, connection, ticket } => {
                self.asked_of_branch(branch, (false, false));
                let number = self.branches.get(branch).copied().unwrap_or(AT_ONCE);
                if let Some(ends) = &mut self.operations[number].branch {
                    ends.unprepared = true;
                }
                self.ask(*connection, *ticket, Ask::Prepare(number));
            }
            Event::DecideBranch { branch, decision, connection, ticket } => {
                let number = self.branches.get(branch).copied().unwrap_or(AT_ONCE);
                let overruled = self.operations[number].branch.and_then(|ends| ends.overruled);
                let (ends, ask) = match decision {
                    Decision::Commit => ((true, false), Ask::Decide(number, true, overruled)),
                    Decision::CommitOnePhase => ((true, true), Ask::Operation(number)),
                    Decision::Rollback => ((false, true), Ask::Decide(number, false, overruled)),
                    Decision::Overrule { commit } => ((*commit, !commit), Ask::Overrule(number, *commit)),
                };
                self.asked_of_branch(branch, ends);
                self.ask(*connection, *ticket, ask);
            }
            Event::ForgetBranch { branch, connection, ticket } => {
                let number = self.branches.get(branch).copied().unwrap_or(AT_ONCE);
                if let Some(ends) = &mut self.operations[number].branch {
                    ends.forgotten = true;
                }
                self.ask(*connection, *ticket, Ask::Other);
            }
            Event::ListBranches { connection, ticket } => self.ask(*connection, *ticket, Ask::Other),
            _ => {}
        }
    }

    /// A client asks that a branch may end so: by a commit, or by being undone.
    fn asked_of_branch(&mut self, branch: &BranchId, (commit, undo): (bool, bool)) {
        let Some(operation) = self.branches.get(branch).map(|number| &mut self.operations[*number]) else {
            return;
        };
        let ends = operation.branch.get_or_insert(Ends {
            commit: false,
            undo: false,
            unprepared: false,
            promised: false,
            overruled: None,
            forgotten: false,
        });
        (ends.commit, ends.undo) = (ends.commit || commit, ends.undo || undo);
        if operation.fate == Fate::Open {
            operation.fate = Fate::Asked;
        }
    }

    /// A prepared branch cannot be undone before a client asks for that.
    pub(super) fn prepared(&mut self, number: Number, result: &Result<(), Refusal>) -> Checked {
        if result.is_err() {
            return self.resolve(number, false, || format!("the reply {result:?} to a preparation"));
        }
        let operation = &mut self.operations[number];
        if operation.doomed {
            return Err("a branch with a refused part was prepared".to_owned());
        }
        if let Some(ends) = &mut operation.branch {
            (ends.unprepared, ends.promised) = (false, true);
        }
        Ok(())
    }

    /// A manager's decision. Once an operator's was confirmed, the answer is that one, until it is
    /// forgotten.
    pub(super) fn decided(
        &mut self,
        number: Number,
        (commit, overruled): (bool, Option<bool>),
        result: &Result<(), Refusal>,
    ) -> Checked {
        let remembered = !self.operations[number].branch.is_some_and(|ends| ends.forgotten);
        if let Some(committed) = overruled.filter(|_| remembered)
            && *result != Err(Refusal::BranchOverruled { committed })
        {
            return Err(format!(
                "an operator had decided (commit: {committed}), and the answer is {result:?}"
            ));
        }
        let said = || format!("the reply {result:?} to a decision");
        match result {
            Ok(()) => {
                self.operations[number].answered = true;
                self.resolve(number, commit, said)
            }
            Err(Refusal::BranchOverruled { committed }) => self.resolve(number, *committed, said),
            Err(_) => Ok(()),
        }
    }

    /// An operator's decision.
    pub(super) fn overruled(
        &mut self,
        number: Number,
        commit: bool,
        result: &Result<(), Refusal>,
    ) -> Checked {
        if let (Ok(()), Some(ends)) = (result, &mut self.operations[number].branch) {
            ends.overruled = Some(commit);
        }
        self.decided(number, (commit, None), result)
    }

    /// A client has decided every branch that was in doubt: there is no other.
    ///
    /// # Errors
    /// A branch that was promised is forgotten.
    pub fn check_decided(&self) -> Checked {
        // A decided one may have ended so, though a crash took the answer.
        let waits = |ends: Ends| ends.promised && !ends.commit && !ends.undo;
        let forgotten =
            |operation: &&Operation| operation.fate == Fate::Asked && operation.branch.is_some_and(waits);
        match self.operations.iter().find(forgotten) {
            Some(operation) => Err(format!("a prepared branch is forgotten: {:?}", operation.settles)),
            None => Ok(()),
        }
    }
}
