//! Tenants that are made while a broker runs: a file with one line for each, its name, its store
//! and its quotas. Tenants of the configuration file are not in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::documents::Text;
use crate::file::Book;
use crate::users::UserError;

/// The first line of the file begins so.
const TITLE: &str = "# Tenants of Postroad, ";

/// The format, which is read back; another one is refused.
const FORMAT: &str = "format 1";

/// Before the number of a tenant's store.
const STORE: &str = "store=";

/// Tenants of one file, at most.
pub const TENANTS_MAX: usize = 10_000;

/// A longer name is refused.
const NAME_BYTES_MAX: usize = 64;

/// Quotas of one tenant; `None` for any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantEntry {
    /// Connections of its users, with their HTTP requests under way.
    pub connections_max: Option<u64>,
    /// Queues and durable subscriptions.
    pub queues_max: Option<u64>,
    /// Messages that its queues hold together.
    pub messages_max: Option<u64>,
    /// Bytes of their bodies.
    pub bytes_max: Option<u64>,
    /// Of these bytes those on the disk.
    pub disk_bytes_max: Option<u64>,
    /// Messages in a second.
    pub messages_per_second_max: Option<u64>,
    /// Weight of its fair share; `None` for the default.
    pub share: Option<u64>,
    /// Its store, in a cluster of several.
    pub store: Option<u16>,
}

/// All tenants, by name.
pub type Tenants = BTreeMap<Arc<str>, TenantEntry>;

impl TenantEntry {
    /// The quotas in the order of the file, by their names.
    pub fn quotas(&self) -> [(&'static str, Option<u64>); 7] {
        [
            ("connections_max", self.connections_max),
            ("queues_max", self.queues_max),
            ("messages_max", self.messages_max),
            ("bytes_max", self.bytes_max),
            ("disk_bytes_max", self.disk_bytes_max),
            ("messages_per_second_max", self.messages_per_second_max),
            ("share", self.share),
        ]
    }

    /// The quota of this name, to be changed.
    pub fn quota_mut(&mut self, name: &str) -> Option<&mut Option<u64>> {
        match name {
            "connections_max" => Some(&mut self.connections_max),
            "queues_max" => Some(&mut self.queues_max),
            "messages_max" => Some(&mut self.messages_max),
            "bytes_max" => Some(&mut self.bytes_max),
            "disk_bytes_max" => Some(&mut self.disk_bytes_max),
            "messages_per_second_max" => Some(&mut self.messages_per_second_max),
            "share" => Some(&mut self.share),
            _ => None,
        }
    }

    /// The destinations of a tenant with this name: those that begin with it, as patterns.
    pub fn destinations_of(tenant: &str) -> [String; 2] {
        [format!("queue://{tenant}.>"), format!("topic://{tenant}.>")]
    }

    fn parse(words: &[&str]) -> Result<TenantEntry, String> {
        let mut entry = TenantEntry::default();
        for word in words {
            if let Some(number) = word.strip_prefix(STORE) {
                let store = number.parse().ok().filter(|store| 0 < *store);
                let right = || format!("{word:?}: expected the number of a store");
                entry.store = Some(store.ok_or_else(right)?);
                continue;
            }
            let right = || format!("{word:?} is not a quota: expected NAME=NUMBER");
            let (name, max) = word.split_once('=').ok_or_else(right)?;
            let max: u64 = max.parse().map_err(|_| right())?;
            *entry.quota_mut(name).ok_or_else(right)? = Some(max).filter(|max| 0 < *max);
        }
        Ok(entry)
    }

    fn line(name: &str, entry: &TenantEntry) -> String {
        let quotas = entry.quotas().into_iter().filter_map(|(name, max)| Some(format!(" {name}={}", max?)));
        let store = entry.store.map(|store| format!(" {STORE}{store}"));
        format!("{name}{}{}\n", store.unwrap_or_default(), quotas.collect::<String>())
    }
}

/// Whether a tenant may have this name. It is the first word of the names of its destinations and
/// of its users, and its project in IronMQ's API.
///
/// # Errors
/// [`UserError::Tenant`].
pub fn check_tenant_name(name: &str) -> Result<(), UserError> {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    match (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_legal) {
        true => Ok(()),
        false => Err(UserError::Tenant { name: name.to_owned() }),
    }
}

fn parse(text: &str) -> Result<Tenants, (usize, String)> {
    let first = text.lines().next().unwrap_or_default();
    if !first.strip_prefix(TITLE).is_some_and(|rest| rest.starts_with(FORMAT)) {
        return Err((1, format!("unknown format; the first line must begin with {TITLE:?} and {FORMAT}")));
    }
    let mut tenants = Tenants::new();
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, quotas) = words.split_first().map_or(("", &[][..]), |(name, quotas)| (*name, quotas));
        check_tenant_name(name).map_err(|error| (number, error.to_string()))?;
        let entry = TenantEntry::parse(quotas).map_err(|reason| (number, reason))?;
        if tenants.insert(name.into(), entry).is_some() {
            return Err((number, format!("{name} is already in an earlier line")));
        }
    }
    Ok(tenants)
}

