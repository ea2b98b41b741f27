//! Columns: numbers one below the other, in few bytes where they are alike. See
//! docs/formats/records.md.

use crate::log::record::RecordError;

/// Shortest run of equal numbers that is encoded as a run: a shorter one would take more bytes than
/// its numbers.
const RUN_MIN: usize = 3;

/// The field of each number in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// The number itself.
    None,
    /// How far it is from the one before.
    Told,
}

/// Why a page is none.
pub fn wrong(what: &'static str) -> RecordError {
    RecordError::Page { what }
}

/// How far each number is from the one before it, the first from 0.
fn steps(numbers: &[u64]) -> Vec<u64> {
    let befores = std::iter::once(0).chain(numbers.iter().copied());
    let steps = befores.zip(numbers).map(|(before, number)| zigzag(number.wrapping_sub(before) as i64));
    steps.collect()
}

/// Small numbers for small steps in either direction.
fn zigzag(step: i64) -> u64 {
    (step << 1 ^ step >> 63) as u64
}

fn from_zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Seven bits to a byte, low ones first; the eighth says that another byte follows.
pub fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Its length in bytes, then pieces: twice the length of a run plus one, and its number; or twice a
/// count, and that many numbers.
pub fn put_column(out: &mut Vec<u8>, told: Steps, numbers: Vec<u64>) {
    let numbers = if told == Steps::Told { steps(&numbers) } else { numbers };
    let run = |from: usize| numbers[from..].iter().take_while(|number| **number == numbers[from]).count();
    let (mut column, mut at) = (Vec::new(), 0);
    while at < numbers.len() {
        let length = run(at);
        if length >= RUN_MIN {
            put_number(&mut column, (length as u64) << 1 | 1);
            put_number(&mut column, numbers[at]);
            at += length;
            continue;
        }
        let mut end = at + length;
        while end < numbers.len() && run(end) < RUN_MIN {
            end += run(end);
        }
        put_number(&mut column, ((end - at) as u64) << 1);
        numbers[at..end].iter().for_each(|number| put_number(&mut column, *number));
        at = end;
    }
    put_number(out, column.len() as u64);
    out.extend_from_slice(&column);
}

/// Reads numbers and columns; never panics.
pub struct Numbers<'a> {
    /// The rest.
    pub bytes: &'a [u8],
}

impl<'a> Numbers<'a> {
    pub fn number(&mut self) -> Result<u64, RecordError> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = self.bytes.split_first().ok_or(wrong("it ends too early"))?;
            self.bytes = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(wrong("a number has no end"))
    }

    pub fn skip_column(&mut self) -> Result<Numbers<'a>, RecordError> {
        let length = self.number()?;
        let length = usize::try_from(length).ok().filter(|length| *length <= self.bytes.len());
        let length = length.ok_or(wrong("a column is longer than the page"))?;
        let (column, rest) = self.bytes.split_at(length);
        self.bytes = rest;
        Ok(Numbers { bytes: column })
    }

    /// A column of this many numbers.
    pub fn column(&mut self, steps: Steps, count: u64) -> Result<Vec<u64>, RecordError> {
        let mut numbers = Vec::with_capacity(count as usize);
        self.runs(steps, count, |run| {
            numbers.extend(run.numbers());
            Ok(())
        })?;
        Ok(numbers)
    }

    /// A column of this many numbers, run by run.
    pub fn runs(
        &mut self,
        steps: Steps,
        count: u64,
        mut each: impl FnMut(Run) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        let mut input = self.skip_column()?;
        let (mut before, mut left) = (0_u64, count);
        while !input.bytes.is_empty() {
            let piece = input.number()?;
            let length = piece >> 1;
            left = left.checked_sub(length).ok_or(wrong("a column is too long"))?;
            let (runs, count) = if piece & 1 == 1 { (1, length) } else { (length, 1) };
            for _ in 0..runs {
                let number = input.number()?;
                let run = match steps {
                    Steps::Told => {
                        let step = from_zigzag(number) as u64;
                        Run { first: before.wrapping_add(step), step, count }
                    }
                    Steps::None => Run { first: number, step: 0, count },
                };
                if count > 0 {
                    before = run.number(count - 1);
                    each(run)?;
                }
            }
        }
        if left == 0 { Ok(()) } else { Err(wrong("a column is short")) }
    }
}

/// Numbers of a column in a row, each as far from the one before.
#[derive(Clone, Copy)]
pub struct Run {
    /// The first of them.
    pub first: u64,
    /// Negative ones wrap.
    pub step: u64,
    /// How many they are.
    pub count: u64,
}

impl Run {
    /// The number at this place of it.
    pub fn number(self, place: u64) -> u64 {
        self.first.wrapping_add(self.step.wrapping_mul(place))
    }

    /// Whether all of them are below `end`, from 0 on.
    pub fn is_below(self, end: u64) -> bool {
        let last = i128::from(self.first) + i128::from(self.step as i64) * i128::from(self.count.max(1) - 1);
        self.first < end && (0..i128::from(end)).contains(&last)
    }

    pub fn has_zero(self) -> bool {
        match self.step {
            0 => self.first == 0,
            1 => self.first == 0 || self.first.checked_add(self.count - 1).is_none(),
            _ => self.numbers().any(|number| number == 0),
        }
    }

    pub fn numbers(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |place| self.number(place))
    }
}

/// The runs of a column, taken from the front.
pub struct Runs<'r> {
    runs: std::slice::Iter<'r, Run>,
    run: Run,
}

impl<'r> Runs<'r> {
    /// All of these.
    pub fn new(runs: &'r [Run]) -> Runs<'r> {
        let mut runs = runs.iter();
        let run = runs.next().copied().unwrap_or(Run { first: 0, step: 0, count: 0 });
        Runs { runs, run }
    }

    /// How many numbers there are, each as far from the one before; 0 at the end.
    pub fn left(&self) -> u64 {
        self.run.count
    }

    /// How far.
    pub fn step(&self) -> u64 {
        self.run.step
    }

    /// Takes this many of them; returns the first.
    pub fn take(&mut self, count: u64) -> u64 {
        let number = self.run.first;
        self.run = Run { first: self.run.number(count), count: self.run.count - count, ..self.run };
        if self.run.count == 0 {
            self.run = self.runs.next().copied().unwrap_or(self.run);
        }
        number
    }
}
