//! Permissions: which user may do which action on which destinations.

use std::collections::BTreeMap;
use std::sync::Arc;

use postroad_model::{Action, Destination, DestinationKind, Principal, Refusal};

use crate::pattern::Pattern;
use crate::policy::DestinationPattern;
use crate::store_places::{FIRST_STORE, StorePlaces};

/// A set of actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actions(u8);

impl Actions {
    /// The same set and this action.
    #[must_use]
    pub const fn with(self, action: Action) -> Actions {
        Actions(self.0 | 1 << action as u8)
    }

    /// Whether the action is in the set.
    pub const fn contains(self, action: Action) -> bool {
        self.0 & 1 << action as u8 != 0
    }
}

impl FromIterator<Action> for Actions {
    fn from_iter<I: IntoIterator<Item = Action>>(actions: I) -> Actions {
        actions.into_iter().fold(Actions::default(), Actions::with)
    }
}

/// The users that a permission is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grantee {
    /// Every connection, also of the anonymous user.
    Everyone,
    /// Every user who has logged in.
    LoggedIn,
    /// The user of this name.
    User(Arc<str>),
    /// The members of the group of this name.
    Group(Arc<str>),
}

/// Grants actions on destinations to users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The users.
    pub grantees: Vec<Grantee>,
    /// The destinations.
    pub destinations: Vec<DestinationPattern>,
    /// The actions.
    pub actions: Actions,
}

/// All permissions. Without any, every action is permitted; with at least one, only the granted
/// actions are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    permissions: Vec<Permission>,
    /// The groups of each user.
    groups: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// Users who belong to a tenant. They may do nothing without a permission.
    members: BTreeMap<Arc<str>, Membership>,
    /// Destinations of each tenant, for its members.
    of_tenants: BTreeMap<Arc<str>, Vec<DestinationPattern>>,
    /// Whether users of an identity provider are let in. They, too, need permissions.
    has_federation: bool,
    /// Where names are, in a cluster of several stores.
    places: Option<StorePlaces>,
}

/// The tenant of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Its name.
    pub tenant: Arc<str>,
    /// Whether the user administers it.
    pub administers: bool,
}

/// Members of the tenant `NAME` are in the group `tenant:NAME`, its administrators in
/// `tenant:NAME:admin`.
const GROUP_OF_TENANT: &str = "tenant:";

/// See [`GROUP_OF_TENANT`].
const ADMINISTRATORS: &str = ":admin";

impl Membership {
    /// The tenant whose group this is, if it is one's.
    pub fn of_group(group: &str) -> Option<Membership> {
        let name = group.strip_prefix(GROUP_OF_TENANT)?;
        let tenant = name.strip_suffix(ADMINISTRATORS);
        Some(Membership { tenant: tenant.unwrap_or(name).into(), administers: tenant.is_some() })
    }

    /// The group of the members, or of the administrators, of a tenant.
    pub fn group(&self) -> String {
        format!("{GROUP_OF_TENANT}{}{}", self.tenant, if self.administers { ADMINISTRATORS } else { "" })
    }

    /// With one that the user had before: of two tenants the first counts.
    fn joined_to(self, known: Option<Membership>) -> Membership {
        let Some(mut known) = known else { return self };
        known.administers |= known.tenant == self.tenant && self.administers;
        known
    }
}

/// The permissions of one principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grants {
    /// `None` permits everything.
    granted: Option<Vec<(DestinationPattern, Actions)>>,
}

/// Topics with the advisories about temporary destinations. OpenWire clients subscribe to them on
/// their own (`ActiveMQConnection.watchTopicAdvisories`) and give up the connection if they cannot.
const ADVISORIES_FOR_ALL: [&str; 2] = ["ActiveMQ.Advisory.TempQueue", "ActiveMQ.Advisory.TempTopic"];

/// What members of a tenant may do with its destinations.
const TENANT_MEMBER: Actions = Actions(0).with(Action::Read).with(Action::Write).with(Action::Create);

/// What its administrators may do.
const TENANT_ADMINISTRATOR: Actions = TENANT_MEMBER.with(Action::Manage);

impl Permissions {
    /// Adds a permission.
    pub fn add(&mut self, permission: Permission) {
        self.permissions.push(permission);
    }

    /// The members of the tenant may use these destinations, and its administrators manage them.
    pub fn add_tenant(&mut self, tenant: &Arc<str>, owns: Vec<DestinationPattern>) {
        self.of_tenants.insert(tenant.clone(), owns);
    }

