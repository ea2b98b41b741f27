//! Users, groups and permissions: `simpleAuthenticationPlugin` and `authorizationPlugin`.

use std::collections::{BTreeMap, BTreeSet};

use super::element::Element;
use super::translation::{Table, Translation, Value};

/// Names the file of users, which is made by hand: passwords are not translated.
const USERS_FILE: &str = "users";

/// Attributes of maps of permissions in a directory, and what takes their place.
const DIRECTORY: &[(&str, &str)] = &[
    ("connectionURL", "as security.ldap.urls, with ldaps:// or start_tls"),
    ("connectionUsername", "as security.ldap.bind_dn"),
    // Not to be shown.
    ("connectionPassword", ""),
    ("connectionProtocol", ""),
    ("authentication", ""),
    ("queueSearchBase", "its entries name queues and groups"),
    ("topicSearchBase", "its entries name topics and groups"),
    ("tempSearchBase", "every user may have temporary destinations, and reads its own alone"),
    ("groupNameAttribute", "as security.ldap.group_attribute"),
    ("permissionGroupMemberAttribute", "in security.ldap.group_filter"),
    ("groupObjectClass", ""),
    ("userObjectClass", ""),
    ("legacyGroupMapping", ""),
    ("adminPermissionGroupSearchFilter", ""),
    ("readPermissionGroupSearchFilter", ""),
    ("writePermissionGroupSearchFilter", ""),
    ("refreshInterval", "not needed: users with connections are asked about every ten seconds"),
    ("refreshDisabled", ""),
];

/// In ActiveMQ, a role that every user has who has logged in.
const EVERY_USER: &str = "*";

/// The actions of each attribute of an entry.
const ACTIONS: [(&str, &[&str]); 3] =
    [("read", &["read"]), ("write", &["write"]), ("admin", &["create", "manage"])];

/// Users and permissions of all plugins.
#[derive(Default)]
pub struct Access<'a> {
    /// Members of each group, with the line that names it first.
    groups: BTreeMap<&'a str, (u32, BTreeSet<&'a str>)>,
    permissions: Vec<Table>,
    /// The group of clients without a name.
    anonymous_group: Option<&'a str>,
}

impl<'a> Access<'a> {
    /// Reads a `simpleAuthenticationPlugin`. Its passwords are in plain text, and stay there.
    pub fn read_users(&mut self, plugin: &Element<'a>, translation: &mut Translation) {
        translation.set("security", "users", USERS_FILE, plugin);
        if plugin.flag("anonymousAccessAllowed", translation) == Some(true) {
            translation.set("security", "anonymous", true, plugin);
        }
        self.anonymous_group = Some(plugin.value("anonymousGroup", translation).unwrap_or("anonymous"));
        for user in plugin.child("users").iter().flat_map(Element::children) {
            let Some(name) = user.value("username", translation) else {
                translation.note(&user, "not translated: it names no user");
                continue;
            };
            for group in list(user.value("groups", translation)) {
                self.group(group, user.line()).insert(name);
            }
            let why =
                format!("not translated: its password; run postroad user add '{name}' --users {USERS_FILE}");
            translation.note(&user, &why);
            user.note_the_rest(&[("password", "")], translation);
        }
        plugin.note_the_rest(&[("anonymousUser", "not translated: such clients have no name")], translation);
    }

    /// Reads an `authorizationPlugin`.
    pub fn read_permissions(&mut self, plugin: &Element<'a>, translation: &mut Translation) {
        translation.set("security", "users", USERS_FILE, plugin);
        let mut open: Vec<Element<'a>> = plugin.children().collect();
        open.reverse();
        while let Some(element) = open.pop() {
            match element.name() {
                "authorizationEntry" => self.read_entry(&element, translation),
                "tempDestinationAuthorizationEntry" => {
                    let why =
                        "not translated: every user may have temporary destinations, and reads its own alone";
                    translation.note(&element, why);
                }
                "cachedLDAPAuthorizationMap" | "lDAPAuthorizationMap" => {
                    let why = "translate by hand: write each permission of the directory as a \
                               [[security.permission]]; [security.ldap] has the groups of users";
                    translation.note(&element, why);
                    element.note_the_rest(DIRECTORY, translation);
                }
                _ => {
                    let mut inner: Vec<Element<'a>> = element.children().collect();
                    inner.reverse();
                    element.note_the_rest(&[], translation);
                    open.extend(inner);
                }
            }
        }
    }

    fn read_entry(&mut self, entry: &Element<'a>, translation: &mut Translation) {
        let mut destinations = Vec::new();
        for (attribute, kind) in [("queue", "queue"), ("topic", "topic")] {
            let name = entry.value(attribute, translation);
            destinations.extend(name.map(|name| Value::from(&*format!("{kind}://{name}"))));
        }
        if destinations.is_empty() {
            let why = "not translated: it names neither a queue nor a topic";
            translation.note(entry, why);
            return entry.note_the_rest(&[("read", ""), ("write", ""), ("admin", "")], translation);
        }
        // Roles with the same actions share a permission.
        let mut actions_of: BTreeMap<&'a str, Vec<&'static str>> = BTreeMap::new();
        for (attribute, actions) in ACTIONS {
            for role in list(entry.value(attribute, translation)) {
                actions_of.entry(role).or_default().extend(actions);
            }
        }
        let mut roles_of: BTreeMap<Vec<&'static str>, Vec<&'a str>> = BTreeMap::new();
        for (role, actions) in actions_of {
            if Some(role) == self.anonymous_group && !self.groups.contains_key(role) {
                let why = format!(
                    "not translated: the role {role} of clients without a name; everyone = true would permit it to all"
                );
                translation.note(entry, &why);
                continue;
            }
            roles_of.entry(actions).or_default().push(role);
        }
        for (actions, roles) in roles_of {
            let (all, groups): (Vec<&str>, Vec<&str>) =
                roles.into_iter().partition(|role| *role == EVERY_USER);
            for group in &groups {
                self.group(group, entry.line());
            }
            let mut keys = Vec::new();
            if !all.is_empty() {
                keys.push(("users", Value::list(all.into_iter().map(Value::from))));
            }
            if !groups.is_empty() {
                keys.push(("groups", Value::list(groups.into_iter().map(Value::from))));
            }
            keys.push(("destinations", Value::list(destinations.iter().cloned())));
            keys.push(("actions", Value::list(actions.into_iter().map(Value::from))));
            self.permissions.push(Table { name: "security.permission", lines: vec![entry.line()], keys });
        }
        entry.note_the_rest(&[], translation);
    }

    fn group(&mut self, name: &'a str, line: u32) -> &mut BTreeSet<&'a str> {
        &mut self.groups.entry(name).or_insert_with(|| (line, BTreeSet::new())).1
    }

    /// Writes the groups, and the permissions that name them.
    pub fn write(self, translation: &mut Translation) {
        for (name, (line, users)) in self.groups {
            let users = Value::list(users.into_iter().map(Value::from));
            let keys = vec![("name", Value::from(name)), ("users", users)];
            translation.push(Table { name: "security.group", lines: vec![line], keys });
        }
        self.permissions.into_iter().for_each(|permission| translation.push(permission));
    }
}

/// Names with commas between them.
fn list(names: Option<&str>) -> impl Iterator<Item = &str> {
    names.into_iter().flat_map(|names| names.split(',')).map(str::trim).filter(|name| !name.is_empty())
}