/// The tenants of a broker, with their file.
#[derive(Debug)]
pub struct TenantBook(Book<Tenants>);

impl TenantBook {
    /// The tenants of this text; one that does not exist has none.
    ///
    /// # Errors
    /// It cannot be read, or a line of it is no tenant.
    pub fn open(text: Text) -> Result<TenantBook, UserError> {
        let book = TenantBook(Book::new(text));
        book.reload()?;
        Ok(book)
    }

    /// Their text.
    pub fn text(&self) -> &Text {
        self.0.text()
    }

    /// Reads the text again.
    ///
    /// # Errors
    /// As [`TenantBook::open`]; the old tenants stay.
    pub fn reload(&self) -> Result<(), UserError> {
        self.0.reload(parse)
    }

    /// All tenants.
    pub fn all(&self) -> Arc<Tenants> {
        self.0.all()
    }

    /// Changes the tenants, and writes the file if they differ: not for a thread that others wait
    /// for.
    ///
    /// # Errors
    /// As `change`, there are too many tenants, or the file cannot be written; nothing is changed
    /// then.
    pub fn change<T>(
        &self,
        change: impl FnOnce(&mut Tenants) -> Result<T, UserError>,
    ) -> Result<T, UserError> {
        let within = |tenants: &mut Tenants| {
            let changed = change(tenants)?;
            match tenants.len() <= TENANTS_MAX {
                true => Ok(changed),
                false => Err(UserError::TooManyTenants { max: TENANTS_MAX }),
            }
        };
        self.0.change(within, |tenants| {
            let title =
                format!("{TITLE}{FORMAT}: a name and its quotas. `postroad ctl tenant` changes it.\n");
            let lines = tenants.iter().map(|(name, entry)| TenantEntry::line(name, entry));
            std::iter::once(title).chain(lines).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tenants");
        let book = TenantBook::open(Text::of_file(&file)).unwrap();
        assert!(book.all().is_empty());
        let entry = TenantEntry {
            connections_max: Some(5),
            messages_per_second_max: Some(u64::MAX),
            share: Some(3),
            store: Some(2),
            ..TenantEntry::default()
        };
        let add = |name: &'static str, entry| {
            move |tenants: &mut Tenants| Ok(tenants.insert(Arc::from(name), entry).is_none())
        };
        assert!(book.change(add("acme", entry)).unwrap());
        assert!(book.change(add("lab", TenantEntry::default())).unwrap());
        assert!(book.change(|_| Err::<(), _>(UserError::Password)).is_err());
        assert_eq!(*TenantBook::open(Text::of_file(&file)).unwrap().all(), *book.all());
        assert_eq!(book.all().get("acme"), Some(&entry));
        let many = |tenants: &mut Tenants| {
            tenants.extend(
                (0..TENANTS_MAX).map(|number| (number.to_string().as_str().into(), TenantEntry::default())),
            );
            Ok(())
        };
        let error = book.change(many).unwrap_err().to_string();
        assert_eq!(error, "the maximum of 10000 tenants exists: delete some");
        assert_eq!(book.all().len(), 2);
    }

    #[test]
    fn lines_that_are_no_tenant_are_named() {
        let title = format!("{TITLE}{FORMAT}\n");
        for (case, text, line) in [
            ("another format", "# Tenants of Postroad, format 2\n".to_owned(), 1),
            ("a name with a dot", format!("{title}a.b"), 2),
            ("a pattern", format!("{title}>"), 2),
            ("an unknown quota", format!("{title}a queues=1"), 2),
            ("no number", format!("{title}a queues_max=x"), 2),
            ("no store", format!("{title}a store=0"), 2),
            ("twice", format!("{title}a\na"), 3),
        ] {
            assert_eq!(parse(&text).map_err(|(line, _)| line), Err(line), "case: {case}");
        }
        let none = parse(&format!("{title}a queues_max=0")).unwrap();
        assert_eq!(none.get("a"), Some(&TenantEntry::default()), "0 is any number");
        assert!(check_tenant_name(&"x".repeat(NAME_BYTES_MAX)).is_ok());
        assert!(check_tenant_name(&"x".repeat(NAME_BYTES_MAX + 1)).is_err());
    }
}
