//! Transcripts: what goes into the controller and what comes out, as text that people read.
//!
//! Each file in `tests/transcripts` is a story. A line that begins with `>` is given to the controller
//! or to the card; the lines behind it are what that led to, in order:
//!
//! ```text
//! > create acme/web lb 5
//! store  meta, operations/op-1, …      changes of the store, in one batch; "-" where a record goes
//! card0  load region 0 with lb         a command to the card, behind that batch
//! reply  operation op-1, …             the answer to the request
//! event  region 0 …                    what watchers are told, with the resource as it is then
//! ```
//!
//! | input | |
//! |---|---|
//! | `create DAG CHAIN GBPS`, `update DAG CHAIN GBPS`, `preview DAG CHAIN GBPS` | chain: NTs joined by `+` |
//! | `delete DAG`, `drain REGION`, `undrain REGION` | |
//! | `answer` | the card does the oldest thing it was asked, and says so |
//! | `settle` | all that is under way ends, step by step |
//! | `fail REGION` | from now on loads of the region fail |
//! | `restart` | the daemon dies and starts again from what is durable; the card keeps running |
//!
//! `SNIC_WRITE=1 cargo test -p snic-controller --test controller transcripts` rewrites the files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use snic_controller::{CardCommand, Change, Command, ControlError, Effect, OperationView, Reply};
use snic_domain::{DagState, Digest, OperationId, RegionId};
use snic_tables::{LoadFailure, TableDelta};

use crate::support::things::{
    bitstreams, card_id, create, dag, delete, drain, spec, undrain, update,
};
use crate::support::{World, operator};

/// A story as it is told.
struct Teller {
    world: World,
    text: String,
    /// Operations by the order in which they are first named: their ids mean nothing.
    operations: Vec<OperationId>,
    names: BTreeMap<Digest, String>,
}

impl Teller {
    fn new() -> Self {
        let names =
            bitstreams().into_iter().map(|b| (b.images.first().digest, b.id.to_string())).collect();
        Self { world: World::new(), text: String::new(), operations: Vec::new(), names }
    }

    fn say(&mut self, who: &str, what: &str) {
        writeln!(self.text, "{who:<6} {what}").expect("a string takes all");
    }

