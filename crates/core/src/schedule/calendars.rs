//! Calendars: one for each era of the wall clock, so that a jump moves no job. Mostly all jobs are
//! in one.
//!
//! Which era a job is of is known to this run alone: to the log and to snapshots they are one
//! calendar.

use bytes::Bytes;
use postroad_model::Due;

use super::{Calendar, Job, WrittenPage};
use crate::clock::{ERAS, Era};
use crate::log::record::RecordError;

/// A page as a snapshot has it: see [`Calendar::pages`].
type Page = (Bytes, Vec<(Due, Job)>);

/// See the head of this file.
pub struct Calendars {
    by_era: [Calendar; ERAS],
    current: Era,
}

impl Calendars {
    /// Empty ones with pages of at most this many jobs.
    pub fn new(page_jobs: usize) -> Calendars {
        Calendars { by_era: std::array::from_fn(|_| Calendar::new(page_jobs)), current: Era::default() }
    }

    /// The maximum of a page.
    pub fn page_jobs(&self) -> usize {
        self.by_era[0].page_jobs()
    }

    /// How many jobs there are.
    pub fn len(&self) -> usize {
        self.by_era.iter().map(Calendar::len).sum()
    }

    /// The calendar of that era.
    pub fn of(&self, era: Era) -> &Calendar {
        &self.by_era[era.index()]
    }

    /// Later jobs are of this era.
    pub fn begin(&mut self, era: Era) {
        self.current = era;
    }

    /// The jobs that are due then or later, in order.
    pub fn from(&self, at_ms: u64) -> impl Iterator<Item = (Due, Job)> {
        let mut heads = self.by_era.each_ref().map(|calendar| calendar.from(at_ms).peekable());
        std::iter::from_fn(move || {
            let dues = heads.iter_mut().map(|jobs| jobs.peek().map(|(due, _)| *due));
            let dues: Vec<Option<Due>> = dues.collect();
            let (first, _) =
                dues.iter().enumerate().filter(|(_, due)| due.is_some()).min_by_key(|(_, due)| **due)?;
            heads[first].next()
        })
    }

    /// All jobs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Due, Job)> {
        self.from(0)
    }

    /// Takes a job in that is not here and became known now.
    pub fn insert(&mut self, due: Due, job: Job) {
        self.insert_in(self.current, due, job);
    }

    /// Takes a job in that is not here, of that era.
    pub fn insert_in(&mut self, era: Era, due: Due, job: Job) {
        self.by_era[era.index()].insert(due, job);
    }

    /// Takes a job out, with its era.
    pub fn remove(&mut self, due: Due) -> Option<(Job, Era)> {
        let current = std::iter::once(self.current);
        let mut eras = current.chain(Era::all().filter(|era| *era != self.current));
        eras.find_map(|era| Some((self.by_era[era.index()].remove(due)?, era)))
    }

    /// Takes all of these out, which are in order; `false`, and none, if one of them is not here.
    pub fn extract(&mut self, jobs: &[(Due, Job)]) -> bool {
        let mut used = self.by_era.iter_mut().filter(|calendar| calendar.len() > 0);
        if let (Some(only), None) = (used.next(), used.next()) {
            return only.extract(jobs);
        }
        let mut taken = Vec::with_capacity(jobs.len());
        for (due, job) in jobs {
            let found = self.remove(*due);
            taken.extend(found.map(|(job, era)| (era, *due, job)));
            if found.is_none_or(|(found, _)| found != *job) {
                taken.into_iter().for_each(|(era, due, job)| self.insert_in(era, due, job));
                return false;
            }
        }
        true
    }

    /// See [`Calendar::last_before`].
    pub fn last_before(
        &self,
        before: Option<Due>,
        count: usize,
        wanted: impl Fn(Due) -> bool,
    ) -> Vec<(Due, Job)> {
        let last = self.by_era.iter().map(|calendar| calendar.last_before(before, count, &wanted));
        let mut last: Vec<(Due, Job)> = last.flatten().collect();
        last.sort_unstable_by_key(|(due, _)| *due);
        last.split_off(last.len().saturating_sub(count))
    }

    /// See [`Calendar::has_before`]; with several eras fewer may be found.
    pub fn has_before(&self, due: Due, count: usize) -> bool {
        self.by_era.iter().any(|calendar| calendar.has_before(due, count))
    }

    /// For a snapshot: see [`Calendar::pages`].
    pub fn pages(&self) -> Vec<Page> {
        let written =
            |calendar: &Calendar| calendar.pages().map(|(packed, jobs)| (packed.clone(), jobs)).collect();
        let mut used = self.by_era.iter().filter(|calendar| calendar.len() > 0);
        match (used.next(), used.next()) {
            (None, _) => Vec::new(),
            (Some(only), None) => written(only),
            _ => {
                let mut all = Calendar::new(self.page_jobs());
                self.iter().for_each(|(due, job)| all.insert(due, job));
                written(&all)
            }
        }
    }

    /// As a snapshot has it.
    ///
    /// # Errors
    /// See [`Calendar::restore`].
    pub fn restore(&mut self, pages: Vec<WrittenPage>) -> Result<(), RecordError> {
        let page_jobs = self.page_jobs();
        self.by_era[self.current.index()] = Calendar::restore(page_jobs, pages)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::Position;

    use super::*;

    fn job(number: u64) -> (Due, Job) {
        let due = Due { at_ms: 10 * number, position: Position::new(number).expect("from 1"), ordinal: 0 };
        (due, Job { bytes: number as u32, name: number })
    }

    /// Jobs 1 to 9, in turn of one era and of another.
    fn in_two_eras() -> Calendars {
        let mut calendars = Calendars::new(2);
        for number in 1..10 {
            let era = Era::all().nth(number as usize % 2).expect("there are four");
            let (due, job) = job(number);
            calendars.insert_in(era, due, job);
        }
        calendars
    }

    #[test]
    fn several_eras_are_one_calendar_to_the_log() {
        let mut calendars = in_two_eras();
        let all: Vec<_> = (1..10).map(job).collect();
        assert_eq!(calendars.iter().collect::<Vec<_>>(), all);
        assert_eq!(calendars.from(45).collect::<Vec<_>>(), all[4..]);
        assert_eq!(calendars.last_before(None, 3, |_| true), all[6..]);
        assert_eq!(calendars.last_before(Some(all[6].0), 2, |_| true), all[4..6]);
        let mut restored = Calendars::new(2);
        let pages = calendars.pages().into_iter().map(|(packed, jobs)| (packed.to_vec().into(), jobs));
        restored.restore(pages.collect()).expect("its own pages");
        assert_eq!(restored.iter().collect::<Vec<_>>(), all);

        let absent = [all[1], all[2], job(30)];
        assert!(!calendars.extract(&absent), "one of them is not here");
        assert_eq!(calendars.iter().collect::<Vec<_>>(), all, "so none of them leaves");
        assert!(calendars.extract(&all[2..5]));
        assert_eq!(calendars.len(), 6);
        assert_eq!(calendars.remove(all[0].0).map(|(job, era)| (job.name, era.index())), Some((1, 1)));
        assert_eq!(calendars.remove(all[0].0), None);
    }
}
