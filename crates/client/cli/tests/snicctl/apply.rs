//! `snicctl apply`: what is asked of the server, in which order.

use super::*;

const ALL: &str = "name: acme/web\nbandwidth: 2Gbps\nchain: nat -> firewall\n---\n\
                   kind: tenant\nname: acme\nweight: 5\nquota: {dags_max: 9}\n";

fn missing(kind: &str, name: &str) -> ApiError {
    ApiError::not_found(kind, name)
}

fn acme() -> Tenant {
    let quota = Quota { dags_max: Some(64), rules_max: Some(8), ..Quota::default() };
    let (name, etag) = ("tenants/acme".into(), "e7".into());
    Tenant { name, etag, weight: 5, quota: Some(quota), ..Tenant::default() }
}

fn lines(run: &crate::support::Run) -> Vec<&str> {
    assert_eq!(run.code, 0, "{}", run.stderr);
    run.stdout.lines().collect()
}

#[test]
fn what_differs_is_changed_and_what_is_missing_is_created_after_what_it_needs() {
    let fake = Fake::start();
    fake.answer("GetTenant", &acme());
    fake.answer("UpdateTenant", &acme());
    fake.refuse("GetDag", missing("DAG", "tenants/acme/dags/web"));
    fake.answer("CreateDag", &fixtures::running());
    let run = with_input(fake.endpoint(), "apply --diff -f -", ALL);
    let expected = [
        "changed tenants/acme (quota.dags_max)",
        "  - quota.dags_max: 64",
        "  + quota.dags_max: 9",
        "created tenants/acme/dags/web",
    ];
    assert_eq!(lines(&run), expected);
    let asked: Vec<UpdateTenantRequest> = fake.asked("UpdateTenant");
    let tenant = asked[0].tenant.clone().unwrap();
    assert_eq!(asked[0].update_mask.clone().unwrap().paths, ["quota.dags_max"]);
    assert_eq!((tenant.name.as_str(), tenant.etag.as_str()), ("tenants/acme", "e7"));
    assert_eq!(tenant.quota.unwrap().dags_max, Some(9));
    let dags: Vec<CreateDagRequest> = fake.asked("CreateDag");
    assert_eq!((dags[0].parent.as_str(), dags[0].validate_only), ("tenants/acme", false));
}

#[test]
fn what_is_as_it_should_be_is_left_alone() {
    let fake = Fake::start();
    let as_said = Tenant { quota: None, ..acme() };
    let same = Quota { dags_max: Some(9), rules_max: Some(8), ..Quota::default() };
    fake.answer("GetTenant", &Tenant { quota: Some(same), ..as_said });
    let (_, tenant) = ALL.split_once("---\n").unwrap();
    let run = with_input(fake.endpoint(), "apply -f -", tenant);
    assert_eq!(lines(&run), ["unchanged tenants/acme"]);
}

#[test]
fn a_dry_run_has_the_server_check_everything_and_changes_nothing() {
    let fake = Fake::start();
    fake.answer("GetTenant", &acme());
    fake.answer("UpdateTenant", &acme());
    fake.refuse("GetDag", missing("DAG", "tenants/acme/dags/web"));
    fake.answer("CreateDag", &done(any("snic.control.v1.Dag", &fixtures::web())));
    let run = with_input(fake.endpoint(), "apply --dry-run -f -", ALL);
    let expected =
        ["would change tenants/acme (quota.dags_max)", "would create tenants/acme/dags/web"];
    assert_eq!(lines(&run), expected);
    let dags: Vec<CreateDagRequest> = fake.asked("CreateDag");
    assert!(dags[0].validate_only);
    let tenants: Vec<UpdateTenantRequest> = fake.asked("UpdateTenant");
    assert!(tenants.len() == 1 && tenants[0].validate_only);
    fake.refuse("GetNtType", missing("NT type", "ntTypes/x"));
    fake.answer("CreateNtType", &NtType::default());
    fake.refuse("GetRule", missing("rule", "classificationRules/r"));
    fake.answer("CreateRule", &Rule::default());
    let two = "{kind: nt-type, name: x}\n---\n{kind: rule, name: r, dag: acme/web}\n";
    let run = with_input(fake.endpoint(), "apply --dry-run -f -", two);
    assert_eq!(lines(&run), ["would create ntTypes/x", "would create classificationRules/r"]);
    assert!(fake.asked::<CreateNtTypeRequest>("CreateNtType")[0].validate_only);
    assert!(fake.asked::<CreateRuleRequest>("CreateRule")[0].validate_only);
}

