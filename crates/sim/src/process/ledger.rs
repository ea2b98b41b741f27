//! The judge of a process: one account for each copy of each message.

use std::collections::BTreeMap;

/// One copy: the number of the message, and the queue that it is in.
pub type Copy = (u64, usize);

/// Of one copy.
#[derive(Default)]
struct Account {
    /// Its producer, whose numbers only grow.
    producer: u64,
    /// The send was confirmed.
    is_confirmed: bool,
    /// It was delivered at least once.
    was_delivered: bool,
    /// The consumer that has it.
    holder: Option<u64>,
    /// A settlement was asked for; whether it was carried out may never be known.
    settling: bool,
    /// A settlement failed, or was in doubt when the process ended: it comes again, once after
    /// later ones that the consumer has.
    came_back: bool,
    /// The settlement was confirmed.
    is_settled: bool,
    /// The transaction in which it is sent.
    sent_in: Option<u64>,
    /// Whether that was committed may never be known: it may come after later ones.
    is_late: bool,
    /// The last transaction to be committed in which it is settled.
    settled_in: Option<u64>,
}

/// Of one transaction.
#[derive(Default)]
struct Transaction {
    /// Its messages.
    sent: Vec<u64>,
    /// The copies that it settles.
    settled: Vec<Copy>,
    /// Its commit was asked for.
    is_committing: bool,
    /// That was answered.
    is_answered: bool,
    /// A part of it was refused: it must not be committed.
    is_refused: bool,
    /// A copy that it settles came again after its commit was asked for: it was not committed.
    is_undone: bool,
}

/// See the head of this file.
#[derive(Default)]
pub struct Ledger {
    accounts: BTreeMap<Copy, Account>,
    /// The last number of each producer, by consumer.
    order: BTreeMap<(u64, u64), u64>,
    transactions: BTreeMap<u64, Transaction>,
    last_number: u64,
    last_transaction: u64,
    last_consumer: u64,
    /// The first broken promise.
    pub broken: Option<String>,
    /// Confirmed sends.
    pub confirmed: u64,
    /// Confirmed settlements.
    pub settled: u64,
    /// Deliveries checked.
    pub delivered: u64,
    /// Confirmed commits.
    pub committed: u64,
    /// Confirmed rollbacks.
    pub rolled_back: u64,
    /// Queues that began to move.
    pub moves: u64,
}

impl Ledger {
    /// The number of a message that is sent to these queues now.
    pub fn sending(&mut self, producer: u64, queues: &[usize]) -> u64 {
        self.last_number += 1;
        for queue in queues {
            let account = Account { producer, ..Account::default() };
            self.accounts.insert((self.last_number, *queue), account);
        }
        self.last_number
    }

    /// A transaction begins.
    pub fn begins(&mut self) -> u64 {
        self.last_transaction += 1;
        self.transactions.insert(self.last_transaction, Transaction::default());
        self.last_transaction
    }

    fn transaction(&mut self, transaction: u64) -> &mut Transaction {
        self.transactions.entry(transaction).or_default()
    }

    /// The number of a message that is sent to these queues in a transaction now.
    pub fn sending_in(&mut self, transaction: u64, producer: u64, queues: &[usize]) -> u64 {
        let number = self.sending(producer, queues);
        let copies = self.accounts.range_mut((number, 0)..=(number, usize::MAX));
        copies.for_each(|(_, account)| account.sent_in = Some(transaction));
        self.transaction(transaction).sent.push(number);
        number
    }

    /// A part of the transaction was refused.
    pub fn refused_in(&mut self, transaction: u64) {
        self.transaction(transaction).is_refused = true;
    }

    /// The transaction is to be committed, with the settlements of these copies.
    pub fn committing(&mut self, transaction: u64, settled: &[Copy]) {
        for copy in settled {
            let account = self.accounts.entry(*copy).or_default();
            (account.settling, account.settled_in) = (true, Some(transaction));
        }
        let own = self.transaction(transaction);
        own.is_committing = true;
        own.settled.extend_from_slice(settled);
    }

    /// The commit is durable.
    pub fn committed(&mut self, transaction: u64) {
        self.committed += 1;
        self.transaction(transaction).is_answered = true;
        let Transaction { sent, settled, is_refused, .. } = self.transactions.entry(transaction).or_default();
        let (sent, settled, is_refused) = (sent.clone(), settled.clone(), *is_refused);
        if is_refused {
            self.breaks(format!("transaction {transaction} was committed, and a part of it refused"));
        }
        sent.into_iter().for_each(|number| self.confirmed(number));
        settled.into_iter().for_each(|copy| self.settled(copy));
    }

    /// The commit was refused. Whether it was carried out may never be known.
    pub fn in_doubt(&mut self, transaction: u64) {
        self.transaction(transaction).is_answered = true;
        for number in self.transaction(transaction).sent.clone() {
            let copies = self.accounts.range_mut((number, 0)..=(number, usize::MAX));
            copies.for_each(|(_, account)| account.is_late = true);
        }
    }

