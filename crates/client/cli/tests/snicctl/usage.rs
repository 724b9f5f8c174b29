//! `snicctl usage` against a server that answers as a test says.

use std::path::{Path, PathBuf};
use std::process::Command;

use prost_types::Timestamp;
use rstest::rstest;
use snic_api::v1::*;

use crate::support::fake::Fake;
#[cfg(feature = "parquet")]
use crate::support::snicctl;
use crate::support::{Run, run};

/// 2026-01-01T00:00:00Z
const JANUARY: i64 = 1_767_225_600;
const DAY: i64 = 86_400;

fn entry(dag: &str, day: i64) -> UsageEntry {
    UsageEntry {
        tenant: "tenants/acme".into(),
        dag: format!("tenants/acme/dags/{dag}"),
        uid: 65_537,
        card: "cards/card0".into(),
        start_time: Some(Timestamp { seconds: JANUARY + day * DAY, nanos: 0 }),
        end_time: Some(Timestamp { seconds: JANUARY + (day + 1) * DAY, nanos: 0 }),
        life_ms: 86_400_000,
        promised_kbit: 86_400_000_000,
        region_ms: 86_399_999,
        bytes_in: 1_000_000_001,
        bytes_served: 1_000_000_000,
        packets_in: 2_000_001,
        packets_served: 2_000_000,
        ..UsageEntry::default()
    }
}

/// A price file with one price, in a folder of its own.
fn prices(folder: &Path, price: &str) -> String {
    let path = folder.join("prices.toml");
    let text = format!(
        "currency = \"EUR\"\nprovider = \"Example\"\n[[versions]]\nname = \"one\"\n\
         from = 2026-01-01T00:00:00Z\nprices = {{ gigabytes_in = \"{price}\" }}\n"
    );
    std::fs::write(&path, text).expect("it is written");
    path.display().to_string()
}

fn export(fake: &Fake, price: &str, options: &str) -> Run {
    let folder = tempfile::tempdir().expect("a folder");
    let prices = prices(folder.path(), price);
    run(fake.endpoint(), &format!("usage export --format focus --prices {prices} {options}"))
}

const TWO_DAYS: &str = "--from 2026-01-01T00:00:00Z --to 2026-01-03T00:00:00Z";

#[test]
fn charges_are_of_all_pages_and_of_whole_days() {
    let fake = Fake::start();
    let page = |entry, next_page_token: &str| ListUsageResponse {
        usage: vec![entry],
        next_page_token: next_page_token.into(),
        ..Default::default()
    };
    fake.answer("ListUsage", &page(entry("web", 0), "more"));
    fake.answer("ListUsage", &page(entry("web", 1), ""));
    let run = export(&fake, "0.000000000003", TWO_DAYS);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", run.stdout);
    assert!(lines[1].starts_with("0.000000000003000000003,tenants/acme,acme,EUR,"), "{}", lines[1]);
    assert!(lines[2].contains(",2026-01-03T00:00:00Z,2026-01-02T00:00:00Z,"), "{}", lines[2]);
    let asked: Vec<ListUsageRequest> = fake.asked("ListUsage");
    let first = &asked[0];
    let [from, to] = [first.start_time, first.end_time].map(|at| at.map(|at| at.seconds));
    assert_eq!((from, to), (Some(JANUARY), Some(JANUARY + 2 * DAY)));
    assert_eq!((first.step_seconds, first.by), (86_400, UsageGrouping::Dag.into()));
    assert_eq!(asked[1].page_token, "more");
}

#[rstest]
#[case("--from 2025-12-31T00:00:00Z --to 2026-01-02T00:00:00Z", "no prices for 2025-12-31")]
#[case("--from 2026-01-01T00:30:00Z --to 2026-01-02T00:00:00Z", "not the beginning of a day")]
#[case("--from 2026-01-01T00:00:00Z --to 9000-01-01T00:00:00Z", "is not over and counted")]
#[case("--from 2026-01-01T00:00:00Z --step 10m", "a step of 600 s is no step of charges")]
#[case("--from 2026-01-01T00:00:00Z --by tenant", "charges are of each DAG on each card")]
fn what_cannot_be_charged_is_refused_before_the_server_is_asked(
    #[case] options: &str,
    #[case] says: &str,
) {
    let fake = Fake::start();
    let run = export(&fake, "1", options);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains(says), "{}", run.stderr);
    assert!(fake.asked::<ListUsageRequest>("ListUsage").is_empty());
}

