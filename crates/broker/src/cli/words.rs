//! Words of the output.

/// A count with its noun, given in the singular: `1 file`, `2 files`.
pub fn counted(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        for (count, want) in [(0, "0 damaged places"), (1, "1 damaged place"), (2, "2 damaged places")] {
            assert_eq!(counted(count, "damaged place"), want);
        }
    }
}
