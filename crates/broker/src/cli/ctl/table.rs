//! Tables for people: columns as wide as their contents on the first page.

use std::io::{self, Write};

use serde_json::Value;

/// Text is cut to this length, unless its column is whole.
const TEXT_MAX: usize = 60;

/// A column, and the member of a row's object that is in it.
pub struct Column {
    title: &'static str,
    member: &'static str,
    is_number: bool,
    is_whole: bool,
}

impl Column {
    pub const fn text(title: &'static str, member: &'static str) -> Column {
        Column { title, member, is_number: false, is_whole: false }
    }

    pub const fn number(title: &'static str, member: &'static str) -> Column {
        Column { title, member, is_number: true, is_whole: false }
    }

    /// Text that is copied into other commands.
    pub const fn whole(title: &'static str, member: &'static str) -> Column {
        Column { title, member, is_number: false, is_whole: true }
    }

    fn cell(&self, row: &Value) -> String {
        let text = match &row[self.member] {
            Value::Null => "-".to_owned(),
            Value::String(text) if text.is_empty() => "-".to_owned(),
            Value::String(text) => text.clone(),
            // A body.
            Value::Object(body) => match body.get("value") {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => "-".to_owned(),
            },
            Value::Array(items) => items.iter().map(Value::to_string).collect::<Vec<_>>().join(","),
            other => other.to_string(),
        };
        let shown = text.chars().map(|character| if character.is_control() { ' ' } else { character });
        if self.is_whole {
            return shown.collect();
        }
        let cut: String = shown.take(TEXT_MAX + 1).collect();
        match cut.chars().count() > TEXT_MAX {
            true => cut.chars().take(TEXT_MAX - 1).chain(['…']).collect(),
            false => cut,
        }
    }
}

/// A table that is printed page by page.
pub struct Table {
    columns: &'static [Column],
    /// Known with the first page.
    widths: Option<Vec<usize>>,
}

impl Table {
    pub fn new(columns: &'static [Column]) -> Table {
        Table { columns, widths: None }
    }

    pub fn print(&mut self, rows: &[Value], out: &mut impl Write) -> io::Result<()> {
        let cells: Vec<Vec<String>> =
            rows.iter().map(|row| self.columns.iter().map(|column| column.cell(row)).collect()).collect();
        let is_first = self.widths.is_none();
        let columns = self.columns;
        let widths = self.widths.get_or_insert_with(|| {
            let of = |(index, column): (usize, &Column)| {
                let cells = cells.iter().map(|row: &Vec<String>| row[index].chars().count());
                cells.chain([column.title.len()]).max().unwrap_or(0)
            };
            columns.iter().enumerate().map(of).collect()
        });
        if is_first {
            line(columns, widths, columns.iter().map(|column| column.title), out)?;
        }
        cells.iter().try_for_each(|row| line(columns, widths, row.iter().map(String::as_str), out))
    }
}

fn line<'c>(
    columns: &[Column],
    widths: &[usize],
    cells: impl Iterator<Item = &'c str>,
    out: &mut impl Write,
) -> io::Result<()> {
    let padded =
        columns.iter().zip(widths).zip(cells).map(|((column, width), cell)| match column.is_number {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
    let text = padded.collect::<Vec<_>>().join("  ");
    writeln!(out, "{}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_are_aligned_and_control_characters_stay_out_of_the_terminal() {
        const COLUMNS: &[Column] =
            &[Column::text("NAME", "name"), Column::number("N", "n"), Column::text("BODY", "body")];
        let rows = [
            json!({ "name": "a", "n": 5, "body": { "kind": "text", "value": "x\u{1b}[31m\ny" } }),
            json!({ "name": "longer", "n": 1000, "body": null }),
            json!({ "name": "", "n": 0, "body": { "kind": "text", "value": "z".repeat(100) } }),
        ];
        let mut out = Vec::new();
        let mut table = Table::new(COLUMNS);
        table.print(&rows[..2], &mut out).unwrap();
        table.print(&rows[2..], &mut out).unwrap();
        let cut = "z".repeat(TEXT_MAX - 1);
        let want =
            format!("NAME       N  BODY\na          5  x [31m y\nlonger  1000  -\n-          0  {cut}…\n");
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }
}