/// A refusal of the real run is one of the dry run, at the same place.
#[test]
fn a_dry_run_ends_as_the_run_would() {
    let fake = Fake::start();
    fake.refuse("GetTenant", missing("tenant", "tenants/b"));
    fake.refuse(
        "CreateTenant",
        ApiError::in_field(ErrorReason::InvalidField, "tenant.weight", "too large (limit 1000)"),
    );
    let text = "kind: tenant\nname: b\nweight: 2000\n";
    let run = with_input(fake.endpoint(), "apply --dry-run -f -", text);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{}", run.stderr);
    assert!(run.stderr.contains("<standard input>:3:9"), "{}", run.stderr);
}

/// The server cannot check all of a DAG whose tenant only the files would create, but says which types it knows.
#[test]
fn what_only_the_files_would_create_is_named_and_the_rest_is_checked() {
    let fake = Fake::start();
    for known in [true, false] {
        fake.refuse("GetTenant", missing("tenant", "tenants/acme"));
        fake.answer("CreateTenant", &acme());
        fake.answer("GetNtType", &NtType::default());
        match known {
            true => fake.answer("GetNtType", &NtType::default()),
            false => fake.refuse("GetNtType", missing("NT type", "ntTypes/firewall")),
        };
        let run = with_input(fake.endpoint(), "apply --dry-run -f -", ALL);
        if known {
            let waits =
                "would create tenants/acme/dags/web, not checked further without tenants/acme";
            assert_eq!(lines(&run), ["would create tenants/acme", waits]);
        } else {
            assert_eq!(run.code, 2, "{}", run.stdout);
            let place = "<standard input>:3:15";
            let said = &run.stderr;
            assert!(
                said.contains("ntTypes/firewall does not exist") && said.contains(place),
                "{said}"
            );
        }
    }
}

/// Changes that were made before a refusal stay, and are printed; the refusal stands at its line.
#[test]
fn a_refusal_is_shown_at_its_line_after_what_was_done() {
    let fake = Fake::start();
    for _ in 0..2 {
        fake.refuse("GetTenant", missing("tenant", "tenants/x"));
    }
    fake.answer("CreateTenant", &acme());
    fake.refuse(
        "CreateTenant",
        ApiError::in_field(ErrorReason::InvalidField, "tenant.weight", "too large (limit 1000)"),
    );
    let two = "{kind: tenant, name: a}\n---\nkind: tenant\nname: b\nweight: 2000\n";
    let run = with_input(fake.endpoint(), "apply -f -", two);
    assert_eq!((run.code, run.stdout.as_str()), (2, "created tenants/a\n"), "{}", run.stderr);
    assert!(run.stderr.contains("<standard input>:5:9"), "{}", run.stderr);
}

#[test]
fn pruning_deletes_what_has_the_labels_and_is_in_no_file() {
    let fake = Fake::start();
    let rule = |id: &str| Rule { name: format!("classificationRules/{id}"), ..Rule::default() };
    fake.answer("GetRule", &rule("in"));
    let rules = vec![rule("in"), rule("old")];
    fake.answer("ListRules", &ListRulesResponse { rules, ..Default::default() });
    fake.answer("DeleteRule", &DeleteRuleResponse {});
    let file = "kind: rule\nname: in\n";
    let run = with_input(fake.endpoint(), "apply -f - --prune -l app=shop", file);
    assert_eq!(
        lines(&run),
        ["unchanged classificationRules/in", "deleted classificationRules/old"]
    );
    let lists: Vec<ListRulesRequest> = fake.asked("ListRules");
    assert_eq!(lists[0].filter, "labels.app = \"shop\"");
    let deleted: Vec<DeleteRuleRequest> = fake.asked("DeleteRule");
    assert_eq!(deleted.len(), 1);
    assert_eq!(deleted[0].name, "classificationRules/old");
    let run = with_input(fake.endpoint(), "apply -f - --prune", file);
    assert_eq!(run.code, 2, "without labels everything else would go");
}

