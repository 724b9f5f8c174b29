//! The page of a fleet, served by a replica that does not lead: hosts, and from each to what is on it.

use serde_json::json;
use snic_api::fleet_v1::CordonHostRequest;

use super::browser::Browser;
use super::certificates::furnished;
use super::cluster::{Cluster, runtime};
use super::picture::Picture;
use super::rig::{Cards, Fleet};
use super::{SCREENS, STICKS_OUT};

/// Whether both hosts say how many DAGs they have.
const COUNTED: &str = "[...document.querySelectorAll('#host-list td:nth-child(6)')] \
    .filter((cell) => /^[0-9]+$/.test(cell.innerText)).length === 2";

/// The browser of somebody with a certificate of the fleet.
fn browser(fleet: &Fleet, who: &str, page: &str) -> Option<Browser> {
    let home = tempfile::tempdir().expect("a temporary folder");
    let copy = |from: String, to: &str| {
        std::fs::copy(fleet.pki(&from), home.path().join(to)).expect("a file");
    };
    copy("ca.pem".to_owned(), "ca.pem");
    copy(format!("{who}.pem"), "user.pem");
    copy(format!("{who}.key"), "user.key");
    Browser::start_at(furnished(home, page)?)
}

fn rows(browser: &mut Browser) -> Vec<String> {
    let rows =
        browser.eval("[...document.querySelectorAll('#host-list tr')].map((row) => row.innerText)");
    let texts = rows.as_array().expect("a list").iter();
    texts
        .map(|text| {
            text.as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
        })
        .collect()
}

/// Waits until a host's row has a text.
fn row_has(browser: &mut Browser, host: &str, text: &str) {
    browser.until(&format!(
        "document.querySelector('#host-list [data-key=\"hosts/{host}\"]')?.innerText.includes('{text}') === true"
    ));
}

fn live(browser: &mut Browser) {
    browser.until("document.querySelector('#link')?.textContent === 'live'");
}

fn looks_as_it_did(browser: &mut Browser, page: &str) {
    let wish = std::env::var("SNIC_PICTURES").unwrap_or_default();
    let mut wrong = Vec::new();
    for (screen, width, dark) in SCREENS {
        let name = format!("fleet-{screen}");
        browser.set_screen(width, 900, dark);
        browser.open(page);
        live(browser);
        browser.until(COUNTED);
        browser.until("document.querySelectorAll('#dag-list-fleet tr').length === 1");
        browser.until("document.querySelectorAll('#facts .fact').length === 7");
        assert_eq!(browser.eval(STICKS_OUT), json!([]), "{name}");
        if !wish.is_empty() && wish != "write" {
            let file = std::path::Path::new(&wish).join(format!("{name}.png"));
            std::fs::write(file, browser.picture()).expect("the folder takes files");
        }
        let picture = Picture::small(&browser.picture());
        if wish == "write" {
            picture.keep(&name);
        }
        wrong.extend(picture.differs(&Picture::kept(&name)).map(|said| format!("{name}: {said}")));
    }
    assert_eq!(wrong, [""; 0]);
    browser.set_screen(1280, 900, false);
}

#[test]
fn a_replica_shows_the_hosts_of_its_fleet_and_what_is_on_each() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(async {
        let mut fleet = Fleet::start_with(cluster, 2, (2, Cards::Software)).await;
        let follower = 1 - fleet.leader().await;
        fleet.create(0, "web", 1).await;
        let host = fleet.served_once(&["web"]).await[0];
        let (name, other) = (format!("h{host}"), format!("h{}", 1 - host));
        let page = fleet.page(follower);
        let Some(mut browser) = browser(&fleet, "operator-root", &page) else { return };
        looks_as_it_did(&mut browser, &page);

        // The number of DAGs comes with the list, cordons with the watch; both are words, and filters find them.
        row_has(&mut browser, &name, "sim-16");
        let root = fleet.client(0, "operator-root");
        let request = CordonHostRequest { name: format!("hosts/{other}") };
        root.fleet().cordon_host(request).await.expect("it is there");
        row_has(&mut browser, &other, "cordoned");
        assert!(rows(&mut browser)[0].starts_with(&other), "{:?}", rows(&mut browser));
        browser.eval("document.querySelector('[name=state][value=closed]').click()");
        browser.until("document.querySelectorAll('#host-list tr').length === 1");
        browser.eval("document.querySelector('[name=state][value=away]').click()");
        browser.until("document.querySelector('#no-hosts').innerText.includes('No host')");
        browser.eval("document.querySelector('[name=state][value=all]').click()");

        // A link leads to the host's own page, with explanations by the host, and back.
        browser.eval("document.querySelector('#dag-list-fleet a').click()");
        browser.until(&format!("location.pathname === '/hosts/{name}/'"));
        live(&mut browser);
        browser.until("document.querySelectorAll('.tile').length === 16");
        browser.until("document.querySelector('#dag-head h3')?.textContent === 'acme/web'");
        browser.until("document.querySelector('#why h3') !== null");
        browser
            .until("document.querySelector('#diagnosis').textContent.includes('nothing comes in')");
        browser.until("document.querySelectorAll('#table tbody tr').length === 1");
        browser.until(&format!("document.querySelector('#hosts').innerText === 'Hosts / {name}'"));
        assert_eq!(browser.eval(STICKS_OUT), json!([]));
        // What the host changes is shown as it happens.
        fleet.create(0, "late", 1).await;
        browser.until("document.querySelector('#dag-list').textContent.includes('acme/late')");
        browser.eval("document.querySelector('#hosts').click()");
        browser.until("document.querySelectorAll('#host-list tr').length === 2");

        // A host that is gone is lost, first, and its page says why it is empty until it is back.
        fleet.kill_host(1 - host);
        row_has(&mut browser, &other, "lost");
        browser.open(&format!("{page}/hosts/{other}/"));
        browser.until(
            "document.querySelector('#link')?.textContent.includes('is not linked') === true",
        );
        fleet.restart_host(1 - host).await;
        live(&mut browser);
        browser.until("document.querySelectorAll('.tile').length === 16");
        assert_eq!(browser.complaints, [""; 0]);

        // Nobody else sees anything.
        let mut tenant = self::browser(&fleet, "tenant-acme", &page).expect("as the one before");
        for path in ["/", "/stream", "/dags/-", &format!("/hosts/{name}/stream")] {
            tenant.open(&format!("{page}{path}"));
            tenant.until(
                "document.body?.textContent.includes('this page is for operators') === true",
            );
        }
    });
}

#[test]
fn a_fleet_without_hosts_says_how_it_gets_some() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(async {
        let fleet = Fleet::start_with(cluster, 1, (0, Cards::Software)).await;
        let page = fleet.page(0);
        let Some(mut browser) = browser(&fleet, "operator-root", &page) else { return };
        browser.set_screen(360, 900, false);
        browser.open(&page);
        live(&mut browser);
        browser.until("document.querySelector('#no-hosts').innerText.includes('host create NAME')");
        browser.until("document.querySelector('#no-dags').innerText === 'There is no DAG.'");
        assert_eq!(browser.eval(STICKS_OUT), json!([]));
        assert_eq!(browser.complaints, [""; 0]);
    });
}
