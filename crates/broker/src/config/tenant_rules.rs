//! Routes and alerts that tenants declare while the broker runs, in a text: one line for each rule,
//! as `TENANT route JSON` or `TENANT alert JSON`.
//!
//! A tenant's rules have names that begin with its own, and stay within its destinations. Rules of
//! the configuration file take precedence: a tenant whose rules cannot be beside them is left out,
//! with a line in the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use postroad_admin::{AlertRule, Recipient, RuleChange, RuleFault, RuleKind, RulesAnswer, TenantRules};
use postroad_model::{Destination, DestinationKind};
use postroad_routing::{DestinationPattern, Policies, Route};
use postroad_security::Text;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{AlertConfig, Config, RouteConfig, alerts, routes};

/// The first line of the file begins so.
const TITLE: &str = "# Routes and alerts of tenants, ";

/// The format, which is read back; another one is refused.
const FORMAT: &str = "format 1.";

/// Routes of one tenant.
const ROUTES_MAX: usize = 100;

/// Alerts of one tenant: each is compared with each of its queues, once a second.
const ALERTS_MAX: usize = 20;

/// The rules of all tenants, by the names of these.
type All = BTreeMap<String, TenantRules>;

/// The rules in force, with their text.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantRuleBook {
    text: Text,
    all: All,
}

impl TenantRuleBook {
    /// The rules of this text; one that does not exist has none.
    ///
    /// # Errors
    /// It cannot be read, or a line of it is no rule.
    pub fn open(text: Text) -> anyhow::Result<TenantRuleBook> {
        let all = text.read()?.map_or_else(|| Ok(All::new()), |text| parse(&text));
        let file = text.file().display();
        let all = all.map_err(|(line, reason)| anyhow::anyhow!("{file} line {line}: {reason}"))?;
        Ok(TenantRuleBook { text, all })
    }

    /// Their text.
    pub fn text(&self) -> &Text {
        &self.text
    }

    /// Adds the routes to those of the configuration.
    ///
    /// # Errors
    /// Those of the configuration cannot be.
    pub fn add_routes(&self, config: &Config, policies: &mut Policies) -> anyhow::Result<()> {
        if self.all.values().all(|rules| rules.routes.is_empty()) {
            return Ok(());
        }
        let addressing = config.addressing()?;
        let make = |configs: &[RouteConfig]| routes::routes(configs, &addressing);
        let of = |policies: &Policies, tenant: &str, rules: &TenantRules| {
            let routes: Vec<RouteConfig> = rules.routes.iter().map(read).collect::<Result<_, _>>()?;
            let bounds = Bounds::of(tenant, policies)?;
            routes.iter().try_for_each(|route| bounds.check_route(&route.rule()?))?;
            Ok(routes)
        };
        policies.routes = Arc::new(self.merged(&config.route, policies, of, make)?);
        Ok(())
    }

    /// The rules of alerts of the configuration, and these.
    ///
    /// # Errors
    /// Those of the configuration cannot be.
    pub fn alert_rules(&self, config: &Config, policies: &Policies) -> anyhow::Result<Vec<AlertRule>> {
        let of = |policies: &Policies, tenant: &str, rules: &TenantRules| {
            let alerts: Vec<AlertConfig> = rules.alerts.iter().map(read).collect::<Result<_, _>>()?;
            let bounds = Bounds::of(tenant, policies)?;
            alerts.iter().try_for_each(|alert| bounds.check_alert(&alert.rule()?))?;
            Ok(alerts)
        };
        self.merged(&config.alert, policies, of, alerts::rules)
    }

