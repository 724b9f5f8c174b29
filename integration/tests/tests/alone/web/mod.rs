//! The page for operators in a browser: it loads without an error, shows a change, can be used by
//! keyboard, and looks as before.
//!
//! `SNIC_PICTURES=write` keeps the present pictures as the expected ones; `SNIC_PICTURES` with a
//! folder writes whole pictures there, for people to look at.

mod browser;
mod certificates;
mod fleet;
mod picture;
mod seeing;

use std::time::Duration;

use browser::Browser;
use picture::Picture;
use serde_json::json;
use snic_domain::{Bandwidth, DagName, DagSpec};
use snic_integration::{Home, TestClient};

use crate::fleet::{cluster, rig};

/// The sizes and colour schemes that are tested.
const SCREENS: [(&str, u32, bool); 4] = [
    ("narrow-light", 360, false),
    ("narrow-dark", 360, true),
    ("wide-light", 1280, false),
    ("wide-dark", 1280, true),
];
/// Parts that differ from run to run: times, measured rates, skipped samples.
const STILL: &str = "for (const [what, property, value] of [['#log', 'display', 'none'], ['#accounts', 'display', 'none'], \
    ['.lines', 'visibility', 'hidden'], ['#table', 'visibility', 'hidden'], \
    ['#events-title', 'visibility', 'hidden'], ['.value', 'visibility', 'hidden']]) \
    for (const element of document.querySelectorAll(what)) element.style[property] = value";

/// The heights of the page's parts.
const HEIGHTS: &str = "[...document.querySelectorAll('main > *, #dag > *')] \
    .map((part) => part.id + ' ' + part.offsetHeight).join()";

/// A daemon with a page, and the page's address.
struct Rig {
    daemon: snic_integration::DaemonProcess,
    home: Home,
    client: TestClient,
    url: String,
}

fn name(tenant: &str, dag: &str) -> DagName {
    DagName { tenant: tenant.parse().expect("a label"), dag: dag.parse().expect("a label") }
}

fn chain(nts: &[&str], gbps: u64) -> DagSpec {
    let nts: Vec<_> = nts.iter().map(|nt| nt.parse().expect("an NT type")).collect();
    DagSpec::chain(&nts, Bandwidth::from_gbps(gbps))
}

impl Rig {
    async fn start() -> Self {
        let home = Home::new();
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = port.expect("a free port");
        home.write_settings(&format!("[web]\nlisten = \"{address}\"\ninsecure_plaintext = true\n"));
        let daemon = home.start().await;
        let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
        let catalogue = snic_bitstream::catalogue::builtin().expect("the built-in catalogue");
        client.register(&catalogue).await;
        for tenant in ["acme", "globex"] {
            client.create_tenant(tenant).await.expect("a tenant");
        }
        let key = std::fs::read_to_string(home.path().join("store/page.key")).expect("a key");
        let url = format!("http://{address}/?key={}", key.trim());
        let rig = Self { daemon, home, client, url };
        for sample in &catalogue.dags {
            rig.create(&sample.name, &sample.spec).await;
        }
        rig
    }

    async fn create(&self, name: &DagName, spec: &DagSpec) {
        let operation = self.client.create_dag(name, spec).await.expect("there is room");
        self.client.wait(&operation).await.expect("it is ready");
    }
}

