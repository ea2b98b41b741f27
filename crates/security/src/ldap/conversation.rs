//! A conversation with a directory: who the user is, in which groups, and whether the password is
//! right.
//!
//! ```text
//! BindService → FindUser → FindGroups → BindUser → done
//!                   └──────────┴── without group_base, without a password
//!                                  done ──again──▶ FindUser, for the next user
//! ```

use std::sync::Arc;

use super::filter::Names;
use super::messages::{self, Entry, Outcome, Response, Search};
use super::{LdapError, LdapRules};

/// `invalidCredentials`, and results for users who may not log in now.
const REFUSALS: [u32; 6] = [48, 49, 50, 53, 19, 32];

const SUCCESS: u32 = 0;
const SIZE_LIMIT_EXCEEDED: u32 = 4;

/// Groups that are looked for, at most.
const GROUPS_MAX: u32 = 256;

/// Bytes of all answers about one user, at most: an entry with thousands of groups, and its groups.
pub const ANSWERS_BYTES_MAX: usize = 4 << 20;

/// A user, as the directory describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The value of the attribute that names users.
    pub name: String,
    /// Names of its groups, as the directory has them.
    pub groups: Vec<String>,
}

/// The login of the broker itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Service {
    /// Its distinguished name; empty for an anonymous search.
    pub dn: String,
    /// Its password.
    pub password: String,
}

/// The next step.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// Send this to the directory.
    Send(Vec<u8>),
    /// Wait for more of the answer.
    Wait,
    /// The user is known, and its password right.
    Done(Found),
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    BindService,
    FindUser,
    FindGroups,
    BindUser,
}

/// See the head of this file.
pub struct Conversation {
    rules: Arc<LdapRules>,
    user: String,
    /// `None` if only the groups are asked for.
    password: Option<Box<str>>,
    stage: Stage,
    /// The number of the last request.
    id: u32,
    entries: Vec<Entry>,
    /// Bytes of the answers about this user.
    answer_bytes: usize,
    /// The distinguished name of the user.
    dn: String,
    found: Found,
}

impl Conversation {
    /// Begins with the login of the broker; returns that, too.
    pub fn begin(
        rules: Arc<LdapRules>,
        service: &Service,
        user: &str,
        password: Option<Box<str>>,
    ) -> (Conversation, Vec<u8>) {
        let conversation = Conversation {
            rules,
            user: user.to_owned(),
            password,
            stage: Stage::BindService,
            id: FIRST_ID,
            entries: Vec::new(),
            answer_bytes: 0,
            dn: String::new(),
            found: Found::default(),
        };
        let bind = messages::bind(FIRST_ID, &service.dn, &service.password);
        (conversation, bind)
    }

    /// Goes on with the groups of another user, once those of the last one are known, or it is not
    /// known. Returns the next request.
    pub fn again(&mut self, user: &str) -> Vec<u8> {
        (self.user, self.stage) = (user.to_owned(), Stage::FindUser);
        (self.found, self.answer_bytes) = (Found::default(), 0);
        self.entries.clear();
        self.dn.clear();
        self.find_user()
    }

    /// Takes a whole message of the directory.
    ///
    /// # Errors
    /// The user or password are wrong, or the directory cannot tell.
    pub fn receive(&mut self, message: &[u8]) -> Result<Turn, LdapError> {
        self.answer_bytes = self.answer_bytes.saturating_add(message.len());
        if ANSWERS_BYTES_MAX < self.answer_bytes {
            return Err(LdapError::TooMuch { max: ANSWERS_BYTES_MAX });
        }
        let (id, response) = messages::read(message)?;
        // Notices that no request asked for have the number 0: the directory ends the connection.
        if id != self.id {
            return Err(LdapError::failed("the directory sends an answer without a request"));
        }
        match (&self.stage, response) {
            (Stage::BindService, Response::Bind(outcome)) => {
                if outcome.code != SUCCESS {
                    return Err(LdapError::Service { code: outcome.code, message: outcome.message });
                }
                self.stage = Stage::FindUser;
                Ok(Turn::Send(self.find_user()))
            }
            (Stage::FindUser | Stage::FindGroups, Response::Entry(entry)) => {
                if self.entries.len() < GROUPS_MAX as usize {
                    self.entries.push(entry);
                }
                Ok(Turn::Wait)
            }
            (Stage::FindUser | Stage::FindGroups, Response::Reference) => Ok(Turn::Wait),
            (Stage::FindUser, Response::Done(outcome)) => self.user_found(&outcome),
            (Stage::FindGroups, Response::Done(outcome)) => self.groups_found(&outcome),
            (Stage::BindUser, Response::Bind(outcome)) => match outcome.code {
                SUCCESS => Ok(Turn::Done(std::mem::take(&mut self.found))),
                code if REFUSALS.contains(&code) => Err(LdapError::Wrong),
                code => Err(LdapError::Refused { code, message: outcome.message }),
            },
            _ => Err(LdapError::failed("the directory sends an answer to another request")),
        }
    }

