//! Many selectors, and for each message those that match, without asking all of them.

mod access;
mod attribute;
mod interval;
mod postings;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash};

use crate::expression::Program;
use crate::index::access::Access;
use crate::index::attribute::Attribute;
use crate::index::postings::{EntryId, Postings};
use crate::selector::Selector;
use crate::value::Properties;

/// A map without a random seed: the same calls give the same order everywhere.
pub(crate) type SeededMap<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// Selectors under keys, and the question which keys a message selects.
///
/// Each selector is found by one of its conjuncts, the one that fewest others share: an equality,
/// IN, a range, a LIKE with a prefix, IS NULL, or an OR of such. A message costs one look-up for
/// each property name used that way, and an evaluation for each selector that is found; it does not
/// cost those that are not found. A selector without such a conjunct is evaluated for every
/// message. Equal selectors are kept and evaluated once.
///
/// Memory: a few hundred bytes and the program for each distinct selector, and its key. Keys come
/// out in an order that depends on nothing but the calls before.
#[derive(Clone, Debug)]
pub struct SelectorIndex<K> {
    /// By [`EntryId`]; a free place is `None`.
    entries: Vec<Option<Entry<K>>>,
    free: Vec<EntryId>,
    by_selector: SeededMap<Selector, EntryId>,
    by_key: SeededMap<K, Place>,
    /// By property name; the second map has the selectors that convert strings.
    attributes: [BTreeMap<Box<str>, Attribute>; 2],
    /// Entries that no conjunct can find.
    scanned: Postings,
}

/// One distinct selector.
#[derive(Clone, Debug)]
struct Entry<K> {
    selector: Selector,
    access: Option<Access>,
    /// The residual condition once the access has found the entry; `None` if there is none.
    residual: Option<Program>,
    /// The text of each key's own selector, which may be another than this entry's.
    keys: Vec<(K, Selector)>,
}

/// Where a key is: entry, and index among its keys.
#[derive(Clone, Copy, Debug)]
struct Place {
    entry: EntryId,
    index: usize,
}

impl<K> Default for SelectorIndex<K> {
    fn default() -> Self {
        SelectorIndex {
            entries: Vec::new(),
            free: Vec::new(),
            by_selector: SeededMap::default(),
            by_key: SeededMap::default(),
            attributes: [BTreeMap::new(), BTreeMap::new()],
            scanned: Postings::default(),
        }
    }
}

impl<K: Clone + Eq + Hash> SelectorIndex<K> {
    /// An index without selectors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Installs the selector under the key, in place of the key's former one, which is returned.
    pub fn insert(&mut self, key: K, selector: Selector) -> Option<Selector> {
        let former = self.remove(&key);
        let id = match self.by_selector.get(&selector) {
            Some(id) => *id,
            None => self.install(&selector),
        };
        if let Some(entry) = &mut self.entries[id.index()] {
            self.by_key.insert(key.clone(), Place { entry: id, index: entry.keys.len() });
            entry.keys.push((key, selector));
        }
        former
    }

    /// Takes the key out; its selector, or `None` where the key is unknown.
    pub fn remove(&mut self, key: &K) -> Option<Selector> {
        let place = self.by_key.remove(key)?;
        let entry = self.entries[place.entry.index()].as_mut()?;
        let (_, selector) = entry.keys.swap_remove(place.index);
        if let Some((moved, _)) = entry.keys.get(place.index) {
            self.by_key.insert(moved.clone(), place);
        }
        if entry.keys.is_empty() {
            self.uninstall(place.entry);
        }
        Some(selector)
    }

    /// The selector under this key.
    pub fn get(&self, key: &K) -> Option<&Selector> {
        let place = self.by_key.get(key)?;
        let entry = self.entries[place.entry.index()].as_ref()?;
        entry.keys.get(place.index).map(|(_, selector)| selector)
    }

    /// Keys installed.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether no key is installed.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Every key, in no particular order but always the same.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.iter().flatten().flat_map(|entry| entry.keys.iter().map(|(key, _)| key))
    }

    /// Distinct selectors that are evaluated for every message, since no conjunct of theirs can be
    /// looked up.
    pub fn scanned(&self) -> usize {
        self.scanned.len()
    }

    /// Calls `visit` once with each key whose selector matches.
    pub fn matching<P: Properties + ?Sized>(&self, properties: &P, mut visit: impl FnMut(&K)) {
        let mut repeats: Vec<EntryId> = Vec::new();
        for (attributes, converts) in self.attributes.iter().zip([false, true]) {
            for (name, attribute) in attributes {
                let value = properties.property(name);
                attribute.find(value.as_ref(), converts, &mut |id| {
                    if self.found_repeatedly(id) {
                        repeats.push(id);
                    } else {
                        self.visit_entry(id, true, properties, &mut visit);
                    }
                });
            }
        }
        repeats.sort_unstable();
        repeats.dedup();
        for id in repeats {
            self.visit_entry(id, true, properties, &mut visit);
        }
        self.scanned.each(&mut |id| self.visit_entry(id, false, properties, &mut visit));
    }

    fn found_repeatedly(&self, id: EntryId) -> bool {
        let access = self.entries[id.index()].as_ref().and_then(|entry| entry.access.as_ref());
        access.is_some_and(|access| access.repeats)
    }

    fn visit_entry<P: Properties + ?Sized>(
        &self,
        id: EntryId,
        found: bool,
        properties: &P,
        visit: &mut impl FnMut(&K),
    ) {
        let Some(entry) = &self.entries[id.index()] else { return };
        let matches = match &entry.residual {
            Some(residual) if found => residual.matches(properties),
            None if found => true,
            _ => entry.selector.matches(properties),
        };
        if matches {
            entry.keys.iter().for_each(|(key, _)| visit(key));
        }
    }

    fn install(&mut self, selector: &Selector) -> EntryId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            EntryId::new(self.entries.len() - 1)
        });
        let program = selector.program();
        let access = Access::choose(program, |name, probe| {
            let attribute = self.attributes[usize::from(program.converts)].get(name);
            attribute.map_or(0, |attribute| attribute.shared_by(probe))
        });
        let (access, residual) = access.map_or((None, None), |(access, residual)| (Some(access), residual));
        match &access {
            None => self.scanned.insert(id),
            Some(access) => {
                let attributes = &mut self.attributes[usize::from(program.converts)];
                for (name, probe) in &access.probes {
                    attributes.entry(name.clone()).or_default().insert(probe, id);
                }
            }
        }
        self.by_selector.insert(selector.clone(), id);
        let keys = Vec::with_capacity(1);
        self.entries[id.index()] = Some(Entry { selector: selector.clone(), access, residual, keys });
        id
    }

    fn uninstall(&mut self, id: EntryId) {
        let Some(entry) = self.entries[id.index()].take() else { return };
        self.free.push(id);
        self.by_selector.remove(&entry.selector);
        let Some(access) = &entry.access else {
            self.scanned.remove(id);
            return;
        };
        let attributes = &mut self.attributes[usize::from(entry.selector.program().converts)];
        for (name, probe) in &access.probes {
            let Some(attribute) = attributes.get_mut(name) else { continue };
            attribute.remove(probe, id);
            if attribute.is_empty() {
                attributes.remove(name);
            }
        }
    }
}
