use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use rstest::rstest;
use snic_api::fleet_v1::HostCard;
use tokio::sync::Semaphore;
use tower::ServiceExt as _;

use super::*;
use crate::source::{PageChange, TenantAccount};
use crate::{PageLimits, routes};

const PROFILE_BYTES: usize = 4_000;

fn a_host(number: usize, condition: Condition) -> Host {
    let card = |card: usize| HostCard {
        card: format!("card{card}"),
        profile: format!("{{\"model\":\"sim-16\",\"rest\":\"{}\"}}", "x".repeat(PROFILE_BYTES)),
        functions: 8,
        cordoned: card == 1,
        model: "sim-16".into(),
    };
    Host {
        name: format!("hosts/h{number:04}"),
        zone: "z1".into(),
        rack: "r1".into(),
        cards: (0..10).map(card).collect(),
        condition: condition.into(),
        ..Host::default()
    }
}

/// A fleet of so many hosts, of which each looks at is counted.
#[derive(Clone, Default)]
struct Made {
    hosts: usize,
    looks: Arc<AtomicUsize>,
}

fn away<T>() -> Result<T, Status> {
    Err(Status::unavailable("host h1 is not linked"))
}

impl FleetSource for Made {
    type Host = Self;

    async fn hosts(&self) -> Result<HostChanges, Status> {
        let hosts = (0..self.hosts).map(|number| a_host(number, Condition::InStep));
        let told = hosts.map(|host| HostChange::Updated(Box::new(host)));
        let told: Vec<_> = told.chain([HostChange::InitialStateSent]).map(Ok).collect();
        Ok(Box::pin(tokio_stream::iter(told).chain(tokio_stream::pending())))
    }

    async fn dag_counts(&self) -> Result<Vec<(String, u64)>, Status> {
        Ok(vec![("hosts/h0000".into(), 13), ("hosts/gone".into(), 1)])
    }

    async fn status(&self) -> Result<(GetFleetResponse, Option<Rebalance>), Status> {
        Ok((GetFleetResponse { dags: 7, ..Default::default() }, None))
    }

    async fn dags(&self, request: v1::ListDagsRequest) -> Result<v1::ListDagsResponse, Status> {
        let on = |message: &str| v1::Condition {
            r#type: "Mapped".into(),
            message: message.into(),
            ..Default::default()
        };
        let dag = |name: &str, message| v1::Dag {
            name: format!("{}/dags/{name}", request.parent),
            conditions: vec![on(message)],
            ..Default::default()
        };
        let next_page_token = request.page_token.clone() + "a/b";
        let dags = vec![dag("web", "on hosts/h1/cards/card0"), dag("none", "no card has room")];
        Ok(v1::ListDagsResponse { dags, next_page_token, revision: 1 })
    }

    fn host(&self, host: &str, who: &str) -> Option<Self> {
        (host == "h1" && who == "operator/root").then(|| self.clone())
    }
}

impl PageSource for Made {
    async fn watch(&self, _: usize) -> Result<Changes<PageChange>, Status> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        away()
    }

    async fn cards(&self) -> Result<Vec<v1::Card>, Status> {
        away()
    }

    async fn fairness(&self) -> Result<Vec<v1::Fairness>, Status> {
        away()
    }

    async fn explanation(&self, _: String) -> Result<v1::Explanation, Status> {
        away()
    }

    async fn diagnosis(&self, _: String) -> Result<v1::Diagnosis, Status> {
        away()
    }

    async fn history(&self, _: String) -> Result<Vec<v1::Fairness>, Status> {
        away()
    }

    async fn account(&self, _: String) -> Result<TenantAccount, Status> {
        away()
    }
}

fn web(source: Made) -> Arc<FleetWeb<Made>> {
    let limits = PageLimits {
        browsers_max: 2,
        connections_max: 8,
        unread_max: Duration::from_secs(10),
        age_max: Duration::from_secs(60),
    };
    let browsers = Arc::new(Semaphore::new(limits.browsers_max));
    let authorize: crate::Authorize = Arc::new(|_| Ok("operator/root".into()));
    Arc::new(FleetWeb::new(Door { authorize, limits, browsers, key: None }, source))
}

async fn asked(web: &Arc<FleetWeb<Made>>, who: Result<&str, &str>, path: &str) -> Response {
    let admission = who.map(str::to_owned).map_err(str::to_owned);
    let request = Request::get(path).body(axum::body::Body::empty()).expect("a path");
    match routes::router(web, admission).oneshot(request).await {
        Ok(reply) => reply,
        Err(never) => match never {},
    }
}

/// Text of a stream until a part of it was seen.
async fn until(reply: Response, part: &str) -> String {
    assert_eq!(reply.status(), StatusCode::OK);
    let (mut body, mut text) = (reply.into_body(), String::new());
    while !text.contains(part) {
        assert!(text.len() < 4_000_000, "{part} does not come");
        let frame = body.frame().await.expect("more comes").expect("no error");
        let bytes: Bytes = frame.into_data().expect("data");
        text += std::str::from_utf8(&bytes).expect("text");
    }
    text
}

