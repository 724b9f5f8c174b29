//! The page's routes, and who may use them.
//!
//! Over TLS the client's certificate decides, as for every API method. In plain text, on loopback
//! only, the page's key decides ([`crate::key`]); there the host name in the request is checked too,
//! against DNS rebinding: a foreign page whose name resolves to loopback must not read this one.

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
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};

use crate::feed::BrowserStream;
use crate::source::PageSource;
use crate::{Admission, Door, Site, Web, json};

/// Only resources of this server, nothing inline, never in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";
/// When a rejected browser may try again, in seconds.
const RETRY_SECONDS: &str = "10";

/// The files of the page: path, content type, text.
pub(crate) const ASSETS: &[(&str, &str, &str)] = &[
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
    ("/accounts.js", SCRIPT, include_str!("assets/accounts.js")),
];
pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The routes of one connection.
pub(crate) fn router<S: Site>(site: &Arc<S>, admission: Admission) -> Router {
    let who = admission.clone().unwrap_or_default();
    Arc::clone(site)
        .routes(&who)
        .fallback(|| async { (StatusCode::NOT_FOUND, "page not found\n") })
        .layer(middleware::from_fn_with_state((Arc::clone(site), Arc::new(admission)), admit::<S>))
}

impl<S: PageSource> Site for Web<S> {
    fn door(&self) -> &Door {
        &self.door
    }

    fn routes(self: Arc<Self>, _: &str) -> Router {
        let mut router = Router::new();
        for (path, kind, text) in ASSETS {
            router = router.route(path, get(|| async { ([(CONTENT_TYPE, *kind)], *text) }));
        }
        type Shared<S> = State<Arc<Web<S>>>;
        let show = async |State(web): Shared<S>| stream(&web.door, || Some(web.follow()));
        let explain = async |State(web): Shared<S>, Path(dag): Path<String>| {
            explanation(&web.source, dag).await
        };
        let diagnose = async |State(web): Shared<S>, Path(dag): Path<String>| {
            diagnosis(&web.source, dag).await
        };
        let past = async |State(web): Shared<S>, Path(tenant): Path<String>| {
            history(&web.source, tenant).await
        };
        let account = async |State(web): Shared<S>, Path(tenant): Path<String>| {
            account(&web.source, tenant).await
        };
        router
            .route("/stream", get(show))
            .route("/account/{*tenant}", get(account))
            .route("/explanation/{*dag}", get(explain))
            .route("/diagnosis/{*dag}", get(diagnose))
            .route("/history/{*tenant}", get(past))
            .with_state(self)
    }
}

/// Admits operators, and adds the headers of every reply.
async fn admit<S: Site>(
    State((site, admission)): State<(Arc<S>, Arc<Admission>)>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let door = site.door();
    let opening = door.key.as_ref().filter(|key| key.opens(request.uri().query()));
    let mut reply = match (check(door, &admission, headers), opening) {
        _ if door.key.is_some() && !asks_for_loopback(headers) => {
            let text = "without TLS this page is served only as localhost, 127.0.0.1 or [::1]\n";
            (StatusCode::MISDIRECTED_REQUEST, text).into_response()
        }
        (_, Some(key)) => {
            // From now on the key is in the cookie and not in the address bar.
            let headers = [(LOCATION, "/".to_owned()), (SET_COOKIE, key.cookie(headers))];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        (Ok(()), None) => next.run(request).await,
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

fn check(
    door: &Door,
    admission: &Admission,
    headers: &HeaderMap,
) -> Result<(), (StatusCode, String)> {
    if let Some(key) = &door.key
        && !key.is_in(headers)
    {
        let text = "this page is for operators: open it once with its key, as /?key=<key>; the key is \
                    in the file page.key in the daemon's data_dir";
        return Err((StatusCode::FORBIDDEN, text.into()));
    }
    admission.clone().map(drop).map_err(|text| (StatusCode::FORBIDDEN, text))
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

/// The state, then its changes, as server-sent events, unless there are too many browsers.
pub(crate) fn stream(door: &Door, follow: impl FnOnce() -> Option<BrowserStream>) -> Response {
    let permit = Arc::clone(&door.browsers).try_acquire_owned().ok();
    let Some((permit, page)) = permit.and_then(|permit| Some((permit, follow()?))) else {
        let text = format!(
            "the limit of {} browsers is reached; close one, or try again later\n",
            door.limits.browsers_max
        );
        let headers = [(RETRY_AFTER, RETRY_SECONDS)];
        return (StatusCode::SERVICE_UNAVAILABLE, headers, text).into_response();
    };
    let frames = page.map(move |frame| {
        // Released with the stream.
        let _held = &permit;
        frame
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(frames)).into_response()
}

/// Why a DAG is mapped as it is.
pub(crate) async fn explanation<S: PageSource>(source: &S, dag: String) -> Response {
    respond(source.explanation(dag).await.map(|found| json::explanation(&found)))
}

/// Why a DAG is as fast as it is.
pub(crate) async fn diagnosis<S: PageSource>(source: &S, dag: String) -> Response {
    respond(source.diagnosis(dag).await.map(|found| json::diagnosis(&found)))
}

/// A tenant's shares, with their history.
pub(crate) async fn history<S: PageSource>(source: &S, tenant: String) -> Response {
    let history = source.history(tenant).await;
    respond(history.map(|cards| cards.iter().map(json::history).collect()))
}

/// A tenant's usage, promises and budget.
pub(crate) async fn account<S: PageSource>(source: &S, tenant: String) -> Response {
    respond(source.account(tenant).await.map(|account| json::account(&account)))
}

/// JSON, or why there is none.
pub(crate) fn respond(result: Result<Value, Status>) -> Response {
    match result {
        Ok(value) => {
            ([(CONTENT_TYPE, "application/json")], json::shown(value).to_string()).into_response()
        }
        Err(status) => refused(&status),
    }
}

/// Why there is no answer.
pub(crate) fn refused(status: &Status) -> Response {
    let code = match status.code() {
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::Unavailable | Code::ResourceExhausted => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (code, status.message().to_owned() + "\n").into_response()
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
    fn a_foreign_host_name_is_not_loopback(#[case] host: &str, #[case] expected: bool) {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().expect("a header"));
        assert_eq!(asks_for_loopback(&headers), expected);
        assert!(!asks_for_loopback(&HeaderMap::new()));
    }

    /// The files of both pages.
    fn all() -> impl Iterator<Item = &'static (&'static str, &'static str, &'static str)> {
        ASSETS.iter().chain(crate::fleet::ASSETS)
    }

    #[test]
    fn assets_have_no_inline_code_and_no_foreign_urls() {
        for (path, kind, text) in all() {
            if *kind == HTML {
                for inline in ["<style", "style=", "onclick", "onload", "javascript:"] {
                    assert!(!text.contains(inline), "{path}: {inline}");
                }
                let scripts: Vec<&str> = text.split("<script").skip(1).collect();
                assert!(scripts.iter().all(|script| script.contains("src=")), "{path}");
            }
            // An XML namespace is never fetched.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for other in ["http://", "https://", "innerHTML", "eval("] {
                assert!(!text.contains(other), "{path}: {other}");
            }
        }
    }

    #[test]
    fn every_imported_script_is_served() {
        for (path, _, text) in all().filter(|(_, kind, _)| *kind == SCRIPT) {
            for import in text.split(" from \".").skip(1) {
                let name = import.split('"').next().expect("a first part");
                assert!(ASSETS.iter().any(|(other, ..)| *other == name), "{path}: {name}");
            }
        }
    }
}