    fn next_id(&mut self) -> u32 {
        self.id += 1;
        self.id
    }

    fn find_user(&mut self) -> Vec<u8> {
        let id = self.next_id();
        let rules = &self.rules;
        let attributes = [&*rules.user_attribute, &*rules.groups_attribute];
        let attributes = if rules.groups_attribute.is_empty() { &attributes[..1] } else { &attributes[..] };
        messages::search(
            id,
            Search {
                base: &rules.user_base,
                filter: &rules.user_filter,
                names: Names { user: &self.user, dn: "" },
                attributes,
                entries_max: 2,
                seconds_max: rules.seconds_max,
            },
        )
    }

    fn user_found(&mut self, outcome: &Outcome) -> Result<Turn, LdapError> {
        let entries = std::mem::take(&mut self.entries);
        if !matches!(outcome.code, SUCCESS | SIZE_LIMIT_EXCEEDED) {
            return Err(LdapError::Refused { code: outcome.code, message: outcome.message.clone() });
        }
        let entry = match entries.as_slice() {
            [] => return Err(LdapError::Wrong),
            [entry] if outcome.code == SUCCESS => entry,
            _ => return Err(LdapError::Ambiguous { user: self.user.clone() }),
        };
        let attribute = &self.rules.user_attribute;
        let Some(name) = entry.values(attribute).next().filter(|_| !entry.dn.is_empty()) else {
            return Err(LdapError::Nameless { dn: entry.dn.clone(), attribute: attribute.clone() });
        };
        self.found.name = name.to_owned();
        self.dn.clone_from(&entry.dn);
        let listed =
            entry.values(&self.rules.groups_attribute).filter(|_| !self.rules.groups_attribute.is_empty());
        self.found.groups = listed.map(str::to_owned).collect();
        if self.rules.group_base.is_empty() {
            return self.bind_user();
        }
        self.stage = Stage::FindGroups;
        let id = self.next_id();
        let rules = &self.rules;
        Ok(Turn::Send(messages::search(
            id,
            Search {
                base: &rules.group_base,
                filter: &rules.group_filter,
                names: Names { user: &self.user, dn: &self.dn },
                attributes: &[&rules.group_attribute],
                entries_max: GROUPS_MAX,
                seconds_max: rules.seconds_max,
            },
        )))
    }

    fn groups_found(&mut self, outcome: &Outcome) -> Result<Turn, LdapError> {
        // A user in more groups than are looked for would lack permissions without a word.
        if outcome.code != SUCCESS {
            return Err(LdapError::Refused { code: outcome.code, message: outcome.message.clone() });
        }
        let entries = std::mem::take(&mut self.entries);
        let attribute = &self.rules.group_attribute;
        self.found
            .groups
            .extend(entries.iter().filter_map(|entry| entry.values(attribute).next()).map(str::to_owned));
        self.bind_user()
    }

    fn bind_user(&mut self) -> Result<Turn, LdapError> {
        let Some(password) = self.password.take() else {
            return Ok(Turn::Done(std::mem::take(&mut self.found)));
        };
        // A name without a password is let in as anonymous (RFC 4513, section 5.1.2).
        if password.is_empty() {
            return Err(LdapError::Wrong);
        }
        self.stage = Stage::BindUser;
        let id = self.next_id();
        Ok(Turn::Send(messages::bind(id, &self.dn, &password)))
    }
}

