//! Faults of the disk, and the ends of a broker's run: the machine or the process, in any phase.

use postroad_journal::{Fault, Operation};

use crate::assembly::{Assembly, BootError};
use crate::phase::Phase;

use super::{Checked, SLOTS, Simulation};

/// Starts after which the broker should be up, for the disk is well from the second one.
const STARTS_MAX: u32 = 100;

/// In one of this many compactions the broker ends...
const DEADLY_COMPACTIONS: u64 = 2;

/// ... and of checkpoints...
const DEADLY_CHECKPOINTS: u64 = 8;

/// ... and of other jobs.
const DEADLY_JOBS: u64 = 25;

impl Simulation {
    /// A job is done, or the broker ends in the middle of it.
    pub(super) fn job_step(&mut self, choice: u64) -> Checked {
        let phase = self.assembly.next_job(choice);
        let rarity = match phase {
            // A run has few of them.
            Some(Phase::Compaction) => DEADLY_COMPACTIONS,
            Some(Phase::Checkpoint) => DEADLY_CHECKPOINTS,
            _ => DEADLY_JOBS,
        };
        if self.random.one_in(rarity) {
            self.plan_death();
        }
        self.assembly.run_job(choice);
        if !self.disk.is_dead() {
            self.disk.clear_death();
            return Ok(());
        }
        phase.into_iter().for_each(|phase| self.report.ends.note(phase));
        self.crash()
    }

    /// The journal comes to rest, as it does without writes.
    pub(super) fn seal(&mut self) {
        if self.assembly.writer.wants_seal() {
            self.assembly.writer.seal();
        }
        if !self.assembly.writer.has_unsynced() {
            self.oracle.synced();
        }
    }

    /// The disk does nothing more from one of its next operations on, mostly the very next ones.
    fn plan_death(&mut self) {
        let most = 1 << (1 + self.random.below(6));
        self.disk.fail(Operation::Any, self.random.below(most), Fault::Dead);
    }

    /// The disk dies while the journal writes.
    fn die(&mut self, phase: Phase) {
        self.disk.fail(Operation::Any, self.random.below(3), Fault::Dead);
        match phase {
            Phase::Seal => drop(self.assembly.writer.seal()),
            _ => drop(self.assembly.write()),
        }
        match self.disk.is_dead() {
            true => self.report.ends.note(phase),
            false => self.disk.clear_death(),
        }
    }

    /// The machine or the process ends; `true` for the machine.
    fn end_again(&mut self) -> bool {
        let cut = self.random.one_in(2);
        match cut {
            true => self.disk.crash(),
            false => self.disk.restart(),
        }
        cut
    }

    pub(super) fn plan_fault(&mut self) {
        match self.random.below(12) {
            0 => {
                let used = self.disk.used_bytes();
                self.disk.set_capacity(Some(used + self.random.below(20_000)));
            }
            1..5 => self.disk.set_capacity(None),
            5..7 => self.disk.clear_faults(),
            _ => {
                self.report.faults += 1;
                let operation = *self.random.pick(&Operation::DRAWN).unwrap_or(&Operation::Sync);
                let fault = operation.fault(self.random.one_in(2));
                self.disk.fail(operation, self.random.below(8), fault);
            }
        }
    }

    /// The machine or the process ends, perhaps in a write; then the broker starts again, perhaps
    /// several times.
    pub(super) fn crash(&mut self) -> Checked {
        self.check_counts()?;
        self.dropped = self.dropped();
        if self.rotations.are_outdated(self.assembly.writer.bytes_by_key().into_keys()) {
            self.report.ends.note(Phase::Rotation);
        }
        match self.random.below(6) {
            _ if self.disk.is_dead() => {}
            0 => {
                let operation = if self.random.one_in(2) { Operation::Write } else { Operation::Sync };
                self.disk.fail(operation, 0, Fault::Broken);
                self.assembly.write();
            }
            1 => self.die(Phase::Append),
            2 => self.die(Phase::Seal),
            _ => {}
        }
        self.report_work();
        // A start has synced the data that it has found.
        let (mut cut, mut started) = (false, false);
        loop {
            let power_cut = !self.random.one_in(3);
            self.report.crashes += 1;
            self.trace(|| format!("crash, power cut: {power_cut}"));
            match power_cut {
                true => self.disk.crash(),
                false => self.disk.restart(),
            }
            self.disk.clear_faults();
            match self.random.below(4) {
                0 if self.faulty => self.plan_fault(),
                1 => self.plan_death(),
                _ => {}
            }
            let cut_again = self.boot()?;
            cut |= !started && (power_cut || cut_again);
            started = true;
            if !self.random.one_in(3) {
                break;
            }
        }
        self.lines.clear();
        self.clients.iter_mut().for_each(|client| *client = None);
        self.oracle.crashed(cut);
        self.started()
    }

    /// The running broker's work beside the view of clients.
    pub(super) fn report_work(&mut self) {
        self.report.compactions += self.assembly.compactions;
        for counters in self.assembly.cores.iter().map(|core| core.partition.counters()) {
            self.report.pages.packed += counters.packed_pages;
            self.report.pages.opened += counters.opened_pages;
            self.report.replaced += counters.replaced;
            self.report.slow += counters.slow_consumers;
            self.report.timed_out += counters.timed_out_transactions;
            self.report.moved += counters.moved;
        }
    }

    /// Starts the broker; `true` if the machine ended again while it tried.
    pub(super) fn boot(&mut self) -> Result<bool, String> {
        let mut cut = false;
        // Another build may make pages of another size.
        let page_entries = self.random.one_in(3).then(|| 1 << self.random.below(4));
        for own in &mut self.settings {
            own.incarnation += 1;
            own.page_entries = page_entries.unwrap_or(own.page_entries);
        }
        if self.rotations.possible() && self.random.one_in(2) {
            self.rotations.rotate();
            self.report.rotations += 1;
        }
        for _ in 0..STARTS_MAX {
            let keys = self.rotations.keys();
            let booted = Assembly::boot(&self.disk, self.journal, keys, &self.settings, &self.usual);
            if self.disk.is_dead() {
                self.report.ends.note(Phase::Recovery);
                self.trace(|| "the disk dies at the start".to_owned());
                cut |= self.end_again();
                continue;
            }
            self.disk.clear_death();
            match booted {
                Ok(assembly) => {
                    self.assembly = assembly;
                    self.places = vec![self.assembly.cores[0].places.clone(); SLOTS];
                    return Ok(cut);
                }
                Err(BootError::Damaged(what)) => return Err(what),
                Err(BootError::Disk(what)) => {
                    self.trace(|| format!("does not start: {what}"));
                    self.disk.clear_faults();
                    self.disk.set_capacity(None);
                    if self.random.one_in(2) {
                        self.disk.crash();
                        cut = true;
                    }
                }
            }
        }
        Err("the broker does not start, though the disk is well again".to_owned())
    }
}
