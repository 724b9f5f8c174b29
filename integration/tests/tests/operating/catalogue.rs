//! Each network task of the catalogue on a card: registered, built, uploaded, used and loaded by the commands of the
//! catalogue's page, in a daemon that knows none.

use std::path::Path;

use serde_json::Value;
use snic_integration::Home;
use snic_integration::commands::{operate, shell};

/// The catalogue's folder and a type, in the page's commands.
const PACKAGED: &str = "/usr/share/snic/bitstreams";
const SHOWN: &str = "esp";

/// The commands of the page: what registers all types, and what builds and uploads one.
fn commands(page: &str) -> (String, String) {
    let block = page.split("```").find(|block| block.starts_with("sh\nsnicctl apply -f"));
    let lines = block.expect("the page has them").trim_start_matches("sh\n");
    let (all, one) = lines.split_once('\n').expect("one line, and others");
    assert!(all.ends_with(PACKAGED) && one.lines().count() == 2, "{lines}");
    (all.to_owned(), one.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_task_of_the_catalogue_is_loaded_by_the_commands_of_its_page() {
    let home = Home::new();
    let daemon = home.start().await;
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bitstreams");
    let project = project.canonicalize().expect("it is here").display().to_string();
    let page = std::fs::read_to_string(format!("{project}/README.md")).expect("a page");
    let (all, one) = commands(&page);
    operate(&home, "tenant create acme").expect("an operator may");
    let list = |noun: &str| -> Vec<Value> {
        let printed = operate(&home, &format!("{noun} list -o json")).expect("it serves");
        serde_json::from_str(&printed).expect("JSON")
    };
    assert!(list("nt").is_empty(), "a new daemon knows none");
    let run = |lines: &str| {
        let lines = format!("cd {}\n{lines}", home.path().display());
        shell(&home, &lines).unwrap_or_else(|error| panic!("{lines}: {error}"))
    };
    run(&all.replace(PACKAGED, &project));
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let types: Vec<String> =
        list("nt").iter().map(|nt| text(&nt["name"]).replace("ntTypes/", "")).collect();
    let file = std::fs::read_to_string(format!("{project}/nt-types.toml")).expect("the catalogue");
    assert_eq!(types.len(), file.matches("\nid = ").count(), "{types:?}");
    for nt in &types {
        run(&one.replace(SHOWN, nt));
        let dag = format!("name: acme/only-{nt}\nbandwidth: 100Mbps\nchain: {nt}\n");
        std::fs::write(home.path().join("dag.yaml"), dag).expect("the folder takes files");
        run("snicctl apply -f dag.yaml --wait");
    }
    let regions = list("region");
    for nt in &types {
        let has = |region: &&Value| region.to_string().contains(&format!("bitstreams/{nt}-sim-16"));
        assert_eq!(regions.iter().filter(has).count(), 1, "{nt}: {regions:?}");
    }
    daemon.stop();
}
