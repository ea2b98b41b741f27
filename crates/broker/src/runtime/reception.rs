//! Reception: checks a peer's credentials without holding up its core.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use postroad_model::{Login, LoginAnswer, Principal};
use postroad_security::{Credential, PasswordCheck, ProviderCheck, Refusals, Step, Visit};
use tokio::sync::Semaphore;

use crate::runtime::cluster::EntryLogin;

/// A failed login gets its answer after this time: guessing costs time, and only the guesser's.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// One peer's login.
pub struct Reception {
    visit: Visit,
    logins: Arc<Semaphore>,
    /// The check that is under way.
    open: Option<Pin<Box<dyn Future<Output = LoginAnswer>>>>,
    /// Whether the credential that it was let in with has ended since.
    is_revoked: Rc<Cell<bool>>,
    /// The answers that the peer got where it came into the cluster, and its credential.
    repeated: Option<Box<EntryLogin>>,
}

impl Reception {
    /// Nothing was said yet. Each password takes one of the permits of `logins` while it is looked
    /// at.
    pub fn new(visit: Visit, logins: Arc<Semaphore>) -> Reception {
        Reception { visit, logins, open: None, is_revoked: Rc::default(), repeated: None }
    }

    /// As [`Reception::new`]; or, of a peer that has logged in where it came into the cluster, with
    /// the answers that it got there. Its bytes are input again.
    pub fn of(
        visit: Visit,
        logins: Arc<Semaphore>,
        (entered, input): (Option<Box<EntryLogin>>, &mut BytesMut),
    ) -> Reception {
        let Some(entered) = entered else { return Reception::new(visit, logins) };
        input.extend_from_slice(&entered.bytes);
        Reception::repeated(visit, logins, *entered)
    }

    fn repeated(visit: Visit, logins: Arc<Semaphore>, entered: EntryLogin) -> Reception {
        let answers = entered.answers.into_iter().rev().collect();
        let entered = EntryLogin { answers, bytes: Bytes::new(), ..entered };
        Reception { repeated: Some(Box::new(entered)), ..Reception::new(visit, logins) }
    }

    /// As [`Reception::ask`]. Output before a repeated answer is dropped: the peer has read it.
    pub fn ask_or_repeat(&mut self, login: Login, output: &mut BytesMut) -> Option<LoginAnswer> {
        match self.repeated.as_mut().and_then(|entered| entered.answers.pop()) {
            Some(answer) => {
                output.clear();
                Some(answer)
            }
            None => self.ask(login),
        }
    }

    /// The credential of a peer that was let in as this principal, and the mark to set when it has
    /// ended.
    pub fn credential(&self, principal: &Principal) -> Option<(Credential, Rc<Cell<bool>>)> {
        let entered = self.repeated.as_ref().and_then(|entered| {
            entered.credential.clone().or_else(|| self.visit.credential_by_certificate(principal))
        });
        let credential = match (self.visit.credential().cloned().or(entered), principal) {
            (Some(certificate @ Credential::Certificate { .. }), _) => certificate,
            (_, Principal::Federated(federated)) => Credential::Federated(federated.clone()),
            (credential, _) => credential?,
        };
        Some((credential, self.is_revoked.clone()))
    }

    /// Whether the mark is set.
    pub fn is_revoked(&self) -> bool {
        self.is_revoked.get()
    }

    /// The answer, if it is known at once; otherwise [`Reception::answered`] returns it.
    pub fn ask(&mut self, login: Login) -> Option<LoginAnswer> {
        let step = self.visit.step(login);
        let refusals = self.visit.refusals();
        match step {
            Step::Answer(answer @ (LoginAnswer::Challenge(_) | LoginAnswer::Welcome { .. })) => {
                return Some(answer);
            }
            Step::Answer(refusal) => {
                refusals.note(&refusal);
                self.open = Some(Box::pin(late(refusal)));
            }
            Step::Check(check) => self.open = Some(Box::pin(look_at(check, refusals, self.logins.clone()))),
            Step::Wait(check) => self.open = Some(Box::pin(ask_provider(check, refusals))),
        }
        None
    }

    /// The answer that was not known at once; never, if there is none to come.
    pub async fn answered(&mut self) -> LoginAnswer {
        let Some(open) = &mut self.open else { return std::future::pending().await };
        let answer = open.await;
        self.open = None;
        answer
    }
}

/// On a thread of its own, of which there are few.
async fn look_at(check: PasswordCheck, refusals: Refusals, logins: Arc<Semaphore>) -> LoginAnswer {
    let permit = logins.acquire_owned().await;
    let looked = tokio::task::spawn_blocking(move || {
        let answer = check.run();
        // Here, as the peer may be gone by the time of the answer.
        refusals.note(&answer);
        drop(permit);
        answer
    });
    match looked.await {
        Ok(refusal @ LoginAnswer::Refused { .. }) => late(refusal).await,
        Ok(answer) => answer,
        Err(_) => LoginAnswer::Refused { reason: "the broker is shutting down".to_owned() },
    }
}

/// Waits for an identity provider, which takes no thread.
async fn ask_provider(check: ProviderCheck, refusals: Refusals) -> LoginAnswer {
    match check.answer().await {
        refusal @ LoginAnswer::Refused { .. } => {
            refusals.note(&refusal);
            late(refusal).await
        }
        answer => answer,
    }
}

async fn late(refusal: LoginAnswer) -> LoginAnswer {
    tokio::time::sleep(FAILED_PAUSE).await;
    refusal
}