/// The number of the first request; that before it is free for the start of TLS.
const FIRST_ID: u32 = 2;

#[cfg(test)]
mod tests {
    use super::super::ber::{Writer, tag};
    use super::super::tests::rules;
    use super::*;

    /// A message of the directory.
    fn said(id: u32, content: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.nested(tag::SEQUENCE, |writer| {
            writer.number(tag::INTEGER, id);
            content(writer);
        });
        writer.done()
    }

    fn ended(id: u32, kind: u8, code: u32) -> Vec<u8> {
        said(id, |writer| {
            writer.nested(kind, |writer| {
                writer.number(tag::ENUMERATED, code);
                writer.bytes(tag::OCTETS, b"");
                writer.bytes(tag::OCTETS, b"because");
            });
        })
    }

    fn entry(id: u32, dn: &str, attributes: &[(&str, &[&str])]) -> Vec<u8> {
        said(id, |writer| {
            writer.nested(tag::SEARCH_ENTRY, |writer| {
                writer.bytes(tag::OCTETS, dn.as_bytes());
                writer.nested(tag::SEQUENCE, |writer| {
                    for (name, values) in attributes {
                        writer.nested(tag::SEQUENCE, |writer| {
                            writer.bytes(tag::OCTETS, name.as_bytes());
                            writer.nested(tag::SET, |writer| {
                                values.iter().for_each(|value| writer.bytes(tag::OCTETS, value.as_bytes()));
                            });
                        });
                    }
                });
            });
        })
    }

    #[test]
    fn a_conversation_goes_on_with_other_users() {
        let service = Service { dn: "cn=broker".to_owned(), password: "s".to_owned() };
        let (mut conversation, _) = Conversation::begin(Arc::new(rules()), &service, "ann", None);
        let mut last = Ok(Turn::Wait);
        for answer in [ended(2, tag::BIND_RESPONSE, 0), ended(3, tag::SEARCH_DONE, 0)] {
            last = conversation.receive(&answer);
        }
        assert_eq!(last, Err(LdapError::Wrong), "the first is not there");
        let asked = conversation.again("bob");
        assert!(asked.windows(3).any(|bytes| bytes == b"bob"), "{asked:?}");
        for answer in [
            entry(4, "uid=bob", &[("uid", &["bob"])]),
            ended(4, tag::SEARCH_DONE, 0),
            entry(5, "cn=orders", &[("cn", &["orders"])]),
            ended(5, tag::SEARCH_DONE, 0),
        ] {
            last = conversation.receive(&answer);
        }
        let bob = Found { name: "bob".to_owned(), groups: vec!["orders".to_owned()] };
        assert_eq!(last, Ok(Turn::Done(bob)));
        conversation.again("cleo");
        assert_eq!(conversation.receive(&ended(6, tag::SEARCH_DONE, 0)), Err(LdapError::Wrong));
    }

    #[test]
    fn answers_about_one_user_have_a_size_at_most() {
        let service = Service { dn: String::new(), password: String::new() };
        let (mut conversation, _) = Conversation::begin(Arc::new(rules()), &service, "ann", None);
        conversation.receive(&ended(2, tag::BIND_RESPONSE, 0)).unwrap();
        let begun = conversation.answer_bytes;
        let photograph = "x".repeat(1 << 19);
        let large = entry(3, "cn=x", &[("photo", &[&photograph])]);
        let fit = (ANSWERS_BYTES_MAX - begun) / large.len();
        for number in 0..fit {
            assert_eq!(conversation.receive(&large), Ok(Turn::Wait), "{number}");
        }
        assert_eq!(conversation.receive(&large), Err(LdapError::TooMuch { max: ANSWERS_BYTES_MAX }));
        conversation.again("bob");
        assert!(conversation.answer_bytes == 0 && conversation.entries.is_empty());
    }

    /// The result of these answers to a login of `ANN` with this password.
    fn login(password: Option<&str>, answers: &[Vec<u8>]) -> Result<Turn, LdapError> {
        let service = Service { dn: "cn=broker".to_owned(), password: "s".to_owned() };
        let (mut conversation, bind) =
            Conversation::begin(Arc::new(rules()), &service, "ANN", password.map(Into::into));
        assert_eq!(bind, messages::bind(2, "cn=broker", "s"));
        let mut last = Ok(Turn::Wait);
        for answer in answers {
            last = conversation.receive(answer);
        }
        last
    }