async fn text(reply: Response) -> String {
    let bytes = reply.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

const ROOT: Result<&str, &str> = Ok("operator/root");

#[tokio::test(start_paused = true)]
async fn a_thousand_hosts_with_ten_thousand_cards_are_a_row_each() {
    let web = web(Made { hosts: 1_000, ..Made::default() });
    let told = until(asked(&web, ROOT, "/stream").await, "event: ready").await;
    let names = told.split("\"name\":\"hosts/").skip(1).filter_map(|rest| rest.split('"').next());
    // The number of DAGs of one comes in a row of its own.
    assert_eq!(names.collect::<BTreeSet<_>>().len(), 1_000);
    // Neither cards nor their profiles, of which there are 40 MB.
    assert!(told.len() < 400_000, "{} bytes", told.len());
    for part in ["\"cards\":10", "\"cardsCordoned\":1", "\"condition\":\"IN_STEP\""] {
        assert_eq!(told.matches(part).count(), told.matches("event: host\n").count(), "{part}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_number_of_dags_follows_the_host() {
    let web = web(Made { hosts: 1, ..Made::default() });
    let told = until(asked(&web, ROOT, "/stream").await, "\"dags\":13").await;
    assert!(!told.contains("hosts/gone"), "{told}");
}

#[test]
fn a_changed_host_keeps_its_number_and_one_that_is_gone_has_none() {
    let mut rows = Rows::default();
    let host = || a_host(1, Condition::InStep);
    rows.change(HostChange::Updated(Box::new(host())));
    let name = host().name;
    assert_eq!(rows.counted(vec![(name.clone(), 3)]).len(), 1);
    assert_eq!(rows.counted(vec![(name.clone(), 3)]), [], "it is told once");
    let (_, frame) = rows.change(HostChange::Updated(Box::new(a_host(1, Condition::Lost))));
    let frame = String::from_utf8(frame.expect("a frame").to_vec()).expect("text");
    assert!(frame.contains("\"condition\":\"LOST\"") && frame.contains("\"dags\":3"), "{frame}");
    assert_eq!(rows.change(HostChange::Deleted(name.clone())), (Key::Host(name.clone()), None));
    assert_eq!(rows.counted(vec![(name, 4)]), []);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_away_says_why_and_is_asked_again() {
    let source = Made::default();
    let web = web(source.clone());
    let reply = asked(&web, ROOT, "/hosts/h1/stream").await;
    let told = until(reply, "event: beat").await;
    assert!(
        told.contains("event: trouble\ndata: {\"message\":\"host h1 is not linked\"}"),
        "{told}"
    );
    let reply = asked(&web, ROOT, "/hosts/h1/stream").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let looks = source.looks.load(Ordering::Relaxed);
    assert!((8..=13).contains(&looks), "{looks}");
    // Without a browser nobody is asked.
    drop(reply);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = source.looks.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(source.looks.load(Ordering::Relaxed), before);
    let reply = asked(&web, ROOT, "/hosts/h1/diagnosis/tenants/acme/dags/web").await;
    assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(start_paused = true)]
async fn browsers_that_look_at_one_host_share_a_feed_and_have_a_limit() {
    let source = Made::default();
    let web = web(source.clone());
    let first = asked(&web, ROOT, "/hosts/h1/stream").await;
    let second = asked(&web, ROOT, "/hosts/h1/stream").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(source.looks.load(Ordering::Relaxed), 1);
    assert_eq!(web.hosts.lock().len(), 1);
    for path in ["/stream", "/hosts/h1/stream"] {
        let third = asked(&web, ROOT, path).await;
        assert_eq!(third.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
    }
    drop((first, second));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let _again = asked(&web, ROOT, "/hosts/h1/stream").await;
    assert_eq!(web.hosts.lock().len(), 1, "the feed before is gone");
}

#[rstest]
#[case("/", StatusCode::OK, "Hosts")]
#[case("/hosts.js", StatusCode::OK, "EventSource")]
#[case("/page.js", StatusCode::OK, "showMap")]
#[case("/hosts/h1/", StatusCode::OK, "Regions")]
#[case("/hosts/h1", StatusCode::SEE_OTHER, "")]
#[case("/hosts/a%2F%2Fb", StatusCode::BAD_REQUEST, "no name of a host")]
#[case("/hosts/h9/stream", StatusCode::BAD_REQUEST, "no name of a host")]
#[case("/hosts/h9/history/tenants/acme", StatusCode::BAD_REQUEST, "no name of a host")]
#[case("/none", StatusCode::NOT_FOUND, "not found")]
#[tokio::test]
async fn each_path_has_its_answer_and_strangers_have_none(
    #[case] path: &str,
    #[case] status: StatusCode,
    #[case] part: &str,
) {
    let web = web(Made::default());
    let reply = asked(&web, ROOT, path).await;
    assert_eq!(reply.status(), status, "{path}");
    assert!(reply.headers().contains_key(http::header::CONTENT_SECURITY_POLICY), "{path}");
    assert!(text(reply).await.contains(part), "{path}");
    let reply = asked(&web, Err("this page is for operators"), path).await;
    assert_eq!(reply.status(), StatusCode::FORBIDDEN, "{path}");
    assert_eq!(text(reply).await, "this page is for operators\n");
}

#[tokio::test]
async fn dags_come_page_by_page_with_their_host_or_why_they_have_none() {
    let web = web(Made::default());
    let page = async |path: &str| -> Value {
        serde_json::from_str(&text(asked(&web, ROOT, path).await).await).expect("JSON")
    };
    let first = page("/dags/-").await;
    let [web_dag, none] = [&first["dags"][0], &first["dags"][1]];
    assert_eq!(web_dag["name"], "tenants/-/dags/web");
    assert_eq!((&web_dag["host"], &web_dag["card"]), (&json!("h1"), &json!("card0")));
    assert_eq!((&none["host"], &none["why"]), (&json!(""), &json!("no card has room")));
    assert_eq!(first["next"], "a/b");
    assert_eq!(page("/dags/acme/a%2Fb").await["next"], "a/ba/b");
}
