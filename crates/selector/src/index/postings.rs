/// Names one distinct selector of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryId(u32);

impl EntryId {
    /// Four thousand million selectors would fill the memory long before.
    pub(super) fn new(index: usize) -> EntryId {
        EntryId(u32::try_from(index).expect("memory ends before the number of selectors does"))
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The entries that one probe finds, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Postings(Vec<EntryId>);

impl Postings {
    pub(super) fn insert(&mut self, id: EntryId) {
        if let Err(at) = self.0.binary_search(&id) {
            self.0.insert(at, id);
        }
    }

    pub(super) fn remove(&mut self, id: EntryId) {
        if let Ok(at) = self.0.binary_search(&id) {
            self.0.remove(at);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn each(&self, visit: &mut impl FnMut(EntryId)) {
        self.0.iter().for_each(|id| visit(*id));
    }
}
