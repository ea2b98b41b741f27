//! Logins over HTTP: a step of a conversation at the door, to its answer.

use postroad_model::LoginAnswer;
use postroad_security::Step;
use tokio::sync::Semaphore;

/// The answer to a step. A password is looked at on a thread of its own, under one of the permits
/// of `logins`; an identity provider is waited for without either.
pub async fn answer_of(step: Step, logins: &Semaphore) -> LoginAnswer {
    let check = match step {
        Step::Answer(answer) => return answer,
        Step::Wait(check) => return check.answer().await,
        Step::Check(check) => check,
    };
    let shut = || LoginAnswer::Refused { reason: "the broker is shutting down".to_owned() };
    let Ok(_permit) = logins.acquire().await else { return shut() };
    tokio::task::spawn_blocking(move || check.run()).await.unwrap_or_else(|_| shut())
}