    /// What `make` makes of the rules of the configuration together with those of the tenants.
    fn merged<C: Clone, T>(
        &self,
        configured: &[C],
        policies: &Policies,
        of: impl Fn(&Policies, &str, &TenantRules) -> anyhow::Result<Vec<C>>,
        make: impl Fn(&[C]) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let left_out = |tenant: &str, error: &anyhow::Error| {
            let reason = format!("{error:#}");
            tracing::error!(tenant, reason, "rules of a tenant are not in force");
        };
        let mut own: Vec<(&str, Vec<C>)> = Vec::new();
        for (tenant, rules) in &self.all {
            match of(policies, tenant, rules) {
                Ok(configs) if configs.is_empty() => {}
                Ok(configs) => own.push((tenant, configs)),
                Err(error) => left_out(tenant, &error),
            }
        }
        let mut all = configured.to_vec();
        all.extend(own.iter().flat_map(|(_, configs)| configs.iter().cloned()));
        if let (false, Ok(made)) = (own.is_empty(), make(&all)) {
            return Ok(made);
        }
        // One of them stands in the way of the others: tenant by tenant.
        all.truncate(configured.len());
        let mut made = make(&all)?;
        for (tenant, configs) in own {
            let before = all.len();
            all.extend(configs);
            match make(&all) {
                Ok(more) => made = more,
                Err(error) => {
                    left_out(tenant, &error);
                    all.truncate(before);
                }
            }
        }
        Ok(made)
    }

    /// The changes to the rules of a tenant, and the book after them. With `prunes` rules that are
    /// not wanted go.
    ///
    /// # Errors
    /// There is no such tenant.
    pub fn changed(
        &self,
        config: &Config,
        policies: &Policies,
        (tenant, wanted, prunes): (&str, &TenantRules, bool),
    ) -> anyhow::Result<(RulesAnswer, TenantRuleBook)> {
        let bounds = Bounds::of(tenant, policies)?;
        let before = self.all.get(tenant).cloned().unwrap_or_default();
        let mut answer = RulesAnswer::default();
        let route = |value: &Value| {
            let rule = read::<RouteConfig>(value)?.rule()?;
            if config.route.iter().any(|other| *other.name() == *rule.name) {
                bail!("name {:?} is taken by a route of the configuration", rule.name);
            }
            bounds.check_route(&rule)
        };
        let alert = |value: &Value| {
            let rule = read::<AlertConfig>(value)?.rule()?;
            if config.alert.iter().any(|other| *other.name() == *rule.name) {
                bail!("name {:?} is taken by an alert of the configuration", rule.name);
            }
            bounds.check_alert(&rule)
        };
        let check = |kind, values: &[Value], check: &dyn Fn(&Value) -> anyhow::Result<()>| {
            let checked = (1..).zip(values).filter_map(|(number, value)| {
                let reason = format!("{:#}", check(value).err()?);
                Some(RuleFault { kind, number, reason })
            });
            checked.collect::<Vec<_>>()
        };
        answer.faults.extend(check(RuleKind::Route, &wanted.routes, &route));
        answer.faults.extend(check(RuleKind::Alert, &wanted.alerts, &alert));
        let after = TenantRules {
            routes: merge(RuleKind::Route, (&before.routes, &wanted.routes, prunes), &mut answer),
            alerts: merge(RuleKind::Alert, (&before.alerts, &wanted.alerts, prunes), &mut answer),
        };
        for (kind, left, most) in [
            (RuleKind::Route, after.routes.len(), ROUTES_MAX),
            (RuleKind::Alert, after.alerts.len(), ALERTS_MAX),
        ] {
            if most < left {
                let reason = format!("the tenant {tenant} would have {left} of them; the most is {most}");
                answer.faults.push(RuleFault { kind, number: 0, reason });
            }
        }
        let mut book = self.clone();
        match after.is_empty() {
            true => book.all.remove(tenant),
            false => book.all.insert(tenant.to_owned(), after),
        };
        if answer.faults.is_empty() {
            answer.faults.extend(book.faults_beside(config));
        }
        Ok((answer, book))
    }

    /// Why the rules of all tenants cannot be beside those of the configuration.
    fn faults_beside(&self, config: &Config) -> Vec<RuleFault> {
        let (mut routes, mut alerts) = (config.route.clone(), config.alert.clone());
        for rules in self.all.values() {
            routes.extend(rules.routes.iter().filter_map(|rule| read(rule).ok()));
            alerts.extend(rules.alerts.iter().filter_map(|rule| read(rule).ok()));
        }
        let routes =
            config.addressing().and_then(|addressing| routes::routes(&routes, &addressing).map(drop));
        let alerts = alerts::rules(&alerts).map(drop);
        let fault = |kind, made: anyhow::Result<()>| {
            Some(RuleFault { kind, number: 0, reason: made.err()?.root_cause().to_string() })
        };
        fault(RuleKind::Route, routes).into_iter().chain(fault(RuleKind::Alert, alerts)).collect()
    }

