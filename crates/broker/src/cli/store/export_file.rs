//! An export as it is read: whole, and more than once.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::line::{End, Entry, Head, Piece, VERSION, VERSION_MIN};

/// The name of standard input.
const STANDARD_INPUT: &str = "-";

/// A file in which one may go back to the beginning.
pub struct ExportFile {
    name: PathBuf,
    file: File,
}

/// A line between the first and the last.
pub enum Line {
    Entry(Box<Entry>),
    Piece(Piece),
}

impl ExportFile {
    /// Opens it. Input of a pipe is kept meanwhile in a file without a name, near `data`, where
    /// there is room for messages.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(from: &Path, data: &Path) -> anyhow::Result<ExportFile> {
        let name = from.to_owned();
        let reading = || format!("cannot read {}", from.display());
        let is_standard = from == Path::new(STANDARD_INPUT);
        let file = if is_standard { None } else { Some(File::open(from).with_context(reading)?) };
        let mut stream: Box<dyn io::Read> = match file {
            Some(file) if file.metadata().with_context(reading)?.is_file() => {
                return Ok(ExportFile { name, file });
            }
            Some(file) => Box::new(file),
            None => Box::new(io::stdin().lock()),
        };
        let data = std::path::absolute(data)?;
        let near =
            data.ancestors().find(|place| place.is_dir()).context("the data directory has no parent")?;
        let keeping = || format!("cannot buffer input from {} in {}", from.display(), near.display());
        let mut file = tempfile::tempfile_in(near).with_context(keeping)?;
        io::copy(&mut stream, &mut file).with_context(keeping)?;
        Ok(ExportFile { name, file })
    }

    /// Shows each message's line, and each piece of one, to `visit`; returns the last line.
    ///
    /// # Errors
    /// It is not an export, incomplete, or changed; or the error of `visit`, with the line's
    /// number.
    pub fn each_line(&self, visit: &mut dyn FnMut(Line) -> anyhow::Result<()>) -> anyhow::Result<End> {
        let mut file = &self.file;
        file.rewind().with_context(|| format!("cannot read {self}"))?;
        let mut end = None;
        let mut checksum = 0;
        for (index, line) in BufReader::new(file).lines().enumerate() {
            let place = || format!("{self}: line {}", index + 1);
            let line = line.with_context(place)?;
            if end.is_some() {
                bail!("{}: there are lines after the last one, which has the counts", place());
            }
            if index == 0 {
                check_head(&line).with_context(place)?;
            } else if let Ok(last) = serde_json::from_str::<End>(&line) {
                if last.crc32c.is_some_and(|told| told != checksum) {
                    bail!(
                        "{self}: checksum mismatch: the CRC-32C of the lines is {checksum}; to import them nevertheless, remove `crc32c` from the last line"
                    );
                }
                end = Some(last);
                continue;
            } else {
                let line = match serde_json::from_str::<Piece>(&line) {
                    Ok(piece) => Line::Piece(piece),
                    Err(_) => Line::Entry(serde_json::from_str(&line).with_context(place)?),
                };
                visit(line).with_context(place)?;
            }
            checksum = crc32c::crc32c_append(crc32c::crc32c_append(checksum, line.as_bytes()), b"\n");
        }
        end.with_context(|| {
            format!("{self}: the last line, which has the counts, is missing: the file is truncated")
        })
    }
}

fn check_head(line: &str) -> anyhow::Result<()> {
    let head: Head = serde_json::from_str(line)
        .with_context(|| format!("an export starts with {{\"postroad_export\":{VERSION}}}"))?;
    if !(VERSION_MIN..=VERSION).contains(&head.postroad_export) {
        bail!("export format {} is not supported; this build reads {VERSION}", head.postroad_export);
    }
    Ok(())
}

impl fmt::Display for ExportFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name == Path::new(STANDARD_INPUT) {
            true => write!(out, "standard input"),
            false => write!(out, "{}", self.name.display()),
        }
    }
}

/// Continues to write, and adds the checksum.
pub struct Summing<W> {
    pub out: W,
    pub crc32c: u32,
}

impl<W: io::Write> io::Write for Summing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.crc32c = crc32c::crc32c_append(self.crc32c, &bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
