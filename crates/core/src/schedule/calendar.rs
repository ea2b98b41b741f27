//! The calendar: jobs in the order in which they are due, most of them packed.
//!
//! ```text
//!  due      now ─────────────────────────────────────────────────────▶ later
//!  pages  [ open      | packed    | packed + a few that came later | open     ]
//! ```
//! Each page has a stretch of time to itself, and is *open*: a tree of jobs; or *packed*: columns
//! of bytes, with a small tree of jobs that came into its range since. Soon-due pages are open, and
//! so are a few pages that had to be: others are packed for them. Packing is known to this run
//! alone: no record depends on it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use postroad_model::{Due, Position};

use super::Job;
use super::packed::{PAGE_JOBS_MAX, PackedJobs};
use crate::log::columns::wrong;
use crate::log::record::RecordError;

/// Pages beside those that are due soon that may be open.
const OPEN_PAGES_MAX: usize = 4;

/// The beginning of all stretches.
const BEGINNING: Due = Due { at_ms: 0, position: Position::FIRST, ordinal: 0 };

/// A page of a snapshot: its packed part, empty if there is none, and the jobs beside it.
pub type WrittenPage = (Arc<[u8]>, Vec<(Due, Job)>);

/// Jobs by the time when they are due.
pub struct Calendar {
    /// By the beginning of its stretch, which ends where the next one begins. None is empty.
    pages: BTreeMap<Due, Page>,
    /// Pages that are open, in the order in which they were opened.
    open: VecDeque<Due>,
    len: usize,
    /// The maximum of a page before it becomes two; half of the soon-due jobs are open at least.
    page_jobs: usize,
}

/// See the head of this file.
#[derive(Default)]
struct Page {
    /// In order; empty if the page is open.
    packed: PackedJobs,
    /// All of an open page; of a packed one the later jobs.
    jobs: BTreeMap<Due, Job>,
}

impl Page {
    fn is_packed(&self) -> bool {
        self.packed.len() > 0
    }

    fn len(&self) -> usize {
        self.packed.len() + self.jobs.len()
    }

    fn open(&mut self) {
        self.jobs.extend(std::mem::take(&mut self.packed).jobs());
    }

    fn pack(&mut self) {
        self.packed = PackedJobs::of(std::mem::take(&mut self.jobs));
    }

    /// Its jobs, in order.
    fn iter(&self) -> Box<dyn Iterator<Item = (Due, Job)> + '_> {
        let later = self.jobs.iter().map(|(due, job)| (*due, *job));
        if !self.is_packed() {
            return Box::new(later);
        }
        let mut all = self.packed.jobs();
        all.extend(later);
        all.sort_unstable_by_key(|(due, _)| *due);
        Box::new(all.into_iter())
    }
}

impl Calendar {
    /// An empty one with pages of at most this many jobs.
    pub fn new(page_jobs: usize) -> Calendar {
        let page_jobs = page_jobs.clamp(2, PAGE_JOBS_MAX as usize);
        Calendar { pages: BTreeMap::new(), open: VecDeque::new(), len: 0, page_jobs }
    }

    /// The maximum of a page.
    pub fn page_jobs(&self) -> usize {
        self.page_jobs
    }