    /// The broker has it.
    pub fn confirmed(&mut self, number: u64) {
        self.confirmed += 1;
        let copies = self.accounts.range_mut((number, 0)..=(number, usize::MAX));
        copies.for_each(|(_, account)| account.is_confirmed = true);
    }

    /// A consumer begins.
    pub fn attached(&mut self) -> u64 {
        self.last_consumer += 1;
        self.last_consumer
    }

    /// A consumer ends: its deliveries go back.
    pub fn detached(&mut self, consumer: u64) {
        for account in self.accounts.values_mut().filter(|account| account.holder == Some(consumer)) {
            account.holder = None;
        }
    }

    /// The process has ended, with all consumers.
    pub fn crashed(&mut self) {
        self.accounts.values_mut().for_each(|account| account.holder = None);
        // Entries of a prepared transaction stand aside until it is decided after the start, and
        // later ones go ahead.
        let in_doubt = self.transactions.values().filter(|own| own.is_committing && !own.is_answered);
        for copy in in_doubt.flat_map(|own| &own.settled) {
            self.accounts.entry(*copy).or_default().came_back = true;
        }
    }

    /// A consumer has got it. `is_alone`: no other reads this queue while it does, so all that it
    /// gets is in order.
    pub fn delivered(&mut self, copy: Copy, consumer: u64, is_alone: bool) {
        self.delivered += 1;
        let Some(account) = self.accounts.get_mut(&copy) else {
            return self.breaks(format!("{copy:?} was never sent"));
        };
        // A failed settlement gives it back before its consumer knows.
        let before = account.holder.replace(consumer).filter(|_| !account.settling);
        account.was_delivered = true;
        let (producer, is_settled) = (account.producer, account.is_settled);
        let is_in_order = is_alone && !std::mem::take(&mut account.came_back) && !account.is_late;
        let (sent_in, settled_in) = (account.sent_in, account.settled_in);
        if let Some(transaction) = settled_in {
            self.transaction(transaction).is_undone = true;
        }
        if let Some(transaction) = sent_in
            && !self.transaction(transaction).is_committing
        {
            self.breaks(format!("{copy:?} came without the commit of transaction {transaction}"));
        }
        if is_settled {
            self.breaks(format!("{copy:?} came again after its settlement was confirmed"));
        }
        if let Some(before) = before {
            self.breaks(format!("{copy:?} is with consumer {before}, and came to {consumer}"));
        }
        if is_in_order {
            let last = self.order.insert((consumer, producer), copy.0);
            if last.is_some_and(|last| copy.0 <= last) {
                self.breaks(format!("{copy:?} came to consumer {consumer} after {last:?}"));
            }
        }
    }

    /// A consumer asks for its settlement.
    pub fn settling(&mut self, copy: Copy) {
        self.accounts.entry(copy).or_default().settling = true;
    }

    /// The settlement failed: the broker delivers it again, unless it was carried out all the same.
    pub fn unsettled(&mut self, copy: Copy) {
        let account = self.accounts.entry(copy).or_default();
        (account.holder, account.came_back) = (None, true);
    }

    /// The settlement is durable.
    pub fn settled(&mut self, copy: Copy) {
        self.settled += 1;
        let account = self.accounts.entry(copy).or_default();
        (account.is_settled, account.holder) = (true, None);
    }

    /// All queues are empty: every message is accounted for, and was sent to all of its queues or
    /// none.
    pub fn ended(&mut self) {
        let mut there: BTreeMap<u64, bool> = BTreeMap::new();
        let mut broken = None;
        for (copy, account) in &self.accounts {
            let is_there = account.was_delivered;
            if account.is_confirmed && !(account.is_settled || account.settling) {
                broken = Some(format!("{copy:?} was confirmed, and is lost"));
            }
            if *there.entry(copy.0).or_insert(is_there) != is_there {
                broken = Some(format!("message {} is in some of its queues only", copy.0));
            }
        }
        for (number, transaction) in &self.transactions {
            let mut sent = transaction.sent.iter().filter_map(|number| there.get(number));
            let (is_any, is_all) = (sent.clone().any(|there| *there), sent.all(|there| *there));
            if is_any && (!is_all || transaction.is_undone) {
                broken = Some(format!("transaction {number} was carried out in part"));
            }
        }
        broken.into_iter().for_each(|what| self.breaks(what));
    }

    fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_promises_are_found() {
        type Run = fn(&mut Ledger);
        let cases: [(&str, Run, Option<&str>); 17] = [
            ("a message's whole life", |_| (), None),
            ("unknown", |ledger| ledger.delivered((9, 0), 1, false), Some("(9, 0) was never sent")),
            ("lost", |ledger| ledger.confirmed(2), Some("(2, 0) was confirmed, and is lost")),
            (
                "again",
                |ledger| ledger.delivered((1, 0), 2, false),
                Some("(1, 0) came again after its settlement was confirmed"),
            ),
            (
                "to two consumers",
                |ledger| (1..3).for_each(|consumer| ledger.delivered((2, 0), consumer, false)),
                Some("(2, 0) is with consumer 1, and came to 2"),
            ),
            (
                "again after the first consumer ended",
                |ledger| {
                    ledger.delivered((2, 0), 1, false);
                    ledger.detached(1);
                    ledger.delivered((2, 0), 2, false);
                },
                None,
            ),
            (
                "out of order",
                |ledger| {
                    ledger.delivered((3, 0), 1, true);
                    ledger.delivered((2, 0), 1, true);
                },
                Some("(2, 0) came to consumer 1 after Some(3)"),
            ),
            (
                "a transaction, whole",
                |ledger| {
                    let of = ledger.begins();
                    let sent = [ledger.sending_in(of, 2, &[0]), ledger.sending_in(of, 2, &[1])];
                    ledger.delivered((2, 0), 1, false);
                    ledger.committing(of, &[(2, 0)]);
                    ledger.committed(of);
                    ledger.delivered((sent[0], 0), 1, true);
                    ledger.delivered((sent[1], 1), 1, true);
                    sent.iter().zip(0..).for_each(|(number, queue)| ledger.settling((*number, queue)));
                },
                None,
            ),
            (
                "a message without the commit of its transaction",
                |ledger| {
                    let of = ledger.begins();
                    let number = ledger.sending_in(of, 2, &[0]);
                    ledger.delivered((number, 0), 1, false);
                },
                Some("(4, 0) came without the commit of transaction 1"),
            ),
            (
                "one message of two of a transaction",
                |ledger| {
                    let of = ledger.begins();
                    let number = ledger.sending_in(of, 2, &[0]);
                    ledger.sending_in(of, 2, &[0]);
                    ledger.committing(of, &[]);
                    ledger.delivered((number, 0), 1, false);
                },
                Some("transaction 1 was carried out in part"),
            ),
            (
                "a message of a transaction, without its settlement",
                |ledger| {
                    let of = ledger.begins();
                    let number = ledger.sending_in(of, 2, &[0]);
                    ledger.delivered((2, 0), 1, false);
                    ledger.committing(of, &[(2, 0)]);
                    ledger.crashed();
                    ledger.delivered((2, 0), 2, false);
                    ledger.delivered((number, 0), 2, false);
                },
                Some("transaction 1 was carried out in part"),
            ),
            (
                "a commit of a transaction that was refused in part",
                |ledger| {
                    let of = ledger.begins();
                    ledger.refused_in(of);
                    ledger.committing(of, &[]);
                    ledger.committed(of);
                },
                Some("transaction 1 was committed, and a part of it refused"),
            ),
            (
                "a commit in doubt, late",
                |ledger| {
                    let of = ledger.begins();
                    let number = ledger.sending_in(of, 1, &[0]);
                    ledger.committing(of, &[]);
                    ledger.in_doubt(of);
                    let last = ledger.sending(1, &[0]);
                    ledger.delivered((last, 0), 1, true);
                    ledger.delivered((number, 0), 1, true);
                },
                None,
            ),
            (
                "a settlement in doubt at a crash, late",
                |ledger| {
                    let of = ledger.begins();
                    ledger.delivered((2, 0), 1, true);
                    ledger.committing(of, &[(2, 0)]);
                    ledger.crashed();
                    ledger.delivered((3, 0), 2, true);
                    ledger.delivered((2, 0), 2, true);
                    ledger.delivered((3, 1), 3, true);
                },
                None,
            ),
            (
                "a settlement in doubt without a crash, late",
                |ledger| {
                    let of = ledger.begins();
                    ledger.delivered((2, 0), 1, true);
                    ledger.committing(of, &[(2, 0)]);
                    ledger.detached(1);
                    ledger.delivered((3, 0), 2, true);
                    ledger.delivered((2, 0), 2, true);
                },
                Some("(2, 0) came to consumer 2 after Some(3)"),
            ),
            (
                "late once more",
                |ledger| {
                    let of = ledger.begins();
                    ledger.delivered((2, 0), 1, true);
                    ledger.committing(of, &[(2, 0)]);
                    ledger.crashed();
                    ledger.delivered((2, 0), 2, true);
                    ledger.detached(2);
                    ledger.delivered((3, 0), 3, true);
                    ledger.delivered((2, 0), 3, true);
                },
                Some("(2, 0) came to consumer 3 after Some(3)"),
            ),
            (
                "in one queue of two",
                |ledger| ledger.delivered((3, 0), 1, false),
                Some("message 3 is in some of its queues only"),
            ),
        ];
        for (name, run, want) in cases {
            let mut ledger = Ledger::default();
            ledger.sending(1, &[0]);
            ledger.confirmed(1);
            ledger.delivered((1, 0), 1, false);
            ledger.settling((1, 0));
            ledger.settled((1, 0));
            ledger.sending(1, &[0]);
            ledger.sending(1, &[0, 1]);
            run(&mut ledger);
            ledger.ended();
            assert_eq!(ledger.broken.as_deref(), want, "case: {name}");
        }
    }
}