#[rstest]
#[case("kind: nt-type\nname: nat\nlatency_cycles: 13\n", "delete it first", "3:17")]
#[case("kind: nt-type\nname: nat\nlatency_cycle: 13\n", "did you mean", "3:1")]
#[case("{kind: tenant, name: a}\n---\n{kind: tenant, name: tenants/a}\n", "twice", "3:22")]
#[case("kind: tenant\nweight: 1\n", "has no name", "1:1")]
#[case("kind: tenant\nname: a/b/c\n", "name", "2:7")]
fn what_cannot_be_applied_is_refused_with_its_place(
    #[case] text: &str,
    #[case] message: &str,
    #[case] place: &str,
) {
    let fake = Fake::start();
    let nt_type = NtType { name: "ntTypes/nat".into(), latency_cycles: 12, ..NtType::default() };
    fake.answer("GetNtType", &nt_type);
    let run = with_input(fake.endpoint(), "apply -f -", text);
    assert_eq!(run.code, 2, "{}", run.stderr);
    let at = format!("<standard input>:{place}");
    assert!(run.stderr.contains(message) && run.stderr.contains(&at), "{}", run.stderr);
}

#[test]
fn a_file_states_the_limits_of_an_nt_type() {
    let fake = Fake::start();
    fake.refuse("GetNtType", missing("NT type", "ntTypes/kv"));
    fake.answer("CreateNtType", &NtType::default());
    let text = "kind: nt-type\nname: kv\npackets_per_second_max: 20000000\nmemory_bytes_per_packet: 64\n\
                memory_bytes_per_packet_byte: 2\n";
    let run = with_input(fake.endpoint(), "apply -f -", text);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let created: Vec<CreateNtTypeRequest> = fake.asked("CreateNtType");
    let nt = created[0].nt_type.as_ref().unwrap();
    let memory = (nt.memory_bytes_per_packet, nt.memory_bytes_per_packet_byte);
    assert_eq!((nt.packets_per_second_max, memory), (20_000_000, (64, 2)));
}

/// The catalogue that ships is a folder, and a bitstream's image lies beside its document.
#[test]
fn a_folder_is_applied_with_its_images() {
    let fake = Fake::start();
    let folder = tempfile::tempdir().unwrap();
    let types = std::fs::read_to_string("../../../bitstreams/nt-types.toml").unwrap();
    std::fs::write(folder.path().join("nt-types.toml"), &types).unwrap();
    std::fs::write(folder.path().join("image.bit"), b"an image").unwrap();
    let document =
        "kind: bitstream\nname: nat-x\nfile: image.bit\nnts: [nat]\nregion_kind: known-nt\n";
    std::fs::write(folder.path().join("b.yaml"), document).unwrap();
    std::fs::write(folder.path().join("notes.txt"), "nothing").unwrap();
    let count = types.matches("[[nt-types]]").count();
    for _ in 0..count {
        fake.refuse("GetNtType", missing("NT type", "ntTypes/x"));
        fake.answer("CreateNtType", &NtType::default());
    }
    fake.refuse("GetBitstream", missing("bitstream", "bitstreams/nat-x"));
    fake.answer("UploadBitstream", &Bitstream::default());
    let run = run(fake.endpoint(), &format!("apply -f {}", folder.path().display()));
    assert_eq!(lines(&run).len(), count + 1);
    let created: Vec<CreateNtTypeRequest> = fake.asked("CreateNtType");
    let nat = created.iter().find(|request| request.nt_type_id == "nat").expect("it ships");
    assert!(nat.nt_type.as_ref().unwrap().bandwidth_max_bps > 0);
    let sent: Vec<UploadBitstreamRequest> = fake.asked("UploadBitstream/part");
    let Some(Part::Header(header)) = &sent[0].part else { panic!("the header comes first") };
    assert_eq!(header.digest, Digest::of(b"an image").to_string());
    assert_eq!(header.nts, ["ntTypes/nat"]);
}