    /// Carries an input out, and tells what it led to.
    fn input(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["create", name, chain, gbps] => self.ask(create(name, chain_of(chain, gbps))),
            ["update", name, chain, gbps] => self.ask(update(name, chain_of(chain, gbps))),
            ["preview", name, chain, gbps] => {
                let spec = chain_of(chain, gbps);
                self.ask(Command::CreateDag { name: dag(name), spec, validate_only: true });
            }
            ["delete", name] => self.ask(delete(name)),
            ["drain", region] => self.ask(drain(number(region))),
            ["undrain", region] => self.ask(undrain(number(region))),
            ["answer"] => self.answer(),
            ["settle"] => self.settle(),
            ["fail", region] => {
                let region = RegionId(number(region));
                self.world.card().bad_regions.insert(region, LoadFailure::Controller { code: 2 });
            }
            ["restart"] => {
                self.world.restart();
                self.outcome();
            }
            _ => panic!("{line:?} is not an input: see the head of this file"),
        }
    }

    fn ask(&mut self, command: Command) {
        // The answer is told with what else came of it.
        let _ = self.world.ask_as(operator(), command);
        self.outcome();
    }

    fn answer(&mut self) {
        let asked = self.world.asked.front().cloned();
        let (_, command) = asked.expect("the card was asked for something");
        let what = self.command(&command);
        self.say("done", &what);
        self.world.answer_one();
        self.outcome();
    }

    fn settle(&mut self) {
        for _ in 0..100 {
            while !self.world.asked.is_empty() || !self.world.searches.is_empty() {
                self.answer();
            }
            let Some(at) = self.world.controller.next_wake_up() else { return };
            let time = at.since(self.world.now);
            self.say("time", &format!("{time:?} pass"));
            self.world.pass(time);
            self.outcome();
        }
        panic!("it never becomes quiet:\n{}", self.text);
    }

    /// Prints the result of the last event.
    fn outcome(&mut self) {
        let tx = self.world.tx.clone();
        let stored: Vec<String> =
            tx.writes().iter().map(|(key, value)| self.key(key, value.is_some())).collect();
        if !stored.is_empty() {
            self.say("store", &stored.join(", "));
        }
        for effect in tx.effects() {
            match effect {
                Effect::Card { card, command } => {
                    let what = self.command(command);
                    self.say(card.as_str(), &what);
                }
                Effect::Reply { result, .. } => {
                    let what = self.reply(result);
                    self.say("reply", &what);
                }
                // The record that is stored says it, too.
                Effect::Emit(Change::Resource { .. } | Change::ResourceDeleted { .. }) => {}
                Effect::Emit(change) => {
                    let what = self.change(change);
                    self.say("event", &what);
                }
                Effect::Search { card, .. } => self.say("search", card.as_str()),
                Effect::DropBlob(digest) => {
                    let what = format!("drop the bytes of {}", self.names[digest]);
                    self.say("store", &what);
                }
            }
        }
    }

    fn key(&mut self, key: &str, is_there: bool) -> String {
        let key = match key.strip_prefix("operations/") {
            Some(id) => format!("operations/{}", self.operation(&id.parse().expect("a label"))),
            None => key.to_owned(),
        };
        if is_there { key } else { format!("-{key}") }
    }

    fn operation(&mut self, id: &OperationId) -> String {
        let known = self.operations.iter().position(|known| known == id);
        let number = known.unwrap_or_else(|| {
            self.operations.push(id.clone());
            self.operations.len() - 1
        });
        format!("op-{}", number + 1)
    }

    fn command(&self, command: &CardCommand) -> String {
        match command {
            CardCommand::ReadBack { .. } => "read back".into(),
            CardCommand::Load { region, digest, .. } => {
                format!("load region {region} with {}", self.names[digest])
            }
            CardCommand::Program { delta, .. } => format!("program {}", tables(delta)),
            other => format!("{other:?}"),
        }
    }

    fn reply(&mut self, result: &Result<Reply, ControlError>) -> String {
        match result {
            Ok(Reply::Operation(view)) => self.operation_view(view),
            Ok(Reply::WouldBe(view)) => {
                let regions = view.mapping.iter().flat_map(|mapping| mapping.instances());
                let regions: Vec<String> = regions.map(|i| i.region.to_string()).collect();
                format!("{} would be in regions {}", view.name, regions.join(", "))
            }
            Ok(Reply::Region(view)) => format!("region {} is {:?}", view.region, view.state),
            Ok(other) => format!("{other:?}"),
            Err(error) => format!("error ({}): {error}", error.kind()),
        }
    }

    fn operation_view(&mut self, view: &OperationView) -> String {
        let id = self.operation(&view.record.id);
        let how = match &view.record.ended {
            Some((_, Ok(()))) => "done".to_owned(),
            Some((_, Err(error))) => format!("failed: {error}"),
            None if view.record.started.is_some() => "started".to_owned(),
            None => "pending".to_owned(),
        };
        format!("operation {id}, {how}")
    }

    fn change(&mut self, change: &Change) -> String {
        match change {
            Change::Dag(name, _) => match self.world.controller.dag_view(name) {
                Some(view) => {
                    let last = view.conditions.last().map_or("", |last| &last.message);
                    let why = if view.state == DagState::Ready { "" } else { last };
                    let separator = if why.is_empty() { "" } else { ": " };
                    format!("DAG {name} is {:?}{separator}{why}", view.state)
                }
                None => format!("DAG {name} is gone"),
            },
            Change::DagDeleted(view) => format!("DAG {} is deleted", view.name),
            Change::Region(_, region) => {
                let view = self.world.region(region.0);
                let holds = view.bitstream.map_or_else(|| "nothing".into(), |b| b.to_string());
                format!("region {region} is {:?}, to hold {holds}", view.state)
            }
            Change::Operation(id) => {
                let view = self.world.operation(id);
                self.operation_view(&view)
            }
            Change::Logged(entry) => format!("{:?}: {}", entry.kind, entry.text),
            other => format!("{other:?}"),
        }
    }
}

fn number(text: &str) -> u8 {
    text.parse().expect("the number of a region")
}

fn chain_of(chain: &str, gbps: &str) -> snic_domain::DagSpec {
    spec(&chain.replace('+', " "), gbps.parse().expect("whole Gbit/s"))
}

/// Number of rows of each table.
fn tables(delta: &TableDelta) -> String {
    let mut rows: BTreeMap<String, usize> = BTreeMap::new();
    for (key, _) in delta.rows() {
        *rows.entry(format!("{:?}", key.table)).or_default() += 1;
    }
    let rows: Vec<String> = rows.into_iter().map(|(table, n)| format!("{n} {table}")).collect();
    rows.join(", ")
}

/// Retells a story from its comments and inputs.
fn tell(story: &str) -> String {
    let mut teller = Teller::new();
    for line in story.lines() {
        if let Some(input) = line.strip_prefix("> ") {
            writeln!(teller.text, "{line}").expect("a string takes all");
            teller.input(input);
        } else if line.is_empty() || line.starts_with('#') {
            writeln!(teller.text, "{line}").expect("a string takes all");
        }
    }
    teller.text
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

#[test]
fn every_story_is_as_it_was_told() {
    let files = std::fs::read_dir(folder()).expect("the folder of transcripts");
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let story = std::fs::read_to_string(&file).expect("a text");
        let told = tell(&story);
        if std::env::var_os("SNIC_WRITE").is_some() {
            std::fs::write(&file, &told).expect("written");
            continue;
        }
        let differs = story.lines().zip(told.lines()).position(|(before, now)| before != now);
        assert!(
            story == told,
            "{} is told otherwise from line {}; read the difference, and accept it with \
             SNIC_WRITE=1 only if it is meant:\n{told}",
            file.display(),
            differs.unwrap_or(0) + 1,
        );
    }
}

#[test]
fn the_card_of_the_stories_is_the_tiny_one() {
    assert_eq!(Teller::new().world.controller.cards().map(|c| c.card).next(), Some(card_id()));
}
