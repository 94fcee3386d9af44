//! Refusals of the web server itself, as JSON like all others: a path or a method that is not there, a body that is none.

use super::answer::problem;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, Response};
use axum::middleware::Next;

/// Bytes of a refusal that are looked at.
const MOST: usize = 64 << 10;

/// Answers, and puts a refusal that is plain text, or nothing at all, into words of the API.
pub(super) async fn as_json(request: Request, next: Next) -> Response<Body> {
    let asked = format!("{} {}", request.method(), request.uri().path());
    let answer = next.run(request).await;
    let status = answer.status();
    let kind = answer.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if status.as_u16() < 400 || kind.starts_with(b"application/json") {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    let said = to_bytes(body, MOST).await.unwrap_or_default();
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    let why = if said.is_empty() {
        format!("{asked}: {status}: /v1/openapi.json lists what there is")
    } else {
        said
    };
    head.headers.remove(CONTENT_LENGTH);
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(head, Body::from(problem(status, &why).to_string()))
}
