//! Access keys of users: made, listed and deleted. The secret of a key is in one answer only.

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use postroad_model::RowKey;
use postroad_security::AccessKeys;
use serde::{Deserialize, Serialize};

use super::audit::Detail;
use super::lists::{List, Which, query};
use super::messages::read_json;
use super::problem::Problem;
use super::tokens::{Seen, check, may, writing};
use super::{Api, Caller};

/// A key in a list, without its secret.
#[derive(Debug, Serialize)]
pub struct Row {
    id: String,
    user: String,
}

impl Row {
    fn key(&self) -> RowKey {
        RowKey { rank: 0, name: self.user.as_str().into(), detail: self.id.as_str().into() }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Whose; the caller's own without it.
    user: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Made {
    /// Shown this once.
    secret: String,
    #[serde(flatten)]
    row: Row,
}

/// Keys of all users in reach.
pub async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<List<Row>>, Problem> {
    let (which, reach) = (query(which)?, Seen::by(&api, &caller));
    let rows = all(&api).await?.into_iter().filter(|row| reach.has(&row.user.as_str().into())).collect();
    which.page_of(rows, Row::key).map(Json)
}

pub async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<(StatusCode, Extension<Detail>, Json<Made>), Problem> {
    let Wanted { user } = if body.is_empty() { Wanted::default() } else { read_json(&body)? };
    // Otherwise a key could outlive the revocation of the token.
    if caller.token.is_some() {
        return Err(Problem::new(403, "a token cannot make keys: use the user's password".to_owned()));
    }
    let own = || caller.principal.user().map(|user| user.to_string());
    let missing = || Problem::new(400, "user is missing: name the user of the key".to_owned());
    let user = user.or_else(own).ok_or_else(missing)?;
    check(&api, &caller, &user)?;
    let book = api.0.options.access_keys.clone();
    let (id, key) = writing(move || book.add(&user)).await?;
    let detail = Detail(format!("access key {id} of {}", key.user));
    let made = Made { secret: key.secret, row: Row { id, user: key.user } };
    Ok((StatusCode::CREATED, Extension(detail), Json(made)))
}

pub async fn remove(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Extension<Detail>), Problem> {
    let unknown = || Problem::new(404, format!("there is no access key {id:?}"));
    let found = all(&api).await?.into_iter().find(|row| row.id == id);
    // Ids of other users' keys are not for everybody to try.
    let user = found.map(|row| row.user).filter(|user| may(&api, &caller, user)).ok_or_else(unknown)?;
    let (book, which) = (api.0.options.access_keys.clone(), id.clone());
    match writing(move || book.remove(&which)).await? {
        true => Ok((StatusCode::NO_CONTENT, Extension(Detail(format!("access key {id} of {user}"))))),
        false => Err(unknown()),
    }
}

async fn all(api: &Api) -> Result<Vec<Row>, Problem> {
    let book = api.0.options.access_keys.clone();
    let keys = writing(move || AccessKeys::load(book.text())).await?;
    Ok(keys.iter().map(|(id, key)| Row { id: id.to_owned(), user: key.user.clone() }).collect())
}
