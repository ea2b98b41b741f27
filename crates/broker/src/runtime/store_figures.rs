//! The figures of all stores that a node of a cluster leads, for its metrics.
//!
//! Names are those of one store in the main, so most series are of one store; the others add up.
//! Cores and partitions have the same numbers in each store: theirs are those of the store that is
//! asked. Never here: where figures come from.

use std::collections::BTreeMap;

use postroad_admin::{Figures, RouteFigures};

use crate::runtime::figures::merge;

/// Adds those of another store, by its number.
pub fn add(all: &mut Figures, store: u16, other: Figures) {
    for more in other.connections {
        match all.connections.iter_mut().find(|of| of.protocol == more.protocol) {
            Some(of) => (of.open, of.opened) = (of.open + more.open, of.opened + more.opened),
            None => all.connections.push(more),
        }
    }
    for more in other.tenants {
        let Some(of) = all.tenants.iter_mut().find(|of| of.tenant == more.tenant) else {
            all.tenants.push(more);
            continue;
        };
        of.messages += more.messages;
        of.bytes += more.bytes;
        of.disk_bytes += more.disk_bytes;
        of.waiting += more.waiting;
        of.leases += more.leases;
        of.queues += more.queues;
        of.connections += more.connections;
        of.share_waits += more.share_waits;
        of.share_wait_micros += more.share_wait_micros;
    }
    let mut queues = BTreeMap::new();
    all.queues.drain(..).chain(other.queues).for_each(|queue| merge(&mut queues, queue));
    all.queues = queues.into_values().collect();
    all.queues_unlisted += other.queues_unlisted;
    for more in other.routes {
        match all.routes.iter_mut().find(|of| of.route == more.route) {
            Some(of) => add_route(of, &more),
            None => all.routes.push(more),
        }
    }
    for more in other.alerts {
        match all.alerts.iter_mut().find(|of| of.alert == more.alert) {
            Some(of) => of.firing += more.firing,
            None => all.alerts.push(more),
        }
    }
    all.bridges.extend(other.bridges);
    all.undelivered_notifications += other.undelivered_notifications;
    all.journals.extend(other.journals.into_iter().map(|mut journal| {
        journal.store = format!("store-{store}");
        journal
    }));
}

fn add_route(of: &mut RouteFigures, more: &RouteFigures) {
    of.matched += more.matched;
    of.unmatched += more.unmatched;
    of.dead_lettered += more.dead_lettered;
    of.cut += more.cut;
    for target in &more.targets {
        match of.targets.iter_mut().find(|known| known.destination == target.destination) {
            Some(known) => {
                known.copies += target.copies;
                known.retried += target.retried;
                known.refused += target.refused;
            }
            None => of.targets.push(target.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use postroad_admin::{
        AlertFigures, ConnectionFigures, JournalFigures, QueueFigures, RouteTargetFigures, TenantFigures,
    };

    use super::*;

    fn of_store(number: u64) -> Figures {
        let text = str::to_owned;
        let queue = |name: &str| QueueFigures {
            destination: format!("queue://{name}"),
            depth: number,
            ..QueueFigures::default()
        };
        let tenant = TenantFigures { tenant: text("acme"), messages: number, ..TenantFigures::default() };
        let target = RouteTargetFigures { destination: text("b"), copies: number, ..Default::default() };
        let route = RouteFigures {
            route: text("r"),
            matched: number,
            targets: vec![target],
            ..RouteFigures::default()
        };
        let alert = AlertFigures { alert: text("a"), severity: "warning", firing: number };
        Figures {
            connections: vec![ConnectionFigures { protocol: "amqp", open: number, opened: number }],
            queues: vec![queue("ActiveMQ.DLQ"), queue(&format!("of-{number}"))],
            tenants: vec![tenant],
            routes: vec![route],
            alerts: vec![alert],
            journals: vec![JournalFigures { store: text("main"), ..JournalFigures::default() }],
            ..Figures::default()
        }
    }

    #[test]
    fn figures_of_the_same_name_add_up_and_no_series_is_there_twice() {
        let mut all = of_store(1);
        add(&mut all, 2, of_store(2));
        add(&mut all, 3, of_store(4));
        let depths: Vec<_> =
            all.queues.iter().map(|queue| (queue.destination.as_str(), queue.depth)).collect();
        assert_eq!(
            depths,
            [("queue://ActiveMQ.DLQ", 7), ("queue://of-1", 1), ("queue://of-2", 2), ("queue://of-4", 4)]
        );
        let journals: Vec<_> = all.journals.iter().map(|journal| journal.store.as_str()).collect();
        assert_eq!(journals, ["main", "store-2", "store-3"]);
        assert_eq!((all.tenants.len(), all.tenants[0].messages), (1, 7));
        assert_eq!((all.connections.len(), all.connections[0].open), (1, 7));
        assert_eq!((all.alerts.len(), all.alerts[0].firing), (1, 7));
        assert_eq!((all.routes[0].matched, all.routes[0].targets[0].copies), (7, 7));
    }
}