    /// Users of an identity provider are let in.
    pub fn expect_federation(&mut self) {
        self.has_federation = true;
    }

    /// The cluster has several stores, with these names.
    pub fn place(&mut self, places: StorePlaces) {
        self.places = Some(places);
    }

    /// Where names are, in a cluster of several stores.
    pub fn places(&self) -> Option<&StorePlaces> {
        self.places.as_ref()
    }

    /// As [`Permissions::places`], to add tenants that are made while the broker runs.
    pub fn places_mut(&mut self) -> Option<&mut StorePlaces> {
        self.places.as_mut()
    }

    /// The store that serves this principal.
    pub fn store_of(&self, principal: &Principal) -> u16 {
        let tenant = self.membership_of(principal).map(|of| of.tenant);
        let store = self.places.as_ref().zip(tenant).map(|(places, tenant)| places.of_tenant(&tenant));
        store.unwrap_or(FIRST_STORE)
    }

    /// The destinations of a tenant.
    pub fn destinations_of(&self, tenant: &str) -> impl Iterator<Item = &DestinationPattern> {
        self.of_tenants.get(tenant).into_iter().flatten()
    }

    /// The tenant of the principal, if it belongs to one.
    pub fn membership_of(&self, principal: &Principal) -> Option<Membership> {
        let known = self.members.get(principal.user()?).cloned();
        let Principal::Federated(federated) = principal else { return known };
        let named = federated.groups.iter().filter_map(|group| Membership::of_group(group));
        named.fold(known, |known, further| Some(further.joined_to(known)))
    }

    /// Makes the user a member of the group, which may be that of a tenant: of two tenants the
    /// first counts.
    pub fn add_member(&mut self, group: &Arc<str>, user: &str) {
        if let Some(membership) = Membership::of_group(group) {
            let joined = membership.joined_to(self.members.remove(user));
            self.members.insert(user.into(), joined);
        }
        self.groups.entry(user.into()).or_default().push(group.clone());
    }

    /// Whether every action is permitted to everyone, as no permission is configured, no user
    /// belongs to a tenant or an identity provider, and no name is in another store.
    pub fn permit_all(&self) -> bool {
        let is_guarded = self.has_federation || self.places.is_some();
        self.permissions.is_empty() && self.members.is_empty() && !is_guarded
    }

    /// The permissions of this principal.
    pub fn grants_of(&self, principal: &Principal) -> Grants {
        let membership = self.membership_of(principal);
        let federated = match principal {
            Principal::Operator => return Grants::ALL,
            Principal::Federated(federated) => Some(federated),
            _ if self.permissions.is_empty() && membership.is_none() => return Grants::ALL,
            _ => None,
        };
        let user = principal.user();
        let own = user.and_then(|user| self.groups.get(user)).map_or(&[][..], |groups| groups);
        let shown = federated.map_or(&[][..], |federated| &federated.groups);
        let is_for = |grantee: &Grantee| match grantee {
            Grantee::Everyone => true,
            Grantee::LoggedIn => user.is_some(),
            Grantee::User(name) => user == Some(name),
            Grantee::Group(name) => own.contains(name) || shown.contains(name),
        };
        let granted = self.permissions.iter().filter(|permission| permission.grantees.iter().any(is_for));
        let granted = granted.flat_map(|permission| {
            permission.destinations.iter().map(|pattern| (pattern.clone(), permission.actions))
        });
        let owned = membership.as_ref().and_then(|of| Some((of, self.of_tenants.get(&of.tenant)?)));
        let owned = owned.into_iter().flat_map(|(of, owns)| {
            let actions = if of.administers { TENANT_ADMINISTRATOR } else { TENANT_MEMBER };
            owns.iter().map(move |pattern| (pattern.clone(), actions))
        });
        Grants { granted: Some(granted.chain(owned).collect()) }
    }
}

impl Grants {
    /// Everything is permitted.
    pub const ALL: Grants = Grants { granted: None };

    /// Whether everything is permitted.
    pub fn permit_all(&self) -> bool {
        self.granted.is_none()
    }

