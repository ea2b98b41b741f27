//! Dates of the Gregorian calendar, in UTC, and the text of RFC 3339.
//!
//! Years are counted from March, so that the leap day is the last of a year, in eras of 400 years
//! (`civil_from_days` and `days_from_civil` of Howard Hinnant).

/// Days from the 1st of March of the year 0 to the 1st of January 1970.
const DAYS_TO_1970: u64 = 719_468;

/// Days in 400 years.
const DAYS_OF_ERA: u64 = 146_097;

/// A day of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// The year, from 1970 on.
    pub year: u64,
    /// 1 to 12.
    pub month: u64,
    /// 1 to 31.
    pub day: u64,
}

impl Date {
    /// The day that is this many days after the 1st of January 1970.
    pub fn of_days(days: u64) -> Date {
        let shifted = days + DAYS_TO_1970;
        let (era, day) = (shifted / DAYS_OF_ERA, shifted % DAYS_OF_ERA);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        Date { year: era * 400 + year + u64::from(month <= 2), month, day }
    }

    /// Days from the 1st of January 1970; `None` if there is no such day.
    pub fn days(self) -> Option<u64> {
        let Date { year, month, day } = self;
        if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
        let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
        let days = days - DAYS_TO_1970;
        (Date::of_days(days) == self).then_some(days)
    }
}

/// Seconds since 1970 as RFC 3339 writes them, in UTC.
pub fn rfc3339(seconds: u64) -> String {
    let Date { year, month, day } = Date::of_days(seconds / 86_400);
    let second = seconds % 86_400;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, want) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds), want);
        }
    }

    #[test]
    fn each_day_is_found_again_by_its_date() {
        for days in 0..200_000 {
            assert_eq!(Date::of_days(days).days(), Some(days));
        }
    }

    #[test]
    fn days_that_the_calendar_does_not_have_are_refused() {
        for (year, month, day) in [
            (2023, 2, 29),
            (2024, 2, 30),
            (2100, 2, 29),
            (2024, 4, 31),
            (2024, 0, 1),
            (2024, 13, 1),
            (1969, 12, 31),
        ] {
            assert_eq!(Date { year, month, day }.days(), None, "{year}-{month}-{day}");
        }
    }
}