    /// The book without the rules of a tenant; `None` if it has none.
    pub fn without(&self, tenant: &str) -> Option<TenantRuleBook> {
        let mut book = self.clone();
        book.all.remove(tenant).map(|_| book)
    }

    /// The content of the text that has these rules.
    pub fn content(&self) -> String {
        let title = format!("{TITLE}{FORMAT} `postroad ctl apply` changes it.\n");
        let lines = self.all.iter().flat_map(|(tenant, rules)| {
            let routes = rules.routes.iter().map(move |rule| format!("{tenant} route {rule}\n"));
            routes.chain(rules.alerts.iter().map(move |rule| format!("{tenant} alert {rule}\n")))
        });
        std::iter::once(title).chain(lines).collect()
    }
}

fn parse(text: &str) -> Result<All, (usize, String)> {
    let first = text.lines().next().unwrap_or_default();
    if !first.strip_prefix(TITLE).is_some_and(|rest| rest.starts_with(FORMAT)) {
        return Err((1, format!("unknown format; the first line must begin with {TITLE:?} and {FORMAT}")));
    }
    let mut all = All::new();
    let lines = (1..).zip(text.lines().map(str::trim));
    for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let right = || (number, "expected TENANT route JSON or TENANT alert JSON".to_owned());
        let (tenant, rest) = line.split_once(' ').ok_or_else(right)?;
        let (kind, json) = rest.split_once(' ').ok_or_else(right)?;
        let rule: Value = serde_json::from_str(json).map_err(|error| (number, error.to_string()))?;
        let rules = all.entry(tenant.to_owned()).or_default();
        match kind {
            "route" => rules.routes.push(rule),
            "alert" => rules.alerts.push(rule),
            _ => return Err(right()),
        }
    }
    Ok(all)
}

/// A rule as the configuration has it.
fn read<T: DeserializeOwned>(rule: &Value) -> anyhow::Result<T> {
    T::deserialize(rule).map_err(|error| anyhow::anyhow!("{error}"))
}

fn name(rule: &Value) -> &str {
    rule["name"].as_str().unwrap_or_default()
}

/// The rules after a change, by name; `prunes` removes those that are not wanted.
fn merge(
    kind: RuleKind,
    (before, wanted, prunes): (&[Value], &[Value], bool),
    answer: &mut RulesAnswer,
) -> Vec<Value> {
    let mut after: Vec<Value> = Vec::with_capacity(before.len().max(wanted.len()));
    let mut change = |rule: &Value, from: Option<&Value>, to: Option<&Value>| {
        let (from, to) = (from.map(Value::to_string), to.map(Value::to_string));
        answer.changes.push(RuleChange { kind, name: name(rule).to_owned(), from, to });
    };
    for old in before {
        let new = wanted.iter().find(|new| name(new) == name(old));
        match new {
            None if prunes => change(old, Some(old), None),
            kept => {
                change(old, Some(old), Some(kept.unwrap_or(old)));
                after.push(kept.unwrap_or(old).clone());
            }
        }
    }
    for (number, new) in (1..).zip(wanted) {
        if after.iter().any(|rule| name(rule) == name(new)) {
            let is_twice = 1 < wanted.iter().take(number).filter(|other| name(other) == name(new)).count();
            if is_twice {
                let reason = format!("name {:?} is already that of another one in the file", name(new));
                answer.faults.push(RuleFault { kind, number, reason });
            }
            continue;
        }
        change(new, None, Some(new));
        after.push(new.clone());
    }
    after
}

/// The bounds of a tenant's rules.
struct Bounds<'p> {
    tenant: &'p str,
    owns: Vec<&'p DestinationPattern>,
}