#[test]
fn one_account_is_asked_for_by_its_name() {
    let fake = Fake::start();
    let total = UsageEntry { loads: 7, dag: String::new(), ..entry("web", 0) };
    let reply = GetUsageResponse {
        steps: vec![entry("web", 0)],
        total: Some(total),
        unreachable_hosts: Vec::new(),
    };
    for _ in 0..2 {
        fake.answer("GetUsage", &reply);
    }
    let range = "--from 2026-01-01T00:00:00Z --to 2026-01-03T00:00:00Z --step 1h";
    let shown = run(fake.endpoint(), &format!("usage get acme/web {range}"));
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("loads"), "{}", shown.stdout);
    let json = run(fake.endpoint(), "usage get acme -o json");
    assert!(json.code == 0 && json.stdout.contains("\"total\""), "{}", json.stdout);
    let asked: Vec<GetUsageRequest> = fake.asked("GetUsage");
    let names: Vec<&str> = asked.iter().map(|request| &*request.name).collect();
    assert_eq!(names, ["tenants/acme/dags/web", "tenants/acme"]);
    let at = |time: Option<Timestamp>| time.map(|time| time.seconds);
    let first = &asked[0];
    assert_eq!(
        (at(first.start_time), at(first.end_time)),
        (Some(JANUARY), Some(JANUARY + 2 * DAY))
    );
    assert_eq!(first.step_seconds, 3_600);
    let nobody = run(fake.endpoint(), "usage get");
    assert!(nobody.code == 2 && nobody.stderr.contains("--tenant"), "{}", nobody.stderr);
}

#[test]
fn promises_are_asked_for_by_dag_or_tenant_and_listed_by_tenant() {
    let fake = Fake::start();
    let reply = GetSloResponse {
        name: "tenants/acme/dags/web".into(),
        promise_ms: 1_000_000,
        broken_ms: 2_000,
        availability_ppm: 998_000,
        objective_ppm: 999_500,
        ..GetSloResponse::default()
    };
    for _ in 0..2 {
        fake.answer("GetSlo", &reply);
    }
    let range = "--from 2026-01-01T00:00:00Z --to 2026-01-03T00:00:00Z";
    let shown = run(fake.endpoint(), &format!("dag slo acme/web {range} --objective 99.95"));
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("99.8 %") && shown.stdout.contains("missed"), "{}", shown.stdout);
    let json = run(fake.endpoint(), "usage slo acme -o json");
    assert!(json.code == 0 && json.stdout.contains("availability"), "{}", json.stdout);
    let asked: Vec<GetSloRequest> = fake.asked("GetSlo");
    let names: Vec<(&str, u32)> =
        asked.iter().map(|request| (&*request.name, request.objective_ppm)).collect();
    assert_eq!(names, [("tenants/acme/dags/web", 999_500), ("tenants/acme", 0)]);
    assert_eq!(asked[0].start_time.map(|time| time.seconds), Some(JANUARY));
    let broken = UsageBreak { cause: "NO_PLACE".into(), millis: 2_000 };
    let usage = UsageEntry {
        promise_ms: 1_000_000,
        broken: vec![broken],
        dag: String::new(),
        ..entry("web", 0)
    };
    fake.answer("ListUsage", &ListUsageResponse { usage: vec![usage], ..Default::default() });
    let report = run(fake.endpoint(), "usage slo --objective 99.9");
    assert_eq!(report.code, 0, "{}", report.stderr);
    for part in ["acme", "99.8 %", "missed", "NO_PLACE 2.000 s"] {
        assert!(report.stdout.contains(part), "{part}: {}", report.stdout);
    }
    let asked: Vec<ListUsageRequest> = fake.asked("ListUsage");
    assert_eq!(asked[0].by, i32::from(UsageGrouping::Tenant));
    assert_eq!(run(fake.endpoint(), "usage slo --objective 100").code, 2);
}

/// A statement and its signature by an ed25519 key are good together, and nothing else is.
#[test]
fn a_signed_statement_is_checked_without_a_server() {
    let fake = Fake::start();
    fake.answer(
        "ListUsage",
        &ListUsageResponse { usage: vec![entry("web", 0)], ..Default::default() },
    );
    let printed = run(fake.endpoint(), "usage statement --of acme --day 2026-01-01");
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    assert!(printed.stdout.starts_with("snic-usage-v1 tenants/acme 2026-01-01\ntenant,"));
    let asked: Vec<ListUsageRequest> = fake.asked("ListUsage");
    assert_eq!((&*asked[0].tenant, asked[0].step_seconds), ("tenants/acme", 86_400));
    let [key, other] =
        [(); 2].map(|()| rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key"));
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("it is written");
        path.display().to_string()
    };
    let signature = rcgen::SigningKey::sign(&key, printed.stdout.as_bytes()).expect("a signature");
    let signature = write("day.sig", &signature);
    let [key, other] = [("site", &key), ("other", &other)]
        .map(|(name, key)| write(&format!("{name}.pem"), key.public_key_pem().as_bytes()));
    let check = |text: &str, key: &str| {
        let file = write("day", text.as_bytes());
        run("", &format!("usage verify {file} --signature {signature} --key {key}"))
    };
    let good = check(&printed.stdout, &key);
    assert_eq!(good.code, 0, "{}", good.stderr);
    assert_eq!(good.stdout, "tenants/acme on 2026-01-01: the signature is good; 1 lines of DAGs\n");
    let changed = printed.stdout.replace("86399999", "86399998");
    assert_ne!(changed, printed.stdout);
    for (text, key) in [(changed.as_str(), &key), (printed.stdout.as_str(), &other)] {
        let bad = check(text, key);
        assert!(bad.code == 2 && bad.stdout.is_empty(), "{}", bad.stdout);
        assert!(bad.stderr.contains("not of this file by this key"), "{}", bad.stderr);
    }
    let today = run(fake.endpoint(), "usage statement --of acme --day 9000-01-01");
    assert!(today.code == 2 && today.stderr.contains("a day that is over"), "{}", today.stderr);
}