fn opened(browser: &mut Browser, url: &str) {
    browser.open(url);
    browser.until("document.querySelector('#link')?.textContent === 'live'");
    browser.until("document.querySelectorAll('.tile').length === 16");
    browser.until("document.querySelector('#why h3') !== null");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_loads_without_a_complaint_and_shows_a_change_within_a_second() {
    let Some(mut browser) = Browser::start() else { return };
    let rig = Rig::start().await;
    browser.set_screen(1280, 900, false);
    opened(&mut browser, &rig.url);
    for shown in ["card0", "healthy", "dag-d-sim-16", "acme/dag-fork", "globex/dag-c", "Shares"] {
        assert!(browser.text().contains(shown), "{shown} is missing in {}", browser.text());
    }
    // The best of three: the machine may be busy for a moment.
    let mut quickest = Duration::MAX;
    for number in 0..3 {
        let dag = format!("new-{number}");
        rig.create(&name("acme", &dag), &chain(&["nat"], 1)).await;
        let shown = format!(
            "[...document.querySelectorAll('#dag-list li')].some((item) => \
             item.textContent.includes('acme/{dag}') && item.textContent.includes('ready'))"
        );
        quickest = quickest.min(browser.until(&shown));
    }
    assert!(quickest < Duration::from_secs(1), "it took {quickest:?}");
    let operation = rig.client.delete_dag(&name("acme", "new-0")).await.expect("it is there");
    rig.client.wait(&operation).await.expect("it goes");
    browser.until("!document.querySelector('#dag-list').textContent.includes('acme/new-0')");
    browser.until("document.querySelector('#log').textContent.includes('acme/new-0: deleted')");
    assert_eq!(browser.complaints, [""; 0]);

    // The page notices that the daemon is gone, and reconnects by itself.
    let Rig { daemon, home, .. } = rig;
    let _ = daemon.kill();
    browser.until("document.querySelector('#link').textContent.startsWith('no answer')");
    let daemon = home.start().await;
    browser.until("document.querySelector('#link').textContent === 'live'");
    browser.until("document.querySelector('#dag-list').textContent.includes('acme/new-1')");
    let _ = daemon.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_it_is_reached_and_used_by_keyboard() {
    let Some(mut browser) = Browser::start() else { return };
    let rig = Rig::start().await;
    browser.set_screen(1280, 900, true);
    opened(&mut browser, &rig.url);
    let focus = "(document.activeElement.getAttribute('aria-label') || \
                  document.activeElement.textContent || document.activeElement.id).trim()";
    let mut walk = Vec::new();
    for _ in 0..24 {
        browser.press("Tab");
        if browser.eval("document.activeElement === document.body") == json!(true) {
            break;
        }
        walk.push(browser.eval(focus).as_str().unwrap_or_default().to_owned());
        assert_eq!(
            browser.eval(
                "getComputedStyle(document.activeElement).outlineStyle !== 'none' || \
                          document.activeElement.closest('label, svg') !== null"
            ),
            json!(true),
            "what has the focus shows it: {walk:?}"
        );
    }
    let place = |what: &str| {
        let found = walk.iter().position(|stop| stop.starts_with(what));
        found.unwrap_or_else(|| panic!("{what} is not reached: {walk:?}"))
    };
    let stops =
        ["Skip", "Regions", "Events", "Region card0/0", "DAGs", "nat, nat", "Chain", "Tenants"];
    // `DAGs` is in the navigation first, and again as the list.
    let places: Vec<usize> =
        stops.iter().filter(|stop| **stop != "DAGs").map(|s| place(s)).collect();
    assert!(places.is_sorted(), "{walk:?}");

    // Arrow keys move over the tiles; one is opened.
    browser.eval("document.querySelector('.tile').focus()");
    for key in ["ArrowRight", "ArrowDown", "ArrowUp", "End", "Home", "ArrowRight"] {
        browser.press(key);
    }
    let here = browser.eval(focus);
    assert!(here.as_str().is_some_and(|text| text.starts_with("Region card0/1,")), "{here}");
    browser.press("Enter");
    browser.until("document.querySelector('#region h3')?.textContent === 'card0 region 1: active'");
    browser.press("Escape");
    browser.until("document.querySelector('#region h3') === null");

    // Arrow keys move over the DAGs; pointing at a node explains it and shows its region.
    browser.eval("document.querySelector('#dag-list').focus()");
    browser.press("End");
    browser.until("document.querySelector('#dag-head h3')?.textContent === 'globex/dag-c'");
    browser.eval("document.querySelector('.node').focus()");
    browser.until("document.querySelector('#why h3')?.textContent.startsWith('Why nat') === true");
    browser.until("document.querySelector('.tile.lit') !== null");
    browser.press("Escape");
    browser.until("document.querySelector('.tile.lit') === null");

    // The filter has a key that works anywhere.
    browser.press("/");
    for letter in ["f", "o", "r", "k"] {
        browser.press(letter);
    }
    browser.until("document.querySelectorAll('#dag-list li').length === 1");
    browser.until("document.querySelector('#dag-head h3')?.textContent === 'acme/dag-fork'");
    browser.press("Escape");
    browser.until("document.querySelectorAll('#dag-list li').length === 5");
    assert_eq!(browser.complaints, [""; 0]);
}

/// Elements that overflow the page or their place, by name.
const STICKS_OUT: &str = "(() => { \
    const wide = document.documentElement.scrollWidth > innerWidth ? ['page'] : []; \
    const out = [...document.querySelectorAll('.panel, .card, .tile, .fact, .chain, figure')] \
        .filter((element) => element.getBoundingClientRect().right > innerWidth + 1 \
            || element.getBoundingClientRect().left < 0); \
    const panels = [...document.querySelectorAll('main > *:not([hidden])')]; \
    const over = panels.filter((panel, at) => at > 0 && panel.getBoundingClientRect().top \
        < panels[at - 1].getBoundingClientRect().bottom); \
    return [...wide, ...out, ...over].map((element) => element.className || element); })()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_looks_as_it_did_narrow_and_wide_light_and_dark() {
    let Some(mut browser) = Browser::start() else { return };
    let rig = Rig::start().await;
    let wish = std::env::var("SNIC_PICTURES").unwrap_or_default();
    let mut wrong = Vec::new();
    for (name, width, dark) in SCREENS {
        browser.set_screen(width, 900, dark);
        opened(&mut browser, &rig.url);
        browser.eval("document.querySelector('#dag-list [data-key$=dag-fork]').click()");
        browser.until("document.querySelector('#dag-head h3')?.textContent === 'acme/dag-fork'");
        browser.until("document.querySelector('#why').textContent.includes('load-balancer')");
        browser
            .until("document.querySelector('#diagnosis').textContent.includes('nothing comes in')");
        browser.until("document.querySelectorAll('#table tbody tr').length === 2");
        assert_eq!(browser.eval(STICKS_OUT), json!([]), "{name}");
        if !wish.is_empty() && wish != "write" {
            let file = std::path::Path::new(&wish).join(format!("{name}.png"));
            std::fs::write(file, browser.picture()).expect("the folder takes files");
        }
        browser.eval(STILL);
        let heights = browser.eval(HEIGHTS);
        let picture = Picture::small(&browser.picture());
        if wish == "write" {
            picture.keep(name);
            eprintln!("{name}: {heights}");
        }
        let differs = picture.differs(&Picture::kept(name));
        wrong.extend(differs.map(|said| format!("{name}: {said}; heights: {heights}")));
    }
    assert_eq!(wrong, [""; 0]);
    assert_eq!(browser.complaints, [""; 0]);
}