    #[test]
    fn the_user_is_found_then_its_groups_then_its_password_is_tried() {
        let (bound, user) = (ended(2, tag::BIND_RESPONSE, 0), entry(3, "uid=ann,dc=x", &[("UID", &["ann"])]));
        let found = ended(3, tag::SEARCH_DONE, 0);
        let (group, groups) = (entry(4, "cn=orders", &[("cn", &["orders"])]), ended(4, tag::SEARCH_DONE, 0));
        let begun = [bound.clone(), user.clone(), found.clone(), group, groups];
        let and = |further: Vec<u8>| [&begun[..], &[further]].concat();
        let done = Found { name: "ann".to_owned(), groups: vec!["orders".to_owned()] };
        assert_eq!(login(Some("pw"), &begun), Ok(Turn::Send(messages::bind(5, "uid=ann,dc=x", "pw"))));
        assert_eq!(login(Some("pw"), &and(ended(5, tag::BIND_RESPONSE, 0))), Ok(Turn::Done(done.clone())));
        assert_eq!(login(None, &begun), Ok(Turn::Done(done)), "groups alone");
        assert_eq!(login(Some(""), &begun), Err(LdapError::Wrong), "an empty password is never tried");
        assert_eq!(login(Some("pw"), &and(ended(5, tag::BIND_RESPONSE, 49))), Err(LdapError::Wrong));
        let busy = login(Some("pw"), &and(ended(5, tag::BIND_RESPONSE, 51)));
        assert_eq!(busy, Err(LdapError::Refused { code: 51, message: "because".to_owned() }));
    }

    #[test]
    fn users_that_are_not_there_or_not_one_are_refused() {
        let bound = ended(2, tag::BIND_RESPONSE, 0);
        let user = |dn: &str| entry(3, dn, &[("uid", &["ann"])]);
        let done = |code| ended(3, tag::SEARCH_DONE, code);
        let ambiguous = || Err(LdapError::Ambiguous { user: "ANN".to_owned() });
        for (case, answers, want) in [
            ("not there", vec![bound.clone(), done(0)], Err(LdapError::Wrong)),
            ("two", vec![bound.clone(), user("a"), user("b"), done(0)], ambiguous()),
            ("more than asked for", vec![bound.clone(), user("a"), done(4)], ambiguous()),
            (
                "without a name",
                vec![bound.clone(), entry(3, "a", &[]), done(0)],
                Err(LdapError::Nameless { dn: "a".to_owned(), attribute: "uid".to_owned() }),
            ),
            (
                "without a distinguished name",
                vec![bound.clone(), user(""), done(0)],
                Err(LdapError::Nameless { dn: String::new(), attribute: "uid".to_owned() }),
            ),
            (
                "a search that is refused",
                vec![bound.clone(), done(50)],
                Err(LdapError::Refused { code: 50, message: "because".to_owned() }),
            ),
            (
                "the broker's own password",
                vec![ended(2, tag::BIND_RESPONSE, 49)],
                Err(LdapError::Service { code: 49, message: "because".to_owned() }),
            ),
        ] {
            assert_eq!(login(Some("pw"), &answers), want, "case: {case}");
        }
        for (case, answers) in [
            ("another request's", vec![ended(7, tag::BIND_RESPONSE, 0)]),
            ("a notice that the connection ends", vec![ended(0, tag::EXTENDED_RESPONSE, 52)]),
            ("a search's for a login's", vec![ended(2, tag::SEARCH_DONE, 0)]),
            ("a login's for a search's", vec![bound, ended(3, tag::BIND_RESPONSE, 0)]),
        ] {
            let got = login(Some("pw"), &answers);
            assert!(matches!(got, Err(LdapError::Failed { .. })), "case: {case}: {got:?}");
        }
        let groups = [ended(2, tag::BIND_RESPONSE, 0), user("a"), done(0), ended(4, tag::SEARCH_DONE, 4)];
        assert!(
            matches!(login(Some("pw"), &groups), Err(LdapError::Refused { code: 4, .. })),
            "too many groups"
        );
    }
}
