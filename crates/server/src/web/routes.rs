//! What a browser may ask for, and who may ask.
//!
//! Over TLS the certificate says who calls, as for every other method, and operators are served.
//! In plain text, on loopback only, whoever has the page's key is ([`super::key`]); there the name
//! that the browser asked for is checked too, so that no page of somebody else, under a name of its
//! own that leads here, can read this one.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, LOCATION,
    REFERRER_POLICY, RETRY_AFTER, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;
use snic_api::v1;
use snic_api::v1::dag_service_server::DagService as _;
use snic_api::v1::fairness_service_server::FairnessService as _;
use snic_controller::Caller;
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};

use super::feed::asked;
use super::{Web, Who, json};
use crate::identity::NoIdentity;

/// Only what this server sends, nothing inline, nowhere inside of another page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";
/// When a browser that found no room may come again, seconds.
const RETRY_SECONDS: &str = "10";

/// The files of the page: path, content type, text.
const ASSETS: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("assets/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("assets/page.css")),
    ("/icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
    ("/page.js", SCRIPT, include_str!("assets/page.js")),
    ("/dom.js", SCRIPT, include_str!("assets/dom.js")),
    ("/model.js", SCRIPT, include_str!("assets/model.js")),
    ("/regions.js", SCRIPT, include_str!("assets/regions.js")),
    ("/dags.js", SCRIPT, include_str!("assets/dags.js")),
    ("/graph.js", SCRIPT, include_str!("assets/graph.js")),
    ("/charts.js", SCRIPT, include_str!("assets/charts.js")),
    ("/events.js", SCRIPT, include_str!("assets/events.js")),
];
const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The routes of one connection.
pub(super) fn router(web: &Arc<Web>, who: Who) -> Router {
    let mut router = Router::new();
    for (path, kind, text) in ASSETS {
        router = router.route(path, get(|| async { ([(CONTENT_TYPE, *kind)], *text) }));
    }
    let who = Arc::new(who);
    router
        .route("/stream", get(stream))
        .route("/explanation/{*dag}", get(explanation))
        .route("/history/{*tenant}", get(history))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is no such page\n") })
        .layer(middleware::from_fn_with_state((Arc::clone(web), who), admit))
        .with_state(Arc::clone(web))
}

/// Lets operators in, and sends what every reply has.
async fn admit(
    State((web, who)): State<(Arc<Web>, Arc<Who>)>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let opening = web.key.as_ref().filter(|key| key.opens(request.uri().query()));
    let mut reply = match (admitted(&web, &who, headers), opening) {
        _ if web.key.is_some() && !asks_for_loopback(headers) => {
            let text = "in plain text this page is served as localhost, 127.0.0.1 or [::1] only\n";
            (StatusCode::MISDIRECTED_REQUEST, text).into_response()
        }
        (_, Some(key)) => {
            // From here on the browser has it, and its address line does not.
            let headers = [(LOCATION, "/".to_owned()), (SET_COOKIE, key.cookie(headers))];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        (Ok(caller), None) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        (Err((status, text)), None) => (status, text + "\n").into_response(),
    };
    let set = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in set {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}

fn admitted(web: &Web, who: &Who, headers: &HeaderMap) -> Result<Caller, (StatusCode, String)> {
    if let Some(key) = &web.key
        && !key.is_in(headers)
    {
        let text = "this page is for operators: open it once by the address that has its key, \
                    /?key=<key>; the daemon keeps the key in its data_dir, in page.key";
        return Err((StatusCode::FORBIDDEN, text.into()));
    }
    match who {
        Ok(caller @ Caller::Operator(_)) => Ok(caller.clone()),
        Ok(_) => Err((StatusCode::FORBIDDEN, "this page is for operators".into())),
        Err(NoIdentity::NoCertificate(domain)) => {
            let text = format!(
                "this page is for operators: import a client certificate for \
                 spiffe://{domain}/operator/<name> into the browser"
            );
            Err((StatusCode::FORBIDDEN, text))
        }
        Err(error) => Err((StatusCode::FORBIDDEN, error.to_string())),
    }
}

fn asks_for_loopback(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let Some(authority) = host.and_then(|host| host.parse::<http::uri::Authority>().ok()) else {
        return false;
    };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Everything, and then what changes, as server-sent events.
async fn stream(State(web): State<Arc<Web>>) -> Response {
    let Some((page, place)) = web.follow() else {
        let text = format!(
            "{} browsers are watching already; close one, or try again later\n",
            web.browsers_max
        );
        let headers = [(RETRY_AFTER, RETRY_SECONDS)];
        return (StatusCode::SERVICE_UNAVAILABLE, headers, text).into_response();
    };
    let frames = page.map(move |frame| {
        // Given back with the stream.
        let _held = &place;
        frame
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(frames)).into_response()
}

async fn explanation(
    State(web): State<Arc<Web>>,
    Path(name): Path<String>,
    caller: axum::Extension<Caller>,
) -> Response {
    let request = asked(v1::ExplainDagRequest { name }, caller.0);
    let reply = web.services.explain_dag(request).await;
    answer(reply.map(|reply| json::explanation(reply.get_ref())))
}

async fn history(
    State(web): State<Arc<Web>>,
    Path(name): Path<String>,
    caller: axum::Extension<Caller>,
) -> Response {
    let request = asked(v1::GetFairnessRequest { name }, caller.0);
    let reply = web.services.get_fairness(request).await;
    answer(reply.map(|reply| reply.get_ref().fairness.iter().map(json::history).collect()))
}

fn answer(result: Result<Value, Status>) -> Response {
    match result {
        Ok(value) => ([(CONTENT_TYPE, "application/json")], value.to_string()).into_response(),
        Err(status) => {
            let code = match status.code() {
                Code::NotFound => StatusCode::NOT_FOUND,
                Code::InvalidArgument => StatusCode::BAD_REQUEST,
                Code::Unavailable | Code::ResourceExhausted => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (code, status.message().to_owned() + "\n").into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("localhost:7444", true)]
    #[case("LOCALHOST", true)]
    #[case("127.0.0.1:80", true)]
    #[case("127.8.9.1", true)]
    #[case("[::1]:7444", true)]
    #[case("localhost.example.org", false)]
    #[case("127.0.0.1.example.org:7444", false)]
    #[case("192.0.2.1", false)]
    #[case("", false)]
    fn a_name_of_somebody_else_is_not_loopback(#[case] host: &str, #[case] expected: bool) {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().expect("a header"));
        assert_eq!(asks_for_loopback(&headers), expected);
        assert!(!asks_for_loopback(&HeaderMap::new()));
    }

    #[test]
    fn the_page_has_nothing_inline_and_asks_for_no_other_host() {
        for (path, kind, text) in ASSETS {
            if *kind == HTML {
                for inline in ["<style", "style=", "onclick", "onload", "javascript:"] {
                    assert!(!text.contains(inline), "{path}: {inline}");
                }
                let scripts: Vec<&str> = text.split("<script").skip(1).collect();
                assert!(scripts.iter().all(|script| script.contains("src=")), "{path}");
            }
            // The name of a namespace is no address.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for other in ["http://", "https://", "innerHTML", "eval("] {
                assert!(!text.contains(other), "{path}: {other}");
            }
        }
    }

    #[test]
    fn every_script_that_is_imported_is_served() {
        for (path, _, text) in ASSETS.iter().filter(|(_, kind, _)| *kind == SCRIPT) {
            for import in text.split(" from \".").skip(1) {
                let name = import.split('"').next().expect("a first part");
                assert!(ASSETS.iter().any(|(other, ..)| *other == name), "{path}: {name}");
            }
        }
    }
}
