//! Cron expressions: five fields, and the next minute that all of them match, in UTC.
//!
//! `minute hour day-of-month month day-of-week`; each is `*` or a list of numbers and ranges, with
//! a step after `/` (POSIX, `crontab`, "INPUT FILES"; steps are the common extension). Sunday is 0
//! or 7.

use postroad_model::Date;

/// A parsed expression: for each field the values that it allows, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both fields for days say something: then either is enough.
    either_day: bool,
}

/// Name, least and greatest value of each field.
const FIELDS: [(&str, u64, u64); 5] =
    [("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7)];

const MINUTE_MS: u64 = 60_000;
const DAY_MINUTES: u64 = 24 * 60;

/// Days looked at for the next match: the 29th of February comes after eight years at most.
const DAYS_MAX: u64 = 8 * 366;

impl Cron {
    /// Parses an expression.
    ///
    /// # Errors
    /// The faulty field, and valid values.
    pub fn parse(text: &str) -> Result<Cron, String> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        if fields.len() != FIELDS.len() {
            return Err(format!("a cron expression has 5 fields, {text:?} has {}", fields.len()));
        }
        let mut masks = [0; FIELDS.len()];
        for ((mask, field), known) in masks.iter_mut().zip(&fields).zip(FIELDS) {
            *mask = parse_field(field, known)?;
        }
        let [minutes, hours, days, months, weekdays] = masks;
        let weekdays = (weekdays | weekdays >> 7 & 1) & 0x7f;
        let either_day = !fields[2].starts_with('*') && !fields[4].starts_with('*');
        Ok(Cron { minutes, hours, days, months, weekdays, either_day })
    }

    /// The first minute after `after_ms` that matches, both in ms since 1970; `None` if there is
    /// none, as on a 31st of February.
    pub fn next_after(&self, after_ms: u64) -> Option<u64> {
        let first = after_ms / MINUTE_MS + 1;
        let today = first / DAY_MINUTES;
        (today..today + DAYS_MAX).filter(|day| self.has_day(*day)).find_map(|day| {
            let from = if day == today { first % DAY_MINUTES } else { 0 };
            let fits = |minute: &u64| has(self.hours, minute / 60) && has(self.minutes, minute % 60);
            Some((day * DAY_MINUTES + (from..DAY_MINUTES).find(fits)?) * MINUTE_MS)
        })
    }

    fn has_day(&self, day: u64) -> bool {
        let Date { month, day: day_of_month, .. } = Date::of_days(day);
        // 1970 began on a Thursday.
        let (by_date, by_weekday) = (has(self.days, day_of_month), has(self.weekdays, (day + 4) % 7));
        let fits = if self.either_day { by_date || by_weekday } else { by_date && by_weekday };
        fits && has(self.months, month)
    }
}

fn has(mask: u64, value: u64) -> bool {
    mask >> value & 1 == 1
}

fn parse_field(text: &str, (name, least, greatest): (&str, u64, u64)) -> Result<u64, String> {
    let wrong = || {
        format!(
            "{text:?} is not a valid {name}: use *, or numbers from {least} to {greatest} such as 1,5-9,*/10"
        )
    };
    let number = |text: &str| {
        let number = text.parse::<u64>().ok().filter(|number| (least..=greatest).contains(number));
        number.ok_or_else(wrong)
    };
    let mut mask = 0;
    for part in text.split(',') {
        let (range, step) = part.split_once('/').unwrap_or((part, "1"));
        let step = step.parse::<usize>().ok().filter(|step| *step > 0).ok_or_else(wrong)?;
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (least, greatest),
            Some((from, to)) => (number(from)?, number(to)?),
            None if part.contains('/') => (number(range)?, greatest),
            None => (number(range)?, number(range)?),
        };
        if to < from {
            return Err(wrong());
        }
        mask |= (from..=to).step_by(step).fold(0, |mask, value| mask | 1 << value);
    }
    Ok(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21 is a Saturday; its first minute.
    const SATURDAY: u64 = 1_795_219_200_000;
    const HOUR: u64 = 60 * MINUTE_MS;
    const DAY: u64 = 24 * HOUR;

    #[test]
    fn the_next_minute_that_matches() {
        for (name, text, after, want) in [
            ("every minute", "* * * * *", SATURDAY + 1, Some(SATURDAY + MINUTE_MS)),
            ("never this minute", "* * * * *", SATURDAY, Some(SATURDAY + MINUTE_MS)),
            ("of the hour", "30 * * * *", SATURDAY, Some(SATURDAY + HOUR / 2)),
            ("steps", "*/20 * * * *", SATURDAY + 41 * MINUTE_MS, Some(SATURDAY + HOUR)),
            (
                "list and range",
                "5 3,9-11 * * *",
                SATURDAY + 4 * HOUR,
                Some(SATURDAY + 9 * HOUR + 5 * MINUTE_MS),
            ),
            ("tomorrow", "0 0 * * *", SATURDAY, Some(SATURDAY + DAY)),
            ("Sunday is 0", "0 0 * * 0", SATURDAY, Some(SATURDAY + DAY)),
            ("and 7", "0 0 * * 7", SATURDAY, Some(SATURDAY + DAY)),
            ("first of the month", "0 0 1 * *", SATURDAY, Some(SATURDAY + 10 * DAY)),
            ("either day is enough", "0 0 1 * 1", SATURDAY, Some(SATURDAY + 2 * DAY)),
            ("next year", "0 0 21 11 *", SATURDAY, Some(SATURDAY + 365 * DAY)),
            ("leap day", "0 0 29 2 *", SATURDAY, Some(SATURDAY + 465 * DAY)),
            ("no such day", "0 0 31 2 *", SATURDAY, None),
        ] {
            assert_eq!(Cron::parse(text).map(|cron| cron.next_after(after)), Ok(want), "case: {name}");
        }
    }

    #[test]
    fn what_is_no_expression_is_said_by_its_field() {
        for (text, want) in [
            ("* * * *", "a cron expression has 5 fields, \"* * * *\" has 4"),
            ("60 * * * *", "\"60\" is not a valid minute"),
            ("* 24 * * *", "\"24\" is not a valid hour"),
            ("* * 0 * *", "\"0\" is not a valid day of month"),
            ("* * * 9-3 *", "\"9-3\" is not a valid month"),
            ("* * * * */0", "\"*/0\" is not a valid day of week"),
            ("a * * * *", "\"a\" is not a valid minute"),
            (", * * * *", "\",\" is not a valid minute"),
        ] {
            let error = Cron::parse(text).expect_err(text);
            assert!(error.starts_with(want), "{text}: {error}");
        }
    }
}
