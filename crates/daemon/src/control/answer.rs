//! Answers of the control API: refusals, and its description.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use loligo_client::outcome::Outcome;
use serde_json::{Value, json};

/// A request that cannot be carried out.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) StatusCode, pub(crate) String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(problem(self.0, &self.1))).into_response()
    }
}

/// `why` as the answer to a request.
pub(crate) fn refused(why: anyhow::Error) -> Refused {
    let status = match why.chain().find_map(Outcome::known) {
        Some(Outcome::Waiting) => StatusCode::SERVICE_UNAVAILABLE,
        Some(Outcome::Failed) => StatusCode::INTERNAL_SERVER_ERROR,
        Some(Outcome::Refused | Outcome::Usage) | None => StatusCode::CONFLICT,
    };
    Refused(status, format!("{why:#}"))
}

/// The body of a refusal.
pub(super) fn problem(status: StatusCode, why: &str) -> Value {
    json!({ "error": why, "outcome": Outcome::of_answer(status) })
}

/// Asks the threads of a volume from another thread: asking waits for them, which the control thread must not.
pub(crate) async fn blocking<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(ask).await.expect("asking the threads of a volume does not panic")
}

/// The answer to a `GET` of nothing known.
pub(crate) async fn unknown() -> Refused {
    Refused(StatusCode::NOT_FOUND, "there is nothing here: /v1/openapi.json lists what there is".to_owned())
}

/// The description of an API as JSON: named after this program and not after a library, with each refusal's body, the name in
/// each path, and a word for each answer.
pub(crate) fn document(api: utoipa::openapi::OpenApi, about: &str) -> Json<Value> {
    let mut all = serde_json::to_value(api).unwrap_or_default();
    all["info"] = json!({
        "title": "Loligo",
        "description": about,
        "version": env!("CARGO_PKG_VERSION"),
        "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
    });
    all["components"]["schemas"]["Problem"] = json!({
        "description": "Why something cannot be.",
        "type": "object",
        "required": ["error", "outcome"],
        "properties": {
            "error": { "description": "The cause, and what mends it.", "type": "string" },
            "outcome": {
                "description": "refused (4xx): nothing was changed. waiting (503): the volume comes or goes by itself, ask again. failed: it was tried, and did not succeed.",
                "type": "string",
                "enum": ["refused", "waiting", "failed"],
            },
        },
    });
    let problem = json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Problem" } } });
    let name = json!({ "name": "name", "in": "path", "required": true, "description": "The volume", "schema": { "type": "string" } });
    let paths = all["paths"].as_object_mut().into_iter().flatten();
    for (path, way) in
        paths.flat_map(|(p, ways)| ways.as_object_mut().into_iter().flatten().map(move |(_, way)| (p, way)))
    {
        way["responses"]["default"] = json!({ "description": "It cannot be: the error says why" });
        for (status, answer) in way["responses"].as_object_mut().into_iter().flatten() {
            if answer["description"].is_null() {
                answer["description"] = json!("Done");
            }
            if !status.starts_with('2') && answer["content"].is_null() {
                answer["content"] = problem.clone();
            }
        }
        let has_name = |p: &Value| p["name"] == "name" && p["in"] == "path";
        let has_name = way["parameters"].as_array().is_some_and(|all| all.iter().any(has_name));
        if path.contains("{name}") && !has_name {
            match way["parameters"].as_array_mut() {
                Some(all) => all.push(name.clone()),
                None => way["parameters"] = json!([name]),
            }
        }
    }
    Json(all)
}
