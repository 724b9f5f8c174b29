//! Questions of an operator to the page: which card, which DAG, why, since when; and that it stays usable with many
//! of them.

use serde_json::{Value, json};
use snic_integration::commands::operate;

use super::browser::Browser;
use super::{Rig, chain, name, opened};

/// The numbers of a card by what they are, such as `regions available`.
fn facts(browser: &mut Browser) -> Value {
    browser.eval(
        "Object.fromEntries([...document.querySelectorAll('#cards .fact')].map((fact) => \
         [fact.querySelector('dt').textContent, fact.querySelector('dd').textContent]))",
    )
}

fn snicctl(rig: &Rig, words: &str) {
    operate(&rig.home, words).unwrap_or_else(|said| panic!("{words}: {said}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cordoned_regions_count_as_such_and_events_name_card_and_region() {
    let Some(mut browser) = Browser::start() else { return };
    let rig = Rig::start().await;
    browser.set_screen(1280, 900, false);
    opened(&mut browser, &rig.url);
    let before = facts(&mut browser);
    let available = |facts: &Value| -> u32 {
        facts["regions available"].as_str().and_then(|text| text.parse().ok()).expect("a number")
    };
    assert!(available(&before) > 1, "{before}");
    assert_eq!(before["regions cordoned"], Value::Null, "{before}");
    assert_eq!(before["DAGs ready here"], "5 / 5");

    snicctl(&rig, "region cordon card0/15");
    browser.until("document.querySelector('#cards').textContent.includes('regions cordoned')");
    let after = facts(&mut browser);
    assert_eq!(available(&after), available(&before) - 1, "{after}");
    let event = "[...document.querySelectorAll('#log li')].find((item) => \
                 item.querySelector('.kind').textContent === 'cordoned')";
    browser.until(&format!("{event} !== undefined"));
    let link = browser.eval(&format!("{event}.querySelector('a').getAttribute('href')"));
    assert_eq!(link, json!("#region=card0/15"));
    browser.eval(&format!("{event}.querySelector('a').click()"));
    browser.until(
        "document.querySelector('#region h3')?.textContent === 'card0 region 15: free, cordoned'",
    );

    snicctl(&rig, "card cordon card0");
    browser.until("document.querySelector('#cards .pill').textContent === 'healthy, cordoned'");
    assert_eq!(available(&facts(&mut browser)), 0);
    snicctl(&rig, "card uncordon card0");
    browser.until("document.querySelector('#cards .pill').textContent === 'healthy'");
    assert_eq!(browser.complaints, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dag_has_an_address_and_is_linked_with_its_regions() {
    let Some(mut browser) = Browser::start() else { return };
    let rig = Rig::start().await;
    browser.set_screen(1280, 900, false);
    opened(&mut browser, &rig.url);
    let title = "document.querySelector('#dag-head h3')?.textContent";
    // The address says what was chosen, and shows it in another window.
    browser.eval("document.querySelector('#dag-list [data-key$=dag-fork]').click()");
    browser.until("location.hash === '#dag=acme/dag-fork'");
    let address = browser.eval("location.href").as_str().expect("an address").to_owned();
    browser.open("about:blank");
    browser.open(&address);
    browser.until(&format!("{title} === 'acme/dag-fork'"));

    // From a DAG to its region, and from the region to another DAG there.
    browser.eval("document.querySelector('#mapping a.where').click()");
    browser.until("document.querySelector('#region h3')?.textContent.startsWith('card0 region ')");
    let region = browser.eval("document.querySelector('#region h3').textContent").to_string();
    let number = region.split([' ', ':']).nth(2).expect("its number").to_owned();
    browser.until(&format!("location.hash.includes('region=card0/{number}')"));
    let tile = format!("document.querySelector('.tile[data-key$=\"/{number}\"]')");
    // Cards are read twice a second: the map may come a moment after the region.
    browser.until(&format!("{tile}?.getAttribute('aria-pressed') === 'true'"));
    let shown = browser.eval(&format!("{tile}.querySelector('.number').textContent"));
    assert_eq!(shown, json!(format!("card0/{number}")), "each tile names its card");
    browser.eval("document.querySelector('#region td a').click()");
    let other = browser.eval("document.querySelector('#region td a').textContent").to_string();
    let other = other.trim_matches('"').split(' ').next().expect("a name").to_owned();
    browser.until(&format!("{title} === '{other}'"));

    // What is said of the nodes of one DAG is not said of another that a filter puts in its place.
    browser.eval("document.querySelector('#dag-list [data-key$=dag-d]').click()");
    browser.until(&format!("{title} === 'acme/dag-d'"));
    browser.eval("document.querySelector('.node').dispatchEvent(new MouseEvent('mouseenter'))");
    browser.until("document.querySelector('#why h3')?.textContent.startsWith('Why nat') === true");
    browser.eval(
        "(() => { const filter = document.querySelector('#filter'); filter.value = 'globex/dag-a'; \
         filter.dispatchEvent(new Event('input')); })()",
    );
    browser.until(&format!("{title} === 'globex/dag-a'"));
    browser.until("document.querySelector('#why h3')?.textContent === 'Why it is mapped this way'");
    let why = browser.eval("document.querySelector('#why').textContent").to_string();
    assert!(!why.contains("load-balancer"), "that was the DAG before: {why}");
    assert_eq!(browser.eval("document.querySelector('.tile.lit')"), Value::Null);

    // A DAG that is gone is said to be.
    browser.open("about:blank");
    browser.open(&address.replace("dag-fork", "dag-gone"));
    browser.until(
        "document.querySelector('#dag-head')?.textContent === 'There is no DAG acme/dag-gone.'",
    );
    assert_eq!(browser.complaints, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_states_severities_and_an_hour() {
    let Some(mut browser) = Browser::start() else { return };
    let rig = Rig::start().await;
    browser.set_screen(1280, 900, false);
    opened(&mut browser, &rig.url);
    browser.eval(
        "(() => { const filter = document.querySelector('#filter'); filter.value = 'nothing'; \
         filter.dispatchEvent(new Event('input')); })()",
    );
    browser.until("document.querySelectorAll('#dag-list li').length === 0");
    let text = "document.querySelector('#dag-list').dataset.none";
    assert_eq!(browser.eval(text), json!("no DAG matches “nothing”"));
    let counts = "document.querySelector('#dag-counts').textContent";
    assert_eq!(browser.eval(counts), json!("5 of 5 ready · 0 shown"));

    let choose = |what: &str| format!("document.querySelector('input[value={what}]').click()");
    let kinds = "[...new Set([...document.querySelectorAll('#log li')].map((item) => \
                 item.dataset.severity))]";
    snicctl(&rig, "region cordon card0/15");
    browser.until(&format!("{kinds}.includes('INFO')"));
    browser.eval(&choose("errors"));
    browser.until(&format!("{kinds}.every((severity) => severity === 'ERROR')"));
    browser.until("/^Events \\([0-9]+ of [0-9]+\\)$/.test(document.querySelector('#events-title').textContent)");
    browser.eval(&choose("all"));
    browser.until(&format!("{kinds}.includes('INFO')"));

    let labels = "[...document.querySelectorAll('#rates .ago')].map((text) => text.textContent)";
    assert_eq!(browser.eval(labels), json!(["2 min ago", "1 min ago"]));
    browser.eval(&choose("\"60\""));
    browser.until(&format!("JSON.stringify({labels}) === '[\"60 min ago\",\"30 min ago\"]'"));
    assert_eq!(browser.complaints, [""; 0]);

    // Nothing at all.
    for dag in ["acme/dag-b", "acme/dag-d", "acme/dag-fork", "globex/dag-a", "globex/dag-c"] {
        snicctl(&rig, &format!("dag delete {dag} --wait"));
    }
    browser.eval("document.querySelector('#filter').value = ''");
    browser.until(&format!("{text}.startsWith('There is no DAG yet.')"));
    // A DAG may go after the page has asked for it, and before it is answered.
    let is_of_gone = |complaint: &String| {
        complaint.contains("404") && complaint.contains("/dags/") && complaint.contains("network")
    };
    browser.complaints.retain(|complaint| !is_of_gone(complaint));
    assert_eq!(browser.complaints, [""; 0]);
}

/// A line that does not change is told once. It goes on nevertheless: it ends at "now", also half a minute later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_of_what_does_not_change_go_on() {
    let Some(mut browser) = Browser::start() else { return };
    let rig = Rig::start().await;
    browser.set_screen(1280, 900, false);
    opened(&mut browser, &rig.url);
    browser.until("document.querySelectorAll('#space .lines path').length === 2");
    tokio::time::sleep(std::time::Duration::from_secs(8)).await;
    // How far from the right edge they end, in seconds of the chart's two minutes.
    let ends = "[...document.querySelectorAll('#space .lines path')].map((path) => { \
                const [, x] = path.getAttribute('d').match(/[ML]([0-9.]+) [0-9.]+$/); \
                const size = path.closest('svg').size; \
                return (size - 10 - Number(x)) / (size - 74) * 120; })";
    let ends = browser.eval(ends);
    let late = |end: &Value| end.as_f64().is_none_or(|seconds| seconds > 3.0);
    assert!(ends.as_array().is_some_and(|all| !all.iter().any(late)), "{ends}");
    assert_eq!(browser.complaints, [""; 0]);
}

/// Usage is of closed intervals, the first of which ends within ten seconds. A card that is lost is an outage then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_have_their_usage_promises_and_outages() {
    let Some(mut browser) = Browser::start() else { return };
    let rig = Rig::start().await;
    browser.set_screen(1280, 900, false);
    tokio::time::sleep(std::time::Duration::from_secs(12)).await;
    opened(&mut browser, &rig.url);
    let row = |tenant: &str| {
        format!(
            "[...document.querySelectorAll('#account-table tbody tr')].find((row) => \
             row.firstChild.textContent === '{tenant}')"
        )
    };
    browser.until(&format!("{} !== undefined && {} !== undefined", row("acme"), row("globex")));
    let cells = format!(
        "Object.fromEntries([...document.querySelectorAll('#account-table th[scope=col]')].map((head, at) => \
         [head.textContent, {}.children[at].textContent]))",
        row("acme")
    );
    let cells = browser.eval(&cells);
    assert_eq!(cells["promise kept, 30 days"], json!("100.000 %"), "{cells}");
    assert_eq!(
        (&cells["objective"], &cells["burn rate, 1 h"]),
        (&json!("99.900 %"), &json!("0.0"))
    );
    assert_eq!(cells["spent this month"], json!("–"), "there are no prices");
    let promised = cells["promised, mean"].as_str().expect("a rate");
    assert!(promised.ends_with("bit/s") && promised != "0 bit/s", "{cells}");
    assert_eq!(browser.complaints, [""; 0]);
}

/// The model of the page with this many cards, of 16 regions each, and DAGs.
fn fill(cards: u32, dags: u32) -> String {
    format!(
        "(async () => {{ const {{ model }} = await import('/model.js'); const began = performance.now(); \
         const slots = [{{ nt: 'ntTypes/nat', maxBps: 100, reservedBps: 40 }}]; \
         for (let c = 1; c <= {cards}; c += 1) {{ const card = `cards/many${{c}}`; \
           model.cards.set(card, {{ ...model.cards.get('cards/card0'), name: card, \
             health: c === 200 ? 'LOST' : 'OK' }}); \
           for (let r = 0; r < 16; r += 1) model.regions.set(`${{card}}/regions/${{r}}`, \
             {{ ...model.regions.get('cards/card0/regions/15'), name: `${{card}}/regions/${{r}}`, \
                state: 'ACTIVE', slots, users: [{{ dag: `tenants/t${{c % 50}}/dags/d${{c}}`, slots: [0], bps: 40 }}] }}); }} \
         for (let d = 1; d <= {dags}; d += 1) {{ const name = `tenants/t${{d % 50}}/dags/d${{d}}`; \
           model.dags.set(name, {{ ...[...model.dags.values()][0], name, uid: 10000 + d, \
             state: d === 77 ? 'FAILED' : 'READY' }}); }} \
         model.invalidate(); model.changed(); \
         await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); \
         return performance.now() - began; }})()"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_500_dags_and_256_cards_one_card_is_whole_and_the_others_are_listed() {
    let Some(mut browser) = Browser::start() else { return };
    let rig = Rig::start().await;
    rig.create(&name("acme", "one-more"), &chain(&["nat"], 1)).await;
    browser.set_screen(1280, 900, false);
    opened(&mut browser, &rig.url);
    let first = browser.eval(&fill(255, 494));
    browser.until("document.querySelectorAll('#card-list li').length === 256");
    browser.until("document.querySelectorAll('#dag-list li').length === 500");
    // The lost card comes first and is shown whole; of the other cards no tile is drawn.
    assert_eq!(browser.eval("document.querySelectorAll('.tile').length"), json!(16));
    assert_eq!(browser.eval("document.querySelector('#cards h2').textContent"), json!("many200"));
    let row = browser.eval("document.querySelector('#card-list li').textContent").to_string();
    assert!(row.contains("many200") && row.contains("lost"), "{row}");
    browser.eval("document.querySelector('#card-list a[href=\"#card=many7\"]').click()");
    browser.until("document.querySelector('#cards h2').textContent === 'many7'");
    // It is measured, and told; a machine that is busy must not fail a test.
    let again = browser.eval(
        "(async () => { const { model } = await import('/model.js'); const began = performance.now(); \
         for (let n = 0; n < 20; n += 1) { model.changed(); \
           await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); } \
         return (performance.now() - began) / 20; })()",
    );
    eprintln!("256 cards and 500 DAGs: first drawn in {first} ms, again in {again} ms");
    assert_eq!(browser.complaints, [""; 0]);
}