#[test]
fn a_wrong_price_is_refused_with_its_file_and_key() {
    let fake = Fake::start();
    let run = export(&fake, "1e3", TWO_DAYS);
    assert_eq!(run.code, 2);
    for part in ["prices.toml", "\"one\"", "gigabytes_in", "\"1e3\" is no price"] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
}

#[test]
fn charges_need_prices_and_a_listing_takes_no_format() {
    let fake = Fake::start();
    assert_eq!(run(fake.endpoint(), "usage export --format focus").code, 2);
    assert_eq!(run(fake.endpoint(), "usage export --format focus-parquet").code, 2);
    assert_eq!(run(fake.endpoint(), "usage --format csv").code, 2);
    let short = run(fake.endpoint(), "usage --step 0s");
    assert_eq!(short.code, 2);
    assert!(short.stderr.contains("less than a second"), "{}", short.stderr);
}

#[test]
fn all_meters_are_exported_as_comma_separated_values() {
    let fake = Fake::start();
    let usage = vec![entry("web", 0)];
    fake.answer("ListUsage", &ListUsageResponse { usage, ..Default::default() });
    let run = run(fake.endpoint(), "usage export --by dag --from 2h");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(lines[0].starts_with("tenant,dag,uid,card,start_time,"), "{}", lines[0]);
    assert!(lines[1].contains(",86400000,86400000000,86399999,1000000001,"), "{}", lines[1]);
}

#[cfg(not(feature = "parquet"))]
#[test]
fn without_parquet_the_program_says_how_to_get_it() {
    let fake = Fake::start();
    let run = run(fake.endpoint(), "usage export --format parquet");
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    for part in ["built without Parquet", "--format csv", "snicctl/parquet"] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let prices = prices(folder.path(), "0.5");
    let run = self::run(
        fake.endpoint(),
        &format!("usage export --format focus-parquet --prices {prices}"),
    );
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("built without Parquet"), "{}", run.stderr);
}

/// A Python with these packages; none where there is no Python, but in CI.
fn python(folder: &Path, packages: &[&str]) -> Option<PathBuf> {
    let run = |command: &mut Command| {
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    if Command::new("python3").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "python3 is missing");
        println!("not run: python3 is missing");
        return None;
    }
    let environment = folder.join("python");
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(Command::new(environment.join("bin/python")).args(pip).args(packages));
    Some(environment)
}

/// Types and sums of a file as DuckDB sees them, which knows nothing of this project.
#[cfg(feature = "parquet")]
const SUMS: &str = "
import duckdb, sys
usage = duckdb.read_parquet(sys.argv[1])
print(dict(zip(usage.columns, map(str, usage.types)))['uid'])
query = 'SELECT count(*), sum(bytes_in), max(life_ms), min(start_time) AT TIME ZONE $$UTC$$, any_value(card)'
print(*duckdb.sql(query + ' FROM usage').fetchone())
";

#[cfg(feature = "parquet")]
#[test]
#[ignore = "ci: installs DuckDB"]
fn another_program_reads_the_parquet_and_its_sums_agree() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(environment) = python(folder.path(), &["duckdb==1.5.6"]) else { return };
    let fake = Fake::start();
    // More than one group of rows, in pages; the largest amount needs all 64 bits.
    let days = i64::from(u16::MAX) + 10;
    let mut entries: Vec<UsageEntry> = (0..days).map(|day| entry("web", day)).collect();
    entries[7].life_ms = u64::MAX;
    for (at, page) in entries.chunks(30_000).enumerate() {
        let next_page_token = if at < 2 { "more".to_owned() } else { String::new() };
        fake.answer(
            "ListUsage",
            &ListUsageResponse { usage: page.to_vec(), next_page_token, ..Default::default() },
        );
    }
    let file = folder.path().join("usage.parquet");
    let config = folder.path().join("config.toml");
    let mut program = snicctl(&config);
    program.env("SNICCTL_ENDPOINT", fake.endpoint());
    let output =
        program.args(["usage", "export", "--format", "parquet"]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::write(&file, output.stdout).expect("it is written");
    let python = environment.join("bin/python");
    let sums = Command::new(python).args(["-c", SUMS]).arg(&file).output().expect("it starts");
    let said = String::from_utf8_lossy(&sums.stdout);
    let bytes = u64::try_from(days).expect("positive") * 1_000_000_001;
    let expected =
        format!("UBIGINT\n{days} {bytes} {} 2026-01-01 00:00:00 cards/card0\n", u64::MAX);
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(&sums.stderr));
}