    /// Whether the action on the destination is permitted. A pattern is permitted if one permission
    /// covers every name that it stands for. The core checks the owner of a temporary destination;
    /// it needs no permission.
    pub fn permit(&self, action: Action, destination: &Destination) -> bool {
        let Some(granted) = &self.granted else { return true };
        if destination.temporary {
            return true;
        }
        if action == Action::Read && is_open_advisory(destination) {
            return true;
        }
        // A name with too many words for a pattern matches none but `>`.
        let asked = destination.is_pattern().then(|| Pattern::parse(&destination.name).ok()).flatten();
        granted.iter().any(|(pattern, actions)| {
            actions.contains(action)
                && pattern.kind == destination.kind
                && !pattern.temporary
                && match &asked {
                    Some(asked) => pattern.name.covers(asked),
                    None => pattern.name.matches(&destination.name),
                }
        })
    }

    /// The same, with the refusal for the principal whose permissions these are.
    ///
    /// # Errors
    /// [`Refusal::NotPermitted`].
    pub fn check(
        &self,
        principal: &Principal,
        action: Action,
        destination: &Destination,
    ) -> Result<(), Refusal> {
        match self.permit(action, destination) {
            true => Ok(()),
            false => {
                let (user, destination) = (principal.user().cloned(), destination.clone());
                Err(Refusal::NotPermitted { user, action, destination })
            }
        }
    }

    /// Whether the action is permitted on every destination, as commands about the whole broker
    /// need.
    pub fn permit_everywhere(&self, action: Action) -> bool {
        [Destination::queue(">"), Destination::topic(">")]
            .iter()
            .all(|everything| self.permit(action, everything))
    }
}

