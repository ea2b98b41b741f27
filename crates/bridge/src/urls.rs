//! Lists of brokers as URLs of ActiveMQ write them.

/// The URLs of a list as ActiveMQ writes it, `failover:(…)` or
/// `static:(…)`, or the URL itself if it is not a list. A list may hold one list.
pub fn urls_of<'u>(url: &'u str) -> Vec<&'u str> {
    let of_list = |text: &'u str| {
        ["failover:", "static:", "masterslave:"].iter().find_map(|scheme| text.strip_prefix(scheme))
    };
    let Some(list) = of_list(url) else { return vec![url] };
    let list = list.trim_start_matches("//");
    // Options of the whole list come after the parenthesis, those of one URL before it.
    let list = match list.strip_prefix('(') {
        Some(list) => list.rsplit_once(')').map_or(list, |(list, _)| list),
        None => list.split('?').next().unwrap_or_default(),
    };
    match of_list(list) {
        Some(_) => urls_of(list),
        None => list.split(',').map(str::trim).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_taken_apart() {
        for (case, url, want) in [
            ("one", "tcp://a:1", &["tcp://a:1"][..]),
            ("several", "failover:(tcp://a:1, tcp://b:2)?randomize=false", &["tcp://a:1", "tcp://b:2"]),
            ("without parentheses", "static:tcp://a:1,tcp://b:2?x=1", &["tcp://a:1", "tcp://b:2"]),
            ("with slashes", "masterslave://(tcp://a:1)", &["tcp://a:1"]),
            ("options of one URL", "static:(tcp://a:1?x=1)", &["tcp://a:1?x=1"]),
            ("a list in a list", "static:(failover:(tcp://a:1,tcp://b:2))", &["tcp://a:1", "tcp://b:2"]),
        ] {
            assert_eq!(urls_of(url), want, "case: {case}");
        }
    }
}
