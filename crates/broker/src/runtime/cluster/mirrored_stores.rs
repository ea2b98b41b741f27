//! Which stores a node gets that joins: all that its leader has, or those chosen for a mirror.
//!
//! Never here: how it gets them (`store_members`).

use postroad_cluster::{ChosenStores, Level};
use postroad_routing::FIRST_STORE;

/// The stores of a node that joins, by an order that names some, or none for all. The leader has
/// `here` of the cluster's `count` stores.
///
/// # Errors
/// The reason why the order is refused.
pub fn mirrored_stores(
    chosen: &[u16],
    mirrors: bool,
    (here, count): (ChosenStores, u16),
    level: Level,
) -> Result<ChosenStores, String> {
    if chosen.is_empty() {
        return Ok(here);
    }
    if !mirrors {
        return Err("a node with a vote has all stores: stores are chosen for a mirror (--mirror)".to_owned());
    }
    if count == FIRST_STORE {
        return Err("the cluster has one store, and a mirror has all of it: name no stores".to_owned());
    }
    if let Some(unknown) = chosen.iter().find(|store| !(FIRST_STORE..=count).contains(store)) {
        return Err(format!("there is no store {unknown}: the stores are {FIRST_STORE} to {count}"));
    }
    if let Some(absent) = chosen.iter().find(|store| !here.have(**store)) {
        return Err(format!("store {absent} is not here, and cannot be mirrored from here"));
    }
    let stores = ChosenStores::of(chosen.iter().copied()).unwrap_or(here);
    if stores.among(count) == here.among(count) {
        return Ok(here);
    }
    if level < Level::CHOSEN_STORES {
        return Err(format!(
            "the cluster has level {level}, and chosen stores need level {}: it rises once all nodes have this \
             version, without cluster.level_max",
            Level::CHOSEN_STORES
        ));
    }
    Ok(stores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_has_the_first_store_and_those_that_were_chosen() {
        let level = |number| Level::new(number).unwrap();
        let of = |numbers: &[u16]| ChosenStores::of(numbers.iter().copied()).unwrap();
        let all = ChosenStores::ALL;
        for (case, chosen, mirrors, here, count, at, want) in [
            ("none are named", &[][..], true, all, 3, 3, Ok(all)),
            ("a node with a vote", &[], false, all, 3, 1, Ok(all)),
            ("one", &[2], true, all, 3, 3, Ok(of(&[2]))),
            ("the first alone", &[1], true, all, 3, 3, Ok(of(&[]))),
            ("all but the first, which comes with them", &[3, 2], true, all, 3, 1, Ok(all)),
            ("twice", &[2, 2], true, all, 3, 3, Ok(of(&[2]))),
            ("the last of 16", &[16], true, all, 16, 3, Ok(of(&[16]))),
            ("it votes", &[2], false, all, 3, 3, Err("a node with a vote has all stores")),
            ("one store", &[1], true, all, 1, 3, Err("the cluster has one store")),
            ("beyond the last", &[2, 4], true, all, 3, 3, Err("there is no store 4: the stores are 1 to 3")),
            ("store 0", &[0], true, all, 3, 3, Err("there is no store 0")),
            ("an older node", &[2], true, all, 3, 2, Err("the cluster has level 2")),
            ("after such a mirror took over", &[], false, of(&[2]), 3, 3, Ok(of(&[2]))),
            ("a part of it", &[1], true, of(&[2]), 3, 3, Ok(of(&[]))),
            ("a store that it has not", &[3], true, of(&[2]), 3, 3, Err("store 3 is not here")),
        ] {
            let got = mirrored_stores(chosen, mirrors, (here, count), level(at));
            match want {
                Ok(stores) => assert_eq!(got, Ok(stores), "case: {case}"),
                Err(part) => assert!(got.clone().unwrap_err().contains(part), "case: {case}: {got:?}"),
            }
        }
    }
}