impl Bounds<'_> {
    fn of<'p>(tenant: &'p str, policies: &'p Policies) -> anyhow::Result<Bounds<'p>> {
        let owns: Vec<&DestinationPattern> = policies.permissions.destinations_of(tenant).collect();
        match owns.is_empty() {
            true => bail!("there is no tenant {tenant:?}"),
            false => Ok(Bounds { tenant, owns }),
        }
    }

    fn check_name(&self, name: &str) -> anyhow::Result<()> {
        let tenant = self.tenant;
        match name.strip_prefix(tenant).is_some_and(|rest| rest.starts_with('.')) {
            true => Ok(()),
            false => bail!("name {name:?} is not one of the tenant {tenant}; use \"{tenant}.{name}\""),
        }
    }

    fn check_pattern(&self, key: &str, pattern: &DestinationPattern) -> anyhow::Result<()> {
        let is_own = self.owns.iter().any(|own| {
            own.kind == pattern.kind && own.temporary == pattern.temporary && own.name.covers(&pattern.name)
        });
        let owns: Vec<String> = self.owns.iter().map(ToString::to_string).collect();
        match is_own {
            true => Ok(()),
            false => bail!("{key} {pattern} is outside of the tenant, which has {}", owns.join(" and ")),
        }
    }

    fn check_destination(&self, key: &str, destination: &Destination) -> anyhow::Result<()> {
        let Destination { kind, temporary, name } = destination;
        let word = match kind {
            DestinationKind::Queue => "queue",
            DestinationKind::Topic => "topic",
        };
        let pattern = DestinationPattern::parse(&format!("{word}://{name}")).context(key.to_owned())?;
        self.check_pattern(key, &DestinationPattern { temporary: *temporary, ..pattern })
    }

    fn check_route(&self, route: &Route) -> anyhow::Result<()> {
        self.check_name(&route.name)?;
        self.check_pattern("from", &route.from)?;
        for (key, targets) in [("to", &route.targets), ("otherwise", &route.otherwise)] {
            targets.iter().try_for_each(|target| self.check_destination(key, &target.destination))?;
        }
        if let Some(dead_letter) = &route.dead_letter {
            self.check_destination("dead_letter_queue", dead_letter)?;
        }
        let Some(recipients) = &route.recipients else { return Ok(()) };
        if recipients.allow.is_empty() {
            bail!("recipients needs recipients_allow, with destinations of the tenant");
        }
        recipients.allow.iter().try_for_each(|pattern| self.check_pattern("recipients_allow", pattern))
    }

    fn check_alert(&self, alert: &AlertRule) -> anyhow::Result<()> {
        self.check_name(&alert.name)?;
        if !alert.on.is_of_queue() {
            bail!("on = {:?} is of the broker: a tenant watches its queues", alert.on.name());
        }
        if alert.destinations.is_empty() {
            bail!("destinations is missing: name the tenant's own, as [\"queue://{}.>\"]", self.tenant);
        }
        alert.destinations.iter().try_for_each(|pattern| self.check_pattern("destinations", pattern))?;
        alert.to.iter().try_for_each(|recipient| match recipient {
            Recipient::Destination(destination) => self.check_destination("to", destination),
            _ => {
                bail!("to must have queues and topics of the tenant, as [\"queue://{}.alerts\"]", self.tenant)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CONFIG: &str = "[[tenant]]\nname = \"acme\"\n[[tenant]]\nname = \"lab\"\n\
                          [[route]]\nname = \"acme.taken\"\nfrom = \"queue://x\"\n\
                          to = [{ destination = \"queue://y\" }]\n\
                          [[alert]]\nname = \"acme.full\"\non = \"disk\"\nabove = 90\n";

    fn route(name: &str, from: &str, to: &str) -> Value {
        json!({ "name": name, "from": from, "to": [{ "destination": to }] })
    }

    fn alert(name: &str) -> Value {
        json!({ "name": name, "on": "depth", "above": 5, "destinations": ["queue://acme.>"], "to": ["queue://acme.ops"] })
    }

    fn config(text: &str) -> (Config, Policies) {
        let config = Config::parse(text).unwrap();
        let policies = config.policies().unwrap();
        (config, policies)
    }

    fn rules(routes: &[Value], alerts: &[Value]) -> TenantRules {
        TenantRules { routes: routes.to_vec(), alerts: alerts.to_vec() }
    }

    fn text(folder: &tempfile::TempDir) -> Text {
        Text::of_file(&folder.path().join("tenant-rules"))
    }

    #[test]
    fn rules_are_merged_by_name_kept_in_the_file_and_added_to_those_of_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let ((config, policies), empty) = (config(CONFIG), TenantRuleBook::open(text(&folder)).unwrap());
        let first = rules(
            &[
                route("acme.a", "queue://acme.a", "queue://acme.b"),
                route("acme.c", "queue://acme.c", "topic://acme.d"),
            ],
            &[alert("acme.deep")],
        );
        let (answer, book) = empty.changed(&config, &policies, ("acme", &first, false)).unwrap();
        assert_eq!((answer.changes.len(), answer.faults), (3, Vec::new()));
        book.text().replace(&book.content()).unwrap();
        assert_eq!(TenantRuleBook::open(text(&folder)).unwrap(), book);
        let mut all = policies.clone();
        book.add_routes(&config, &mut all).unwrap();
        let names = |policies: &Policies| {
            policies.routes.rules().map(|route| route.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&all), ["acme.taken", "acme.a", "acme.c"]);
        assert_eq!(book.alert_rules(&config, &all).unwrap().len(), 2);

        let second = rules(&[route("acme.a", "queue://acme.a", "queue://acme.e")], &[]);
        for (prunes, left, want) in [
            (false, 3, ["~ acme.a", "= acme.c", "= acme.deep"]),
            (true, 1, ["~ acme.a", "- acme.c", "- acme.deep"]),
        ] {
            let (answer, changed) = book.changed(&config, &policies, ("acme", &second, prunes)).unwrap();
            let sign = |change: &RuleChange| match (&change.from, &change.to) {
                (Some(from), Some(to)) if from == to => "=",
                (Some(_), Some(_)) => "~",
                (None, _) => "+",
                (_, None) => "-",
            };
            let shown: Vec<String> =
                answer.changes.iter().map(|change| format!("{} {}", sign(change), change.name)).collect();
            assert_eq!(shown, want);
            let of = &changed.all["acme"];
            assert_eq!(of.routes.len() + of.alerts.len(), left);
        }
        let (_, none) = book.changed(&config, &policies, ("acme", &rules(&[], &[]), true)).unwrap();
        assert_eq!((none, book.without("acme"), book.without("lab")), (empty.clone(), Some(empty), None));
    }

    #[test]
    fn rules_that_leave_their_tenant_are_refused_by_number() {
        let ((config, policies), folder) = (config(CONFIG), tempfile::tempdir().unwrap());
        let book = TenantRuleBook::open(text(&folder)).unwrap();
        let good = route("acme.a", "queue://acme.a", "queue://acme.b");
        let with = |key: &str, value: Value| {
            let mut changed = good.clone();
            changed[key] = value;
            changed
        };
        let with_alert = |key: &str, value: Value| {
            let mut changed = alert("acme.deep");
            changed[key] = value;
            changed
        };
        for (wanted, want) in [
            (
                rules(&[route("a", "queue://acme.a", "queue://acme.b")], &[]),
                "route 1: name \"a\" is not one of the tenant acme; use \"acme.a\"",
            ),
            (
                rules(&[with("from", json!("queue://lab.a"))], &[]),
                "route 1: from queue://lab.a is outside of the tenant, which has queue://acme.> and topic://acme.>",
            ),
            (rules(&[with("from", json!("queue://*.a"))], &[]), "route 1: from queue://*.a is outside"),
            (
                rules(&[with("to", json!([{ "destination": "queue://acmes.b" }]))], &[]),
                "route 1: to queue://acmes.b is outside",
            ),
            (
                rules(&[with("otherwise", json!([{ "destination": "topic://x" }]))], &[]),
                "route 1: otherwise topic://x is outside",
            ),
            (
                rules(&[with("dead_letter_queue", json!("DLQ"))], &[]),
                "route 1: dead_letter_queue queue://DLQ is outside",
            ),
            (rules(&[with("recipients", json!("to"))], &[]), "route 1: recipients needs recipients_allow"),
            (rules(&[with("frm", json!("x"))], &[]), "route 1: unknown field `frm`, expected one of `name`"),
            (
                rules(&[with("name", json!("acme.taken"))], &[]),
                "route 1: name \"acme.taken\" is taken by a route",
            ),
            (
                rules(&[good.clone(), good.clone()], &[]),
                "route 2: name \"acme.a\" is already that of another",
            ),
            (
                rules(&[good.clone(), route("acme.b", "queue://acme.b", "queue://acme.a")], &[]),
                "route 0: routes form a cycle: acme.a",
            ),
            (rules(&[], &[alert("deep")]), "alert 1: name \"deep\" is not one of the tenant acme"),
            (rules(&[], &[alert("acme.full")]), "alert 1: name \"acme.full\" is taken by an alert"),
            (rules(&[], &[with_alert("destinations", json!([]))]), "alert 1: destinations is missing"),
            (
                rules(&[], &[with_alert("destinations", json!(["queue://>"]))]),
                "alert 1: destinations queue://> is outside",
            ),
            (
                rules(&[], &[with_alert("to", json!(["http://127.0.0.1/"]))]),
                "alert 1: to must have queues and topics",
            ),
            (
                rules(&[], &[json!({ "name": "acme.d", "on": "disk", "above": 1 })]),
                "alert 1: on = \"disk\" is of the broker",
            ),
        ] {
            let (answer, _) = book.changed(&config, &policies, ("acme", &wanted, false)).unwrap();
            let faults: Vec<String> = answer
                .faults
                .iter()
                .map(|RuleFault { kind, number, reason }| format!("{} {number}: {reason}", kind.name()))
                .collect();
            assert!(faults.len() == 1 && faults[0].starts_with(want), "{faults:?}, expected {want}");
        }
        for (most, count) in [(true, ALERTS_MAX), (false, ALERTS_MAX + 1)] {
            let many: Vec<Value> = (0..count).map(|number| alert(&format!("acme.{number}"))).collect();
            let (answer, _) = book.changed(&config, &policies, ("acme", &rules(&[], &many), false)).unwrap();
            assert_eq!(answer.faults.is_empty(), most, "{:?}", answer.faults);
        }
        assert!(book.changed(&config, &policies, ("none", &rules(&[], &[]), false)).is_err());
    }

    #[test]
    fn a_tenant_whose_rules_cannot_be_any_more_is_left_out_and_the_others_stay() {
        let ((config, policies), folder) = (config(CONFIG), tempfile::tempdir().unwrap());
        let mut book = TenantRuleBook::open(text(&folder)).unwrap();
        for (tenant, rule) in [
            ("acme", route("acme.taken", "queue://acme.a", "queue://acme.b")),
            ("gone", route("gone.a", "queue://gone.a", "queue://gone.b")),
            ("lab", route("lab.a", "queue://lab.a", "queue://lab.b")),
        ] {
            book.all.insert(tenant.to_owned(), rules(&[rule], &[]));
        }
        let mut all = policies.clone();
        book.add_routes(&config, &mut all).unwrap();
        let names: Vec<&str> = all.routes.rules().map(|route| &*route.name).collect();
        assert_eq!(names, ["acme.taken", "lab.a"]);
    }

    #[test]
    fn lines_that_are_no_rule_are_named() {
        let title = format!("{TITLE}{FORMAT}\n");
        for (case, text, line) in [
            ("another format", "# Routes and alerts of tenants, format 10.".to_owned(), 1),
            ("no kind", format!("{title}acme"), 2),
            ("another kind", format!("{title}acme queue {{}}"), 2),
            ("no JSON", format!("{title}acme route {{"), 2),
        ] {
            assert_eq!(parse(&text).map_err(|(line, _)| line), Err(line), "case: {case}");
        }
    }
}