    /// How many jobs there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// All jobs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Due, Job)> {
        self.from(0)
    }

    /// The jobs that are due then or later, in order.
    pub fn from(&self, at_ms: u64) -> impl Iterator<Item = (Due, Job)> {
        let first = self.page_of(Due { at_ms, ..BEGINNING }).unwrap_or(BEGINNING);
        let jobs = self.pages.range(first..).flat_map(|(_, page)| page.iter());
        jobs.skip_while(move |(due, _)| due.at_ms < at_ms)
    }

    /// Where the stretch begins that has this time.
    fn page_of(&self, due: Due) -> Option<Due> {
        self.pages.range(..=due).next_back().map(|(begin, _)| *begin)
    }

    /// Adds a job that is not here yet; its record identifies it.
    pub fn insert(&mut self, due: Due, job: Job) {
        self.len += 1;
        let begin = self.page_of(due).unwrap_or_else(|| self.begin_page(BEGINNING));
        let (late_max, page_jobs) = (self.page_jobs / 8, self.page_jobs);
        let Some(page) = self.pages.get_mut(&begin) else { return };
        page.jobs.insert(due, job);
        if page.is_packed() && late_max < page.jobs.len() {
            page.open();
            self.open.push_back(begin);
        }
        if self.pages.get(&begin).is_some_and(|page| !page.is_packed() && page_jobs < page.len()) {
            self.split(begin);
        }
        self.tidy();
    }

    /// Takes a job out.
    pub fn remove(&mut self, due: Due) -> Option<Job> {
        let begin = self.page_of(due)?;
        let page = self.pages.get_mut(&begin)?;
        if page.is_packed() && !page.jobs.contains_key(&due) {
            page.open();
            self.open.push_back(begin);
        }
        let job = page.jobs.remove(&due);
        self.len -= usize::from(job.is_some());
        if page.len() == 0 {
            self.pages.remove(&begin);
            self.open.retain(|open| *open != begin);
        }
        self.tidy();
        job
    }

    /// Takes all of these out, which are in order; `false`, and none, if one of them is not here.
    pub fn extract(&mut self, jobs: &[(Due, Job)]) -> bool {
        let (Some((first, _)), Some((last, _))) = (jobs.first(), jobs.last()) else { return true };
        let begin = self.page_of(*first).unwrap_or(BEGINNING);
        let mut wanted = jobs.iter().peekable();
        let mut left = Vec::new();
        for (begin, page) in self.pages.range(begin..=*last) {
            let is_wanted = |found: &(Due, Job)| wanted.next_if(|wanted| **wanted == *found).is_some();
            let (out, stay): (Vec<_>, Vec<_>) = page.iter().partition(is_wanted);
            if !out.is_empty() {
                left.push((*begin, stay));
            }
        }
        if wanted.next().is_some() {
            return false;
        }
        for (begin, stay) in left {
            self.open.retain(|open| *open != begin);
            self.pages.remove(&begin);
            if !stay.is_empty() {
                let page = Page { packed: PackedJobs::default(), jobs: stay.into_iter().collect() };
                self.pages.insert(begin, page);
                self.open.push_back(begin);
            }
        }
        self.len -= jobs.len();
        self.tidy();
        true
    }

    /// The last ones that are due before this one and match, in order: this many, or fewer if there
    /// are no more.
    pub fn last_before(
        &self,
        before: Option<Due>,
        count: usize,
        wanted: impl Fn(Due) -> bool,
    ) -> Vec<(Due, Job)> {
        let mut found = Vec::new();
        let behind = before.map_or(Bound::Unbounded, Bound::Excluded);
        for (_, page) in self.pages.range((Bound::Unbounded, behind)).rev() {
            let jobs =
                page.iter().filter(|(due, _)| before.is_none_or(|before| *due < before) && wanted(*due));
            let mut jobs: Vec<_> = jobs.collect();
            jobs.append(&mut found);
            found = jobs;
            if count <= found.len() {
                break;
            }
        }
        found.split_off(found.len().saturating_sub(count))
    }

    /// Whether at least this many jobs are due before this one. Up to a page of them may be
    /// overlooked.
    pub fn has_before(&self, due: Due, count: usize) -> bool {
        let begins = self.pages.range(..=due).map(|(_, page)| page.len());
        let mut before = 0;
        // The last of these pages may go on behind.
        let mut last = 0;
        for len in begins {
            before += last;
            last = len;
            if count <= before {
                return true;
            }
        }
        count == 0
    }

    fn begin_page(&mut self, begin: Due) -> Due {
        self.pages.insert(begin, Page::default());
        self.open.push_back(begin);
        begin
    }

    /// Makes two of an open page. Jobs that come in order leave full pages behind.
    fn split(&mut self, begin: Due) {
        let is_last = self.pages.last_key_value().is_some_and(|(last, _)| *last == begin);
        let Some(page) = self.pages.get_mut(&begin) else { return };
        let at = if is_last { page.len() - 1 } else { page.len() / 2 };
        let Some(middle) = page.jobs.keys().nth(at).copied() else { return };
        let jobs = page.jobs.split_off(&middle);
        self.pages.insert(middle, Page { packed: PackedJobs::default(), jobs });
        self.open.push_back(middle);
    }

    /// Opens soon-due pages, and packs the pages that are open for longest if there are too many.
    fn tidy(&mut self) {
        let (mut soon, mut soon_until, mut opened) = (0, None, Vec::new());
        for (begin, page) in &mut self.pages {
            if self.page_jobs / 2 < soon {
                break;
            }
            if page.is_packed() {
                page.open();
                opened.push(*begin);
            }
            soon += page.len();
            soon_until = Some(*begin);
        }
        self.open.extend(opened);
        while OPEN_PAGES_MAX < self.open.len()
            && let Some(at) = self.open.iter().position(|begin| soon_until < Some(*begin))
            && let Some(begin) = self.open.remove(at)
        {
            self.pages.entry(begin).and_modify(Page::pack);
        }
    }

    /// For a snapshot: see [`WrittenPage`].
    pub fn pages(&self) -> impl Iterator<Item = (&Bytes, Vec<(Due, Job)>)> {
        let pages = self.pages.values();
        pages.map(|page| (page.packed.bytes(), page.jobs.iter().map(|(due, job)| (*due, *job)).collect()))
    }

    /// As a snapshot has it: see [`Calendar::pages`].
    ///
    /// # Errors
    /// [`RecordError`]: a page is none, or not after those before it.
    pub fn restore(
        page_jobs: usize,
        pages: impl IntoIterator<Item = WrittenPage>,
    ) -> Result<Calendar, RecordError> {
        let mut calendar = Calendar::new(page_jobs);
        let mut behind = None;
        for (packed, jobs) in pages {
            let packed = match packed.is_empty() {
                true => PackedJobs::default(),
                false => PackedJobs::read(&packed)?,
            };
            let read = packed.jobs();
            let all = || read.iter().chain(&jobs).map(|(due, _)| *due);
            let (first, last) = all().min().zip(all().max()).ok_or(wrong("it has no jobs"))?;
            if Some(first) <= behind {
                return Err(wrong("its jobs are not behind those before it"));
            }
            behind = Some(last);
            let page = Page { packed, jobs: jobs.into_iter().collect() };
            calendar.len += page.len();
            if !page.is_packed() {
                calendar.open.push_back(first);
            }
            calendar.pages.insert(first, page);
        }
        calendar.tidy();
        Ok(calendar)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case, and when the job of a record is due.
    type Times = (&'static str, fn(u64) -> u64);

    fn due(at_ms: u64, record: u64) -> Due {
        Due { at_ms, position: Position::new(record).expect("from 1"), ordinal: (record % 3) as u32 }
    }

    fn job(record: u64) -> Job {
        Job { bytes: 100, name: record.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    /// Times without any order, the same each run.
    fn anywhere(record: u64) -> u64 {
        record.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
    }

    fn restored(calendar: &Calendar) -> Calendar {
        let pages = calendar.pages().map(|(packed, jobs)| (packed.to_vec().into(), jobs));
        Calendar::restore(calendar.page_jobs, pages).expect("its own pages")
    }

    #[test]
    fn whatever_comes_and_goes_it_is_a_sorted_map() {
        let times: [Times; 3] = [
            ("in order", |record| record * 10),
            ("backwards", |record| 1 << 40 >> (record % 40)),
            ("anywhere", anywhere),
        ];
        for (case, at_ms) in times {
            let (mut calendar, mut map) = (Calendar::new(8), BTreeMap::new());
            for record in 1..2000 {
                calendar.insert(due(at_ms(record), record), job(record));
                map.insert(due(at_ms(record), record), job(record));
                if record % 3 == 0 {
                    let first = *map.keys().next().expect("some");
                    assert_eq!(calendar.remove(first), map.remove(&first), "case: {case}");
                }
                if record % 5 == 0 {
                    let some = due(at_ms(record / 2), record / 2);
                    assert_eq!(calendar.remove(some), map.remove(&some), "case: {case}");
                }
                if record % 400 == 0 {
                    calendar = restored(&calendar);
                }
                let next = calendar.iter().next();
                assert_eq!(next, map.first_key_value().map(|(due, job)| (*due, *job)), "case: {case}");
            }
            assert!(
                calendar.open.len() <= OPEN_PAGES_MAX + 5,
                "case: {case}: {} are open",
                calendar.open.len()
            );
            assert!(calendar.pages.values().filter(|page| page.is_packed()).count() > 50, "case: {case}");
            assert_eq!(calendar.len(), map.len(), "case: {case}");
            assert!(calendar.iter().eq(map.iter().map(|(due, job)| (*due, *job))), "case: {case}");
            let from = at_ms(700);
            let want = map.iter().map(|(due, job)| (*due, *job)).filter(|(due, _)| from <= due.at_ms);
            assert!(calendar.from(from).eq(want), "case: {case}");
            for due in map.keys() {
                assert!(calendar.remove(*due).is_some(), "case: {case}");
            }
            assert_eq!(
                (calendar.len(), calendar.pages.len(), calendar.open.len()),
                (0, 0, 0),
                "case: {case}"
            );
        }
    }

    #[test]
    fn a_job_far_ahead_takes_little_more_than_its_name() {
        let bytes_of_each = |at_ms: fn(u64) -> u64| {
            let mut calendar = Calendar::new(2048);
            (1..100_000).for_each(|record| calendar.insert(due(at_ms(record), record), job(record)));
            let tree = size_of::<Due>() + size_of::<Job>();
            let bytes =
                calendar.pages().map(|(packed, jobs)| packed.len() + jobs.len() * tree).sum::<usize>();
            bytes / calendar.len()
        };
        assert_eq!((bytes_of_each(|record| record + 60_000), bytes_of_each(anywhere)), (11, 17));
    }

    #[test]
    fn what_is_no_page_of_jobs_is_refused_wherever_it_is_broken() {
        let jobs: BTreeMap<Due, Job> =
            (1..30).map(|record| (due(anywhere(record), record), job(record))).collect();
        let bytes = PackedJobs::of(jobs.clone()).bytes().clone();
        for end in 0..bytes.len() {
            assert!(PackedJobs::read(&bytes[..end]).is_err(), "cut at {end}");
        }
        assert!(PackedJobs::read(&[&bytes[..], &[0]].concat()).is_err(), "lengthened");
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(read) = PackedJobs::read(&bytes) {
                assert_eq!(read.len(), jobs.len(), "bit {bit}");
            }
        }
        let page = |from| (Arc::from(&[][..]), vec![(due(from, 7), job(7))]);
        for (case, pages) in
            [("none", vec![(Arc::from(&[][..]), vec![])]), ("not behind", vec![page(9), page(9)])]
        {
            assert!(Calendar::restore(8, pages).is_err(), "case: {case}");
        }
    }
}