/// Types and sums of charges as DuckDB sees them.
#[cfg(feature = "parquet")]
const CHARGES: &str = "
import duckdb, sys
charges = duckdb.read_parquet(sys.argv[1])
types = dict(zip(charges.columns, map(str, charges.types)))
print(len(types), types['BilledCost'], types['ChargePeriodStart'], types['Tags'])
query = 'SELECT count(*), sum(BilledCost), sum(PricingQuantity), min(ChargePeriodStart) AT TIME ZONE $$UTC$$, '
query += 'count(Tags), count(ResourceId), any_value(BillingCurrency)'
print(*duckdb.sql(query + ' FROM charges').fetchone())
";

#[cfg(feature = "parquet")]
#[test]
#[ignore = "ci: installs DuckDB"]
fn another_program_adds_up_charges_to_the_last_digit() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(environment) = python(folder.path(), &["duckdb==1.5.6"]) else { return };
    let fake = Fake::start();
    let usage = vec![entry("web", 0), UsageEntry { dag: String::new(), uid: 0, ..entry("", 1) }];
    fake.answer("ListUsage", &ListUsageResponse { usage, ..Default::default() });
    let prices = prices(folder.path(), "0.000000000003");
    let config = folder.path().join("config.toml");
    let mut program = snicctl(&config);
    program.env("SNICCTL_ENDPOINT", fake.endpoint());
    let export = format!("usage export --format focus-parquet --prices {prices} {TWO_DAYS}");
    let output = program.args(export.split(' ')).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = folder.path().join("charges.parquet");
    std::fs::write(&file, output.stdout).expect("it is written");
    let python = environment.join("bin/python");
    let sums = Command::new(python).args(["-c", CHARGES]).arg(&file).output().expect("it starts");
    let said = String::from_utf8_lossy(&sums.stdout);
    // Python writes so small a decimal with an exponent, and loses no digit of it.
    let expected = "46 DECIMAL(38,21) TIMESTAMP WITH TIME ZONE VARCHAR\n\
                    2 6.000000006E-12 2.000000002000000000000 2026-01-01 00:00:00 0 1 EUR\n";
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(&sums.stderr));
}

/// Findings of the validator's last release, 1.0.0, that are its own: it looks for names of columns that were changed before
/// version 1.0 of the specification, and its list of currencies is not in its package.
const OF_THE_VALIDATOR: [&str; 6] = [
    "BillingCurrency_IsCurrencyCode",
    "InvoiceIssuer_Required",
    "Provider_Required",
    "Publisher_Required",
    "ResourceID_Required",
    "SkuPriceId_Nullable",
];

/// The validator of the FinOps Foundation checks version 1.0, whose columns 1.2 has, too.
#[test]
#[ignore = "nightly: installs the validator, for 40 s"]
fn charges_pass_the_validator_of_their_format() {
    let folder = tempfile::tempdir().expect("a folder");
    let packages = ["focus-validator==1.0.0", "multimethod<2", "setuptools<81"];
    let Some(environment) = python(folder.path(), &packages) else { return };
    let fake = Fake::start();
    let usage = vec![entry("web", 0), UsageEntry { dag: String::new(), uid: 0, ..entry("", 1) }];
    fake.answer("ListUsage", &ListUsageResponse { usage, ..Default::default() });
    let charges = export(&fake, "0.000005", TWO_DAYS);
    assert_eq!(charges.code, 0, "{}", charges.stderr);
    let file = folder.path().join("charges.csv");
    std::fs::write(&file, charges.stdout).expect("it is written");
    let mut validator = Command::new(environment.join("bin/focus-validator"));
    validator.arg("--data-file").arg(&file).args(["--validate-version", "1.0"]);
    let output = validator.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let found = said.lines().filter_map(|line| line.strip_suffix(" failed:"));
    let found: Vec<&str> = found.collect();
    assert_eq!(found, OF_THE_VALIDATOR, "{said}{}", String::from_utf8_lossy(&output.stderr));
}
