//! The result of a translation: keys of Postroad's file, and notes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::element::Element;

/// One value, as TOML writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value(String);

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        // A string of JSON is a basic string of TOML, but for a character that no name has.
        Value(serde_json::Value::from(text).to_string())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value(flag.to_string())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value(number.to_string())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value(number.to_string())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value(number.to_string())
    }
}

impl Value {
    /// Several, as a list.
    pub fn list(values: impl IntoIterator<Item = Value>) -> Value {
        let values: Vec<String> = values.into_iter().map(|Value(text)| text).collect();
        Value(format!("[{}]", values.join(", ")))
    }

    /// A table in one line whose keys are names of the user's.
    pub fn names<'n>(values: impl IntoIterator<Item = (&'n str, Value)>) -> Value {
        let quoted = |(name, Value(text))| format!("{} = {text}", Value::from(name).0);
        let keys: Vec<String> = values.into_iter().map(quoted).collect();
        Value(format!("{{ {} }}", keys.join(", ")))
    }

    /// A table in one line.
    pub fn table(keys: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
        let keys: Vec<String> =
            keys.into_iter().map(|(key, Value(text))| format!("{key} = {text}")).collect();
        Value(format!("{{ {} }}", keys.join(", ")))
    }
}

/// A `[[table]]` of the file.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Where in the XML it comes from.
    pub lines: Vec<u32>,
    /// Its keys.
    pub keys: Vec<(&'static str, Value)>,
}

#[derive(Debug)]
struct Note {
    line: u32,
    text: String,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Translation {
    /// Keys by section, with the line each comes from; those ahead of all sections under the empty
    /// name.
    sections: BTreeMap<&'static str, BTreeMap<&'static str, (Value, u32)>>,
    /// `[[tables]]`, in the order of the file.
    tables: Vec<Table>,
    notes: Vec<Note>,
    /// Elements with another meaning here.
    refused: Vec<Note>,
}

impl Translation {
    /// A key of a section. The first value counts; another value later is noted.
    pub fn set(
        &mut self,
        section: &'static str,
        key: &'static str,
        value: impl Into<Value>,
        from: &Element<'_>,
    ) {
        let value = value.into();
        let keys = self.sections.entry(section).or_default();
        let (known, line) = keys.entry(key).or_insert_with(|| (value.clone(), from.line()));
        if *known != value {
            let text = format!("{key} would be {}, but line {line} already sets it to {}", value.0, known.0);
            self.note(from, &text);
        }
    }

    /// Whether the key is set.
    pub fn has(&self, section: &str, key: &str) -> bool {
        self.sections.get(section).is_some_and(|keys| keys.contains_key(key))
    }

    /// Whether the key is set to this value.
    pub fn is(&self, section: &str, key: &str, value: &str) -> bool {
        let set = self.sections.get(section).and_then(|keys| keys.get(key));
        set.is_some_and(|(set, _)| *set == Value::from(value))
    }

    /// The key keeps its default after all.
    pub fn unset(&mut self, section: &str, key: &str) {
        if let Some(keys) = self.sections.get_mut(section) {
            keys.remove(key);
        }
    }

    /// Whether there is a `[[table]]` of this name.
    pub fn has_table(&self, name: &str) -> bool {
        self.tables.iter().any(|table| table.name == name)
    }

    /// One more `[[table]]`.
    pub fn push(&mut self, table: Table) {
        self.tables.push(table);
    }

    /// Something of the element is not translated, or need not be.
    pub fn note(&mut self, element: &Element<'_>, why: &str) {
        self.notes.push(Note { line: element.line(), text: format!("<{}> {why}", element.name()) });
    }

    /// The element cannot be translated without an unexpected change of its meaning: nothing is
    /// written.
    pub fn refuse(&mut self, element: &Element<'_>, why: &str) {
        self.refused.push(Note { line: element.line(), text: format!("<{}> {why}", element.name()) });
    }

    /// Why nothing may be written, by line; empty if it may.
    pub fn refusals(&self) -> Vec<String> {
        self.refused.iter().map(|Note { line, text }| format!("line {line}: {text}")).collect()
    }

    /// Postroad's file.
    pub fn to_toml(&self, file: &str) -> String {
        let mut text =
            format!("# Translated from {file}; docs/postroad.toml has every key with its default.\n");
        for (section, keys) in &self.sections {
            if !section.is_empty() {
                let _ = write!(text, "\n[{section}]\n");
            }
            for (key, (Value(value), line)) in keys {
                let _ = writeln!(text, "{key} = {value} # line {line}");
            }
        }
        for Table { name, lines, keys } in &self.tables {
            let lines: Vec<String> = lines.iter().map(u32::to_string).collect();
            let _ = write!(text, "\n# line {}\n[[{name}]]\n", lines.join(", "));
            for (key, Value(value)) in keys {
                let _ = writeln!(text, "{key} = {value}");
            }
        }
        text
    }

    /// Notes for the operator: first those that may need a change by hand, then those that need
    /// none; each group by line.
    pub fn notes_text(&self, file: &str) -> String {
        let notes: BTreeSet<(u32, &str)> = self.notes.iter().map(|note| (note.line, &*note.text)).collect();
        let (not_needed, to_check): (Vec<_>, Vec<_>) =
            notes.into_iter().partition(|(_, text)| text.contains("not needed"));
        let mut text = String::new();
        for (title, notes) in [("To check by hand", to_check), ("Not needed in Postroad", not_needed)] {
            if !notes.is_empty() {
                let _ = writeln!(text, "{title}: {}", notes.len());
            }
            for (line, note) in notes {
                let _ = writeln!(text, "{file}:{line}: {note}");
            }
        }
        text
    }
}