/// Whether every client may read it.
fn is_open_advisory(destination: &Destination) -> bool {
    destination.kind == DestinationKind::Topic && ADVISORIES_FOR_ALL.contains(&&*destination.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_model::Federated;

    fn permission(grantee: Grantee, destinations: &[&str], actions: &[Action]) -> Permission {
        let destinations = destinations.iter().map(|text| DestinationPattern::parse(text).unwrap()).collect();
        Permission { grantees: vec![grantee], destinations, actions: actions.iter().copied().collect() }
    }

    fn permissions() -> Permissions {
        let mut permissions = Permissions::default();
        let billing: Arc<str> = "billing".into();
        permissions.add_member(&billing, "bob");
        for (grantee, destinations, actions) in [
            (Grantee::User("ann".into()), &["queue://orders.>"][..], &[Action::Read, Action::Write][..]),
            (Grantee::User("ann".into()), &["topic://prices.*"], &[Action::Read]),
            (Grantee::Group(billing), &["queue://bills.>"], &[Action::Read]),
            (Grantee::LoggedIn, &["queue://shared"], &[Action::Write]),
            (Grantee::Everyone, &["topic://news.>"], &[Action::Read]),
            (Grantee::User("root".into()), &["queue://>", "topic://>"], &Action::ALL),
        ] {
            permissions.add(permission(grantee, destinations, actions));
        }
        permissions
    }

    #[test]
    fn actions_are_permitted_by_user_group_pattern_and_kind() {
        let permissions = permissions();
        let queue = Destination::queue;
        let topic = Destination::topic;
        for (user, action, destination, want) in [
            ("ann", Action::Read, queue("orders.new"), true),
            ("ann", Action::Write, queue("orders.new"), true),
            ("ann", Action::Manage, queue("orders.new"), false),
            ("ann", Action::Read, topic("orders.new"), false),
            ("ann", Action::Read, queue("other"), false),
            ("ann", Action::Read, queue("orders.>"), true),
            ("ann", Action::Read, queue(">"), false),
            ("ann", Action::Read, topic("prices.*"), true),
            ("ann", Action::Read, topic("prices.>"), false),
            ("ann", Action::Read, queue("bills.a"), false),
            ("bob", Action::Read, queue("bills.a"), true),
            ("bob", Action::Read, queue("orders.new"), false),
            ("bob", Action::Write, queue("shared"), true),
            ("", Action::Write, queue("shared"), false),
            ("", Action::Read, topic("news.today"), true),
            ("", Action::Read, topic("ActiveMQ.Advisory.TempQueue"), true),
            ("", Action::Write, topic("ActiveMQ.Advisory.TempQueue"), false),
            ("", Action::Read, topic("ActiveMQ.Advisory.Connection"), false),
            ("", Action::Write, Destination { temporary: true, ..queue("x") }, true),
            ("root", Action::Admin, queue(">"), true),
        ] {
            let user: Option<Arc<str>> = Some(user.into()).filter(|user: &Arc<str>| !user.is_empty());
            let grants = permissions.grants_of(&Principal::of(user.as_ref()));
            assert_eq!(grants.permit(action, &destination), want, "{user:?} {action} {destination}");
        }
    }

    #[test]
    fn members_of_a_tenant_have_its_destinations_alone_and_other_users_what_they_had() {
        let pattern = |text: &str| DestinationPattern::parse(text).unwrap();
        let mut permissions = Permissions::default();
        permissions.add_tenant(&"acme".into(), vec![pattern("queue://acme.>")]);
        for (group, user) in [
            ("tenant:acme", "acme.app"),
            ("tenant:acme", "acme.admin"),
            ("tenant:acme:admin", "acme.admin"),
            ("tenant:lab:admin", "acme.admin"),
            ("tenant:gone", "left"),
        ] {
            permissions.add_member(&group.into(), user);
        }
        assert!(!permissions.permit_all());
        let (own, other) = (Destination::queue("acme.a"), Destination::queue("lab.a"));
        for (user, action, destination, want) in [
            ("acme.app", Action::Write, &own, true),
            ("acme.app", Action::Create, &own, true),
            ("acme.app", Action::Manage, &own, false),
            ("acme.app", Action::Read, &other, false),
            ("acme.admin", Action::Manage, &own, true),
            ("acme.admin", Action::Admin, &own, false),
            ("acme.admin", Action::Manage, &other, false),
            ("left", Action::Read, &own, false),
            ("root", Action::Admin, &other, true),
        ] {
            let grants = permissions.grants_of(&Principal::User(user.into()));
            assert_eq!(grants.permit(action, destination), want, "{user} {action} {destination}");
        }
        let of = |user: &str| permissions.membership_of(&Principal::User(user.into()));
        let acme = |administers| Some(Membership { tenant: "acme".into(), administers });
        assert_eq!((of("acme.app"), of("acme.admin"), of("root")), (acme(false), acme(true), None));
        for group in ["tenant:acme", "tenant:acme:admin"] {
            assert_eq!(Membership::of_group(group).map(|of| of.group()).as_deref(), Some(group));
        }
    }

    #[test]
    fn users_of_a_provider_have_the_permissions_of_their_groups_and_none_without() {
        let of = |groups: &[&str]| {
            let groups = groups.iter().map(|&group| group.into()).collect();
            Principal::Federated(Arc::new(Federated { user: "oidc:zoe".into(), groups, expires_ms: None }))
        };
        let bills = Destination::queue("bills.a");
        let mut some = permissions();
        some.add_tenant(&"acme".into(), vec![DestinationPattern::parse("queue://acme.>").unwrap()]);
        let permits = |groups: &[&str], destination: &Destination, action| {
            some.grants_of(&of(groups)).permit(action, destination)
        };
        assert!(permits(&["x", "billing"], &bills, Action::Read));
        assert!(!permits(&["x"], &bills, Action::Read));
        assert!(!permits(&["ann", "root"], &bills, Action::Read), "a group is not a user");
        assert!(permits(&[], &Destination::queue("shared"), Action::Write), "it has logged in");
        let own = Destination::queue("acme.a");
        assert!(permits(&["tenant:acme"], &own, Action::Write));
        assert!(!permits(&["tenant:acme"], &own, Action::Manage));
        assert!(permits(&["tenant:acme:admin"], &own, Action::Manage));
        assert!(!permits(&["tenant:other"], &own, Action::Write));
        let mut none = Permissions::default();
        assert!(none.permit_all());
        none.expect_federation();
        assert!(!none.permit_all());
        assert!(
            !none.grants_of(&of(&["billing"])).permit(Action::Read, &bills),
            "no permission is configured"
        );
        assert!(none.grants_of(&Principal::User("ann".into())).permit(Action::Read, &bills));
    }

    #[test]
    fn without_permissions_and_for_the_operator_everything_is_permitted() {
        let none = Permissions::default();
        assert!(none.grants_of(&Principal::Anonymous).permit(Action::Admin, &Destination::queue("a")));
        let some = permissions();
        assert!(some.grants_of(&Principal::Operator).permit_everywhere(Action::Admin));
        assert!(!some.grants_of(&Principal::User("ann".into())).permit_everywhere(Action::Admin));
        assert!(some.grants_of(&Principal::User("root".into())).permit_everywhere(Action::Admin));
    }
}
